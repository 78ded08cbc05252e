// Attention pooling over one feature: f(q) = Σ weight·y, weight = softmax(score(q, x)).
//
// Sums leave the row itself out and add it afterwards: subtracting it would cancel all digits if the others have little
// weight. Rows of tiny mass are computed again from scores relative to the largest; if no key is within the reach of a
// compact kernel, the nearest keys share the weight, as in the library.

import { KERNELS } from "./kernels.js";

const TINY = 1e-280;

/** Unnormalised weights of one query on all keys but `skip`, into `out`; their sum. */
export function row(kernel, w, q, x, out, skip = -1) {
	const { dot, value } = KERNELS[kernel];
	let mass = 0;
	for (let j = 0; j < x.length && !dot; j++) {
		const u = w * (q - x[j]);
		mass += out[j] = j === skip ? 0 : value(u * u);
	}
	return mass > TINY ? mass : stableRow(KERNELS[kernel], w, q, x, out, skip);
}

function stableRow({ dot, score }, w, q, x, out, skip = -1) {
	let peak = -Infinity, mass = 0;
	for (let j = 0; j < x.length; j++) {
		const u = w * (q - x[j]);
		out[j] = j === skip ? -Infinity : dot ? w * q * x[j] : score ? score(u * u) : -Math.abs(u);
		if (out[j] > peak) peak = out[j];
	}
	for (let j = 0; j < x.length; j++) mass += out[j] = dot || score ? Math.exp(out[j] - peak) : +(out[j] === peak);
	return mass;
}

export function weighted(weights, y) {
	let sum = 0;
	for (let j = 0; j < y.length; j++) sum += weights[j] * y[j];
	return sum;
}

const answers = (queries, x, y, weigh, weights = new Float64Array(x.length)) => queries.map((q) => {
	const mass = weigh(q, weights);
	return weighted(weights, y) / mass;
});

/** Answers at every query. */
export const curve = (kernel, w, queries, x, y) => answers(queries, x, y, (q, out) => row(kernel, w, q, x, out));

/** The value of the nearest key at every query; ties share. */
export const nearest = (queries, x, y) => answers(queries, x, y, (q, out) => stableRow({}, 1, q, x, out));

export const mean = (y) => y.reduce((sum, each) => sum + each, 0) / y.length;

/** Buffers for n points, reused in every frame. */
export function buffers(n) {
	const one = () => new Float64Array(n);
	return { n, sorted: false, weights: new Float32Array(n * n), mass: one(), moment: one(), squares: one(), others: one(), answer: one(),
		leftOut: one(), neighbours: one() };
}

/**
 * Sums over all other points; pairs of a radial score weigh the same both ways. `keep` fills the weights (n × n).
 * Along sorted points the first one out of reach ends the row.
 */
function gather(kernel, w, x, y, into, keep) {
	const { apply, reach = 1 } = KERNELS[kernel], { n, sorted, weights, mass, moment, squares, others } = into;
	for (const sums of [mass, moment, squares]) sums.fill(0);
	for (let i = 0; i < n; i++) {
		const xi = x[i], yi = y[i];
		let m = mass[i], f = moment[i], s = squares[i], end = i;
		for (let far = 0; end < n && (far <= reach || !sorted); end++) {
			const u = w * (xi - x[end]);
			others[end] = far = u * u;
		}
		apply(others, i, end);
		if (keep) weights[i * n + i] = others[i];
		for (let j = i + 1; j < end; j++) {
			const k = others[j], kk = k * k;
			if (keep) weights[i * n + j] = weights[j * n + i] = k;
			m += k;
			f += k * y[j];
			s += kk;
			mass[j] += k;
			moment[j] += k * yi;
			squares[j] += kk;
		}
		mass[i] = m;
		moment[i] = f;
		squares[i] = s;
	}
}

/** Every point as the others answer it. */
export function leftOut(kernel, w, x, y, into = buffers(x.length), keep = false) {
	const { n, mass, moment, others, leftOut: out } = into, { dot } = KERNELS[kernel];
	if (!dot) gather(kernel, w, x, y, into, keep);
	for (let i = 0; i < n; i++) {
		if (dot || mass[i] <= TINY) {
			const sum = row(kernel, w, x[i], x, others, i);
			out[i] = weighted(others, y) / sum;
		} else out[i] = moment[i] / mass[i];
	}
	return out;
}

/** Every point as a query on every point: weights before they are divided by mass, answers, effective neighbours 1/Σα². */
export function attention(kernel, w, x, y, into = buffers(x.length)) {
	const { n, weights, mass, moment, squares, others, answer, neighbours } = into, { dot } = KERNELS[kernel];
	leftOut(kernel, w, x, y, into, true);
	for (let i = 0; i < n; i++) {
		const own = dot ? 0 : weights[i * n + i];
		if (dot) {
			mass[i] = row(kernel, w, x[i], x, others);
			moment[i] = weighted(others, y);
			squares[i] = weighted(others, others);
			weights.set(others, i * n);
		}
		mass[i] += own;
		answer[i] = (moment[i] + own * y[i]) / mass[i];
		neighbours[i] = mass[i] ** 2 / (squares[i] + own * own);
	}
	return into;
}

/** Mean squared error of answers. */
export const error = (answer, y) => answer.reduce((sum, each, i) => sum + (each - y[i]) ** 2, 0) / y.length;

/** The same where every point is answered by the mean of the others. */
export function meanError(y) {
	const n = y.length, total = mean(y) * n;
	return error(y.map((each) => (total - each) / (n - 1)), y);
}
