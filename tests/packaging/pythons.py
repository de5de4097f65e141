"""The Pythons that pyproject.toml declares and this machine has.

``python -m tests.packaging.pythons`` prints the interpreters other than the running one, for
``make pythons``.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.peers.environments import NotInstalled, interpreter
from tests.examples.running import ROOT

DECLARED: list[str] = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())


def _found() -> Iterator[tuple[str, Path]]:
    for each in DECLARED:
        try:
            yield each, interpreter(each)
        except NotInstalled:
            continue


def pythons() -> list[Path]:
    """Return the interpreters of this machine of which pyproject.toml says that we run on them."""
    return [python for _, python in _found()] or [Path(sys.executable)]


if __name__ == "__main__":
    running = "{}.{}".format(*sys.version_info)
    for version, python in _found():
        if version != running:
            print(python)
