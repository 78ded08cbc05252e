"""Two languages in one site: page.md beside page.zh.md, a switch on every page, words of the theme, and one search.

The switch leads to the other side of the same page, or to the other language's first page where there is none.
"""

from __future__ import annotations

import gettext
import re
from pathlib import Path
from typing import Any

import pydata_sphinx_theme
import sphinx
from site_pages import SECTIONS
from sphinx.application import Sphinx
from sphinx.search.en import SearchEnglish

CHINESE = ".zh"
# Chinese is indexed by single characters and by pairs, so that a word of two or more is found anywhere in a sentence.
HAN = r"[\u3400-\u9fff]"
WORDS = re.compile(rf"{HAN}+|(?:(?!{HAN})\w)+")


def words(text: str) -> list[str]:
    found = []
    for word in WORDS.findall(text):
        found += pairs(word) if re.match(HAN, word) else [word]
    return found


def pairs(run: str) -> list[str]:
    """
    >>> pairs("注意力"), pairs("键")
    (['注意', '意力'], ['键'])
    """
    return [run[i : i + 2] for i in range(len(run) - 1)] or [run]


class BothLanguages(SearchEnglish):
    lang = "en+zh"
    js_splitter_code = r"""
function splitQuery(query) {
    const found = [];
    for (const word of query.match(/[\u3400-\u9fff]+|(?:(?![\u3400-\u9fff])[\p{L}\p{N}_])+/gu) ?? []) {
        if (!/^[\u3400-\u9fff]/.test(word) || word.length === 1) found.push(word);
        else for (let i = 0; i + 1 < word.length; i++) found.push(word.slice(i, i + 2));
    }
    return found;
}
"""

    def split(self, input: str) -> list[str]:
        return words(input)

    def word_filter(self, word: str) -> bool:
        return bool(re.match(HAN, word)) or super().word_filter(word)


def is_chinese(page: str) -> bool:
    return page.endswith(CHINESE)


def other_side(page: str, pages: set[str]) -> str:
    """The page that the switch leads to."""
    if is_chinese(page):
        other = page.removesuffix(CHINESE)
        return other if other in pages else "index"
    return page + CHINESE if page + CHINESE in pages else "index" + CHINESE


# Words that neither the theme nor Sphinx has in Chinese.
OWN_WORDS = {
    "Collapse Sidebar": "收起侧栏",
    "Expand Sidebar": "展开侧栏",
    "Color mode": "颜色模式",
    "System Settings": "跟随系统",
    "Breadcrumb": "路径",
    "Search the docs ...": "搜索",
}


class OwnWords(gettext.NullTranslations):
    def gettext(self, message: str) -> str:
        return OWN_WORDS.get(message, message)


def chinese_words() -> gettext.GNUTranslations:
    """Words of the theme and of Sphinx, in Chinese."""
    theme = Path(pydata_sphinx_theme.__file__).parent / "locale"
    own = Path(sphinx.__file__).parent / "locale"
    found = gettext.translation("sphinx", theme, ["zh"])
    found.add_fallback(gettext.translation("sphinx", own, ["zh_CN"]))
    found.add_fallback(OwnWords())
    return found


def add_languages(app: Sphinx, page: str, _template: str, context: dict[str, Any], _tree: Any) -> None:
    pages = app.env.found_docs
    chinese = is_chinese(page)
    context["other_side"] = other_side(page, pages)
    context["other_language"] = ("English", "en") if chinese else ("中文", "zh-CN")
    context["section_links"] = [
        (section.chinese if chinese else section.english, target, target.removesuffix(CHINESE) == section_of(page))
        for section in SECTIONS
        for target in [section.page + CHINESE if chinese and section.page + CHINESE in pages else section.page]
        if target in pages
    ]
    if chinese:
        translated = chinese_words()
        context["language"] = "zh-CN"
        context["_"] = context["gettext"] = translated.gettext
        context["ngettext"] = translated.ngettext
        context["root_doc"] = context["master_doc"] = "index" + CHINESE
        context["theme_search_bar_text"] = translated.gettext(context["theme_search_bar_text"])
    # The Chinese side follows the English one in the order of pages; readers do not.
    if page == "index" + CHINESE:
        context["prev"] = None
    elif not chinese and (context.get("next") or {}).get("link", "").endswith(f"index{CHINESE}.html"):
        context["next"] = None


def section_of(page: str) -> str | None:
    return next((section.page for section in SECTIONS if section.holds(page)), None)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_search_language(BothLanguages)
    app.connect("html-page-context", add_languages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
