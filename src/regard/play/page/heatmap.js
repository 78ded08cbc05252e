// Attention weights of every point as a query (rows) on every point as a key (columns), from 0 to the largest.

import { $, clamp, short } from "./chart.js";
import { set, state } from "./state.js";
import { say } from "./words.js";

// Cells drawn along a side; where several points share a cell, the largest weight is drawn.
const MAX_CELLS = 250, SHADES = 256;

function ramp(...colours) {
	const parts = colours.map((colour) => [4, 2, 0].map((at) => parseInt(colour.slice(at, at + 2), 16)));
	return Uint32Array.from({ length: SHADES }, (_, i) => {
		const at = (i / SHADES) * (parts.length - 1), low = Math.floor(at);
		return parts[low].reduce((all, each, c) => all * 256 + Math.round(each + (at - low) * (parts[low + 1][c] - each)), 255);
	});
}

const canvas = $("heat"), context = canvas.getContext("2d");
const light = ramp("ffffff", "dcebf6", "9ccbe6", "3f95c9", "0b5c9b", "08264d");
const dark = ramp("10161c", "12314e", "175c93", "3f95c9", "9ccbe6", "f4faff");
let order = [], cells = [], bins = [], image = null;

function resize(n, side) {
	canvas.width = canvas.height = side;
	[cells, image] = [new Float64Array(side * side), context.createImageData(side, side)];
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
	let most = 0;
	for (let i = 0; i < cells.length; i++) if (cells[i] > most) most = cells[i];
	const colours = isDark ? dark : light, pixels = new Uint32Array(image.data.buffer), unit = (SHADES - 1) / most;
	for (let i = 0; i < cells.length; i++) pixels[i] = colours[(cells[i] * unit) | 0];
	context.putImageData(image, 0, 0);
	$("most").textContent = short(most);
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
