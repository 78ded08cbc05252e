"""The page's script in one piece: the tour's own module, and the modules of ``plot/scripts`` that it imports."""

from __future__ import annotations

import re
from importlib.resources import files

_IMPORT = re.compile(r'^import (\{.+\}) from "\./(\w+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:const|function) ([\w$]+))", re.MULTILINE)


def bundled(name: str) -> str:
    """A module and all that it imports as one script: each is a function that returns what it exports.

    Modules import by name, at their top, from files beside them; an ``export`` stands before one constant or function.
    """
    found: dict[str, str] = {}

    def add(module: str) -> None:
        if module not in found:
            source = _source(module)
            for _, imported in _IMPORT.findall(source):
                add(imported)
            exports = ", ".join(_EXPORT.findall(source))
            body = _EXPORT.sub("", _IMPORT.sub(r"const \1 = \2;\n", source))
            found[module] = f"const {module} = (() => {{\n{body}return {{ {exports} }};\n}})();"

    add(name)
    return "\n".join(found.values())


def _source(module: str) -> str:
    own = files("regard.tour") / f"{module}.js"
    return (own if own.is_file() else files("regard") / "plot" / "scripts" / f"{module}.js").read_text(encoding="utf-8")
