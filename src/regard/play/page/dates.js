// A date translated on the server, and the attention of the decoder at every step. Loaded on demand.

import { $, clamp, element, make, put, status } from "./chart.js";
import { ask } from "./server.js";
import { onChange, set, state } from "./state.js";
import { say } from "./words.js";

// Milliseconds from the last key to asking, and from step to step; then sizes in pixels.
const REST = 300, STEP = 450, CELL = 34, LOW = 108, ROW = 24, LEFT = 46, WIDE = 60;

const drawings = [$("decoder"), $("align")];
const percent = (share) => Math.round(100 * share), shown = (token) => ({ " ": "␣", "<eos>": "⏎" })[token] ?? token;
const examples = () => say("dateExamples").split(" | ");
let result, drawn, playing, resting, step = 0, asked = 0;

function report(text, wrong = false, done = 0) {
	status("date-status", text, wrong);
	$("date-bar").hidden = !done;
	$("date-bar").value = done;
}

function translate() {
	const text = state.date.trim(), mine = ++asked;
	if (!text) return show();
	ask({ do: "translate", text }, (reply) => {
		const { did, done, error } = reply;
		if (mine !== asked) return;
		if (did === "translated") show(reply);
		if (did === "refused") show(), report(error || say("offline"), true);
		if (did !== "learning") return;
		report(say("learningDates", { percent: percent(done) }), false, done);
		resting = setTimeout(translate, REST);
	});
}

function show(reply) {
	result = reply;
	report(result ? `${result.source.join("")} → ${result.text}` : "");
	draw();
	play();
}

/** Show the steps one after another, unless reduced motion is preferred. */
function play() {
	const next = (at) => {
		showStep(at, drawn && !matchMedia("(prefers-reduced-motion: reduce)").matches && at < result.target.length - 1);
		if (playing) playing = setTimeout(next, STEP, at + 1);
	};
	clearTimeout(playing);
	next(0);
}

/** Source characters above, target characters below, and the map of all steps; `showStep` fills in what changes. */
function draw() {
	for (const svg of drawings) {
		svg.replaceChildren();
		svg.parentElement.hidden = !result;
	}
	const [top, map] = drawings, width = top.clientWidth;
	drawn = null;
	if (!result?.target.length || !width) return;
	const { source, target, weights } = result, size = Math.min(CELL, width / Math.max(source.length, target.length));
	const across = Math.min(WIDE, (width - LEFT) / source.length);
	const box = (svg, x, y, width, height, name, step) => make("rect", { x, y, width, height, class: name, "data-step": step }, svg);
	const word = (svg, x, y, text, room) => (Object.assign(make("text", { x, y }, svg), { textContent: shown(text) }).style.fontSize = `${clamp(0.9 * room, 9, 18)}px`);
	put(map, { height: ROW * (target.length + 1.5) });
	const lines = source.map(() => make("line", { class: "weights" }, top));
	const row = (tokens, y, name) => tokens.map((token, i) => {
		const x = (width - size * tokens.length) / 2 + size * i, made = box(top, x + 1, y, size - 2, CELL, name, name && i);
		word(top, x + size / 2, y + 0.7 * CELL, token, size);
		return made;
	});
	drawn = { lines, size, above: row(source, 0, ""), below: row(target, LOW, "step") };
	source.forEach((token, s) => word(map, LEFT + across * (s + 0.5), 0.75 * ROW, token, across));
	target.forEach((token, t) => {
		const y = ROW * (t + 1.2);
		word(map, LEFT / 2, y + 0.7 * ROW, token, ROW);
		weights[t].forEach((weight, s) => (box(map, LEFT + across * s, y, across, ROW, "", t).style.fillOpacity = weight));
	});
	drawn.frame = box(map, LEFT, 0, across * source.length, ROW, "frame", "");
	showStep(step, playing);
}

/** Show one step; the animation goes on if `moving`. */
function showStep(at, moving) {
	if (!moving) clearTimeout(playing);
	playing = moving;
	if (!drawn) return;
	const { source, target, weights } = result, { lines, size, above, below, frame } = drawn;
	step = clamp(at, 0, target.length - 1);
	const attended = weights[step], centre = (rect) => +rect.getAttribute("x") + size / 2 - 1;
	attended.forEach((weight, s) => {
		above[s].style.fillOpacity = weight / 2;
		put(lines[s], { x1: centre(below[step]), y1: LOW, x2: centre(above[s]), y2: CELL, "stroke-width": 0.5 * size * weight });
	});
	below.forEach((rect, t) => put(rect, { class: `step ${t === step ? "at" : moving && t > step ? "later" : ""}` }));
	put(frame, { y: ROW * (step + 1.2) });
	$("decoder-step").ariaLive = moving ? "off" : "polite";
	const most = [...source.keys()].filter((s) => attended[s] > 0.1).sort((a, b) => attended[b] - attended[a]);
	$("decoder-step").textContent = say("decoderStep", { step: step + 1, of: target.length, token: shown(target[step]),
		list: most.map((s) => `${shown(source[s])} ${percent(attended[s])} %`).join(" · ") });
}

function changed({ date, lang }) {
	if (lang) {
		$("examples").replaceChildren(...examples().map((date) => element("button", { textContent: date, onclick: () => set({ date }) })));
		showStep(step);
	}
	if (date === undefined) return;
	$("date").value = date;
	clearTimeout(resting);
	resting = setTimeout(translate, REST);
}

document.head.append(element("link", { rel: "stylesheet", href: "/dates.css" }));
for (const svg of drawings) svg.onpointermove = svg.onpointerdown = ({ target: { dataset } }) => dataset.step && showStep(+dataset.step);
drawings[0].onkeydown = ({ key }) => showStep(step + ({ ArrowRight: 1, ArrowLeft: -1 }[key] ?? 0));
$("replay").onclick = play;
$("date").oninput = ({ target }) => set({ date: target.value });
new ResizeObserver(draw).observe($("dates"));
onChange(changed);
changed(state);
if (!state.date) set({ date: examples()[0] });
