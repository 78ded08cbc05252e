"""Mutation testing: change one operator or constant of a module at a time, and see whether its tests notice.

    python tools/mutation.py src/regard/core/state.py tests/core/test_state.py tests/engines/test_engines.py
    python tools/mutation.py src/regard/bandwidth/objective.py tests/bandwidth --every 3

Every mutant runs in a forked process whose ``regard`` is a copy of the package with the changed module, and pytest
stops at the first failure. A mutant that runs longer than ``--seconds`` counts as killed. Survivors are printed with
their line; ``--every n`` takes each n-th mutant.
"""

from __future__ import annotations

import argparse
import ast
import copy
import io
import multiprocessing
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

ROOT = Path(__file__).parents[1]
COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult,
    ast.MatMult: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


def mutants_of(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Changed copies of one node, each with what was changed."""
    made = copy.copy(node)
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        made.ops = [COMPARISONS[type(node.ops[0])](), *node.ops[1:]]
        yield f"{ast.unparse(node)}  →  {ast.unparse(made)}", made
    elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in ARITHMETIC:
        made.op = ARITHMETIC[type(node.op)]()
        yield f"{ast.unparse(node)}  →  {ast.unparse(made)}", made
    elif isinstance(node, ast.BoolOp):
        made.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield f"{ast.unparse(node)}  →  {ast.unparse(made)}", made
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not | ast.Invert):
        yield f"{ast.unparse(node)}  →  {ast.unparse(node.operand)}", node.operand
    elif isinstance(node, ast.IfExp):
        made.body, made.orelse = node.orelse, node.body
        yield f"{ast.unparse(node)}  →  {ast.unparse(made)}", made
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        made.value = not node.value if isinstance(node.value, bool) else node.value + 1
        yield f"{node.value}  →  {made.value}", made


class _Skip(ast.NodeVisitor):
    """Nodes that no test should depend on.

    Annotations, imports for types, assertions, messages, and thresholds: named numbers of a module that tests read
    from the code instead of repeating them.
    """

    def __init__(self) -> None:
        self.nodes: set[int] = set()

    def _skip(self, node: ast.AST | None) -> None:
        if node is not None:
            self.nodes.update(map(id, ast.walk(node)))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._skip(node.annotation)
        self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> None:
        self._skip(node.annotation)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._skip(node.returns)
        self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        self._skip(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if all(isinstance(target, ast.Name) and target.id.isupper() for target in node.targets):
            self._skip(node)
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._skip(node)

    def visit_Assert(self, node: ast.Assert) -> None:
        self._skip(node)

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" in ast.unparse(node.test):
            self._skip(node)
        self.generic_visit(node)


def mutants(source: str) -> Iterator[tuple[int, str, str]]:
    """Line, change and text of every mutant of a module."""
    tree = ast.parse(source)
    skip = _Skip()
    skip.visit(tree)
    for node in ast.walk(tree):
        if id(node) in skip.nodes:
            continue
        for change, made in mutants_of(node):
            # Text of the whole module, so that whatever reads its file sees the mutant too.
            memo = {id(node): made}
            yield node.lineno, change, ast.unparse(ast.fix_missing_locations(copy.deepcopy(tree, memo)))


def _run(package: Path, tests: list[str]) -> None:
    """In a forked process: exit 0 if all tests pass with this package."""
    sys.path.insert(0, str(package))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(package), str(ROOT / "tests")])
    import pytest

    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        code = pytest.main(["-x", "-q", "-n0", "-p", "no:cacheprovider", "--no-header", *tests])
    os._exit(int(code))


def survives(package: Path, tests: list[str], seconds: float) -> bool:
    process = multiprocessing.get_context("fork").Process(target=_run, args=(package, tests))
    process.start()
    process.join(seconds)
    if process.is_alive():
        process.kill()
        process.join()
        return False
    return process.exitcode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module", type=Path)
    parser.add_argument("tests", nargs="+")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=300.0)
    given = parser.parse_args()
    # Libraries that do not change are imported once, before the forks.
    import mpmath  # noqa: F401
    import numba  # noqa: F401
    import pytest  # noqa: F401
    import scipy.optimize  # noqa: F401
    import sklearn.utils.validation  # noqa: F401

    os.chdir(ROOT)
    module = given.module.resolve().relative_to(ROOT / "src")
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder)
        shutil.copytree(ROOT / "src" / "regard", package / "regard")
        original = (package / module).read_text(encoding="utf-8")
        if not survives(package, given.tests, 10 * given.seconds):
            sys.exit("the tests fail without any change")
        chosen = list(mutants(original))[:: given.every]
        alive = 0
        for number, (line, change, text) in enumerate(chosen, 1):
            (package / module).write_text(text, encoding="utf-8")
            if survives(package, given.tests, given.seconds):
                alive += 1
                print(f"survived: {module}:{line}: {change}", flush=True)
            if number % 20 == 0:
                print(f"{number} of {len(chosen)} mutants, {number - alive} killed", flush=True)
    killed = len(chosen) - alive
    print(f"{module}: {killed} of {len(chosen)} mutants killed ({killed / len(chosen):.1%})")


if __name__ == "__main__":
    main()
