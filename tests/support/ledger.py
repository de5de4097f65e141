"""The runs that really happened, written by the handlers themselves, outside the store.

Each line is one ``write`` to a file opened with O_APPEND, so lines of several processes do not mix
and a killed process leaves whole lines only.
"""

import itertools
import os
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path


def note(path: str | Path, event: str, job_id: str, attempt: int, token: int) -> None:
    """Append one line: what happened to which run, where and when.

    :param event: ``start``, ``end``, ``fail``, or ``cut``: the handler was stopped from outside
    """
    clocks = f"{time.monotonic_ns()} {time.time_ns()}"
    line = f"{event} {job_id} {attempt} {token} {os.getpid()} {clocks}\n"
    descriptor = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


@dataclass(slots=True)
class Run:
    """A run of a job.

    :ivar ended_ns: None when the handler never noted an end
    :ivar cut_ns: when the run was stopped from outside. None when the handler never noted that
    :ivar failed_ns: when the handler raised. None when the handler never noted that
    :ivar wall_ms: the start on the wall clock, to be compared with the record in a store
    """

    job_id: str
    attempt: int
    token: int
    process_id: int
    started_ns: int
    wall_ms: float
    ended_ns: int | None = None
    cut_ns: int | None = None
    failed_ns: int | None = None

    @property
    def over_ns(self) -> int | None:
        """Return when the handler was left, in any way. None when that was not noted."""
        return self.ended_ns or self.failed_ns or self.cut_ns


class Ledger:
    """The runs of a ledger file, in the order they started."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._read_to = 0
        self._by_key: dict[tuple[str, int, int], Run] = {}
        self._ended: set[str] = set()
        self.runs: list[Run] = []
        self.starts: Counter[int] = Counter()
        """How many runs each process has started."""
        self.last_start_ns: dict[int, int] = {}
        """When each process has begun its newest run."""

    @classmethod
    def read(cls, path: str | Path) -> "Ledger":
        """Read the runs noted so far. A missing file is an empty ledger."""
        ledger = cls(path)
        ledger.refresh()
        return ledger

    def refresh(self) -> None:
        """Read what was noted since the last time."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._read_to)
            news = file.read()
        # A reader may meet a line that is being written: the last one, and not yet whole.
        whole = news[: news.rfind(b"\n") + 1]
        self._read_to += len(whole)
        for line in whole.decode().splitlines():
            self._add(*line.split())

    def _add(
        self, event: str, job_id: str, attempt: str, token: str, process: str, at: str, wall: str
    ) -> None:
        key = (job_id, int(token), int(process))
        if event == "start":
            run = Run(job_id, int(attempt), key[1], key[2], int(at), int(wall) / 1_000_000)
            self._by_key[key] = run
            self.runs.append(run)
            self.starts[run.process_id] += 1
            newest = self.last_start_ns.get(run.process_id, 0)
            self.last_start_ns[run.process_id] = max(newest, run.started_ns)
        elif event == "end":
            self._by_key[key].ended_ns = int(at)
            self._ended.add(job_id)
        elif event == "fail":
            self._by_key[key].failed_ns = int(at)
        else:
            self._by_key[key].cut_ns = int(at)

    def started(self) -> set[str]:
        """Ids of jobs that ran at least once."""
        return {run.job_id for run in self.runs}

    def ended(self) -> set[str]:
        """Ids of jobs of which at least one run ended."""
        return self._ended

    def repeated(self) -> Counter[str]:
        """How many runs beyond the first each job had."""
        runs = Counter(run.job_id for run in self.runs)
        return Counter({job_id: count - 1 for job_id, count in runs.items() if count > 1})

    def by_job(self) -> dict[str, list[Run]]:
        """The runs of each job, in the order they started."""
        jobs: dict[str, list[Run]] = defaultdict(list)
        for run in sorted(self.runs, key=lambda run: run.started_ns):
            jobs[run.job_id].append(run)
        return jobs

    def overlaps(
        self, but_of: Collection[int] = (), deaths: Mapping[int, int] | None = None
    ) -> list[str]:
        """Return the jobs of which two runs were open at the same instant.

        A run counts until its end was noted. A run without a noted end counts until the process
        died. If that time is unknown, the run does not count.

        :param but_of: processes whose runs do not count either
        :param deaths: when processes were killed
        """
        found = []
        for job_id, runs in self.by_job().items():
            spans = [
                (run.started_ns, run.over_ns or (deaths or {}).get(run.process_id, 0))
                for run in runs
                if run.process_id not in but_of
            ]
            open_ones = [span for span in spans if span[1]]
            if any(later[0] < earlier[1] for earlier, later in itertools.pairwise(open_ones)):
                found.append(job_id)
        return found

    def open_at(self, instant_ns: int, process_id: int) -> list[Run]:
        """Runs of a process that had begun by then, and ended later."""
        return [
            run
            for run in self.runs
            if run.process_id == process_id
            and run.started_ns < instant_ns < (run.ended_ns or instant_ns)
        ]

    def most_at_once(self, process_id: int | None = None, *, but: Collection[Run] = ()) -> int:
        """Return the largest number of runs open at one instant, of one process or of all.

        A run that never ended was open until the end of the process, which the ledger does not
        know. Such runs are left out.

        :param but: runs that do not count either
        """
        edges = []
        for run in self.runs:
            if run.ended_ns is None or (process_id is not None and run.process_id != process_id):
                continue
            if run in but:
                continue
            edges += [(run.started_ns, 1), (run.ended_ns, -1)]
        return _highest(edges)


def _highest(edges: Iterable[tuple[int, int]]) -> int:
    most = current = 0
    for _, step in sorted(edges):
        current += step
        most = max(most, current)
    return most
