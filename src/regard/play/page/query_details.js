// Details of a query: lines to its keys, their weights, the interval, and whether it is far. Loaded on demand.

import { clamp, make, path, short } from "./chart.js";
import { KERNELS } from "./kernels.js";
import { row, weighted } from "./pooling.js";
import { state } from "./state.js";
import { say } from "./words.js";

// Lines drawn, width of the thickest, the least share of it; keys listed, and the least percent.
const MAX_LINES = 60, LINE_WIDTH = 7, MIN_LINE = 0.004, MAX_LISTED = 5, MIN_PERCENT = 0.05;
// As in regard.model: coverage, mass below which a sum is redone, slack of ranks; where kernels end, and what is far.
const COVERAGE = 0.9, MIN_REST = 1e-6, ROUNDING = 1e-9;
const ENDS = { gaussian: 3, laplace: 4.6 }, USUAL = 0.9, APART = 2, SAMPLE = 200;
// Drawn in place of infinity.
const BEYOND = 1e7;

/**
 * [lower, upper] ends at every query: jackknife+, the ranks of f₋ᵢ(q) ± |residual of i| over all points i. Infinite
 * where points are too few for the rank.
 */
export function intervals(kernel, w, queries, x, y, leftOut) {
	const n = x.length, rank = Math.ceil(COVERAGE * (n + 1) - ROUNDING), [weights, others, down, up] = [0, 0, 0, 0].map(() => new Float64Array(n));
	const ends = [-1, 1].map((side) => new Float64Array(queries.length).fill(side * Infinity));
	for (let at = 0; at < queries.length && rank <= n; at++) {
		const q = queries[at], mass = row(kernel, w, q, x, weights), f = weighted(weights, y) / mass;
		for (let i = 0; i < n; i++) {
			const rest = mass - weights[i], size = Math.abs(y[i] - leftOut[i]);
			let without = f - (weights[i] * (y[i] - f)) / rest;
			if (rest < MIN_REST * mass) without = ((sum) => weighted(others, y) / sum)(row(kernel, w, q, x, others, i));
			down[i] = size - without;
			up[i] = size + without;
		}
		ends[0][at] = -ranked(down, rank - 1);
		ends[1][at] = ranked(up, rank - 1);
	}
	return ends;
}

/** The number that sorting would put at a place (quickselect); reorders the numbers. */
function ranked(numbers, place) {
	for (let low = 0, high = numbers.length - 1; low < high; ) {
		const pivot = numbers[(low + high) >> 1];
		let i = low, j = high;
		while (i <= j) {
			while (numbers[i] < pivot) i++;
			while (numbers[j] > pivot) j--;
			if (i > j) break;
			const swapped = numbers[i];
			numbers[i++] = numbers[j];
			numbers[j--] = swapped;
		}
		if (place <= j) high = j;
		else if (place >= i) low = i;
		else break;
	}
	return numbers[place];
}

/** The band between two ends as one closed path. */
export function area(queries, ends, chart) {
	const [low, high] = ends.map((all) => path(queries, all.map((end) => clamp(end, -BEYOND, BEYOND)), chart));
	return `${low}L${high.slice(1).split("L").reverse().join("L")}Z`;
}

/** Whether all points are beyond the reach of the kernel at q, and farther than they usually are from each other. */
export function isFar(kernel, w, q, x) {
	const { fixed, score, value } = KERNELS[kernel], n = x.length, count = Math.min(n, SAMPLE), apart = new Float64Array(count);
	const nearest = (from, skip) => w * x.reduce((low, each, j) => (j === skip ? low : Math.min(low, Math.abs(each - from))), Infinity);
	if (fixed) return false; // a score that is no distance
	const away = nearest(q);
	if (!score) return value(away ** 2) === 0;
	for (let k = 0; k < count; k++) {
		const i = Math.trunc((k * (n - 1)) / (count - 1));
		apart[k] = nearest(x[i], i);
	}
	const place = USUAL * (count - 1), below = Math.floor(place), [low, high] = [0, 1].map((more) => apart.sort()[Math.min(below + more, count - 1)]);
	return away > Math.max(ENDS[kernel] ?? 1, APART * (low + (place - below) * (high - low)));
}

/** Draw lines from a query to its keys, as thick as their weights; returns two lines of text. */
export function drawWeights(chart, q, leftOut) {
	const { sx, sy } = chart, { x, y, kernel, w, hidden } = state, weights = new Float64Array(x.length), mass = row(kernel, w, q, x, weights);
	const order = [...x.keys()].sort((a, b) => weights[b] - weights[a]).slice(0, MAX_LINES), most = weights[order[0]];
	const answer = weighted(weights, y) / mass, [x1, y1] = [sx(q), sy(answer)], percent = (i) => (100 * weights[i]) / mass;
	for (const j of order) {
		const share = weights[j] / most;
		if (share > MIN_LINE) make("line", { x1, y1, x2: sx(x[j]), y2: sy(y[j]), "stroke-width": LINE_WIDTH * share }, chart.weights);
	}
	make("circle", { class: "now", r: 6, cx: x1, cy: y1 }, chart.weights);
	const sentences = [say("queryText", { x: q, y: answer, neighbours: mass ** 2 / weighted(weights, weights), most: percent(order[0]) })];
	if (!hidden.has("band")) {
		const [[low], [high]] = intervals(kernel, w, [q], x, y, leftOut);
		sentences.push(low > -Infinity ? say("between", { low, high }) : say("tooFewSure"));
	}
	if (isFar(kernel, w, q, x)) sentences.push(say("far"));
	const listed = order.slice(0, MAX_LISTED).filter((i) => percent(i) > MIN_PERCENT).map((i) => `(${short(x[i])}, ${short(y[i])}) ${short(percent(i))} %`);
	return `${sentences.join(" ")}\n${say("largestWeights", { list: listed.join(" · ") })}`;
}
