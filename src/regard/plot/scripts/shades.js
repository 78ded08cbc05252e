// Weights as shades, from none to the largest of them; on a dark page the scale is turned around.

const SHADES = 256;

function ramp(...colours) {
	const parts = colours.map((colour) => [4, 2, 0].map((at) => parseInt(colour.slice(at, at + 2), 16)));
	return Uint32Array.from({ length: SHADES }, (_, i) => {
		const at = (i / SHADES) * (parts.length - 1), low = Math.floor(at);
		return parts[low].reduce((all, each, c) => all * 256 + Math.round(each + (at - low) * (parts[low + 1][c] - each)), 255);
	});
}

const light = ramp("ffffff", "dcebf6", "9ccbe6", "3f95c9", "0b5c9b", "08264d");
const dark = ramp("10161c", "12314e", "175c93", "3f95c9", "9ccbe6", "f4faff");

/** Paint cells row by row, one pixel each, on a canvas; the largest of them. */
export function paint(canvas, cells, isDark) {
	const context = canvas.getContext("2d"), image = context.createImageData(canvas.width, canvas.height);
	let most = 0;
	for (let i = 0; i < cells.length; i++) if (cells[i] > most) most = cells[i];
	const colours = isDark ? dark : light, pixels = new Uint32Array(image.data.buffer), unit = (SHADES - 1) / most;
	for (let i = 0; i < cells.length; i++) pixels[i] = colours[(cells[i] * unit) | 0];
	context.putImageData(image, 0, 0);
	return most;
}
