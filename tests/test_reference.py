"""The API reference has every public name; docstrings have every parameter, what comes back, and an example."""

from __future__ import annotations

import inspect
import sys
from importlib import import_module
from pathlib import Path

import pytest

import regard
from support.docstrings import gives_something, parameters, taken_apart

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "docs" / "_ext"))
import site_api  # noqa: E402

MODULES = ["regard", *(f"regard.{name}" for name in regard._MODULES), "regard.cluster"]
# Modules are not values, and the version is a string that needs no words.
NAMES = {module: sorted(set(import_module(module).__all__) - {*regard._MODULES, "__version__"}) for module in MODULES}
VALUES = {f"{module}.{name}": getattr(import_module(module), name) for module in NAMES for name in NAMES[module]}
METHODS = {
    f"{path}.{name}": getattr(value, name)
    for path, value in VALUES.items()
    if inspect.isclass(value)
    for name in site_api.own_methods(value)
}
CALLABLES = {path: value for path, value in VALUES.items() if callable(value)}
# An inherited method has one docstring.
DISTINCT = {getattr(value, "__func__", value): path for path, value in METHODS.items()}


def test_the_reference_shows_every_public_name_once():
    shown = {module: sorted(site_api.names_of(module)) for module in site_api.GROUPS}
    assert shown == NAMES


@pytest.mark.parametrize("path", [*CALLABLES, *sorted(DISTINCT.values())])
def test_every_parameter_is_documented_and_every_documented_one_is_there(path):
    value = CALLABLES.get(path, METHODS.get(path))
    documented = taken_apart(value)
    assert documented.summary.endswith((".", ":")), "the docstring's first paragraph is a sentence"
    wanted = parameters(value)
    # Fields of a record are its attributes.
    listed = documented.names("Parameters")
    if inspect.isclass(value) and not listed:
        listed = [name for name in documented.names("Attributes") if name in wanted]
    assert listed == list(dict.fromkeys(listed)), "documented twice"
    assert sorted(listed) == sorted(wanted)


@pytest.mark.parametrize(
    "path", [*(path for path in CALLABLES if not inspect.isclass(VALUES[path])), *sorted(DISTINCT.values())]
)
def test_every_function_says_what_it_returns(path):
    value = CALLABLES.get(path, METHODS.get(path))
    if gives_something(value):
        sections = taken_apart(value).sections
        assert "Returns" in sections or "Yields" in sections


@pytest.mark.parametrize("path", VALUES)
def test_every_name_has_an_example_that_the_suite_runs(path):
    value = VALUES[path]
    if callable(value):
        assert taken_apart(value).example
        assert inspect.getmodule(value).__name__.startswith("regard."), "doctests of the package run"
    else:  # a constant has no docstring: its module shows it
        module, name = path.rsplit(".", 1)
        lines = (line for line in inspect.getdoc(import_module(module)).splitlines() if line.startswith(">>> "))
        assert any(name in line for line in lines)
