"""One Chinese term for one concept, in everything that people read."""

from __future__ import annotations

from pathlib import Path

import pytest

import regard

PACKAGE = Path(regard.__file__).parent
ROOT = PACKAGE.parent.parent
READ = [
    *(path for path in sorted(PACKAGE.rglob("*")) if path.suffix in {".md", ".json", ".toml", ".html"}),
    ROOT / "README.zh-CN.md",
    *sorted(path for path in (ROOT / "docs").rglob("*.zh.md") if "_build" not in path.parts),
]
# The term, and what it is called elsewhere.
TERMS = {
    "共形": ("保形", "适形", "共型", "符合性预测", "一致性预测"),
    "汇聚": ("平均池化", "注意力池化", "聚合", "注意力集中"),
    "查询": ("询问",),
    "提示": ("线索",),
    "权重": ("权值",),
    "评分": ("打分", "得分", "注意力分数"),
    "点积": ("内积", "数量积", "标量积"),
    "带宽": ("频宽", "窗宽", "窗口宽度"),
    "热图": ("热力图",),
    "留一": ("舍一", "弃一", "去一法"),
    "刀切": ("折刀",),
    "隐藏单元": ("隐层", "隐含"),
    "邻居": ("邻近点",),
    "最近": ("最临近", "最邻近"),
}


@pytest.mark.parametrize("term", TERMS)
def test_a_concept_has_one_term(term):
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in READ}
    assert any(term in text for text in texts.values())
    found = {(name, variant) for name, text in texts.items() for variant in TERMS[term] if variant in text}
    assert found == set()
