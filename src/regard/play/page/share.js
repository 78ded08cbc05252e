// What can be exported: a link, a picture, and the Python that draws the same curve. Loaded on demand.

import { $, element, make, put } from "./chart.js";
import { GAIN } from "./kernels.js";
import { fragment, state } from "./state.js";
import { say } from "./words.js";

const DRAWN = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-opacity", "fill-opacity",
	"font-family", "font-size", "font-style"];

/** What each button does. */
export const does = {
	share: () => copyText(`${location.origin}/${fragment()}`),
	svg: () => save(new Blob([picture()], { type: "image/svg+xml" }), "regard.svg"),
	png: async () => save(await pixels(picture()), "regard.png"),
	python: () => show(python()),
	copy: () => copyText($("lines").textContent),
};

function show(text) {
	$("lines").textContent = text;
	if (!$("code").open) $("code").showModal();
}

function copyText(text) {
	const done = () => {
		$("toast").textContent = say("copied");
		setTimeout(() => ($("toast").textContent = ""), 2000);
	};
	navigator.clipboard.writeText(text).then(done, () => show(text));
}

function save(blob, download) {
	const href = URL.createObjectURL(blob);
	element("a", { href, download }).click();
	setTimeout(() => URL.revokeObjectURL(href), 1000);
}

/** The big plot as an SVG that stands on its own: what style sheets say is written into it. */
function picture() {
	const drawn = $("plot"), copy = drawn.cloneNode(true), { width, height } = drawn.getBoundingClientRect();
	const originals = drawn.querySelectorAll("*");
	copy.querySelectorAll("*").forEach((element, i) => {
		const style = getComputedStyle(originals[i]);
		for (const name of element.getAttributeNames()) if (/class|index|role|aria/.test(name)) element.removeAttribute(name);
		for (const name of DRAWN) element.setAttribute(name, style.getPropertyValue(name));
	});
	put(copy, { xmlns: "http://www.w3.org/2000/svg", width, height });
	copy.prepend(make("rect", { width, height, fill: getComputedStyle(drawn.parentElement).backgroundColor }));
	return new XMLSerializer().serializeToString(copy);
}

async function pixels(svg) {
	const image = new Image(), canvas = document.createElement("canvas");
	image.src = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
	await image.decode();
	[canvas.width, canvas.height] = [2 * image.width, 2 * image.height];
	canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
	URL.revokeObjectURL(image.src);
	return new Promise((done) => canvas.toBlob(done));
}

/** Python that computes the attention curve of this page at the page's queries. */
function python() {
	const { kernel, edited, n, seed, x, y, hidden } = state, w = +state.w.toPrecision(6), list = (numbers) => `np.array([${[...numbers].join(", ")}])`;
	const [imported, ...made] = {
		dot: ["pool; from regard.core.scores import DotProduct", `score = DotProduct(w=${w})`, "curve = pool(query, x, y, score).output"],
		additive: ["pool; from regard.core.scores import Additive",
			`score = Additive(W_q=[[${w}, 1], [${w}, -1]], W_k=[[-${w}], [-${w}]], w_v=[${GAIN}, -${GAIN}])`,
			"curve = pool(np.c_[query, np.ones(241)], x[:, None], y, score).output"],
	}[kernel] ?? ["NadarayaWatsonRegressor",
		`model = NadarayaWatsonRegressor(kernel="${kernel}", bandwidth=1 / ${w}).fit(x[:, None], y)`, "curve = model.predict(query[:, None])",
		...(hidden.has("band") ? [] : ['low, high = model.predict_interval(query[:, None], 0.9, "jackknife").T'])];
	const data = edited ? `x, y = ${list(x)}, ${list(y)}` : `x, y = regard.data.notes(n_train=${n}, seed=${seed})[:2]`;
	return [edited ? "import numpy as np" : "import numpy as np, regard", `from regard import ${imported}`, data,
		"query = np.linspace(0, 5, 241)", ...made].join("\n");
}
