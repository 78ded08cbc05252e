// Every kernel and score of the library's table, as the unnormalised weight of a pair.
//
// A radial row gives K from u², u = w(q − k); rows that are positive everywhere have score = log K too, for queries so
// far away that every K is 0, and the u² where that begins (`reach`). The additive score is the library's
// wᵥᵀtanh(W_q q + W_k k) with two hidden units that make a bump, GAIN·(tanh(u + 1) − tanh(u − 1)), written with one
// exponential. `fixed`: the library learns matrices there, not w.

export const GAIN = 4;
const inside = (u2) => (u2 < 1 ? 1 - u2 : 0);
const RISE = 4 * GAIN * Math.sinh(2), WIDE = 2 * Math.cosh(2);
const bump = (u2) => {
	const e = Math.exp(-2 * Math.sqrt(u2));
	return (RISE * e) / (1 + e * (e + WIDE));
};

export const KERNELS = {
	gaussian: { value: (u2) => Math.exp(-0.5 * u2), score: (u2) => -0.5 * u2, reach: 1280 },
	laplace: { value: (u2) => Math.exp(-Math.sqrt(u2)), score: (u2) => -Math.sqrt(u2), reach: 640 ** 2 },
	boxcar: { value: (u2) => (u2 <= 1 ? 1 : 0), staircase: true },
	triangular: { value: (u2) => (u2 < 1 ? 1 - Math.sqrt(u2) : 0) },
	epanechnikov: { value: inside },
	biweight: { value: (u2) => inside(u2) ** 2 },
	triweight: { value: (u2) => inside(u2) ** 3 },
	tricube: { value: (u2) => (u2 < 1 ? (1 - u2 * Math.sqrt(u2)) ** 3 : 0) },
	cosine: { value: (u2) => (u2 < 1 ? Math.sin(0.5 * Math.PI * (1 - Math.sqrt(u2))) : 0) },
	dot: { dot: true, fixed: true },
	additive: { value: (u2) => Math.exp(bump(u2)), score: bump, reach: Infinity, fixed: true },
};

for (const row of Object.values(KERNELS)) {
	const { value } = row;
	/** Turns u² into K between two places: a loop of its own for each kernel, so that none slows down another. */
	row.apply = (numbers, from, to) => {
		for (let j = from; j < to; j++) numbers[j] = value(numbers[j]);
	};
}
