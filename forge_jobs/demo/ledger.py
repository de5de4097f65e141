"""Jobs handed out and jobs done, in append-only files outside the store.

The demo's claim that nothing was lost is counted from these alone. Each line is one ``write`` to
a file opened with O_APPEND, so lines of several processes do not mix, and a killed process
leaves whole lines only.
"""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

HANDED_OUT = "handed_out.jsonl"
SEEN = "seen.jsonl"


class HandedOut(Struct, frozen=True):
    """A job that ``enqueue`` accepted.

    :param path: the job's file. "" for other jobs
    """

    job_id: str
    kind: str
    path: str = ""


class Seen(Struct, frozen=True, kw_only=True):
    """A handler's note of one run.

    :param at_us: microseconds since the epoch
    :param outcome: ``missing``: there is no such file, so the run failed. ``gave_up``: the same
        in the last attempt
    """

    job_id: str
    kind: str
    attempt: int
    process_id: int
    at_us: int
    outcome: Literal["done", "missing", "gave_up"] = "done"
    lines: int = 0
    words: int = 0


class Balance(Struct, frozen=True, kw_only=True):
    """The books at the end.

    :param lost: jobs handed out that no handler ever finished
    :param duplicates: finished runs beyond the first of their job
    """

    handed_out: int
    finished: int
    lost: int
    duplicates: int
    files: int
    lines: int
    words: int


def append(file: Path, entries: Sequence[Struct]) -> None:
    """Write the entries in one piece."""
    text = b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)
    descriptor = os.open(file, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        os.write(descriptor, text)
    finally:
        os.close(descriptor)


def read_handed_out(folder: Path) -> list[HandedOut]:
    """The jobs that were handed out, in order."""
    return [msgspec.json.decode(line, type=HandedOut) for line in _lines(folder / HANDED_OUT)]


def read_seen(folder: Path) -> list[Seen]:
    """Everything that handlers said, in order."""
    return [msgspec.json.decode(line, type=Seen) for line in _lines(folder / SEEN)]


def _lines(file: Path) -> list[bytes]:
    return file.read_bytes().splitlines() if file.exists() else []


def balance(handed_out: Iterable[HandedOut], seen: Iterable[Seen]) -> Balance:
    """Compare what went in with what came out."""
    wanted = {entry.job_id for entry in handed_out}
    finished = [entry for entry in seen if entry.outcome != "missing" and entry.job_id in wanted]
    runs = Counter(entry.job_id for entry in finished)
    first = {entry.job_id: entry for entry in reversed(finished) if entry.outcome == "done"}
    counted = [entry for entry in first.values() if entry.kind == "demo.count_file"]
    return Balance(
        handed_out=len(wanted),
        finished=len(runs),
        lost=len(wanted) - len(runs),
        duplicates=sum(count - 1 for count in runs.values()),
        files=len(counted),
        lines=sum(entry.lines for entry in counted),
        words=sum(entry.words for entry in counted),
    )
