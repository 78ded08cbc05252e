// Attention weights of every point as a query (rows) on every point as a key (columns), from 0 to the largest.

import { $, clamp, short } from "./chart.js";
import { paint } from "./shades.js";
import { set, state } from "./state.js";
import { say } from "./words.js";

// Cells drawn along a side; where several points share a cell, the largest weight is drawn.
const MAX_CELLS = 250;

const canvas = $("heat");
let order = [], cells = [], bins = [];

function resize(n, side) {
	canvas.width = canvas.height = side;
	cells = new Float64Array(side * side);
	bins = Uint16Array.from({ length: n }, (_, i) => (i * side) / n);
}

/** Draw weights (n × n), dividing each row by its mass. */
export function drawHeat({ n, weights, mass }, isDark) {
	const side = Math.min(n, MAX_CELLS);
	if (bins.length !== n) resize(n, side);
	order = Uint32Array.from(bins, (_, i) => i);
	if (state.sort) order.sort((a, b) => state.x[a] - state.x[b]);
	cells.fill(0);
	for (let i = 0; i < n; i++) {
		const from = order[i] * n, over = 1 / mass[order[i]], to = bins[i] * side;
		for (let j = 0; j < n; j++) {
			const weight = weights[from + order[j]] * over, at = to + bins[j];
			if (weight > cells[at]) cells[at] = weight;
		}
	}
	$("most").textContent = short(paint(canvas, cells, isDark));
}

/** `hover(i)` gets the point of the row under the pointer, or −1; `weight(i, j)` is that of query i on key j. */
export function onHeat(hover, weight) {
	canvas.onpointermove = ({ offsetX, offsetY }) => {
		const n = order.length;
		const [i, j] = [offsetY / canvas.clientHeight, offsetX / canvas.clientWidth].map((share) => order[clamp(Math.floor(share * n), 0, n - 1)]);
		hover(i);
		$("cell").textContent = say("cell", { query: state.x[i], key: state.x[j], weight: weight(i, j) });
	};
	canvas.onpointerleave = () => {
		hover(-1);
		$("cell").textContent = "";
	};
	$("sort").onchange = ({ target }) => set({ sort: target.checked });
}
