// A table of one's own: columns chosen, fitted on the server, and the rows behind a clicked prediction. Loaded when asked for.

import { $, circles, clamp, frame, make, padded, path, put, short, ticks } from "./chart.js";
import { ask, sendTable, stop } from "./server.js";
import { onChange } from "./state.js";
import { say } from "./words.js";

const MAX_BYTES = 4e6, MAX_FEATURES = 30, REACH = 20, DIGITS = 6;
const HARDLY = 0.005; // features with less than this share

const element = (tag, text, ...children) => {
	const made = document.createElement(tag);
	made.append(text, ...children);
	return made;
};
const chart = frame($("scatter"), ["marks"], draw, 48);
const marks = ["level", "cloud", "range", "now"].map((name) => make("path", { class: name }, chart.marks));
let table, fitted, looked, asking;

function tell(text, wrong = false) {
	$("table-told").textContent = text;
	$("table-told").classList.toggle("wrong", wrong);
}
const refused = ({ error }) => tell(error || say("offline"), true);
const told = () => tell(say("tableTold", { name: table.name, rows: table.rows, columns: table.columns.length }));

$("file").onchange = ({ target }) => take(target.files[0]);
$("target").onchange = offerFeatures;
$("fit").onclick = fit;
$("fit-stop").onclick = stop;
chart.svg.onclick = (event) => fitted && look(chart.near(chart.at(event), fitted.actual, fitted.predicted, REACH));
chart.svg.onkeydown = (event) => {
	const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
	if (!step || !fitted) return;
	event.preventDefault();
	const { actual } = fitted, order = [...actual.keys()].sort((a, b) => actual[a] - actual[b]);
	look(order[clamp(order.indexOf(asking) + step, 0, order.length - 1)]);
};
onChange(({ lang }) => lang && (table && told(), fitted && showScores(), looked && showRows()));

export async function take(file) {
	if (!file) return;
	if (file.size > MAX_BYTES) return tell(say("tooLarge"), true);
	tell(say("reading"));
	const found = await sendTable(file);
	if (!found.table) return refused(found);
	table = { ...found, name: file.name };
	forget();
	told();
	const names = table.columns.filter((column) => !column.why_not).map(({ name }) => name);
	$("choose").hidden = false;
	$("target").replaceChildren(...names.map((name) => new Option(name)));
	$("target").value = names.at(-1);
	offerFeatures();
}

function offerFeatures() {
	const others = table.columns.filter(({ name }) => name !== $("target").value);
	$("features").replaceChildren(...others.map(({ name, why_not: why }) => {
		const box = Object.assign(element("input", ""), { type: "checkbox", value: name, checked: !why, disabled: why });
		return Object.assign(element("label", box, name), { title: why });
	}));
}

const unfold = (hidden, ...names) => names.forEach((name) => (document.querySelector(`.${name}`).hidden = hidden));

function forget() {
	[fitted, looked, asking] = [];
	unfold(true, "scatter", "scores", "rows");
}

function busy(now) {
	$("fit").disabled = now;
	$("fit-stop").disabled = $("fit-bar").hidden = !now;
	$("fit-bar").removeAttribute("value");
}

function fit() {
	const features = [...$("features").querySelectorAll(":checked")].map((box) => box.value).slice(0, MAX_FEATURES);
	if (!features.length) return tell(say("noFeatures"), true);
	forget();
	busy(true);
	ask({ do: "fit", table: table.table, target: $("target").value, features }, (heard) => {
		if (heard.did === "queued") return heard.before && tell(say("waiting", heard));
		if (heard.did === "started") return tell(say("fitting"));
		if (heard.did === "progress") return heard.done && ($("fit-bar").value = heard.done);
		if (heard.did === "sure") return fitted && showScores(Object.assign(fitted, heard));
		busy(false);
		if (heard.did === "refused") return refused(heard);
		if (heard.did !== "fitted") return tell(say("stoppedEarly"));
		fitted = heard;
		unfold(false, "scatter", "scores");
		told();
		if (fitted.stopped) tell(say("bestSoFar"));
		showScores();
		draw();
	});
}

function draw() {
	if (!fitted || !chart.width) return;
	const { actual, predicted } = fitted, range = padded([...actual, ...predicted], 0.04), yTicks = ticks(range, 5), chosen = looked ? [looked.row] : [];
	chart.axes({ x: range, y: range, xTicks: yTicks, yTicks, xName: say("actual"), yName: say("predicted") });
	put(marks[0], { d: path(range, range, chart) });
	put(marks[1], { d: circles(actual, predicted, chart, actual.length > 800 ? 2 : 3.5) });
	put(marks[2], { d: chosen.map((i) => looked.interval && `M${chart.sx(actual[i])} ${looked.interval.map(chart.sy).join("V")}`).join("") });
	put(marks[3], { d: circles(chosen.map((i) => actual[i]), chosen.map((i) => predicted[i]), chart, 6) });
}

function showScores() {
	const { relevance, features, bandwidth, target, rows, score, error, mean_error: mean, nearest_error: nearest, neighbours, half } = fitted;
	$("score-told").textContent = say("scoreTold", { target, rows, score: score.toFixed(3), error: short(error), mean: short(mean),
		nearest: short(nearest), neighbours: short(neighbours) }) + (half ? ` ${say("sure", { half: short(half) })}` : "");
	$("relevance").replaceChildren(...[...relevance.keys()].sort((a, b) => relevance[b] - relevance[a]).map((i) => {
		const share = relevance[i], bar = element("i", ""), reach = short(bandwidth[i] ?? Infinity);
		bar.style.width = `${100 * share}%`;
		return element("p", element("b", features[i]), element("span", bar), `${Math.round(100 * share)} %`,
			element("small", share < HARDLY ? say("hardly") : say("reach", { width: reach })));
	}));
	draw();
}

function look(row) {
	if (row < 0) return;
	asking = row;
	ask({ do: "explain", row }, (heard) => {
		if (heard.did === "refused") refused(heard);
		if (heard.did !== "explained" || !fitted) return;
		looked = heard;
		unfold(false, "rows");
		draw();
		showRows();
	});
}

function showRows() {
	const { row, actual, left_out: left, predicted, mass, rows, neighbours, interval, nearness, far } = looked;
	const told = [say("rowsTold", { row, actual: short(actual), left: short(left), predicted: short(predicted),
		neighbours: short(neighbours), mass: Math.round(100 * mass) })];
	if (interval) told.push(say("newLike", { low: short(interval[0]), high: short(interval[1]) }));
	if (far) told.push(say("farRow"));
	$("rows-told").textContent = told.join(" ");
	const line = (tag, cells) => element("tr", "", ...cells.map((cell) => element(tag, cell)));
	const heads = line("th", [say("row"), say("weight"), say("counts"), fitted.target, ...fitted.features]);
	$("rows").replaceChildren(heads, ...rows.map((seen) => {
		const own = seen.row === row, numbers = [seen.y, ...seen.x].map((cell) => short(cell, DIGITS));
		const shares = [seen.weight, seen.effective].map((share) => `${(100 * share).toFixed(1)} %`);
		const made = line("td", [`${own ? say("itself") : ""} ${seen.row}`, ...shares, ...numbers]);
		made.classList.toggle("own", own);
		return made;
	}), line("td", [say("shares"), "", "", "", ...nearness.map((share) => `${Math.round(100 * share)} %`)]));
}
