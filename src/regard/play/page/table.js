// A table of your own: choose columns, fit on the server, and see the rows behind a prediction. Loaded on demand.

import { $, circles, clamp, element, frame, make, padded, path, put, short, status, ticks } from "./chart.js";
import { ask, sendTable, stop } from "./server.js";
import { onChange } from "./state.js";
import { say } from "./words.js";

const MAX_BYTES = 4e6, MAX_FEATURES = 30, CLICK_PIXELS = 20, DIGITS = 6;
const MIN_SHARE = 0.005; // less relevant features hardly matter

const chart = frame($("scatter"), ["marks"], draw, 48);
const marks = ["level", "cloud", "range", "now"].map((name) => make("path", { class: name }, chart.marks));
let table, fitted, explained, chosenRow;

const report = (text, wrong = false) => status("table-status", text, wrong);
const refused = ({ error }) => report(error || say("offline"), true);
const describeTable = () => report(say("tableStatus", { ...table, columns: table.columns.length }));

$("file").onchange = ({ target }) => take(target.files[0]);
$("target").onchange = offerFeatures;
$("fit").onclick = fit;
$("fit-stop").onclick = stop;
chart.svg.onclick = (event) => fitted && explainRow(chart.near(chart.at(event), fitted.actual, fitted.predicted, CLICK_PIXELS));
chart.svg.onkeydown = (event) => {
	const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
	if (!step || !fitted) return;
	event.preventDefault();
	const { actual } = fitted, order = [...actual.keys()].sort((a, b) => actual[a] - actual[b]);
	explainRow(order[clamp(order.indexOf(chosenRow) + step, 0, order.length - 1)]);
};
onChange(({ lang }) => lang && (table && describeTable(), fitted && showScores(), explained && showRows()));

export async function take(file) {
	if (!file) return;
	if (file.size > MAX_BYTES) return report(say("tooLarge"), true);
	report(say("reading"));
	const found = await sendTable(file);
	if (!found.table) return refused(found);
	table = { ...found, name: file.name };
	forget();
	describeTable();
	const names = table.columns.filter((column) => !column.why_not).map(({ name }) => name);
	$("choose").hidden = false;
	$("target").replaceChildren(...names.map((name) => new Option(name)));
	$("target").value = names.at(-1);
	offerFeatures();
}

function offerFeatures() {
	const others = table.columns.filter(({ name }) => name !== $("target").value);
	$("features").replaceChildren(...others.map(({ name, why_not: why }) => {
		const box = element("input", { type: "checkbox", value: name, checked: !why, disabled: why });
		return element("label", { title: why }, box, name);
	}));
}

const unfold = (hidden, ...names) => names.forEach((name) => (document.querySelector(`.${name}`).hidden = hidden));

function forget() {
	[fitted, explained, chosenRow] = [];
	unfold(true, "scatter", "scores", "rows");
}

function busy(now) {
	$("fit").disabled = now;
	$("fit-stop").disabled = $("fit-bar").hidden = !now;
	$("fit-bar").removeAttribute("value");
}

function fit() {
	const features = [...$("features").querySelectorAll(":checked")].map((box) => box.value).slice(0, MAX_FEATURES);
	if (!features.length) return report(say("noFeatures"), true);
	forget();
	busy(true);
	ask({ do: "fit", table: table.table, target: $("target").value, features }, (reply) => {
		if (reply.did === "queued") return reply.before && report(say("waiting", reply));
		if (reply.did === "started") return report(say("fitting"));
		if (reply.did === "progress") return reply.done && ($("fit-bar").value = reply.done);
		if (reply.did === "sure") return fitted && showScores(Object.assign(fitted, reply));
		busy(false);
		if (reply.did === "refused") return refused(reply);
		if (reply.did !== "fitted") return report(say("stoppedEarly"));
		fitted = reply;
		unfold(false, "scatter", "scores");
		describeTable();
		if (fitted.stopped) report(say("bestSoFar"));
		showScores();
		draw();
	});
}

function draw() {
	if (!fitted || !chart.width) return;
	const { actual, predicted } = fitted, range = padded([...actual, ...predicted], 0.04), yTicks = ticks(range, 5), chosen = explained ? [explained.row] : [];
	chart.axes({ x: range, y: range, xTicks: yTicks, yTicks, xName: say("actual"), yName: say("predicted") });
	put(marks[0], { d: path(range, range, chart) });
	put(marks[1], { d: circles(actual, predicted, chart, actual.length > 800 ? 2 : 3.5) });
	put(marks[2], { d: chosen.map((i) => explained.interval && `M${chart.sx(actual[i])} ${explained.interval.map(chart.sy).join("V")}`).join("") });
	put(marks[3], { d: circles(chosen.map((i) => actual[i]), chosen.map((i) => predicted[i]), chart, 6) });
}

function showScores() {
	const { relevance, features, bandwidth, target, rows, score, error, mean_error: mean, nearest_error: nearest, neighbours, half } = fitted;
	$("score-text").textContent = say("scoreText", { target, rows, score: score.toFixed(3), error, mean, nearest, neighbours }) + (half ? ` ${say("sure", { half })}` : "");
	$("relevance").replaceChildren(...[...relevance.keys()].sort((a, b) => relevance[b] - relevance[a]).map((i) => {
		const share = relevance[i], bar = element("i");
		bar.style.width = `${100 * share}%`;
		return element("p", {}, element("b", {}, features[i]), element("span", {}, bar), `${Math.round(100 * share)} %`,
			element("small", {}, share < MIN_SHARE ? say("hardly") : say("reach", { width: bandwidth[i] ?? Infinity })));
	}));
	draw();
}

function explainRow(row) {
	if (row < 0) return;
	chosenRow = row;
	ask({ do: "explain", row }, (reply) => {
		if (reply.did === "refused") refused(reply);
		if (reply.did !== "explained" || !fitted) return;
		explained = reply;
		unfold(false, "rows");
		draw();
		showRows();
	});
}

function showRows() {
	const { row, actual, left_out: left, predicted, mass, rows, neighbours, interval, nearness, far } = explained;
	const sentences = [say("rowsText", { row, actual, left, predicted, neighbours, mass: Math.round(100 * mass) })];
	if (interval) sentences.push(say("newLike", { low: interval[0], high: interval[1] }));
	if (far) sentences.push(say("farRow"));
	$("rows-text").textContent = sentences.join(" ");
	const line = (tag, cells) => element("tr", {}, ...cells.map((cell) => element(tag, {}, cell)));
	const heads = line("th", [say("row"), say("weight"), say("counts"), fitted.target, ...fitted.features]);
	$("rows").replaceChildren(heads, ...rows.map((key) => {
		const own = key.row === row, numbers = [key.y, ...key.x].map((cell) => short(cell, DIGITS));
		const shares = [key.weight, key.effective].map((share) => `${(100 * share).toFixed(1)} %`);
		const made = line("td", [`${own ? say("itself") : ""} ${key.row}`, ...shares, ...numbers]);
		made.classList.toggle("own", own);
		return made;
	}), line("td", [say("shares"), "", "", "", ...nearness.map((share) => `${Math.round(100 * share)} %`)]));
}
