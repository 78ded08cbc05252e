"""The sizes at which the code changes its way, read from the code: whole numbers that something is compared with."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import regard

SOURCE = Path(regard.__file__).parent
ROOMS = ("bandwidth", "estimators", "model", "pooling", "engines", "core")
# Below, a number counts features, neighbours or terms, not rows.
FEWEST = 100


def thresholds() -> dict[str, int]:
    """Module and name → value of every constant of these rooms that decides by size."""
    files = [file for room in ROOMS for file in (SOURCE / room).rglob("*.py")]
    trees = {".".join(file.relative_to(SOURCE).with_suffix("").parts): ast.parse(file.read_bytes()) for file in files}
    deciding = {name for tree in trees.values() for name in _deciding(tree)}
    return {
        f"{module}.{name}": value
        for module, tree in sorted(trees.items())
        for name, value in _whole_numbers(tree)
        if name in deciding and value >= FEWEST
    }


def _whole_numbers(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Constants of a module that are written as whole numbers, such as 20_000 or 1 << 13."""
    for node in tree.body:
        if not isinstance(node, ast.Assign):
            continue
        (names, values) = node.targets[0], node.value
        tuples = isinstance(names, ast.Tuple) and isinstance(values, ast.Tuple)
        for name, value in zip(names.elts, values.elts, strict=True) if tuples else [(names, values)]:
            if isinstance(name, ast.Name) and name.id.isupper():
                try:
                    number = eval(compile(ast.Expression(value), "", "eval"), {"__builtins__": {}})
                except (NameError, TypeError):
                    continue
                if type(number) is int:
                    yield name.id, number


def _deciding(tree: ast.Module) -> Iterator[str]:
    """Names that stand in comparisons, at the ends of slices, and in min and max."""
    for node in ast.walk(tree):
        parts: list[ast.expr | None] = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.Slice):
            parts = [node.lower, node.upper]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
            parts = list(node.args)
        for part in parts:
            for inner in ast.walk(part) if part is not None else ():
                if isinstance(inner, ast.Name | ast.Attribute):
                    yield inner.id if isinstance(inner, ast.Name) else inner.attr
