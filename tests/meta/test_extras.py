"""An extra installs nothing that the package does not use."""

import re
import tomllib
from pathlib import Path

import forge_jobs

_PACKAGE = Path(forge_jobs.__file__).parent
_PROJECT = tomllib.loads((_PACKAGE.parent / "pyproject.toml").read_text("utf-8"))["project"]

_MODULES = {"opentelemetry-api": "opentelemetry"}
"""Distributions with a module of another name."""


def test_what_an_extra_installs_is_imported() -> None:
    sources = "\n".join(path.read_text("utf-8") for path in _PACKAGE.rglob("*.py"))
    extras: dict[str, list[str]] = _PROJECT["optional-dependencies"]
    for extra, requirements in extras.items():
        for requirement in requirements if extra not in {"dev", "docs"} else ():
            name = re.split(r"[\[<>=;]", requirement)[0].strip()
            module = re.escape(_MODULES.get(name, name.replace("-", "_")))
            used = rf"(import|from) {module}\b|find_spec\(.{module}.\)"
            assert name == "forge-jobs" or re.search(used, sources), f"{extra}: {name}"
