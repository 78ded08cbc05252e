// Too thin, too thick or about right, by the rules and thresholds of regard.model.

import { buffers, error, leftOut, mean, meanError } from "./pooling.js";

const CLOSE_LOSS = 0.02, CLOSE_W = 1.5, FINEST = 1e-6, CHANCE = 0.01, CHANCE_ROWS = 3;
const BLUNTEST = 0.02, STEP = 2, FINE = 0.01;
// Steps of the drawn curve for one of the scan; fewer where there are many points.
const BETWEEN = 4, MANY_POINTS = 250;
const GOLDEN = (Math.sqrt(5) - 1) / 2;

/** The left-out error along w, as the library scans it, and the best w. */
export function sweep(kernel, keys, values) {
	const n = keys.length, order = [...keys.keys()].sort((a, b) => keys[a] - keys[b]), into = { ...buffers(n), sorted: true };
	const [x, y] = [keys, values].map((all) => Float64Array.from(order, (i) => all[i])), between = n > MANY_POINTS ? BETWEEN / 2 : BETWEEN;
	const middle = mean(x), unit = Math.sqrt(mean(x.map((each) => (each - middle) ** 2))) || 1;
	const at = (level) => error(leftOut(kernel, Math.exp(level) / unit, x, y, into), y);
	const low = Math.log(BLUNTEST), high = Math.log(10 * n);
	const count = Math.ceil((high - low) / Math.log(STEP)) * between;
	const levels = Float64Array.from({ length: count + 1 }, (_, i) => low + (i * (high - low)) / count), loss = levels.map(at);
	let least = 0;
	for (let i = 0; i <= count; i += between) if (loss[i] < loss[least]) least = i;
	const best = golden(at, levels[Math.max(least - between, 0)], levels[Math.min(least + between, count)]);
	const [level, bestLoss] = loss[least] < best[1] ? [levels[least], loss[least]] : best;
	return { w: levels.map((each) => Math.exp(each) / unit), loss, bestW: Math.exp(level) / unit, bestLoss, meanLoss: meanError(y) };
}

function golden(at, low, high) {
	let a = high - GOLDEN * (high - low), b = low + GOLDEN * (high - low), fa = at(a), fb = at(b);
	while (high - low > FINE) {
		if (fa < fb) {
			[high, b, fb, a] = [b, a, fa, b - GOLDEN * (b - low)];
			fa = at(a);
		} else {
			[low, a, fa, b] = [a, b, fb, a + GOLDEN * (high - a)];
			fb = at(b);
		}
	}
	return fa < fb ? [a, fa] : [b, fb];
}

/** The verdict at w, from its left-out error and what a sweep found. */
export function diagnose(w, loss, n, { bestW, bestLoss, meanLoss }) {
	const better = bestLoss < loss * (1 - 1e-9), least = better ? bestLoss : loss, factor = better ? bestW / w : 1;
	const floor = Math.max(least, FINEST * meanLoss), excess = floor > 0 ? (loss - least) / floor : 0;
	const nothing = least >= (1 - CHANCE - CHANCE_ROWS / Math.max(n, 2 * CHANCE_ROWS)) * meanLoss;
	let verdict = "right";
	if (excess > CLOSE_LOSS && (factor > CLOSE_W || factor < 1 / CLOSE_W)) {
		verdict = factor < 1 ? "thin" : nothing ? "right" : "thick";
	}
	return { verdict, excess, factor, nothing, constant: meanLoss <= 0 };
}

/** The middle one, as the library takes it. */
export const median = (values) => values.slice().sort()[Math.ceil(values.length / 2) - 1];
