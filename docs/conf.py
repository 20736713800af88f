"""How the site is built: the pages of this folder, and the reference out of the docstrings (`make docs`)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import fairway

if TYPE_CHECKING:
    from docutils.nodes import Element
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

project = "fairway"
author = "the fairway authors"
copyright = "the fairway authors, MIT or Apache 2.0"
release = version = fairway.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.intersphinx",
    "sphinx.ext.viewcode",
    "sphinxcontrib.mermaid",
]
exclude_patterns = ["build"]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb", ".rst": "restructuredtext"}
# The notebook has its outputs in it: a test executes it and compares them.
nb_execution_mode = "off"

myst_enable_extensions = ["attrs_inline"]
myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]
# Links out of this folder lead to files of the repository, most of which are no pages of the site.
suppress_warnings = ["myst.xref_missing"]

# A name in single backquotes is one of ours, if the reference has it.
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": True}
add_module_names = False
python_use_unqualified_type_names = True

html_static_path = ["static"]
html_css_files = ["wide.css"]
html_theme = "furo"
html_title = "fairway"
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}

_ABOUT = {"README": "readme", "CONTRIBUTING": "contributing", "CHANGELOG": "changelog", "SECURITY": "security"}
_ABOUT |= {"CODE_OF_CONDUCT": "conduct"}


def _lead_to_the_pages_about(_app: Sphinx, _page: str, source: list[str]) -> None:
    """Let links to the files beside this folder lead to their pages."""
    names = "|".join(_ABOUT)
    source[0] = re.sub(
        rf"\]\((?:\.\./)+({names})\.md", lambda found: f"](/about/{_ABOUT[found.group(1)]}.md", source[0]
    )


def _find_by_short_name(app: Sphinx, env: BuildEnvironment, node: Element, text: Element) -> Any:
    """Let a name without its module lead to the one thing of the reference that has it."""
    python = env.domains["py"]
    found = {full for full in python.data["objects"] if full.rpartition(".")[2] == node.get("reftarget")}
    if node.get("refdomain") != "py" or len(found) != 1:
        return None
    return python.resolve_xref(env, node["refdoc"], app.builder, "obj", found.pop(), node, text)


def setup(app: Sphinx) -> None:
    """Connect the above."""
    app.connect("source-read", _lead_to_the_pages_about)
    app.connect("missing-reference", _find_by_short_name)
