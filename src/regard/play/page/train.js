// Training on the server: every step is shown, at a pace that can be followed.

import { $ } from "./chart.js";
import { KERNELS } from "./kernels.js";
import { ask, stop } from "./server.js";
import { onChange, set, state } from "./state.js";
import { say } from "./words.js";

// Milliseconds in which all steps are shown, and at most for one step.
const ALL_STEPS = 1800, ONE_STEP = 220;

export const trail = []; // steps shown so far
export let byEpochs = false; // gradient descent is counted in epochs, as in the notes, and its first value is before any
let unshown = [], ending = null, running = 0, shownAt = 0, redraw;

const report = (...text) => ($("training").textContent = say(...text));

export function startTraining(again) {
	redraw = again;
	$("train").onclick = train;
	$("stop").onclick = stop;
	onChange(({ kernel, lang, x }) => {
		if (kernel || lang) offer();
		// What was learned from other points, or with another kernel, is no longer valid.
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
	[unshown, ending, running, trail.length, byEpochs] = [[], null, mine, 0, optimizer === "sgd"];
	offer();
	report("asking");
	ask({ do: "train", x: [...x], y: [...y], kernel, optimizer, w }, (reply) => {
		if (running !== mine) return;
		if (reply.did === "queued" && reply.before) report("waiting", reply);
		else if (reply.did === "started") report("running");
		else if (reply.did === "step") unshown.push(reply);
		else if (reply.did === "trained") ending = { ...reply, kernel, still: KERNELS[kernel].staircase && byEpochs };
		else if (reply.did === "dropped" || reply.did === "stopped") finish("stoppedEarly");
		else if (reply.did === "refused") finish(reply.error ? "refused" : "offline", reply);
		redraw();
	});
}

/** Called in every frame: show the next steps. True while there is more to come. */
export function advance(time) {
	if (running && unshown.length) {
		const due = Math.floor((time - shownAt) / Math.min(ALL_STEPS / (unshown.length + trail.length), ONE_STEP));
		if (due) shownAt = time;
		trail.push(...unshown.splice(0, Math.min(due, Math.ceil(unshown.length / 8) + 3)));
		const least = trail.reduce((low, { loss }) => Math.min(low, loss), Infinity);
		if (due) report(byEpochs ? "epochStatus" : "stepStatus", { step: trail.length - byEpochs, w: trail.at(-1).w, least });
	} else if (running && ending) {
		const { kernel, w, loss, stopped, still } = ending;
		set({ learned: { kernel, w }, w });
		finish(still ? "noSlope" : byEpochs ? (stopped ? "epochsStopped" : "trainedEpochs") : stopped ? "trainedStopped" : "trained",
			{ steps: trail.length - byEpochs, w, loss });
	}
	return running;
}

function finish(...text) {
	running = 0;
	report(...text);
	offer();
	redraw();
}

/** Forget the last training. */
export function resetTraining() {
	if (running) stop();
	trail.length = 0;
	finish("untrained");
}
