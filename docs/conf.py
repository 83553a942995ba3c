"""How the site is built: ``uv run --group docs sphinx-build -W -c docs . site``.

Pages are those that lie in the repository, and some are made here: every setting, from the classes
of specifications; the glossary, from the terms of the report; the gallery, from a small sweep that
this build runs; the public names; and the notebooks.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from pmbnn import __version__

project = "pmbnn"
author = "The pmbnn developers"
copyright = author
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "made_pages",
]
include_patterns = [
    "docs/**.md",
    "docs/**.rst",
    "results/README.md",
    "benchmarks/README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
]
exclude_patterns = [".venv/**", "site/**", "tests/**"]
root_doc = "docs/index"
# Blocks without a language are outputs.
highlight_language = "text"

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
# Pages are read on their own too: one may start where another left off.
suppress_warnings = ["myst.header"]

autodoc_typehints = "none"
napoleon_google_docstring = False
napoleon_use_rtype = False

copybutton_prompt_text = "$ "

html_theme = "pydata_sphinx_theme"
html_title = "pmbnn"
html_copy_source = False
templates_path = ["_templates"]
# The start page of the site, which leads to that of the documents.
html_extra_path = ["_root"]
html_sidebars = {"**": ["pages.html"]}
html_theme_options = {
    "show_toc_level": 2,
    # All pages stand at the left.
    "navbar_center": [],
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
}
