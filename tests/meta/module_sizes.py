"""Refuses modules that no longer fit in one head, and crumbs without a reason.

Run it with ``python -m tests.meta.module_sizes``.
"""

import sys
from pathlib import Path

from tests.meta.small_modules import REASONS, SMALL

ROOT = Path(__file__).parents[2]
LIMITS = {"forge_jobs": 400, "tests": 500, "bench": 400, "examples": 200}
LUA_LIMIT = 80


def oversized() -> list[str]:
    """Return a line per module above the limit."""
    found = []
    for folder, limit in LIMITS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            lines = len(path.read_text().splitlines())
            if lines > limit:
                found.append(f"{path.relative_to(ROOT)}: {lines} lines, at most {limit}")
    for path in sorted((ROOT / "forge_jobs").rglob("*.lua")):
        lines = len(path.read_text().splitlines())
        if lines > LUA_LIMIT:
            found.append(f"{path.relative_to(ROOT)}: {lines} lines, at most {LUA_LIMIT}")
    return found


def crumbs() -> list[str]:
    """Return a line per small module without a reason, and per reason without a small module."""
    package = ROOT / "forge_jobs"
    small = {
        path.relative_to(package).with_suffix("").as_posix()
        for path in package.rglob("*.py")
        if path.name != "__init__.py" and len(path.read_text().splitlines()) < SMALL
    }
    explained = {name for names in REASONS.values() for name in names}
    return [
        f"forge_jobs/{name}.py: under {SMALL} lines. Join it to a neighbour, or give the reason in "
        "tests/meta/small_modules.py"
        for name in sorted(small - explained)
    ] + [
        f"tests/meta/small_modules.py: {name} is no module under {SMALL} lines. Take it out"
        for name in sorted(explained - small)
    ]


if __name__ == "__main__":
    problems = oversized() + crumbs()
    print("\n".join(problems) or "every module is within its limit")
    sys.exit(bool(problems))
