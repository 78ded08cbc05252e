// The page: every change requests a frame, and a frame computes and draws everything once.

import { $, short } from "./chart.js";
import { median } from "./diagnosis.js";
import { drawHeat, onHeat } from "./heatmap.js";
import { KERNELS } from "./kernels.js";
import { drawLoss, drawSteps, startLosses } from "./losses.js";
import { bandQueries, details, drawPlot, fetchDetails, queries, showQuery, startPlot, truth } from "./plot.js";
import { attention, buffers, curve, error, mean, nearest } from "./pooling.js";
import { CURVES, fragment, loadNotes, onChange, restore, set, state, VIEWS, W_MAX, W_MIN } from "./state.js";
import { advance, byEpochs, resetTraining, startTraining, trail } from "./train.js";
import { showVerdict } from "./verdict.js";
import { say } from "./words.js";

// Milliseconds of rest before the loss curve is computed, and before the link is updated.
const REST = 40, LINK_REST = 400;
const SLIDER = 1000;

const night = matchMedia("(prefers-color-scheme: dark)"), isDark = () => (state.theme ? state.theme === "dark" : night.matches);
const worker = new Worker("/sweep.js", { type: "module" });
let into = buffers(0), swept = null, version = 0, sweeping = false, asked = 0, resting, linking;

function again() {
	asked ||= requestAnimationFrame(frame);
}

const DRAWN = {
	band: ({ kernel, w, x, y }) => (details ? details.intervals(kernel, w, bandQueries, x, y, into.leftOut) : void fetchDetails()),
	truth: () => truth,
	average: ({ y }) => queries.map(() => y, (y = mean(y))),
	nearest: ({ x, y }) => nearest(queries, x, y),
	attention: ({ kernel, w, x, y }) => curve(kernel, w, queries, x, y),
	learned: ({ learned, x, y }) => learned && curve(learned.kernel, learned.w, queries, x, y),
};

function frame(time) {
	asked = 0;
	const more = advance(time), { kernel, w, x, y, view, hidden } = state;
	if (x.length && view === "points") {
		if (into.n !== x.length) into = buffers(x.length);
		attention(kernel, w, x, y, into);
		const loss = error(into.leftOut, y);
		drawPlot(Object.fromEntries(CURVES.map((name) => [name, !hidden.has(name) && DRAWN[name](state)])), into.leftOut);
		drawHeat(into, isDark());
		if (swept) showVerdict(loss, error(into.answer, y), median(into.neighbours), swept);
		drawLoss(swept, loss, swept?.version !== version, trail);
		drawSteps(trail, byEpochs);
	}
	if (more) again();
}

function sweep() {
	if (sweeping || !state.x.length) return;
	sweeping = true;
	worker.postMessage({ version, kernel: state.kernel, x: state.x, y: state.y });
}

worker.onmessage = ({ data }) => {
	sweeping = false;
	swept = data;
	if (data.version !== version) sweep();
	again();
};

function show({ w, lang, kernel, n, theme, view, sort, x }) {
	if (w || lang || kernel) {
		$("w-value").textContent = `w = ${short(state.w)}${state.kernel === "dot" ? "" : ` · h = ${short(1 / state.w)}`}`;
		$("w").value = Math.round((SLIDER * Math.log(state.w / W_MIN)) / Math.log(W_MAX / W_MIN));
		$("w").ariaValueText = $("w-value").textContent;
	}
	if (lang) {
		$("kernel").replaceChildren(...Object.keys(KERNELS).map((name) => new Option(say(`kernel_${name}`), name)));
		$("lang").textContent = lang === "en" ? "中文" : "English";
	}
	if (lang || kernel) $("kernel").value = state.kernel;
	if (n) $("n").value = n;
	if (sort !== undefined) $("sort").checked = sort;
	if (theme) document.documentElement.dataset.theme = theme;
	if (view && view !== "points") import(`./${view}.js`);
	for (const name of view ? VIEWS : []) {
		$(name).hidden = view !== name;
		$(`tab-${name}`).ariaSelected = view === name;
		$(`tab-${name}`).tabIndex = view === name ? 0 : -1;
	}
	for (const name of view ? ["svg", "png", "python"] : []) $(name).disabled = view !== "points";
	if (x || kernel) {
		version++;
		clearTimeout(resting);
		resting = setTimeout(sweep, REST);
	}
	clearTimeout(linking);
	linking = setTimeout(() => history.replaceState(null, "", location.pathname + fragment()), LINK_REST);
	again();
}

onChange(show);
$("kernel").onchange = ({ target }) => set({ kernel: target.value });
$("w").oninput = ({ target }) => set({ w: W_MIN * (W_MAX / W_MIN) ** (target.value / SLIDER) });
$("n").onchange = ({ target }) => loadNotes(+target.value, state.seed);
$("again").onclick = () => loadNotes(state.n, (state.seed + 1) % 1e4);
$("reset").onclick = () => {
	resetTraining();
	set({ w: 1 });
	loadNotes(state.n, state.seed);
};
$("lang").onclick = () => set({ lang: state.lang === "en" ? "zh" : "en" });
$("theme").onclick = () => set({ theme: isDark() ? "light" : "dark" });
for (const view of VIEWS) $(`tab-${view}`).onclick = () => set({ view });
$("tabs").onkeydown = ({ key }) => {
	if (!key.startsWith("Arrow")) return;
	set({ view: VIEWS.at((VIEWS.indexOf(state.view) + (key === "ArrowLeft" ? -1 : 1)) % VIEWS.length) });
	$(`tab-${state.view}`).focus();
};
for (const name of ["share", "svg", "png", "python", "copy"]) {
	$(name).onclick = async () => (await import("./share.js")).does[name]();
}
for (const name of ["dragover", "dragleave", "drop"]) {
	addEventListener(name, async (event) => {
		event.preventDefault();
		$("drop").classList.toggle("over", name === "dragover");
		const [file] = event.dataTransfer.files;
		if (name !== "drop" || !file) return;
		set({ view: "table" });
		(await import("./table.js")).take(file);
	});
}
startPlot(again);
startLosses(again);
startTraining(again);
onHeat((i) => showQuery(i < 0 ? null : state.x[i]), (i, j) => into.weights[i * into.n + j] / into.mass[i]);
night.onchange = again;
set({ lang: navigator.language.startsWith("zh") ? "zh" : "en", view: state.view });
restore(location.hash);
addEventListener("hashchange", () => restore(location.hash));
