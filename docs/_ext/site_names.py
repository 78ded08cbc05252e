"""Public names written as code, such as ``regard.pool`` or ``KernelRegressor``, become links to the API reference."""

from __future__ import annotations

import re
from importlib import import_module

from docutils import nodes
from site_api import GROUPS, names_of
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform


def public_paths() -> dict[str, str]:
    """Every way to write a public name → its full path; short names only if one thing has them."""
    paths = {f"{module}.{name}": f"{module}.{name}" for module in GROUPS for name in names_of(module)}
    short: dict[str, list[str]] = {}
    for path in paths:
        module, name = path.rsplit(".", 1)
        # Short names that are plain words, such as `beam` or `notes`, often mean something else.
        if name != name.lower() and callable(getattr(import_module(module), name)):
            short.setdefault(name, []).append(path)
    return paths | {name: found[0] for name, found in short.items() if len(found) == 1}


class LinkNames(SphinxPostTransform):
    """Literals that are public names, with or without arguments, as references."""

    default_priority = 5  # before references are resolved
    names = public_paths()

    def run(self) -> None:
        for literal in list(self.document.findall(nodes.literal)):
            if isinstance(literal.parent, nodes.reference | addnodes.pending_xref | nodes.title):
                continue
            written = re.sub(r"\(.*\)$", "", literal.astext(), flags=re.S)
            path = self.names.get(written)
            here = self.env.docname == f"api/{path}"
            if path is None or here:
                continue
            reference = addnodes.pending_xref(
                "", refdomain="py", reftype="obj", reftarget=path, refexplicit=True, refwarn=True
            )
            reference["refdoc"] = self.env.docname
            literal.replace_self(reference)
            reference += literal


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_post_transform(LinkNames)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
