// The two languages: texts in the page are named by data-word and data-label, all others asked for by name.

import { onChange, state } from "./state.js";

const [en, zh] = await Promise.all(["en", "zh"].map(async (lang) => (await fetch(`/words/${lang}.json`)).json()));
const words = { en, zh };

/** A text in the language of the page; {name} is filled in. */
export const say = (name, filled) => words[state.lang][name].replace(/\{(\w+)\}/g, (_, part) => filled[part]);

onChange(({ lang }) => {
	if (!lang) return;
	document.documentElement.lang = lang === "zh" ? "zh-CN" : "en";
	for (const element of document.querySelectorAll("[data-word]")) element.textContent = say(element.dataset.word);
	for (const element of document.querySelectorAll("[data-label]")) element.ariaLabel = say(element.dataset.label);
});
