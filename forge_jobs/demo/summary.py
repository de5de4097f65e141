"""The report at the end of the demo."""

import math
from collections.abc import Sequence

from msgspec import Struct

from forge_jobs.demo.ledger import Balance, Seen


class Pickup(Struct, frozen=True):
    """Percentiles in milliseconds. None when nothing was measured."""

    p50: float | None
    p95: float | None


class Summary(Struct, frozen=True, kw_only=True):
    """The demo in figures. The field names are what ``--json`` prints.

    :param jobs, done, dead: as the store counts them
    :param lost, duplicates, files, lines, words: as the ledger counts them, apart from the store
    :param revived: jobs of the killed process that were taken over
    :param retries: attempts that failed and were tried again
    :param throughput: files per second, from the first to the last
    :param pickup_ms: from enqueue to the handler's start, on a queue with free workers,
        measured while the files were worked on
    :param takeover_seconds: from the kill until the last job of the killed worker was free again.
        None: no worker was killed
    """

    jobs: int
    done: int
    dead: int
    lost: int
    revived: int
    throughput: float
    pickup_ms: Pickup
    duplicates: int
    retries: int
    takeover_seconds: float | None
    ticks: int
    files: int
    lines: int
    words: int
    seconds: float
    complete: bool

    @property
    def is_good(self) -> bool:
        """Everything ended in time, and nothing was lost."""
        return self.complete and self.lost == 0


def throughput(seen: Sequence[Seen], books: Balance) -> float:
    """Files per second between the first and the last file."""
    times = [
        entry.at_us for entry in seen if entry.kind == "demo.count_file" and entry.outcome == "done"
    ]
    span = (max(times) - min(times)) / 1_000_000 if times else 0
    return round(books.files / span, 1) if span else 0.0


def percentile(values: Sequence[float], share: float) -> float | None:
    """The nearest-rank percentile. None of nothing."""
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)] if ordered else None


def sentences(summary: Summary) -> list[str]:
    """The summary for people."""
    lines = [
        f"{summary.jobs} jobs: {summary.done} done, {summary.dead} dead, {summary.lost} lost.",
        f"{summary.files} files hold {summary.lines:,} lines and {summary.words:,} words.",
        f"{summary.throughput} files/s, {summary.retries} retries, {summary.ticks} ticks of the "
        f"schedule, {summary.seconds} s in all.",
    ]
    if summary.pickup_ms.p50 is not None:
        lines.append(
            f"A job on a queue with free workers was picked up after {summary.pickup_ms.p50} ms "
            f"(p50), {summary.pickup_ms.p95} ms (p95)."
        )
    if summary.takeover_seconds is not None:
        twice = f"; {summary.duplicates} of them had just ended and ran twice"
        lines.append(
            f"One worker was killed; {summary.revived} jobs it held were taken over within "
            f"{summary.takeover_seconds} s{twice if summary.duplicates else ''}."
        )
    if summary.dead:
        lines.append("The dead job names a file that never came.")
    if not summary.complete:
        lines.append("Not everything ended in time; on a slow machine try a smaller folder.")
    return lines


NEXT = """The dashboard: run forge-jobs demo --web, and end three planted problems by a click.

Try next:
  forge-jobs demo --pace 0                     the same without resting between files
  forge-jobs demo --postgres                   the same on a server of its own; or --redis
  export FORGE_STORAGE_URL=sqlite:///jobs.db   a store of your own
  forge-jobs enqueue my.kind --payload '{"n": 1}'
  forge-jobs worker myapp.jobs:handlers --queues default
  forge-jobs web                               its dashboard, at http://127.0.0.1:8642
  forge-jobs jobs list; forge-jobs explain JOB_ID; forge-jobs doctor"""
