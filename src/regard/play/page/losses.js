// Two small charts: the left-out error against w, and against the steps of a training.

import { $, circles, clamp, frame, make, path, put, short, ticks } from "./chart.js";
import { set, state, W_MAX, W_MIN } from "./state.js";
import { say } from "./words.js";

const log = Math.log10, ENDS = [log(W_MIN), log(W_MAX)], place = (w) => clamp(log(w), ...ENDS);
let along, steps, marks;

export function startLosses(again) {
	along = frame($("loss"), ["lines"], again);
	steps = frame($("steps"), ["lines"], again);
	marks = Object.fromEntries(["tried", "sweep", "level", "here", "best"].map((name) => [name, make("path", { class: name }, along.lines)]));
	marks.name = make("text", { class: "best", "text-anchor": "middle" }, along.lines);
	marks.now = make("circle", { class: "now", r: 5.5 }, along.lines);
	for (const name of ["tries", "least"]) marks[name] = make("path", { class: name }, steps.lines);
	const { svg } = along, choose = (event) => set({ w: 10 ** clamp(along.sx.back(along.at(event)[0]), ...ENDS) });
	svg.onpointerdown = (event) => {
		svg.setPointerCapture(event.pointerId);
		choose(event);
	};
	svg.onpointermove = (event) => event.buttons && choose(event);
}

/** The last sweep (pale while points move), the current w on it, the best w, and the steps of a training. */
export function drawLoss(swept, loss, stale, trail) {
	if (!swept || !along.width) return;
	const key = [swept.version, trail.length, along.width, stale].join();
	if (marks.key !== key) drawSweep(swept, stale, trail);
	marks.key = key;
	const { sx, sy } = along, x = sx(place(state.w));
	put(marks.here, { d: `M${x} ${sy(0)}V${sy(marks.most)}` });
	put(marks.now, { cx: x, cy: sy(Math.min(loss, marks.most)) });
}

function drawSweep(swept, stale, trail) {
	const inRange = [...swept.w.keys()].filter((i) => swept.w[i] >= W_MIN / 1.6 && swept.w[i] <= W_MAX * 1.6);
	const most = (marks.most = 1.12 * Math.max(swept.meanLoss, ...inRange.map((i) => swept.loss[i])));
	along.axes({ x: ENDS, y: [0, most], yTicks: ticks([0, most], 4), xName: "w", xTicks: [-1, 0, 1, 2], xLabel: (at) => 10 ** at });
	const bx = along.sx(place(swept.bestW)), by = along.sy(swept.bestLoss);
	put(marks.sweep, { d: path(inRange.map((i) => place(swept.w[i])), inRange.map((i) => swept.loss[i]), along), class: stale ? "sweep stale" : "sweep" });
	put(marks.level, { d: path(ENDS, [swept.meanLoss, swept.meanLoss], along) });
	put(marks.best, { d: `M${bx} ${by - 6}l6 6l-6 6l-6 -6z` });
	put(marks.name, { x: bx, y: by + 21 }).textContent = `w = ${short(swept.bestW)}`;
	const tried = trail.filter(({ w, loss }) => w >= W_MIN && w <= W_MAX && loss <= most);
	put(marks.tried, { d: circles(tried.map(({ w }) => log(w)), tried.map((step) => step.loss), along, 2.5) });
}

let drawn = "";
/** Every step of a training and the least so far; epochs are numbered by how many are over. */
export function drawSteps(trail, byEpochs) {
	const key = [trail.length, trail[0]?.w, steps.width, state.lang, byEpochs].join();
	if (!steps.width || key === drawn) return;
	drawn = key;
	const losses = trail.map((step) => step.loss), first = +!byEpochs, numbers = trail.map((_, i) => i + first), last = Math.max(trail.length - byEpochs, 5);
	const most = 1.12 * losses.reduce((a, b) => Math.max(a, b), 0) || 1;
	steps.axes({ x: [first, last], y: [0, most], yTicks: ticks([0, most], 3), xName: say(byEpochs ? "epoch" : "step"), xTicks: ticks([first, last], 5) });
	let low = Infinity;
	put(marks.least, { d: path(numbers, losses.map((each) => (low = Math.min(low, each))), steps) });
	put(marks.tries, { d: circles(numbers, losses, steps, trail.length > 300 ? 1.2 : trail.length > 60 ? 1.8 : 3.5) });
}
