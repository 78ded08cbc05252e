// The state of the page, its listeners, and the link that restores it.

import { clamp } from "./chart.js";
import { KERNELS } from "./kernels.js";

export const W_MIN = 0.05, W_MAX = 500, X_RANGE = [0, 5], VIEWS = ["points", "table", "dates"];
export const CURVES = ["truth", "average", "nearest", "attention", "learned", "band"];
const SIZES = [20, 50, 100, 200, 500], MAX_POINTS = 1000, MIN_POINTS = 2;

export const state = {
	view: "points", lang: "", theme: "", kernel: "gaussian", w: 1, sort: true, hidden: new Set(["band", "nearest"]),
	n: 50, seed: 0, edited: false, x: new Float64Array(0), y: new Float64Array(0),
	learned: null, // {kernel, w} of the last training
	date: "",
};

const listeners = [];
/** Listeners are called with the changes; {fit: true} if new points must fit the axes. */
export const onChange = (listener) => listeners.push(listener);

export function set(changes) {
	Object.assign(state, changes);
	for (const listener of listeners) listener(changes);
}

// Four decimals are finer than any pixel, and keep links short.
const round = (number) => Math.round(number * 1e4) / 1e4;
// The first edit rounds all points, as links do.
const own = () => (state.edited ? [state.x, state.y] : [state.x.map(round), state.y.map(round)]);

export function movePoint(i, px, py) {
	const [x, y] = own();
	x[i] = round(clamp(px, ...X_RANGE));
	y[i] = round(py);
	set({ edited: true, x, y });
}

/** False if there are too many points already. */
export function addPoint(px, py) {
	const [x, y] = own();
	if (x.length >= MAX_POINTS) return false;
	set({ edited: true, x: Float64Array.of(...x, round(clamp(px, ...X_RANGE))), y: Float64Array.of(...y, round(py)) });
	return true;
}

/** False if too few would be left. */
export function removePoint(i) {
	const [x, y] = own(), others = (_, j) => j !== i;
	if (x.length <= MIN_POINTS) return false;
	set({ edited: true, x: x.filter(others), y: y.filter(others) });
	return true;
}

/** The notes' data, from the server that has them. */
export async function loadNotes(n, seed) {
	const { x, y } = await (await fetch(`/notes?n=${n}&seed=${seed}`)).json();
	set({ n, seed, edited: false, fit: true, learned: null, x: Float64Array.from(x), y: Float64Array.from(y) });
}

/** The state as the fragment of a link. */
export function fragment() {
	const { lang, theme, view, kernel, w, sort, hidden, edited, x, y, n, seed, learned, date } = state;
	const parts = { lang, theme, view, kernel, w: +w.toPrecision(6), sort: sort ? "" : 0, hide: [...hidden].filter((name) => name !== "band").join(".") || "none",
		band: hidden.has("band") ? "" : 1,
		points: edited ? Array.from(x, (each, i) => `${each},${y[i]}`).join("_") : "", notes: edited ? "" : `${n}.${seed}`,
		learned: learned ? `${learned.kernel},${learned.w}` : "", date: encodeURIComponent(date) };
	return "#" + Object.keys(parts).filter((name) => parts[name] !== "").map((name) => `${name}=${parts[name]}`).join("&");
}

/** Restore the state from a fragment; invalid parts are ignored. */
export async function restore(text) {
	const parts = Object.fromEntries(new URLSearchParams(text.slice(1))), changes = {};
	const choices = { lang: ["en", "zh"], theme: ["light", "dark"], view: VIEWS, kernel: Object.keys(KERNELS) };
	for (const name in choices) if (choices[name].includes(parts[name])) changes[name] = parts[name];
	if (parts.w >= 1e-3 && parts.w <= 1e5) changes.w = +parts.w;
	changes.sort = parts.sort !== "0";
	if (parts.date) changes.date = parts.date;
	if (parts.hide) changes.hidden = new Set(CURVES.filter((name) => (name === "band" ? !parts.band : parts.hide.split(".").includes(name))));
	set(changes);
	const points = (parts.points ?? "").split("_").map((pair) => pair.split(",").map(Number));
	const good = points.every(([x, y]) => clamp(x, ...X_RANGE) === x && Math.abs(y) < 1e6);
	if (good && clamp(points.length, MIN_POINTS, MAX_POINTS) === points.length) {
		const [x, y] = [0, 1].map((at) => Float64Array.from(points, (pair) => round(pair[at])));
		set({ edited: true, fit: true, learned: null, x, y });
	} else {
		const [n, seed] = (parts.notes ?? "").split(".").map(Number);
		await loadNotes(SIZES.includes(n) ? n : 50, seed >= 0 && seed < 1e4 ? Math.floor(seed) : 0);
	}
	const [kernel, w] = (parts.learned ?? "").split(",");
	if (Object.hasOwn(KERNELS, kernel) && w > 0) set({ learned: { kernel, w: +w } });
}
