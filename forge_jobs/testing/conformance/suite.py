"""Where the tests of the suite are, and their parts."""

import ast
from collections.abc import Sequence
from pathlib import Path

from forge_jobs.errors import InvalidInput

_IN_THE_WHEEL = Path(__file__).parent / "tree"
_IN_THE_REPOSITORY = Path(__file__).parents[3]
_SUITE = "tests/conformance"

_OF_SEVERAL_STORES = frozenset({"lost_writes"})
"""Parts that look into the files and servers of this package's own stores."""


def tree() -> Path:
    """Return the folder with the package ``tests``.

    :raises InvalidInput: the suite is not there
    """
    for folder in (_IN_THE_WHEEL, _IN_THE_REPOSITORY):
        if (folder / _SUITE / "test_claim.py").is_file():
            return folder
    raise InvalidInput(
        "suite",
        f"is not in {_IN_THE_WHEEL}",
        "install forge-jobs from its wheel, or run from a checkout of the repository",
    )


def parts() -> dict[str, Path]:
    """Return the file of each part, by the name of the part."""
    files = sorted((tree() / _SUITE).rglob("test_*.py"))
    named = {file.stem.removeprefix("test_"): file for file in files}
    return {name: file for name, file in named.items() if name not in _OF_SEVERAL_STORES}


def about(part: Path) -> str:
    """Return the first line of what a part says of itself."""
    documented = ast.get_docstring(ast.parse(part.read_text())) or ""
    return documented.partition("\n")[0]


def chosen(names: Sequence[str]) -> list[Path]:
    """Return the files of the named parts, of all when none is named.

    :raises InvalidInput: there is no such part
    """
    known = parts()
    for name in names:
        if name not in known:
            raise InvalidInput(
                "part", f"{name!r} is not there", f"give one of {', '.join(known)}, or --list"
            )
    return [known[name] for name in names] or list(known.values())
