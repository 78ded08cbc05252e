// The big plot: points to drag, the curves, and the lines from a query to its keys.

import { $, clamp, element, frame, make, padded, path, put, ticks } from "./chart.js";
import { addPoint, CURVES, movePoint, onChange, removePoint, set, state, X_RANGE } from "./state.js";
import { say } from "./words.js";

const GRID = 241;
// Pixels within which a pointer grabs a point, and may move during a click; milliseconds between two clicks.
const GRAB_PIXELS = { mouse: 12, touch: 24 }, CLICK_PIXELS = 5, DOUBLE_CLICK = 500;
// What an arrow key moves a point by; a tenth with Shift.
const STEP = 0.1;

export const queries = Float64Array.from({ length: GRID }, (_, i) => (X_RANGE[1] * i) / (GRID - 1));
export const truth = queries.map((x) => 2 * Math.sin(x) + x ** 0.8);

const dots = [], curves = {};
let chart, redraw, range = [-1, 6], held = -1, current = 0, queryX = null, fetching;
export let details = null; // query_details.js, once it is loaded

/** Fetch query_details.js and draw again. */
export const fetchDetails = () => (fetching ??= import("./query_details.js").then((found) => {
	details = found;
	redraw();
}));

// A band needs fewer than a curve.
export const bandQueries = queries.filter((_, i) => i % 2 === 0);

export function startPlot(again) {
	redraw = again;
	chart = frame($("plot"), ["curves", "weights", "dots"], again, 30);
	for (const name of CURVES) curves[name] = make("path", { class: `curve ${name}` }, chart.curves);
	chart.curves.prepend(curves.band); // under the lines
	pointer(chart.svg);
	keyboard(chart.dots);
	onChange(({ fit, lang, hidden }) => {
		if (lang || hidden) legend();
		if (fit) range = padded([...state.y, ...truth], 0.08);
	});
}

const report = (...text) => ($("plot-status").textContent = say(...text));
const within = (y) => clamp(y, ...range);

/** One frame; `drawn` has a curve for each name, or nothing. */
export function drawPlot(drawn, leftOut) {
	if (!chart.width) return;
	chart.axes({ x: padded(X_RANGE, 0.02), y: range, xTicks: ticks(X_RANGE, 5), yTicks: ticks(range, 6), xName: "x", yName: "y" });
	for (const name of CURVES) {
		const line = curves[name];
		if (line.drawn === drawn[name] && line.sy === chart.sy) continue; // nothing new, on the same axes
		[line.drawn, line.sy] = [drawn[name], chart.sy];
		put(line, { d: !drawn[name] ? "" : name === "band" ? details.area(bandQueries, drawn[name], chart) : path(queries, drawn[name], chart) });
	}
	drawDots();
	chart.weights.replaceChildren();
	if (queryX === null) return;
	if (details) $("plot-status").textContent = details.drawWeights(chart, queryX, leftOut);
	else fetchDetails();
}

function drawDots() {
	while (dots.length > state.x.length) dots.pop().remove();
	while (dots.length < state.x.length) dots.push(make("circle", { class: "dot", r: 5, role: "button", tabindex: -1 }, chart.dots));
	chart.dots.classList.toggle("many", dots.length > 150);
	current = Math.min(current, dots.length - 1);
	dots.forEach((dot, i) => {
		const cx = chart.sx(state.x[i]).toFixed(1), cy = chart.sy(state.y[i]).toFixed(1), tabindex = i === current ? 0 : -1;
		if (dot.was === cx + cy + tabindex) return;
		dot.was = cx + cy + tabindex;
		put(dot, { cx, cy, tabindex });
	});
	label();
}

/** Only the point that Tab reaches needs a label. */
const label = () => (dots[current].ariaLabel = say("point",
	{ x: state.x[current], y: state.y[current], number: current + 1, n: dots.length }));

/** Show the weights of a query at x; null for none. */
export function showQuery(x) {
	if (x === null && queryX !== null) report("hint");
	queryX = x;
	redraw();
}

function pointer(svg) {
	let from = null, moved = false, last = {};
	svg.onpointerdown = (event) => {
		from = chart.at(event);
		moved = false;
		held = chart.near(from, state.x, state.y, GRAB_PIXELS[event.pointerType] ?? GRAB_PIXELS.mouse);
		if (held < 0) return;
		event.preventDefault();
		svg.setPointerCapture(event.pointerId);
		focus(held);
		showQuery(null);
	};
	svg.onpointermove = (event) => {
		const [px, py] = chart.at(event), x = chart.sx.back(px);
		moved ||= from && Math.hypot(px - from[0], py - from[1]) > CLICK_PIXELS;
		if (held < 0) showQuery(clamp(x, ...X_RANGE) === x ? x : null);
		else if (moved) movePoint(held, x, within(chart.sy.back(py)));
	};
	svg.onpointerup = (event) => {
		const [px, py] = chart.at(event), dot = held, still = from && !moved && !event.button, time = event.timeStamp;
		[from, held] = [null, -1];
		if (!still) return;
		// Two clicks on one point remove it; one beside all points adds one.
		if (dot < 0) add(chart.sx.back(px), within(chart.sy.back(py)));
		else if (last.dot === dot && time - last.time < DOUBLE_CLICK) remove(dot);
		last = { dot, time };
	};
	svg.onpointercancel = () => ([from, held] = [null, -1]);
	svg.onpointerleave = () => showQuery(null);
}

const add = (x, y) => addPoint(x, y) || report("tooMany");
const remove = (i) => removePoint(i) || report("tooFew");

function focus(i) {
	current = clamp(i, 0, state.x.length - 1);
	drawDots();
	dots[current].focus({ preventScroll: true });
}

const MOVES = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
const TURNS = { PageDown: 1, PageUp: -1, Home: -Infinity, End: Infinity };

function keyboard(layer) {
	layer.addEventListener("keydown", (event) => {
		const i = dots.indexOf(event.target), { key, shiftKey } = event, { x, y } = state;
		if (key in MOVES) {
			const [dx, dy] = MOVES[key].map((each) => each * STEP * (shiftKey ? 0.1 : 1));
			movePoint(i, x[i] + dx, within(y[i] + dy));
		} else if (key in TURNS) {
			const order = [...x.keys()].sort((a, b) => x[a] - x[b]);
			focus(order[clamp(order.indexOf(i) + TURNS[key], 0, order.length - 1)]);
		} else if (key === "Delete" || key === "Backspace") {
			remove(i);
			focus(i);
		} else if (key === "Enter") {
			add(x[i] + 2 * STEP, y[i]);
			focus(state.x.length - 1);
		} else return;
		event.preventDefault();
	});
	// Not in the <svg>: an element there that listens to focus can be focused itself.
	chart.svg.parentElement.addEventListener("focusin", ({ target }) => {
		if (!dots.includes(target)) return;
		current = dots.indexOf(target);
		label();
		if (target.matches(":focus-visible")) report("keys");
	});
}

function legend() {
	$("legend").replaceChildren(...CURVES.map((name) => {
		const sample = make("svg", { viewBox: "0 0 26 10" });
		make("path", { class: `curve ${name}`, d: "M1 5H25" }, sample);
		const onclick = () => set({ hidden: state.hidden.symmetricDifference(new Set([name])) });
		return element("button", { ariaPressed: !state.hidden.has(name), onclick }, sample, say(name));
	}));
}
