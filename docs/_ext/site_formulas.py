"""Formulas as MathML, which browsers draw themselves: no script, no fonts, nothing from elsewhere."""

from __future__ import annotations

from typing import Any

from docutils.nodes import Node, SkipNode
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx


def inline(writer: Any, node: Node) -> None:
    writer.body.append(tex2mathml(node.astext()))
    raise SkipNode


def block(writer: Any, node: Node) -> None:
    writer.body.append(f'<div class="math">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
