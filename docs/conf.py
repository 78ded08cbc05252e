"""The site: Sphinx with the pages of docs/, the gallery and an API reference made from the docstrings (`make docs`)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "_ext"))
sys.path.insert(0, str(HERE.parent / "tools"))
sys.path.insert(0, str(HERE.parent / "src"))
# The gallery draws into files, and trains on one thread, so that its numbers do not depend on the machine's cores.
os.environ.setdefault("MPLBACKEND", "agg")

import regard  # noqa: E402

project = "regard"
author = "the regard developers"
version = release = regard.__version__
html_title = "regard"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "numpydoc",
    "site_docstrings",
    "site_names",
    "sphinx_gallery.gen_gallery",
    "site_pages",
    "site_languages",
    "site_formulas",
]
exclude_patterns = [
    "_build",
    "_ext",
    "_templates",
    "gallery",
    "screenshots",
    "**/GALLERY_HEADER.*",
    "**sg_execution_times*",
]
templates_path = ["_templates"]
nitpicky = True
# Quotation marks of names and of code stay as they are.
smartquotes = False
# Base classes of torch, which has a reference of its own.
nitpick_ignore = [("py:class", "Module")]

# Pages are Markdown that reads well without Sphinx, too.
myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath", "deflist"]
myst_links_external_new_tab = False

# Docstrings: one backtick pair is code; types stand in their Parameters sections, not in the signatures.
default_role = "code"
autodoc_typehints = "none"
autodoc_preserve_defaults = True
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
numpydoc_xref_param_type = False

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "auto_gallery",
    "filename_pattern": r"/plot_",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_signature": False,
    "min_reported_time": 1e9,
    "plot_gallery": True,
    "within_subsection_order": "FileNameSortKey",
    "image_scrapers": ("matplotlib",),
}

html_theme = "pydata_sphinx_theme"
# The font of the package, for Chinese on machines without such a font.
html_static_path = ["_static", "../src/regard/plot/fonts/RegardSansSC.otf"]
html_css_files = ["site.css"]
html_search_language = "en+zh"
html_show_sourcelink = False
html_copy_source = False
# Summaries are fetched, which browsers refuse for pages opened from a folder.
html_show_search_summary = False
html_context = {"default_mode": "auto"}
# First pages have no list beside them.
html_sidebars = {"index": [], "index.zh": []}
html_theme_options = {
    "logo": {"text": "regard"},
    "navbar_start": ["navbar-logo"],
    "navbar_center": ["site-sections"],
    "navbar_end": ["theme-switcher"],
    "navbar_persistent": ["search-button", "site-languages"],
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["site-footer"],
    "footer_end": [],
    "show_prev_next": True,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
