// The diagnosis in words, with a gauge from river to needle.

import { $, clamp, short } from "./chart.js";
import { diagnose } from "./diagnosis.js";
import { state } from "./state.js";
import { say } from "./words.js";

// How far w may be from the best, in powers of ten, before the gauge is at its end.
const DECADES = 1.5;

function worse(excess) {
	if (excess <= 0) return say("noWorse");
	if (excess >= 2) return say("worseTimes", { times: Math.round(excess + 1) });
	return say("worseBy", { percent: `${(100 * Math.max(excess, 0.001)).toFixed(excess < 0.1 ? 1 : 0)}\u00a0%` });
}

function why({ constant, verdict, excess, nothing }, n, neighbours) {
	const kind = constant ? "Constant" : verdict === "thin" ? (neighbours < 2 ? "Alone" : "Thin")
		: verdict === "thick" ? "Thick" : nothing ? "Nothing" : "Right";
	return say(`why${kind}`, { attends: say("attends", { neighbours, n }), end: worse(excess) });
}

function advice({ constant, verdict, factor, nothing }) {
	if (constant || nothing) return constant ? "" : say("adviceNothing");
	const times = Math.max(factor, 1 / factor), factorText = times < 100 ? String(+times.toPrecision(2)) : "100+";
	return verdict === "right" ? say("adviceRight") : say(factor < 1 ? "widen" : "narrow", { times: factorText });
}

const write = (id, text) => $(id).textContent !== text && ($(id).textContent = text);

/** Show the diagnosis of this frame; `swept` is what the last sweep found. */
export function showVerdict(loss, fitted, neighbours, swept) {
	const n = state.x.length, found = diagnose(state.w, loss, n, swept);
	$("verdict").dataset.verdict = found.verdict;
	$("needle").style.left = `${50 + 50 * clamp(-Math.log10(found.factor) / DECADES, -0.98, 0.98)}%`;
	write("picture", say(found.verdict));
	write("why", why(found, n, neighbours));
	write("advice", advice(found));
	const numbers = { loo: loss, fitted, neighbours, bestW: swept.bestW, bestLoss: Math.min(swept.bestLoss, loss) };
	for (const name in numbers) write(name, short(numbers[name]));
}
