"""Imports point down only and form no cycle, engines stay apart, late imports spare a package, and CONTRIBUTING's map
is this file's."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import regard
from regard.engines import ENGINES

ROOT = Path(regard.__file__).parent
LONGEST = 600

# Storeys from top to bottom, each with its rooms from left to right: a room may import itself, rooms to its right and
# rooms of lower storeys.
STOREYS = [
    (("cli", "play", "tour", "racing"), "talk to people; no mathematics"),
    (("reporting", "plot", "store"), "a fitted model in; figures, pages, files (also ONNX) out"),
    (("estimators",), "scikit-learn shells: the only place where X and y exist"),
    (("public", "cluster"), "pool of arrays, tensors or dask; pooling, fitting and prediction of dask collections"),
    (("model",), "a fitted smoother as plain data: answers, effects, residuals, intervals, explanation, diagnosis"),
    (("bandwidth",), "criterion(w) and its search"),
    (("seq2seq", "nn", "tensors"), "pooling beyond arrays in memory: layers, torch tensors"),
    (("pooling",), "plan, run, and pool arrays in memory"),
    (("engines",), "a problem in; attention moments and gradients out; engines never import each other"),
    (("programs",), "compiled loops on bare arrays, called by engines only"),
    (("core", "data"), "kernels, scores, the associative state, problems; data sets and readers of tables"),
]
PLACE = {room: (storey, column) for storey, (rooms, _) in enumerate(STOREYS) for column, room in enumerate(rooms)}
# Public import paths of what is defined in a room.
RE_EXPORTS = {"scores"}

MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(ROOT.rglob("*.py"))
}
MODULES["regard"] = MODULES.pop("__init__")


def room_of(module: str) -> str:
    """`tour.stations.soft` → `tour`; the public path of the scores is a door of `core`."""
    room = module.split(".")[0]
    return "core" if room in RE_EXPORTS else room


def import_nodes(nodes: Iterable[ast.AST], late: bool = False) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Every import that runs, and whether it waits for a call."""
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, late
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from import_nodes(node.orelse, late)
        else:
            waits = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from import_nodes(ast.iter_child_nodes(node), waits)


def dotted(node: ast.Import | ast.ImportFrom, here: list[str]) -> set[str]:
    """The dotted names that an import in the package ``here`` asks for."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    base = node.module or ""
    if node.level:
        base = ".".join(["regard", *here[: len(here) - node.level + 1], *([base] if base else [])])
    return {f"{base}.{alias.name}" for alias in node.names}


def ours(names: set[str]) -> set[str]:
    """Modules of the package among dotted names, named without `regard.`."""
    return {resolved(full) for full in names if full.split(".")[0] == "regard"} - {""}


def imported(name: str, source: str, package: bool = False) -> set[str]:
    """Modules of the package that a module imports anywhere in its text, types included."""
    here = name.split(".") if package else name.split(".")[:-1]
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]
    return ours(set().union(*(dotted(node, here) for node in nodes)))


def resolved(full: str) -> str:
    """The module behind a dotted name: `regard.pool` stands in `public`, `regard.plot.style.ink` in `plot.style`."""
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
EARLY: dict[str, set[str]] = {}  # dotted names imported with the module
LATE: dict[str, set[str]] = {}  # dotted names imported by a call
for _name, _path in MODULES.items():
    _here = _name.split(".") if _path.name == "__init__.py" else _name.split(".")[:-1]
    _found = list(import_nodes(ast.parse(_path.read_text(encoding="utf-8")).body))
    EARLY[_name], LATE[_name] = (
        set().union(*(dotted(node, _here) for node, waits in _found if waits is late)) for late in (False, True)
    )
ENGINE_MODULES = {path.removeprefix("regard.") for path in ENGINES.values()}


def violations(name: str, targets: set[str]) -> list[str]:
    """What is wrong with a module that imports these."""
    wrong, room = [], room_of(name)
    for target in sorted(targets):
        other = room_of(target)
        if target in ENGINE_MODULES and name in ENGINE_MODULES:
            wrong.append(f"{name} imports {target}: engines never import each other")
        if other == room:
            continue
        if other == "programs" and room != "engines":
            wrong.append(f"{name} imports {target}: only engines call programs")
        if room == "programs":
            wrong.append(f"{name} imports {target}: programs know nothing but programs")
        if room == "plot" and other != "data":
            wrong.append(f"{name} imports {target}: plot takes arrays")
        if other == "data" and PLACE[room] >= PLACE["pooling"]:
            wrong.append(f"{name} imports {target}: the core knows no data sets")
        if not PLACE[other] > PLACE[room]:
            wrong.append(f"{name} imports {target}: imports point down only")
    return wrong


def packages(name: str, seen: set[str] | None = None) -> set[str]:
    """Third-party packages that come with a module."""
    seen = set() if seen is None else seen
    if name in seen or name not in MODULES or name == "regard":
        return set()
    seen.add(name)
    found = {full.split(".")[0] for full in EARLY[name]} - sys.stdlib_module_names - {"regard"}
    return found.union(*(packages(one, seen) for one in [*ours(EARLY[name]), name.rpartition(".")[0]]))


def test_every_module_lives_in_a_known_room() -> None:
    assert {room_of(name) for name in MODULES} - {"regard"} == set(PLACE)


def test_imports_point_down() -> None:
    assert [wrong for name, targets in IMPORTS.items() for wrong in violations(name, targets)] == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("core.scores", "from regard.engines import costs"),
        ("core.state", "import regard.pooling.runner"),
        ("bandwidth.search", "from regard.model.diagnosis import diagnose"),
        ("model.smoother", "from regard.estimators.mixture import KernelRegressor"),
        ("pooling.functions", "from regard import estimators"),
        ("pooling.functions", "from regard import NadarayaWatsonRegressor"),
        ("pooling.functions", "from regard.tensors import pool_tensors"),
        ("pooling.functions", "from regard.programs.cpu.lanes import decay"),
        ("estimators.base", "def late():\n    from regard.plot import style"),
        ("engines.cpu.reference", "from regard.engines.cpu.tiled import moments"),
        ("engines.cpu.tiled", "from regard.engines.cpu import reference"),
        ("engines.cpu.pruned", "from . import tiled"),
        ("programs.cpu.gaussian_sums", "from regard.pooling.planner import plan"),
        ("data.table", "from regard.scores import KERNELS"),
        ("plot.style", "from regard.estimators import AveragePoolingRegressor"),
        ("plot.heatmaps", "from regard import pool"),
        ("pooling.planner", "from regard.data import notes"),
        ("tour.guide", "from ..cli import app"),
        ("nn.attention_pooling", "from regard.bandwidth import loo_objective"),
        ("nn.scores", "from regard import NadarayaWatsonRegressor"),
    ],
)
def test_the_rules_bite(name: str, source: str) -> None:
    assert violations(name, imported(name, source))


def test_a_late_import_of_another_room_spares_a_package() -> None:
    """Imports stand at the top, except where one would bring a package that the module has not imported already."""
    needless = [
        f"{name} imports {target} late"
        for name in IMPORTS
        for target in sorted(ours(LATE[name]))
        if room_of(target) != room_of(name) and not packages(target) - packages(name)
    ]
    assert needless == []


def test_modules_form_no_cycle() -> None:
    def parents(name: str) -> set[str]:
        return {target for target in ours(EARLY[name] | LATE[name]) if not f"{name}.".startswith(f"{target}.")}

    try:
        TopologicalSorter({name: parents(name) for name in IMPORTS}).prepare()
    except CycleError as found:
        pytest.fail(" -> ".join(found.args[1]))


@pytest.mark.parametrize(
    ("name", "source"),
    [
        (
            "engines.cpu.pruned",
            "from regard.engines.cpu import passes\nfrom regard.engines.cpu.program_inputs import packed",
        ),
        (
            "engines.cpu.tiled",
            "from .program_inputs import packed\nfrom regard.programs.cpu.pair_scores import PairInputs",
        ),
        ("cli.fit", "from regard import NadarayaWatsonRegressor, __version__\nfrom regard.store.models import save"),
        ("tour.guide", "import numpy\nfrom regard.data import notes"),
        ("pooling.functions", "from regard import engines"),
    ],
)
def test_the_rules_allow(name: str, source: str) -> None:
    assert violations(name, imported(name, source)) == []


def test_the_front_door_imports_nothing() -> None:
    """Public names are strings until used; what they point at exists."""
    assert imported("regard", MODULES["regard"].read_text(encoding="utf-8"), package=True) == set()
    for name, module in regard._PUBLIC.items():
        assert module.removeprefix("regard.") in MODULES, name
    assert set(regard._MODULES) <= set(MODULES)


def lines_of_code(source: str) -> int:
    """Lines without docstrings, whose length is that of the API reference."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, documented)]
    texts = [node.body[0] for node in nodes if ast.get_docstring(node, clean=False) is not None]
    return source.count("\n") - sum((text.end_lineno or text.lineno) - text.lineno + 1 for text in texts)


def test_files_stay_short() -> None:
    lines = {name: lines_of_code(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}
    assert {name: count for name, count in lines.items() if count > LONGEST} == {}, "is each of them one idea?"


def test_the_map_of_contributing_is_this_one() -> None:
    drawn = "\n".join(f"{'/  '.join(rooms) + '/':<43} {what}" for rooms, what in STOREYS)
    text = (ROOT.parent.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert drawn in text, f"CONTRIBUTING.md should show\n\n{drawn}"
