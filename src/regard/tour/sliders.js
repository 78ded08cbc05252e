// Sliders for w at some stops of the tour: what they show is computed here, by the arithmetic of the playground.

import { $, clamp, element, frame, make, padded, path, put, short, ticks } from "./chart.js";
import { diagnose, median, sweep } from "./diagnosis.js";
import { attention, buffers, curve, error, leftOut, row } from "./pooling.js";
import { paint } from "./shades.js";

const { x_train: x, y_train: y, x_test: queries, y_truth: truth, words } = JSON.parse($("slider-data").textContent);
// The slider's range of w, its steps, and where it starts; the query that one of the stops asks.
const W_MIN = 0.05, W_MAX = 500, STEPS = 1000, START = 1, QUERY = 2.5;
const KERNEL = "gaussian", LOG_ENDS = [Math.log10(W_MIN), Math.log10(W_MAX)];
const n = x.length, into = buffers(n), night = matchMedia("(prefers-color-scheme: dark)");

const say = (name, values) => words[name].replace(/\{(\w+)\}/g, (_, part) =>
	typeof values[part] === "number" ? short(values[part]) : values[part]);
const weightsOf = (w, q, keys) => {
	const weights = new Float64Array(keys.length), mass = row(KERNEL, w, q, keys, weights);
	return weights.map((each) => each / mass);
};
const effective = (weights) => 1 / weights.reduce((sum, each) => sum + each * each, 0);

let swept;
/** The left-out error along w; the same for all stops. */
const found = () => (swept ??= sweep(KERNEL, Float64Array.from(x), Float64Array.from(y)));

// ---- panels: each draws itself for a w

function drawing(box, name, again, layers, left) {
	const svg = make("svg", { role: "img", "aria-label": words[name] }, box);
	return frame(svg, layers, again, left);
}

/** The curve through the points; keys are as large as their weight for the query, if there is one. */
function curvePanel(box, again, query) {
	const chart = drawing(box, "curve", again, ["lines", "dots"], 30), range = padded([...y, ...truth], 0.08);
	const lines = ["truth", "at", "fit"].map((name) => make("path", { class: name }, chart.lines));
	const dots = x.map(() => make("circle", { class: "dot" }, chart.dots));
	return (w) => {
		if (!chart.width) return;
		chart.axes({ x: [0, 5], y: range, xTicks: ticks([0, 5], 5), yTicks: ticks(range, 5), xName: "x", yName: "y" });
		put(lines[0], { d: path(queries, truth, chart) });
		if (query) put(lines[1], { d: `M${chart.sx(QUERY)} ${chart.sy(range[0])}V${chart.sy(range[1])}` });
		put(lines[2], { d: path(queries, curve(KERNEL, w, queries, x, y), chart) });
		const weights = query && weightsOf(w, QUERY, x), most = query && Math.max(...weights);
		dots.forEach((dot, i) => put(dot, { cx: chart.sx(x[i]), cy: chart.sy(y[i]), r: query ? 1.5 + 7 * Math.sqrt(weights[i] / most) : 4 }));
	};
}

/** The left-out error against w, and where w is. */
function lossPanel(box, again) {
	const chart = drawing(box, "error", again, ["lines"], 36);
	const [line, here, now] = [["path", "sweep"], ["path", "at"], ["circle", "now"]].map(([tag, name]) => make(tag, { class: name }, chart.lines));
	const { w: widths, loss, meanLoss } = found(), inRange = [...widths.keys()].filter((i) => widths[i] >= W_MIN && widths[i] <= W_MAX);
	const most = 1.12 * n * Math.max(meanLoss, ...inRange.map((i) => loss[i]));
	return (w) => {
		if (!chart.width) return;
		chart.axes({ x: LOG_ENDS, y: [0, most], yTicks: ticks([0, most], 4), xName: "w", xTicks: [-1, 0, 1, 2], xLabel: (at) => 10 ** at });
		put(line, { d: path(inRange.map((i) => Math.log10(widths[i])), inRange.map((i) => n * loss[i]), chart) });
		const left = n * error(leftOut(KERNEL, w, x, y, into), y), at = chart.sx(Math.log10(w));
		put(here, { d: `M${at} ${chart.sy(0)}V${chart.sy(most)}` });
		put(now, { cx: at, cy: chart.sy(left), r: 5 });
	};
}

/** Weights of every query (a row) on every key (a column). */
function heatPanel(box, rows, columns) {
	const canvas = element("canvas", { width: columns.length, height: rows.length, role: "img", ariaLabel: words.heat });
	const cells = new Float64Array(rows.length * columns.length);
	box.append(element("div", { className: "heat" }, canvas, element("span", { textContent: words.heat })));
	return (w, queryOrder, keyOrder) => {
		queryOrder.forEach((from, i) => {
			const weights = weightsOf(w, rows[from], columns);
			keyOrder.forEach((key, j) => (cells[i * columns.length + j] = weights[key]));
		});
		return paint(canvas, cells, night.matches);
	};
}

const straight = (all) => [...all.keys()];
/** An order that looks like none, and is the same at every visit. */
const mixed = (all) => straight(all).sort((a, b) => ((a * 7919 + 17) % 97) - ((b * 7919 + 17) % 97));

// ---- stops: each makes its panels, and returns what draws them and says what they show

const STOPS = {
	query(box, again) {
		const draw = curvePanel(box, again, true);
		return (w) => {
			draw(w);
			const weights = weightsOf(w, QUERY, x), answer = weights.reduce((sum, each, i) => sum + each * y[i], 0);
			return say("query", { x: QUERY, n, keys: effective(weights), answer });
		};
	},
	order(box, again) {
		const draw = heatPanel(box, queries, x), sorted = element("input", { type: "checkbox", checked: true, onchange: again });
		box.append(element("label", {}, sorted, ` ${words.sorted}`));
		return (w) => {
			const most = draw(w, ...[queries, x].map(sorted.checked ? straight : mixed));
			return say("order", { most, keys: median(Float64Array.from(queries, (q) => effective(weightsOf(w, q, x)))) });
		};
	},
	loss(box, again) {
		const draws = [curvePanel(box, again, false), lossPanel(box, again)];
		return (w) => {
			for (const draw of draws) draw(w);
			const { bestW: best, bestLoss } = found();
			return say("loss", { loss: n * error(leftOut(KERNEL, w, x, y, into), y), least: n * bestLoss, best });
		};
	},
	verdict(box, again) {
		const draws = [heatPanel(box, x, x), curvePanel(box, again, false)], order = straight(x);
		return (w) => {
			for (const draw of draws) draw(w, order, order);
			const { answer, neighbours, leftOut: others } = attention(KERNEL, w, x, y, into), left = error(others, y);
			return say("verdict", { verdict: words[diagnose(w, left, n, found()).verdict], keys: median(neighbours), fitted: error(answer, y), left });
		};
	},
};

function start(box) {
	let w = START, asked = 0;
	const again = () => (asked ||= requestAnimationFrame(draw));
	const value = element("output"), panels = element("div", { className: "panels" }), reading = element("p", { ariaLive: "polite" });
	const input = element("input", { type: "range", ariaLabel: words.move, max: STEPS, value: (STEPS * Math.log(w / W_MIN)) / Math.log(W_MAX / W_MIN) });
	const show = STOPS[box.dataset.shows](panels, again);
	function draw() {
		asked = 0;
		value.textContent = input.ariaValueText = say("value", { w, h: 1 / w });
		reading.textContent = show(w);
	}
	input.oninput = () => {
		w = W_MIN * (W_MAX / W_MIN) ** (clamp(+input.value, 0, STEPS) / STEPS);
		again();
	};
	box.append(element("label", { className: "move" }, `${words.move} `, value, input), panels, reading);
	box.hidden = false;
	night.addEventListener("change", again);
	again();
}

for (const box of document.querySelectorAll(".slider")) start(box);
