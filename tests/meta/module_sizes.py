"""Refuses modules that no longer fit in one head: ``python -m tests.meta.module_sizes``."""

import sys
from pathlib import Path

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


if __name__ == "__main__":
    problems = oversized()
    print("\n".join(problems) or "every module is within its limit")
    sys.exit(bool(problems))
