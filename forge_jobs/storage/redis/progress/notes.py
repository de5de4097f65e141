"""Writes of progress and log lines: one script per queue, a few lines at a time."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from msgspec import structs

from forge_jobs.clock import to_us
from forge_jobs.model.jobs import Claim
from forge_jobs.model.progress import ATTEMPTS_KEPT, BYTES_KEPT, LINES_KEPT, NewLine, ProgressNote
from forge_jobs.storage.progress_documents import progress_text
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.scripts import item_of, request_of

_LINES_AT_ONCE = 250
"""How many lines one step adds: at 3 to 10 us each, all other calls wait as long."""

_NOTES_AT_ONCE = 100

_MOST = {
    "most_lines": LINES_KEPT,
    "most_bytes": BYTES_KEPT,
    "most_attempts": ATTEMPTS_KEPT,
}


async def note_progress(db: Database, notes: Sequence[ProgressNote]) -> list[bool | None]:
    """See ``JobStore.note_progress``."""
    answers: dict[Claim, bool | None] = {}
    for step in _steps(notes):
        requests: defaultdict[str, list[ProgressNote]] = defaultdict(list)
        for note in step:
            requests[db.keys.queue(note.claim.queue)].append(note)
        most = item_of("note_progress", "most", **_MOST)
        packed = {
            base: request_of("note_progress", most=most, notes=[*map(_packed, found)])
            for base, found in requests.items()
        }
        found, silent = await db.run_some("note_progress", packed, list[bool])
        for base, told in requests.items():
            given = [None] * len(told) if base in silent else found[base]
            for note, answer in zip(told, given, strict=True):
                if answers.get(note.claim, True):
                    answers[note.claim] = answer
    return [answers[note.claim] for note in notes]


def _steps(notes: Sequence[ProgressNote]) -> Iterator[list[ProgressNote]]:
    """Split the notes so that each step is short. A note with many lines is split too."""
    step: list[ProgressNote] = []
    room = _LINES_AT_ONCE
    for note in notes:
        for part in _parts(note):
            if step and (len(part.lines) > room or len(step) == _NOTES_AT_ONCE):
                yield step
                step, room = [], _LINES_AT_ONCE
            step.append(part)
            room -= len(part.lines)
    if step:
        yield step


def _parts(note: ProgressNote) -> Iterator[ProgressNote]:
    yield structs.replace(note, lines=note.lines[:_LINES_AT_ONCE])
    for start in range(_LINES_AT_ONCE, len(note.lines), _LINES_AT_ONCE):
        lines = note.lines[start : start + _LINES_AT_ONCE]
        yield structs.replace(note, progress=None, lines=lines)


def _packed(note: ProgressNote) -> tuple[object, ...]:
    claim, progress = note.claim, note.progress
    # The script adds the time.
    text = "" if progress is None else progress_text(progress, note.attempt, 0)
    return item_of(
        "note_progress",
        "note",
        id=claim.job_id,
        token=claim.token,
        host=claim.host_id,
        attempt=note.attempt,
        progress=text,
        lines=[_line(line) for line in note.lines],
    )


def _line(line: NewLine) -> tuple[object, ...]:
    return item_of(
        "note_progress",
        "line",
        nth=line.seq,
        at=to_us(line.at),
        level=line.level,
        words=line.text,
        size=len(line.text.encode()),
    )
