"""The API reference: a page for each module of `reference.toml` and one for each public name, from its docstring."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

GROUPS = tomllib.loads((Path(__file__).parent / "reference.toml").read_text(encoding="utf-8"))


def names_of(module: str) -> list[str]:
    """The names that the reference shows of a module, in its order."""
    return [name for group in GROUPS[module]["groups"] for name in group["names"]]


def own_methods(cls: type) -> list[str]:
    """Public methods that regard defines, inherited ones included, without those of scikit-learn and torch."""
    foreign = [base for base in cls.__mro__ if not base.__module__.startswith("regard.")]
    found = []
    for name in dir(cls):
        member = getattr(cls, name)
        if name.startswith("_") or not callable(member):
            continue
        # What a base of torch or scikit-learn prescribes, such as `extra_repr`, is documented there.
        prescribed = name != "forward" and any(name in vars(base) for base in foreign)
        if (getattr(member, "__module__", None) or "").startswith("regard.") and not prescribed:
            found.append(name)
    return found


def own_properties(cls: type) -> list[str]:
    """Public properties that regard defines."""
    found = []
    for name in dir(cls):
        member = inspect.getattr_static(cls, name)
        if not name.startswith("_") and isinstance(member, property) and member.fget.__module__.startswith("regard."):
            found.append(name)
    return found


def first_line(value: Any) -> str:
    text = inspect.getdoc(value) if callable(value) else None
    return (text or "").strip().split("\n\n")[0].replace("\n", " ")


def heading(text: str, mark: str = "=") -> list[str]:
    # Chinese and Greek letters may be wider than one column.
    return [text, mark * (2 * len(text)), ""]


def page_of(module: str, name: str) -> str:
    value = getattr(import_module(module), name)
    lines = [*heading(name), f".. currentmodule:: {module}", ""]
    if inspect.isclass(value):
        # Classes of static signature show it; methods have their own entries.
        lines += [f".. autoclass:: {name}", ""]
        for title, members, directive in (
            ("Methods", own_methods(value), "automethod"),
            ("Properties", own_properties(value), "autoproperty"),
        ):
            if members:
                lines += [f".. rubric:: {title}", ""]
                lines += [line for member in members for line in (f".. {directive}:: {name}.{member}", "")]
    elif callable(value):
        lines += [f".. autofunction:: {name}", ""]
    else:
        lines += [f".. autodata:: {name}", "   :no-value:" if len(repr(value)) > 200 else "", ""]
    return "\n".join(lines)


def module_page(module: str) -> str:
    lines = [*heading(module), GROUPS[module]["about"].strip(), ""]
    for group in GROUPS[module]["groups"]:
        lines += [*heading(group["title"], "-"), ".. list-table::", "   :widths: auto", "   :class: names", ""]
        for name in group["names"]:
            lines += [f"   * - :doc:`{name} <{module}.{name}>`", f"     - {summary(module, name)}"]
        lines += [""]
    pages = [f"   {module}.{name}" for name in names_of(module)]
    return "\n".join([*lines, ".. toctree::", "   :hidden:", "", *pages, ""])


def summary(module: str, name: str) -> str:
    value = getattr(import_module(module), name)
    return first_line(value) if callable(value) else GROUPS[module]["constants"][name]


def write_reference(folder: Path, write: Callable[[Path, str], None]) -> set[Path]:
    """Write all pages; their paths."""
    pages = {"index": index_page()}
    for module in GROUPS:
        pages[module] = module_page(module)
        pages |= {f"{module}.{name}": page_of(module, name) for name in names_of(module)}
    for page, text in pages.items():
        write(folder / f"{page}.rst", text)
    return {folder / f"{page}.rst" for page in pages}


def index_page() -> str:
    lines = [
        *heading("API reference"),
        "Every public name, with parameters, shapes, returns, errors and an example. The text comes from the",
        "docstrings: ``help(regard.pool)`` shows the same. Axes are always (…, query, key); Q counts queries, K keys,",
        "d features and P columns of values. A boolean mask says True = may attend.",
        "",
        ".. list-table::",
        "   :widths: auto",
        "   :class: names",
        "",
    ]
    for module, content in GROUPS.items():
        lines += [f"   * - :doc:`{module} <{module}>`", f"     - {content['line']}"]
    return "\n".join([*lines, "", ".. toctree::", "   :hidden:", "", *(f"   {module}" for module in GROUPS), ""])
