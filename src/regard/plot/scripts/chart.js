// What every drawing shares: elements, scales, ticks and short numbers.

export const $ = (id) => document.getElementById(id);
export const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

export function put(element, attributes) {
	for (const name in attributes) element.setAttribute(name, attributes[name]);
	return element;
}

/** An HTML element with properties and children. */
export function element(tag, properties, ...children) {
	const made = Object.assign(document.createElement(tag), properties);
	made.append(...children);
	return made;
}

/** Write a message, marked if something is wrong. */
export function status(id, text, wrong) {
	$(id).textContent = text;
	$(id).classList.toggle("wrong", wrong);
}

export function make(tag, attributes, parent) {
	const element = put(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes);
	parent?.append(element);
	return element;
}

/** Round numbers within a range, about `count` of them. */
export function ticks([low, high], count) {
	const raw = (high - low) / count || 1, power = 10 ** Math.floor(Math.log10(raw));
	const step = [1, 2, 5, 10].find((each) => each * power >= raw) * power, found = [];
	for (let i = Math.ceil(low / step); i * step <= high + step * 1e-9; i++) found.push(+(i * step).toPrecision(12));
	return found;
}

/** A number with three digits or so. */
export function short(number, digits = 3) {
	const size = Math.abs(number);
	if (size >= 1e6 || (size && size < 1e-3)) return Number.isFinite(size) ? number.toExponential(1) : "∞";
	return size >= 1000 ? Math.round(number).toLocaleString("en") : String(+number.toPrecision(digits));
}

export function path(xs, ys, { sx, sy }) {
	let d = "";
	for (let i = 0; i < xs.length; i++) d += (i ? "L" : "M") + sx(xs[i]).toFixed(1) + " " + sy(ys[i]).toFixed(1);
	return d;
}

/** The range of numbers, with a margin around them. */
export function padded(numbers, margin) {
	const low = Math.min(...numbers), high = Math.max(...numbers), more = margin * (high - low);
	return [low - more, high + more];
}

/** Many circles as one path. */
export const circles = (xs, ys, { sx, sy }, r) => Array.from(xs, (x, i) =>
	`M${(sx(x) - r).toFixed(1)} ${sy(ys[i]).toFixed(1)}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`).join("");

function scale([a, b], c, d) {
	const slope = (d - c) / (b - a || 1), to = (value) => c + (value - a) * slope;
	to.back = (place) => a + (place - c) / slope;
	return to;
}

/** Axes that fill an <svg>, and layers over them; `again` is called when the size has changed. */
export function frame(svg, layers, again, left = 36) {
	const right = 12, top = 10, bottom = 26, chart = { svg, width: 0 };
	let drawn = "", box;
	for (const name of ["grid", ...layers]) chart[name] = make("g", { class: name }, svg);
	new ResizeObserver(([{ contentRect: { width, height } }]) => {
		if (!width) return;
		Object.assign(chart, { width, height });
		put(svg, { viewBox: `0 0 ${width} ${height}` });
		again();
	}).observe(svg);
	chart.axes = ({ x, y, xTicks, yTicks, xLabel = (at) => at, xName = "", yName = "" }) => {
		const key = JSON.stringify([x, y, xTicks, xName, yName, chart.width, chart.height]);
		if (key === drawn) return;
		drawn = key; // what has not changed is not drawn again
		const { width, height, grid } = chart, floor = height - bottom;
		chart.sx = scale(x, left, width - right);
		chart.sy = scale(y, floor, top);
		grid.replaceChildren();
		const text = (x, y, anchor, content, name = "") =>
			(make("text", { x, y, "text-anchor": anchor, class: name }, grid).textContent = content);
		for (const at of xTicks) {
			make("path", { d: `M${chart.sx(at)} ${top}V${floor}` }, grid);
			text(chart.sx(at), floor + 16, "middle", short(xLabel(at)));
		}
		for (const at of yTicks) {
			make("path", { d: `M${left} ${chart.sy(at)}H${width - right}` }, grid);
			text(left - 7, chart.sy(at) + 4, "end", short(at));
		}
		text(width - right, floor - 6, "end", xName, "name");
		text(left + 6, top + 11, "start", yName, "name");
	};
	/** Where a pointer is; while it is down the page stands still, and asking again would cost a layout. */
	chart.at = ({ clientX, clientY, buttons, type }) => {
		if (!buttons || type === "pointerdown") box = svg.getBoundingClientRect();
		return [clientX - box.left, clientY - box.top];
	};
	/** The nearest of some places to a pointer, −1 where none is within reach. */
	chart.near = ([px, py], xs, ys, reach) => {
		let best = -1, least = reach ** 2;
		for (let i = 0; i < xs.length; i++) {
			const far = (chart.sx(xs[i]) - px) ** 2 + (chart.sy(ys[i]) - py) ** 2;
			if (far < least) [best, least] = [i, far];
		}
		return best;
	};
	return chart;
}
