"""How the manual is built: ``make docs``. Every warning is an error there.

The source folder is the root of the repository, so that the pages of ``docs/``, the decisions in
``adr/`` and the files that they link to stand at the same paths in the site as in the repository.
"""

from importlib.metadata import version as version_of
from typing import Any

import forge_jobs

project = "forge_jobs"
release = version = version_of("forge-jobs")
copyright = "the authors of forge_jobs, MIT license"

extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "docs/index"
include_patterns = ["docs/*.md", "adr/*.md", "README.md", "CHANGELOG.md", "SECURITY.md"]
# Folders that the search for pages does not enter.
exclude_patterns = [".*", "**/__pycache__", "docs/theme"]
exclude_patterns += ["bench*", "build", "dist", "examples", "forge_jobs", "tests"]
nitpicky = True

# -- pages ---------------------------------------------------------------------------------------

myst_heading_anchors = 4
myst_links_external_new_tab = False
# Pygments does not know the words of PostgreSQL's procedural language.
suppress_warnings = ["misc.highlighting_failure"]

# -- docstrings ----------------------------------------------------------------------------------

autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"
# Types of the standard library and of libraries have no page here; names of forge_jobs must have.
nitpick_ignore_regex = [
    (r"py:.*", r"(?!forge_jobs)(.*)"),
    (r"py:.*", r"forge_jobs\.(clock|commands|handlers|model|policy|privacy)\..*"),
    (r"py:.*", r"forge_jobs\.(operating|runtime|storage|testing|web)\..*"),
    (r"py:.*", r"forge_jobs\..*\.[A-Z]"),  # type variables
]

# -- the site ------------------------------------------------------------------------------------

html_theme = "furo"
html_title = f"forge_jobs {release}"
html_static_path: list[str] = []
html_extra_path = ["theme/index.html"]
html_show_sphinx = False
html_copy_source = False
# The pages name no other host: they can be read, and searched, without a network and a server.
# Summaries of results would be fetched, which a browser refuses to pages opened from file://.
html_show_search_summary = False
html_theme_options = {"footer_icons": []}


def _public_name(target: str) -> str:
    """``forge_jobs.Job`` for ``forge_jobs.model.jobs.Job``: where the manual describes a name."""
    parts = target.removeprefix("~").split(".")
    for position, part in enumerate(parts):
        if part in forge_jobs.__all__:
            return ".".join(("forge_jobs", *parts[position:]))
    return target


def _resolve(app: Any, env: Any, node: Any, content: Any) -> Any:
    """Lead a reference to the page of the public name, wherever the code keeps it."""
    if node.get("refdomain") != "py":
        return None
    target = _public_name(node["reftarget"])
    if target == node["reftarget"]:
        return None
    domain = env.get_domain("py")
    return domain.resolve_xref(
        env, node["refdoc"], app.builder, node["reftype"], target, node, content
    )


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("missing-reference", _resolve)
