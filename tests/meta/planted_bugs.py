"""Does the suite notice? Plants one bug at a time and runs the tests that must catch it.

``python -m tests.meta.planted_bugs [--backend NAME] [--only NAME] [--model] [--list]``: each bug
goes into a copy of the package; the tests are those of the tree, on the bug's backend. With
``--model`` the model alone has to notice. Exits with 1 when a clean copy fails or a bug is missed.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from tests.meta.bugs import BUGS, Bug, Edit
from tests.meta.clock_bugs import CLOCK_BUGS
from tests.meta.edge_bugs import EDGE_BUGS
from tests.meta.fleet_bugs import FLEET_BUGS
from tests.meta.odd_bugs import ODD_BUGS
from tests.meta.postgres_bugs import POSTGRES_BUGS
from tests.meta.redis_bugs import REDIS_BUGS

ROOT = Path(__file__).parents[2]
_PACKAGE = "forge_jobs"
# A bug may make the store hang. Without bugs all files run, on a machine that may be busy.
_SECONDS = 180
_CLEAN_SECONDS = 1_800
_MODEL = "tests/conformance/model/test_model.py"
EVERY = (*BUGS, *CLOCK_BUGS, *EDGE_BUGS, *FLEET_BUGS, *ODD_BUGS, *POSTGRES_BUGS, *REDIS_BUGS)
_TESTS_FAILED = 1

# Imported before pytest puts the tree on the path, the package stays the copy.
_RUN = """
import sys
sys.path.insert(0, sys.argv[1])
import forge_jobs, pytest
assert forge_jobs.__file__.startswith(sys.argv[1]), forge_jobs.__file__
sys.exit(pytest.main(sys.argv[2:]))
"""


def plant(edits: Iterable[Edit], folder: Path) -> None:
    """Copy the package into ``folder`` and apply the edits.

    :raises ValueError: an edit's text is not found exactly once
    """
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / _PACKAGE, folder / _PACKAGE, ignore=ignored)
    for edit in edits:
        path = folder / edit.file
        text = path.read_text()
        found = text.count(edit.old)
        if found != 1:
            raise ValueError(f"{edit.file}: found {found} times, not once: {edit.old!r}")
        path.write_text(text.replace(edit.old, edit.new))


def run_tests(tests: Iterable[str], backend: str, edits: Sequence[Edit] = ()) -> tuple[int, str]:
    """pytest's exit code on a copy with these edits, and what it printed."""
    chosen = f"{backend} and not cluster"
    with tempfile.TemporaryDirectory() as name:
        plant(edits, Path(name))
        command = [sys.executable, "-c", _RUN, name, "-x", "-q", "--tb=line", "-k", chosen]
        try:
            ran = subprocess.run(
                [*command, *tests],
                cwd=ROOT,
                env=os.environ | {"FORGE_MODEL_SHRINK": "0"},
                capture_output=True,
                text=True,
                timeout=_SECONDS if edits else _CLEAN_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            # A bug that makes the store hang has been noticed all the same.
            return _TESTS_FAILED, "hung"
    return ran.returncode, ran.stdout + ran.stderr


def verdict(bug: Bug) -> tuple[bool, str]:
    """Whether the tests notice the bug, and a line that says so."""
    try:
        code, output = run_tests(bug.tests, bug.backend, bug.edits)
    except ValueError as error:
        return False, f"ERROR   {bug.name}: {error}"
    if code == _TESTS_FAILED:
        failed = next((x for x in output.splitlines() if x.startswith("FAILED")), output[-80:])
        by = failed.partition("::")[2].partition(" - ")[0] or failed
        return True, f"caught  {bug.name}: {by}"
    if code == 0:
        return False, f"MISSED  {bug.name}"
    return False, f"ERROR   {bug.name}: pytest ended with {code}\n{output}"


def main() -> int:
    """Run what the command line asks for; the exit code."""
    parser = argparse.ArgumentParser(description="Plant bugs and see whether the suite notices.")
    parser.add_argument("--only", metavar="NAME", help="bugs whose name contains this")
    parser.add_argument("--backend", choices=["sqlite", "postgres", "redis"])
    parser.add_argument("--model", action="store_true", help="whether the model alone notices")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    arguments = parser.parse_args()
    chosen = [
        replace(bug, tests=(_MODEL,)) if arguments.model else bug
        for bug in EVERY
        if (not arguments.only or arguments.only in bug.name)
        and arguments.backend in {None, bug.backend}
    ]
    if arguments.list:
        print("\n".join(bug.name for bug in chosen))
        return 0
    if not chosen:
        parser.error(f"no bug's name contains {arguments.only!r}")
    for backend in sorted({bug.backend for bug in chosen}):
        tests = {test for bug in chosen if bug.backend == backend for test in bug.tests}
        code, output = run_tests(sorted(tests), backend)
        if code != 0:
            print(f"ERROR   the suite fails on {backend} without any bug:\n{output}")
            return 1
    missed = 0
    with ThreadPoolExecutor(max_workers=2) as pool:
        for noticed, line in pool.map(verdict, chosen):
            print(line, flush=True)
            missed += not noticed
    print(f"{len(chosen) - missed} of {len(chosen)} caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
