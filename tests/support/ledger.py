"""What really ran, written by the handlers themselves, outside the store.

Each line is one ``write`` to a file opened with O_APPEND, so lines of several processes do not
mix and a killed process leaves whole lines only.
"""

import itertools
import os
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path


def note(path: str | Path, event: str, job_id: str, attempt: int, token: int) -> None:
    """Append one line: what happened to which run, where and when.

    :param event: ``start`` or ``end``
    """
    clocks = f"{time.monotonic_ns()} {time.time_ns()}"
    line = f"{event} {job_id} {attempt} {token} {os.getpid()} {clocks}\n"
    descriptor = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class Run:
    """One run of one job.

    :ivar ended_ns: None when it never said that it ended
    :ivar wall_ms: its start on the wall clock, to be held against what a store recorded
    """

    job_id: str
    attempt: int
    token: int
    process_id: int
    started_ns: int
    ended_ns: int | None
    wall_ms: float


@dataclass
class Ledger:
    """The runs of a ledger file, in the order they started."""

    runs: list[Run] = field(default_factory=list)

    @classmethod
    def read(cls, path: str | Path) -> "Ledger":
        """Every run noted so far; a missing file is an empty ledger."""
        starts: dict[tuple[str, int, int], tuple[int, int, float]] = {}
        ends: dict[tuple[str, int, int], int] = {}
        text = Path(path).read_text() if Path(path).exists() else ""
        # A reader may meet a line that is being written: the last one, and not yet whole.
        for line in text[: text.rfind("\n") + 1].splitlines():
            event, job_id, attempt, token, process_id, at, wall = line.split()
            key = (job_id, int(token), int(process_id))
            if event == "start":
                starts[key] = (int(attempt), int(at), int(wall) / 1_000_000)
            else:
                ends[key] = int(at)
        return cls(
            [
                Run(
                    job_id,
                    attempt,
                    token,
                    process_id,
                    started,
                    ends.get((job_id, token, process_id)),
                    wall,
                )
                for (job_id, token, process_id), (attempt, started, wall) in starts.items()
            ]
        )

    def started(self) -> set[str]:
        """Ids of jobs that ran at least once."""
        return {run.job_id for run in self.runs}

    def ended(self) -> set[str]:
        """Ids of jobs of which at least one run ended."""
        return {run.job_id for run in self.runs if run.ended_ns is not None}

    def repeated(self) -> Counter[str]:
        """How many runs beyond the first each job had."""
        runs = Counter(run.job_id for run in self.runs)
        return Counter({job_id: count - 1 for job_id, count in runs.items() if count > 1})

    def unfinished_of(self, process_id: int) -> int:
        """How many runs a process started and never ended: what was in its hands."""
        return sum(run.process_id == process_id and run.ended_ns is None for run in self.runs)

    def overlaps(self) -> list[str]:
        """Jobs of which two runs that both ended were open at the same instant."""
        by_job: dict[str, list[Run]] = defaultdict(list)
        for run in self.runs:
            if run.ended_ns is not None:
                by_job[run.job_id].append(run)
        found = []
        for job_id, runs in by_job.items():
            runs.sort(key=lambda run: run.started_ns)
            for earlier, later in itertools.pairwise(runs):
                if earlier.ended_ns is not None and later.started_ns < earlier.ended_ns:
                    found.append(job_id)
        return found

    def most_at_once(self, process_id: int | None = None) -> int:
        """The largest number of runs open at one instant, of one process or of all.

        A run that never ended counts as open from its start to the end of its process, which
        the ledger does not know: it is left out.
        """
        edges = []
        for run in self.runs:
            if run.ended_ns is None or (process_id is not None and run.process_id != process_id):
                continue
            edges += [(run.started_ns, 1), (run.ended_ns, -1)]
        most = current = 0
        for _, step in sorted(edges):
            current += step
            most = max(most, current)
        return most
