// The two languages: texts in the page have data-word or data-label, others are asked for by name.

import { short } from "./chart.js";
import { onChange, state } from "./state.js";

const [en, zh] = await Promise.all(["en", "zh"].map(async (lang) => (await fetch(`/words/${lang}.json`)).json()));
const words = { en, zh };

/** A text in the language of the page; {name} is filled in, numbers in short. */
export const say = (name, values) => words[state.lang][name].replace(/\{(\w+)\}/g, (_, part) =>
	typeof values[part] === "number" ? short(values[part]) : values[part]);

onChange(({ lang }) => {
	if (!lang) return;
	document.documentElement.lang = lang === "zh" ? "zh-CN" : "en";
	for (const element of document.querySelectorAll("[data-word]")) element.textContent = say(element.dataset.word);
	for (const element of document.querySelectorAll("[data-label]")) element.ariaLabel = say(element.dataset.label);
});
