// Training on the server: every step is shown, at a pace that can be followed.

import { $, short } from "./chart.js";
import { KERNELS } from "./kernels.js";
import { ask, stop } from "./server.js";
import { onChange, set, state } from "./state.js";
import { say } from "./words.js";

// The longest that showing all steps takes, and the longest for one of few, in milliseconds.
const SHOW = 1800, ONE = 220;

export const trail = []; // steps shown so far
let unseen = [], ending = null, running = 0, shownAt = 0, redraw;

const tell = (...told) => ($("training").textContent = say(...told));

export function startTraining(again) {
	redraw = again;
	$("train").onclick = train;
	$("stop").onclick = stop;
	onChange(({ kernel, lang, x }) => {
		if (kernel || lang) offer();
		// What was learned from other points, or with another kernel, is of no use any more.
		if (!running && (trail.length ? kernel || x : lang)) resetTraining();
	});
}

function offer() {
	const { fixed } = KERNELS[state.kernel];
	$("train").disabled = fixed || running;
	$("train").title = fixed ? say("notLearned") : "";
	$("stop").disabled = !running;
}

function train() {
	const { kernel, w, x, y } = state, optimizer = $("optimizer").value, mine = performance.now();
	[unseen, ending, running, trail.length] = [[], null, mine, 0];
	offer();
	tell("asking");
	ask({ do: "train", x: [...x], y: [...y], kernel, optimizer, w }, (told) => {
		if (running !== mine) return;
		if (told.did === "queued" && told.before) tell("waiting", told);
		else if (told.did === "started") tell("running");
		else if (told.did === "step") unseen.push(told);
		else if (told.did === "trained") ending = { ...told, kernel, still: KERNELS[kernel].staircase && optimizer === "sgd" };
		else if (told.did === "dropped" || told.did === "stopped") finish("stoppedEarly");
		else if (told.did === "refused") finish(told.error ? "refused" : "offline", told);
		redraw();
	});
}

/** Called in every frame: show the next steps. True while there is more to come. */
export function advance(time) {
	if (running && unseen.length) {
		const due = Math.floor((time - shownAt) / Math.min(SHOW / (unseen.length + trail.length), ONE));
		if (due) shownAt = time;
		trail.push(...unseen.splice(0, Math.min(due, Math.ceil(unseen.length / 8) + 3)));
		const least = trail.reduce((low, { loss }) => Math.min(low, loss), Infinity);
		if (due) tell("stepTold", { step: trail.length, w: short(trail.at(-1).w), least: short(least) });
	} else if (running && ending) {
		const { kernel, w, loss, stopped, still } = ending;
		set({ learned: { kernel, w }, w });
		finish(still ? "noSlope" : stopped ? "trainedStopped" : "trained", { steps: trail.length, w: short(w), loss: short(loss) });
	}
	return running;
}

function finish(...told) {
	running = 0;
	tell(...told);
	offer();
	redraw();
}

/** Back to before any training. */
export function resetTraining() {
	if (running) stop();
	trail.length = 0;
	finish("untrained");
}
