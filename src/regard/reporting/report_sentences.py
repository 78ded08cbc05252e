"""What the report says: its sentences (``sentences.toml``), and numbers as it writes them."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.text import Text, load_texts
from regard.model.diagnosis import Diagnosis
from regard.reporting.report_facts import ReportFacts

SENTENCES = load_texts(files("regard.reporting").joinpath("sentences.toml"))
# A feature with a smaller share of the distance "hardly matters".
MIN_SHARE_TO_MATTER = 0.005
# A bandwidth that is off by more than this factor is off "by a lot".
MAX_FACTOR_IN_WORDS = 100.0


def lead(facts: ReportFacts, target: str) -> Text:
    """What the model does and how accurate it is, one sentence each."""
    rows, features, model = len(facts.y), facts.columns, facts.methods[0]
    plural = f"{features} feature" + "s" * (features != 1)
    if facts.classes:
        en = f"It assigns {model.score:.0%} of the rows to the correct one of {len(facts.classes)} classes."
        zh = f"在 {len(facts.classes)} 个类别中，{model.score:.0%} 的行分类正确。"
    else:
        mean = next(method.error for method in facts.methods if method.name == "mean")
        en = f"Predictions are typically off by {number(model.error)}; the mean alone is off by {number(mean)}."
        zh = f"预测通常差 {number(model.error)}；总是回答平均值则差 {number(mean)}。"
    return Text(
        f"The model predicts {target} from {plural}, evaluated on {rows:,} rows. {en}",
        f"模型根据 {features} 个特征预测 {target}，在 {rows:,} 行数据上评估。{zh}",
    )


def verdict(found: Diagnosis) -> Text:
    """The diagnosis in two or three sentences."""
    picture = SENTENCES["verdict"][found.verdict]
    zh = picture.zh + f"每个预测大约用到 {number(found.neighbours)} 行（共 {found.rows:,.0f} 行）。"
    if found.verdict == "about right":
        zh += "没有哪个带宽比平均值更好。" if found.says_nothing else "换一个带宽并不能预测得更好。"
    else:
        factor = max(found.factor, 1.0 / found.factor)
        by = f" {factor:.2g} 倍" if factor < MAX_FACTOR_IN_WORDS else "很多"
        zh += f"建议把带宽{'放宽' if found.factor < 1.0 else '收窄'}{by}，或者用留一法来学习它。"
    return Text(f"{picture.en} {found.why} {found.advice}", zh)


def importance(share: float, varies: bool, largest: float) -> str:
    """The name of the sentence that describes a feature's share of the distance."""
    if not varies:
        return "still"
    if share < MIN_SHARE_TO_MATTER:
        return "none"
    return "much" if share == largest else "some"


def cell(value: float, column: NDArray[Any]) -> str:
    """A number of a column, with enough digits to distinguish its values; integers of an integer column as they are."""
    span = float(np.ptp(column))
    if not 1e-6 < span < 1e9:
        return number(value)
    if value.is_integer() and bool((column == np.rint(column)).all()):
        return f"{value:,.0f}"
    return f"{value:,.{int(np.clip(2 - np.floor(np.log10(span)), 0, 8))}f}"


def number(value: float) -> str:
    """Three significant digits; thousands with commas; a power of ten from 1e9 on."""
    if not np.isfinite(value):
        return "∞" if value > 0 else str(value)
    return f"{value:,.0f}" if 1000.0 <= abs(value) < 1e9 else f"{value:.3g}"
