// The big plot: points to drag, the curves, and the lines from a query to its keys.

import { $, clamp, frame, make, padded, path, put, short, ticks } from "./chart.js";
import { addPoint, CURVES, movePoint, onChange, removePoint, set, state, X_RANGE } from "./state.js";
import { say } from "./words.js";

const GRID = 241;
// Pixels within which a pointer takes hold of a point and a click stays a click; milliseconds between two clicks.
const REACH = { mouse: 12, touch: 24 }, STILL = 5, TWICE = 500;
// What an arrow key moves a point by; a tenth with Shift.
const STEP = 0.1;

export const queries = Float64Array.from({ length: GRID }, (_, i) => (X_RANGE[1] * i) / (GRID - 1));
export const truth = queries.map((x) => 2 * Math.sin(x) + x ** 0.8);

const dots = [], curves = {};
let chart, redraw, range = [-1, 6], held = -1, current = 0, asking = null, fetching;
export let sight = null; // looks.js, once it was needed

/** Fetch looks.js and draw again. */
export const fetchSight = () => (fetching ??= import("./looks.js").then((found) => {
	sight = found;
	redraw();
}));

// A band needs fewer than a curve.
export const bandQueries = queries.filter((_, i) => i % 2 === 0);

export function startPlot(again) {
	redraw = again;
	chart = frame($("plot"), ["curves", "looks", "dots"], again, 30);
	for (const name of CURVES) curves[name] = make("path", { class: `curve ${name}` }, chart.curves);
	chart.curves.prepend(curves.band); // under the lines
	pointer(chart.svg);
	keyboard(chart.dots);
	onChange(({ fit, lang, hidden }) => {
		if (lang || hidden) legend();
		if (fit) range = padded([...state.y, ...truth], 0.08);
	});
}

const tell = (...told) => ($("told").textContent = say(...told));
const within = (y) => clamp(y, ...range);

/** One frame; `drawn` has a curve for each name, or nothing. */
export function drawPlot(drawn, leftOut) {
	if (!chart.width) return;
	chart.axes({ x: padded(X_RANGE, 0.02), y: range, xTicks: ticks(X_RANGE, 5), yTicks: ticks(range, 6), xName: "x", yName: "y" });
	for (const name of CURVES) {
		const line = curves[name];
		if (line.drawn === drawn[name] && line.sy === chart.sy) continue; // nothing new, on the same axes
		[line.drawn, line.sy] = [drawn[name], chart.sy];
		put(line, { d: !drawn[name] ? "" : name === "band" ? sight.area(bandQueries, drawn[name], chart) : path(queries, drawn[name], chart) });
	}
	drawDots();
	chart.looks.replaceChildren();
	if (asking === null) return;
	if (sight) $("told").textContent = sight.drawLooks(chart, asking, leftOut);
	else fetchSight();
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

/** Only the point that can be reached needs a name. */
const label = () => (dots[current].ariaLabel = say("point",
	{ x: short(state.x[current]), y: short(state.y[current]), number: current + 1, n: dots.length }));

/** Ask what a query at x looks at; null for none. */
export function askAbout(x) {
	if (x === null && asking !== null) tell("hint");
	asking = x;
	redraw();
}

function pointer(svg) {
	let from = null, moved = false, last = {};
	svg.onpointerdown = (event) => {
		from = chart.at(event);
		moved = false;
		held = chart.near(from, state.x, state.y, REACH[event.pointerType] ?? REACH.mouse);
		if (held < 0) return;
		event.preventDefault();
		svg.setPointerCapture(event.pointerId);
		focus(held);
		askAbout(null);
	};
	svg.onpointermove = (event) => {
		const [px, py] = chart.at(event), x = chart.sx.back(px);
		moved ||= from && Math.hypot(px - from[0], py - from[1]) > STILL;
		if (held < 0) askAbout(clamp(x, ...X_RANGE) === x ? x : null);
		else if (moved) movePoint(held, x, within(chart.sy.back(py)));
	};
	svg.onpointerup = (event) => {
		const [px, py] = chart.at(event), dot = held, still = from && !moved && !event.button, time = event.timeStamp;
		[from, held] = [null, -1];
		if (!still) return;
		// Two clicks on one point remove it; one beside all points adds one.
		if (dot < 0) add(chart.sx.back(px), within(chart.sy.back(py)));
		else if (last.dot === dot && time - last.time < TWICE) remove(dot);
		last = { dot, time };
	};
	svg.onpointercancel = () => ([from, held] = [null, -1]);
	svg.onpointerleave = () => askAbout(null);
}

const add = (x, y) => addPoint(x, y) || tell("tooMany");
const remove = (i) => removePoint(i) || tell("tooFew");

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
		if (target.matches(":focus-visible")) tell("keys");
	});
}

function legend() {
	$("legend").replaceChildren(...CURVES.map((name) => {
		const button = document.createElement("button"), sample = make("svg", { viewBox: "0 0 26 10" });
		make("path", { class: `curve ${name}`, d: "M1 5H25" }, sample);
		button.ariaPressed = !state.hidden.has(name);
		button.append(sample, say(name));
		button.onclick = () => set({ hidden: state.hidden.symmetricDifference(new Set([name])) });
		return button;
	}));
}
