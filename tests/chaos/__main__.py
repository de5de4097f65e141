"""``python -m tests.chaos --backend postgres --rounds 100``: see ``docs/reliability.md``."""

import argparse
import json
import os
import platform
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import anyio

from tests.chaos.checker import Verdict, judge
from tests.chaos.every_store import STORES
from tests.chaos.figures import Figure, figures_of
from tests.chaos.pace import PACES
from tests.chaos.run import Outcome, Plan, run

_SHOWN = 5
"""Ids of each kind of trouble that are printed."""


@dataclass(frozen=True)
class Report:
    """The result of a run."""

    plan: Plan
    seconds: float
    outcome: Outcome
    verdict: Verdict
    figures: list[Figure]

    def print(self) -> None:
        """The table, and what is wrong."""
        deeds = ", ".join(f"{name} {count}" for name, count in sorted(self._deeds.items()))
        jobs = len(self.outcome.stored)
        print(f"{self.plan.rounds} rounds, {jobs:,} jobs, {self.seconds:.0f} s: {deeds}\n")
        width = max(len(figure.name) for figure in self.figures)
        for figure in self.figures:
            met = {True: "ok", False: "MISSED", None: ""}[figure.is_met]
            print(f"{figure.name:{width}}  {figure.aim:>12}  {figure.measured:>20}  {met}")
        told = self.outcome.recorded
        for name, found in [
            *asdict(self.verdict).items(),
            ("passed in the store", told.passed),
            ("idle in the store", told.idle),
            ("out of sequence in the store", told.crossed),
        ]:
            if found:
                print(f"\n{name}: {len(found)}, among them {found[:_SHOWN]}")

    def as_json(self) -> str:
        """The same for programs."""
        return json.dumps(
            {
                "backend": self.plan.backend,
                "rounds": self.plan.rounds,
                "seed": self.plan.seed,
                "pace": self.plan.pace.name,
                "jobs": len(self.outcome.stored),
                "seconds": round(self.seconds, 1),
                "python": platform.python_version(),
                "cpus": os.cpu_count(),
                "deeds": self._deeds,
                "kept": self.verdict.is_good and self.outcome.recorded.is_good,
                "figures": [asdict(figure) for figure in self.figures],
            },
            indent=1,
        )

    @property
    def _deeds(self) -> dict[str, int]:
        return self.outcome.record.deeds


def main() -> int:
    """Run, print, and say by the exit code whether every promise was kept."""
    arguments = _arguments()
    plan = Plan(
        backend=arguments.backend,
        rounds=arguments.rounds,
        jobs=arguments.jobs,
        seed=arguments.seed,
        pace=PACES[arguments.pace],
        only=tuple(arguments.only),
    )
    print(f"--backend {plan.backend} --rounds {plan.rounds} --seed {plan.seed}", flush=True)
    with _folder(arguments.keep) as folder:
        began = time.monotonic()
        outcome = anyio.run(run, plan, folder, lambda text: print(text, flush=True))
        seconds = time.monotonic() - began
        verdict = judge(
            outcome.record, outcome.ledger, outcome.stored, outcome.counters, outcome.known
        )
        figures = figures_of(outcome, verdict, plan.pace)
        report = Report(plan, seconds, outcome, verdict, figures)
        report.print()
        if arguments.json:
            Path(arguments.json).write_text(report.as_json() + "\n")
        if not (verdict.is_good and outcome.recorded.is_good):
            raise SystemExit(1)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--backend", choices=sorted(STORES), required=True)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=200, help="in each round, at least")
    parser.add_argument("--only", nargs="+", default=[], help="names of the deeds to choose from")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    parser.add_argument(
        "--pace", choices=sorted(PACES), default="quick", help="default: settings as deployed"
    )
    parser.add_argument("--keep", action="store_true", help="keep the folder of a good run too")
    parser.add_argument("--json", help="file for the figures")
    return parser.parse_args()


@contextmanager
def _folder(keep: bool) -> Iterator[Path]:
    """A folder that stays when something went wrong."""
    folder = Path(tempfile.mkdtemp(prefix="forge-chaos-"))
    try:
        yield folder
    except BaseException:
        _say_where(folder)
        raise
    if keep:
        _say_where(folder)
    else:
        shutil.rmtree(folder)


def _say_where(folder: Path) -> None:
    files = "schedule, ledger, producer, counters, pods.log"
    print(f"\nwhat happened is in {folder}: {files}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
