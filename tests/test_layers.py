"""Imports point down only, engines stay apart, and one file holds one idea."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import regard
from regard.planner import ENGINES

ROOT = Path(regard.__file__).parent
LONGEST = 400

# Rooms from top to bottom; a room may import itself and what stands in lower lines.
LEVELS = [
    {"cli"},
    {"tour", "play", "racing", "reporting"},
    {"plot"},
    {"onnx"},
    {"store"},
    {"estimators"},
    {"inference"},
    {"bandwidth"},
    {"seq2seq"},
    {"nn"},
    {"streaming"},
    {"gaps"},
    {"pooling", "local", "tensors", "folds", "chunks"},
    {"runner"},
    {"engines"},
    {"planner", "cluster"},
    {"costs"},
    {"lines", "shelves"},
    {"problem"},
    {"bounds", "labels", "progress"},
    {"partial"},
    {"scores"},
    {"kernels"},
    {"twice"},
    {"arrays", "forks"},
]
LEVEL = {room: number for number, rooms in enumerate(LEVELS) for room in rooms}
# Outside the ladder: programs are the engines' own, data stands at the bottom and serves everybody above pooling.
OTHERS = {"programs", "data", "text"}

MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(ROOT.rglob("*.py"))
}
MODULES["regard"] = MODULES.pop("__init__")


def room_of(module: str) -> str:
    """`tour.stations.soft` → `tour`."""
    return module.split(".")[0]


def imported(name: str, source: str, package: bool = False) -> set[str]:
    """Modules of the package, named without `regard.`, that a module imports anywhere in its text."""
    found = set()
    here = name.split(".") if package else name.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join(["regard", *here[: len(here) - node.level + 1], *([base] if base else [])])
            found |= {f"{base}.{alias.name}" for alias in node.names}
    return {resolved(full) for full in found if full.split(".")[0] == "regard"} - {""}


def resolved(full: str) -> str:
    """The module behind a dotted name: `regard.pool` stands in `pooling`, `regard.plot.style.ink` in `plot.style`."""
    parts = full.split(".")[1:]
    if len(parts) == 1 and parts[0] in regard._PUBLIC:
        return regard._PUBLIC[parts[0]].removeprefix("regard.")
    while parts and ".".join(parts) not in MODULES:
        parts.pop()
    return ".".join(parts)


IMPORTS = {
    name: imported(name, path.read_text(encoding="utf-8"), path.name == "__init__.py")
    for name, path in MODULES.items()
    if name != "regard"
}


def violations(name: str, targets: set[str]) -> list[str]:
    """What is wrong with a module that imports these."""
    wrong = []
    room = room_of(name)
    for target in sorted(targets):
        other = room_of(target)
        if other == room:
            engine = target.split(".")[1] if room == "engines" and target != room else ""
            if engine in ENGINES and name.split(".")[1:2] != [engine]:
                wrong.append(f"{name} imports {target}: engines never import each other")
            continue
        if other == "programs" and room != "engines":
            wrong.append(f"{name} imports {target}: only engines call programs")
        if room == "programs":
            wrong.append(f"{name} imports {target}: programs know nothing but programs")
        if room == "data":
            wrong.append(f"{name} imports {target}: data imports nothing of the other rooms")
        if room == "plot" and other != "data":
            wrong.append(f"{name} imports {target}: plot takes arrays")
        if other == "data" and LEVEL.get(room, 0) >= LEVEL["pooling"]:
            wrong.append(f"{name} imports {target}: the core knows no data sets")
        if room in LEVEL and other in LEVEL and LEVEL[other] < LEVEL[room]:
            wrong.append(f"{name} imports {target}: imports point down only")
    return wrong


def test_every_module_lives_in_a_known_room():
    assert {room_of(name) for name in MODULES} - {"regard"} <= set(LEVEL) | OTHERS


@pytest.mark.parametrize("name", IMPORTS)
def test_imports_point_down(name):
    assert violations(name, IMPORTS[name]) == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("scores", "from regard.partial import merge"),
        ("partial", "import regard.problem"),
        ("bandwidth.search", "from regard.inference import diagnose"),
        ("inference.looks", "from regard.estimators.heads import KernelRegressor"),
        ("pooling", "from regard import estimators"),
        ("pooling", "from regard import NadarayaWatsonRegressor"),
        ("pooling", "from regard.programs.lanes import decay"),
        ("estimators.base", "def late():\n    from regard.plot import style"),
        ("engines.reference", "from regard.engines.tiled import moments"),
        ("engines.words", "from regard.engines import reference"),
        ("engines.pruned", "from . import tiled"),
        ("programs.fused", "from regard.planner import plan"),
        ("data.table", "from regard.scores import KERNELS"),
        ("plot.style", "from regard.estimators import AveragePoolingRegressor"),
        ("plot.heatmaps", "from regard import pool"),
        ("planner", "from regard.data import notes"),
        ("tour.guide", "from ..cli import app"),
        ("nn.pooling", "from regard.bandwidth import loo_objective"),
        ("nn.scores", "from regard import NadarayaWatsonRegressor"),
    ],
)
def test_the_rules_bite(name, source):
    assert violations(name, imported(name, source))


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("engines.pruned", "from regard.engines import passes\nfrom regard.engines.words import frozen"),
        ("engines.tiled", "from .words import frozen\nfrom regard.programs.pairs import Pairs"),
        ("cli.fit", "from regard import NadarayaWatsonRegressor, __version__\nfrom regard.store import save"),
        ("tour.guide", "import numpy\nfrom regard.data import notes"),
        ("pooling", "from regard import engines"),
    ],
)
def test_the_rules_allow(name, source):
    assert violations(name, imported(name, source)) == []


def test_the_front_door_imports_nothing():
    """Public names are strings until used; what they point at exists."""
    assert imported("regard", MODULES["regard"].read_text(encoding="utf-8"), package=True) == set()
    for name, module in regard._PUBLIC.items():
        assert module.removeprefix("regard.") in MODULES, name
    assert set(regard._MODULES) <= set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_files_stay_short(name):
    lines = MODULES[name].read_text(encoding="utf-8").count("\n")
    assert lines < LONGEST, f"{name} has {lines} lines: split it"
