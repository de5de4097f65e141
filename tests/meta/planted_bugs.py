"""Plants one bug at a time and runs the tests that must notice.

``python -m tests.meta.planted_bugs [--of GROUP] [--only NAME] [--backend NAME] [--model] [--draw N]
[--list]``

Each bug goes into a copy of the package. The tests are those of the tree, on the bug's backend.
With ``--model`` the model alone has to notice, and only bugs of the stores are planted. All bugs
run, to the last one, and a table ends the run. Exits with 1 when a clean copy fails or a bug is
missed. A test that does not end in time has caught nothing.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from tests.meta.again_bugs import AGAIN_BUGS
from tests.meta.apart_bugs import APART_BUGS
from tests.meta.bugs import BUGS, Bug, Edit
from tests.meta.burst_bugs import BURST_BUGS
from tests.meta.claim_bugs import CLAIM_BUGS
from tests.meta.clock_bugs import CLOCK_BUGS
from tests.meta.command_bugs import COMMAND_BUGS
from tests.meta.edge_bugs import EDGE_BUGS
from tests.meta.edit_bugs import EDIT_BUGS, TIMELINE_BUGS
from tests.meta.executor_bugs import EXECUTOR_BUGS
from tests.meta.fleet_bugs import FLEET_BUGS
from tests.meta.front_bugs import FRONT_BUGS
from tests.meta.group_bugs import GROUP_BUGS
from tests.meta.hiding_bugs import HIDING_BUGS
from tests.meta.history_bugs import HISTORY_BUGS
from tests.meta.hook_bugs import HOOK_BUGS
from tests.meta.injection_bugs import INJECTION_BUGS
from tests.meta.judgement_bugs import JUDGEMENT_BUGS
from tests.meta.key_bugs import KEY_BUGS
from tests.meta.kit_bugs import KIT_BUGS
from tests.meta.lane_bugs import LANE_BUGS
from tests.meta.letter_bugs import LETTER_BUGS
from tests.meta.lifetime_bugs import LIFETIME_BUGS
from tests.meta.limit_bugs import LIMIT_BUGS
from tests.meta.line_bugs import LINE_BUGS
from tests.meta.list_bugs import LIST_BUGS
from tests.meta.live_bugs import LIVE_BUGS
from tests.meta.lock_bugs import LOCK_BUGS
from tests.meta.lost_write_bugs import LOST_WRITE_BUGS
from tests.meta.odd_bugs import ODD_BUGS
from tests.meta.operating_bugs import OPERATING_BUGS
from tests.meta.outbox_bugs import OUTBOX_BUGS
from tests.meta.part_bugs import PART_BUGS
from tests.meta.pass_bugs import PASS_BUGS
from tests.meta.permit_bugs import PERMIT_BUGS
from tests.meta.pod_bugs import POD_BUGS
from tests.meta.policy_bugs import POLICY_BUGS
from tests.meta.postgres_bugs import POSTGRES_BUGS
from tests.meta.privacy_bugs import PRIVACY_BUGS
from tests.meta.process_bugs import PROCESS_BUGS
from tests.meta.progress_bugs import PROGRESS_BUGS
from tests.meta.query_bugs import QUERY_BUGS
from tests.meta.rate_bugs import RATE_BUGS
from tests.meta.record_bugs import RECORD_BUGS
from tests.meta.redis_bugs import REDIS_BUGS
from tests.meta.redis_server_bugs import REDIS_SERVER_BUGS
from tests.meta.request_bugs import REQUEST_BUGS
from tests.meta.restore_bugs import FAMILY_BUGS, KIN_BUGS, RESTORE_BUGS
from tests.meta.runtime_bugs import RUNTIME_BUGS
from tests.meta.schema_bugs import SCHEMA_BUGS
from tests.meta.sequence_bugs import SEQUENCE_BUGS
from tests.meta.served_bugs import SERVED_BUGS
from tests.meta.share_bugs import SHARE_BUGS
from tests.meta.sight_bugs import SIGHT_BUGS
from tests.meta.snapshot_bugs import SNAPSHOT_BUGS
from tests.meta.step_bugs import STEP_BUGS
from tests.meta.strike_bugs import STRIKE_BUGS
from tests.meta.term_bugs import TERM_BUGS
from tests.meta.terminal_bugs import TERMINAL_BUGS
from tests.meta.typing_bugs import TYPING_BUGS

ROOT = Path(__file__).parents[2]
_PACKAGE = "forge_jobs"
_STORES = (
    "forge_jobs/storage/",
    "forge_jobs/model/",
    "forge_jobs/clients/flows/plans.py",
    "forge_jobs/clients/flows/calls.py",
    "forge_jobs/clients/grouping.py",
)
# Of one bug. Without bugs all files run, on a machine that may be busy.
_SECONDS, _MODEL_SECONDS = 120, 300
_CLEAN_SECONDS = 1_800
_AT_ONCE = 2
_MODEL = "tests/conformance/model/test_model.py"
GROUPS = {
    "stores": BUGS,
    "claim": CLAIM_BUGS,
    "clock": CLOCK_BUGS,
    "command": COMMAND_BUGS,
    "edge": EDGE_BUGS,
    "sequence": (*SEQUENCE_BUGS, *LINE_BUGS),
    "sight": SIGHT_BUGS,
    "terminal": TERMINAL_BUGS,
    "edit": EDIT_BUGS,
    "timeline": TIMELINE_BUGS,
    "executor": EXECUTOR_BUGS,
    "fleet": FLEET_BUGS,
    "key": KEY_BUGS,
    "history": HISTORY_BUGS,
    "letter": LETTER_BUGS,
    "outbox": OUTBOX_BUGS,
    "lifetime": LIFETIME_BUGS,
    "lost writes": LOST_WRITE_BUGS,
    "odd": ODD_BUGS,
    "postgres": POSTGRES_BUGS,
    "record": RECORD_BUGS,
    "request": REQUEST_BUGS,
    "served": SERVED_BUGS,
    "restore": (*RESTORE_BUGS, *KIN_BUGS, *FAMILY_BUGS),
    "redis": (*REDIS_BUGS, *REDIS_SERVER_BUGS, *PART_BUGS, *PERMIT_BUGS),
    "list": LIST_BUGS,
    "term": TERM_BUGS,
    "live": LIVE_BUGS,
    "lock": LOCK_BUGS,
    "schema": SCHEMA_BUGS,
    "policy": POLICY_BUGS,
    "query": QUERY_BUGS,
    "judgement": JUDGEMENT_BUGS,
    "snapshot": SNAPSHOT_BUGS,
    "lane": LANE_BUGS,
    "injection": INJECTION_BUGS,
    "typing": TYPING_BUGS,
    "kit": KIT_BUGS,
    "hook": HOOK_BUGS,
    "runtime": RUNTIME_BUGS,
    "pass": PASS_BUGS,
    "apart": APART_BUGS,
    "front": FRONT_BUGS,
    "operating": OPERATING_BUGS,
    "hiding": HIDING_BUGS,
    "privacy": PRIVACY_BUGS,
    "progress": PROGRESS_BUGS,
    "process": PROCESS_BUGS,
    "step": STEP_BUGS,
    "again": AGAIN_BUGS,
    "rate": RATE_BUGS,
    "limit": LIMIT_BUGS,
    "share": SHARE_BUGS,
    "burst": BURST_BUGS,
    "group": GROUP_BUGS,
    "strike": STRIKE_BUGS,
    "pod": POD_BUGS,
}
"""Group, named as the module but for the first -> bugs."""
EVERY: tuple[Bug, ...] = tuple(chain.from_iterable(GROUPS.values()))

_CHOICE = {"sqlite": "not postgres and not redis"}
"""Tests of policies and of the runtime name no backend."""

TIMED_OUT = -1
_TESTS_FAILED = 1
_TOO_SLOW = "Failed: Timeout (>"
_VERDICTS = {0: "missed", _TESTS_FAILED: "caught", TIMED_OUT: "hung"}
# A bug that the model does not notice takes about 100 seconds on SQLite, on a quiet core.
_PROFILE = {"FORGE_MODEL_EXAMPLES": "150", "FORGE_MODEL_STEPS": "40", "FORGE_MODEL_SHRINK": "0"}

# Imported before pytest puts the tree on the path, the package stays the copy. The copy also stays
# first on the path, which children of a pod take over.
_RUN = """
import sys
sys.path.insert(0, sys.argv[1])
import forge_jobs, pytest
assert forge_jobs.__file__.startswith(sys.argv[1]), forge_jobs.__file__
already_imported = "ignore::pytest.PytestAssertRewriteWarning"
sys.exit(pytest.main(["--import-mode=append", "-W", already_imported, *sys.argv[2:]]))
"""


def plant(edits: Iterable[Edit], folder: Path) -> None:
    """Copy the package into ``folder`` and apply the edits.

    :raises ValueError: an edit's text is not found exactly once
    """
    # With what is compiled already, which would take half of the time of a small test.
    shutil.copytree(ROOT / _PACKAGE, folder / _PACKAGE)
    for edit in edits:
        path = folder / edit.file
        text = path.read_text()
        found = text.count(edit.old)
        if found != 1:
            raise ValueError(f"{edit.file}: found {found} times, not once: {edit.old!r}")
        path.write_text(text.replace(edit.old, edit.new))
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()


@dataclass(frozen=True)
class Verdict:
    """The verdict of the tests on one bug: caught, missed, hung, or error without a run."""

    bug: Bug
    word: str
    told: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.word:7} {self.bug.name}: {self.told} ({self.seconds:.0f} s)"


def _time_for(tests: Sequence[str]) -> float:
    return _MODEL_SECONDS if _MODEL in tests else _SECONDS


def run_tests(tests: Sequence[str], backend: str, edits: Sequence[Edit] = ()) -> tuple[int, str]:
    """Return pytest's exit code on a copy with these edits, and the output."""
    # Of the model, the test of this one store: that of all together takes ten times as long.
    of_backend = backend if list(tests) == [_MODEL] else _CHOICE.get(backend, backend)
    chosen = f"{of_backend} and not redis-cluster"
    with tempfile.TemporaryDirectory() as name:
        plant(edits, Path(name))
        command = [sys.executable, "-c", _RUN, name, "-x", "-q", "--tb=line", "-k", chosen]
        try:
            ran = subprocess.run(
                [*command, *tests],
                cwd=ROOT,
                env=_PROFILE | os.environ,
                capture_output=True,
                text=True,
                timeout=_time_for(tests) if edits else _CLEAN_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as expired:
            return TIMED_OUT, f"no end within {expired.timeout:.0f} s"
    return ran.returncode, ran.stdout + ran.stderr


def verdict(bug: Bug) -> Verdict:
    """Return whether the tests notice the bug."""
    began = time.monotonic()
    try:
        code, output = run_tests(bug.tests, bug.backend, bug.edits)
    except ValueError as error:
        return Verdict(bug, "error", str(error), 0.0)
    told = output.strip().rpartition("\n")[2]
    if _TOO_SLOW in output:
        code = TIMED_OUT
    failed = next((x for x in output.splitlines() if x.startswith(("FAILED", "ERROR"))), "")
    if code == _TESTS_FAILED and failed:
        told = failed.partition("::")[2].partition(" - ")[0] or failed
    elif code == _TESTS_FAILED:
        # What ends before the first test has the exit code of a failed one.
        return Verdict(bug, "error", f"no test has failed\n{output}", time.monotonic() - began)
    elif code not in _VERDICTS:
        told = f"pytest ended with {code}\n{output}"
    return Verdict(bug, _VERDICTS.get(code, "error"), told, time.monotonic() - began)


def is_of_a_store(bug: Bug) -> bool:
    """Return whether the model could notice the bug: not of the runtime or the policies."""
    return all(edit.file.startswith(_STORES) for edit in bug.edits)


def drawn(bugs: Sequence[Bug], count: int, seed: int) -> list[Bug]:
    """Return ``count`` of the bugs at random, the same for one seed and the same bugs."""
    by_name = sorted(bugs, key=lambda bug: bug.name)
    return random.Random(seed).sample(by_name, min(count, len(by_name)))


def table(verdicts: Iterable[Verdict]) -> str:
    """Bugs by module and verdict, as Markdown."""
    groups = {bug.name: name for name, bugs in GROUPS.items() for bug in bugs}
    counts = Counter((groups[each.bug.name], each.word) for each in verdicts)
    words = ("caught", "missed", "hung", "error")
    lines = [f"| bugs | {' | '.join(words)} |", "|---|---|---|---|---|"]
    for name in (*GROUPS, None):
        row = [sum(n for key, n in counts.items() if key in {(name or key[0], w)}) for w in words]
        if any(row):
            lines.append(f"| {name or 'all'} | {' | '.join(map(str, row))} |")
    return "\n".join(lines)


def _clean_copies_pass(chosen: Sequence[Bug]) -> bool:
    passed = True
    for backend in sorted({bug.backend for bug in chosen}):
        tests = {test for bug in chosen if bug.backend == backend for test in bug.tests}
        code, output = run_tests(sorted(tests), backend)
        if code != 0:
            print(f"error   the tests fail on {backend} without any bug:\n{output}", flush=True)
            passed = False
    return passed


def main() -> int:
    """Run the command, and return the exit code."""
    parser = argparse.ArgumentParser(description="Plant bugs and see whether the suite notices.")
    parser.add_argument("--only", metavar="NAME", help="bugs whose name contains this")
    parser.add_argument("--of", choices=sorted(GROUPS), help="bugs of one module")
    parser.add_argument("--backend", choices=["sqlite", "postgres", "redis"])
    parser.add_argument("--model", action="store_true", help="whether the model alone notices")
    parser.add_argument("--draw", type=int, metavar="N", help="only N of them, drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--workers", type=int, default=_AT_ONCE, help="bugs at a time")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    arguments = parser.parse_args()
    chosen = [
        replace(bug, tests=(_MODEL,)) if arguments.model else bug
        for bug in (GROUPS[arguments.of] if arguments.of else EVERY)
        if (not arguments.only or arguments.only in bug.name)
        and arguments.backend in {None, bug.backend}
        and (is_of_a_store(bug) or not arguments.model)
    ]
    if arguments.draw:
        print(f"{arguments.draw} of {len(chosen)} bugs, seed {arguments.seed}", flush=True)
        chosen = drawn(chosen, arguments.draw, arguments.seed)
    if arguments.list:
        print("\n".join(bug.name for bug in chosen))
        return 0
    if not chosen:
        parser.error(f"no bug's name contains {arguments.only!r}")
    passed = _clean_copies_pass(chosen)
    verdicts: list[Verdict] = []
    with ThreadPoolExecutor(max_workers=arguments.workers) as pool:
        for each in pool.map(verdict, chosen):
            print(each, flush=True)
            verdicts.append(each)
    print(table(verdicts))
    return 0 if passed and all(each.word == "caught" for each in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
