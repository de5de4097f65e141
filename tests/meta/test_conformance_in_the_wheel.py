"""The wheel has all that the conformance suite imports, and the suite is portable."""

import ast
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import forge_jobs

ROOT = Path(forge_jobs.__file__).parents[1]
_WHEEL = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"][
    "wheel"
]
_REPLACED = "tests.support.backends"
"""The plugin of the suite stands for this module."""


def shipped() -> dict[str, Path]:
    """Return the modules of ``tests`` that are in the wheel, by name."""
    files: dict[str, Path] = {}
    for each in _WHEEL["only-include"]:
        path = ROOT / each
        for file in [path] if path.suffix == ".py" else sorted(path.rglob("*.py")):
            name = str(file.relative_to(ROOT))
            if name.startswith("tests/") and not any(
                fnmatch(name, left) for left in _WHEEL["exclude"]
            ):
                files[name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")] = file
    return files


def imports_of(file: Path) -> Iterator[tuple[str, str]]:
    """Yield the modules that a file imports, and the names of each."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)


def test_what_the_suite_imports_is_shipped() -> None:
    files = shipped()
    missing = {
        f"{module}, by {importer}"
        for importer, file in files.items()
        for module, name in imports_of(file)
        if module.partition(".")[0] == "tests"
        and module != _REPLACED
        and (module not in files or (f"{module}.{name}" == _REPLACED))
    }
    assert not missing, (
        f"name these in pyproject.toml (wheel), or use only what is there: {missing}"
    )


def test_the_stand_in_has_what_the_suite_asks_for() -> None:
    from forge_jobs.testing.conformance import backends

    asked = {
        name
        for file in shipped().values()
        for module, name in imports_of(file)
        if module == _REPLACED
    }
    assert asked
    assert asked <= vars(backends).keys()


def test_the_suite_uses_no_backend_and_no_driver() -> None:
    drivers = ("aiosqlite", "asyncpg", "redis", "sqlalchemy", "sqlite3")
    stores = ("forge_jobs.storage.sql", "forge_jobs.storage.redis", "forge_jobs.runtime")
    found = {
        f"{module}, by {importer}"
        for importer, file in shipped().items()
        for module, _ in imports_of(file)
        if module.startswith((*drivers, *stores))
    }
    assert not found
