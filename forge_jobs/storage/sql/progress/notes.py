"""Writes of progress and log lines, and their removal: with the job, and after the job."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, bindparam, delete, or_, select

from forge_jobs.clock import to_us
from forge_jobs.model.jobs import Claim, JobStatus
from forge_jobs.model.progress import ATTEMPTS_KEPT, BYTES_KEPT, LINES_KEPT, ProgressNote
from forge_jobs.storage.progress_documents import progress_text
from forge_jobs.storage.salvage import number_or
from forge_jobs.storage.sql.base.job_rows import JobRow
from forge_jobs.storage.sql.base.lists import one_of, portions
from forge_jobs.storage.sql.base.tables import jobs
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.progress.tables import log_lines, progress, steps

_LOOK = (
    select(
        jobs.c.id,
        jobs.c.queue,
        jobs.c.status,
        jobs.c.token,
        jobs.c.settled_token,
        jobs.c.host_id,
    )
    .where(one_of(jobs.c.id, "ids"))
    .order_by(jobs.c.id)
)
# Against a removal of the job only: beats and ends take a lock that this one lets through.
_KEEP = _LOOK.with_for_update(read=True, key_share=True, skip_locked=True)
_HEADS = (
    select(progress)
    .where(one_of(progress.c.job_id, "ids"))
    .order_by(progress.c.job_id, progress.c.attempt)
    .with_for_update(key_share=True)
)
_OVERFULL = delete(log_lines).where(
    log_lines.c.job_id == bindparam("of"),
    log_lines.c.attempt == bindparam("at_attempt"),
    or_(log_lines.c.number <= bindparam("up_to"), log_lines.c.begins < bindparam("up_to_bytes")),
)
_OLD_LINES = delete(log_lines).where(
    and_(log_lines.c.job_id == bindparam("of"), log_lines.c.attempt == bindparam("at_attempt"))
)
_OLD_ATTEMPT = delete(progress).where(
    and_(progress.c.job_id == bindparam("of"), progress.c.attempt == bindparam("at_attempt"))
)
_FORGET = delete(progress).where(one_of(progress.c.job_id, "ids")).returning(progress.c.job_id)
_FORGET_STEPS = delete(steps).where(one_of(steps.c.job_id, "ids"))
_FORGET_LINES = delete(log_lines).where(one_of(log_lines.c.job_id, "ids"))

_NO_JOB = ~select(jobs.c.id).where(jobs.c.id == bindparam("job")).exists()
# Lines have a row in ``progress`` beside them.
_NOTED = {
    table.name: select(
        table.c.job_id, select(jobs.c.id).where(jobs.c.id == table.c.job_id).exists().label("kept")
    )
    .where(table.c.job_id > bindparam("past"))
    .order_by(table.c.job_id)
    .limit(bindparam("at_most"))
    for table in (progress, steps)
}
_ORPHANED = tuple(
    delete(table).where(table.c.job_id == bindparam("job"), _NO_JOB)
    for table in (log_lines, progress, steps)
)

START = dict.fromkeys(_NOTED, "")
"""Where the first look for orphans begins."""


@dataclass
class _Head:
    """The row of an attempt in ``forge_progress``."""

    token: int
    progress: str | None
    seq: int
    number: int
    bytes: int


_NOTHING = _Head(0, None, 0, 0, 0)


def note_progress(tx: Tx, notes: Sequence[ProgressNote]) -> list[bool | None]:
    """See ``JobStore.note_progress``."""
    ids = sorted({note.claim.job_id for note in notes})
    found = _rows(tx, _KEEP, ids)
    locked = set(_rows(tx, _LOOK, [each for each in ids if each not in found]))
    kept = [note for note in notes if _is_last(found.get(note.claim.job_id), note.claim)]
    if kept:
        _write(tx, kept)
    stored = {note.claim for note in kept}
    return [None if note.claim.job_id in locked else note.claim in stored for note in notes]


def forget(tx: Tx, ids: Sequence[str]) -> None:
    """Remove what jobs that are being removed have noted of their runs."""
    forget_steps(tx, ids)
    for portion in portions(ids):
        told = tx.execute(_FORGET, {"ids": portion}).scalars().all()
        if told:
            tx.execute(_FORGET_LINES, {"ids": sorted(set(told))})


def forget_steps(tx: Tx, ids: Iterable[str]) -> None:
    """Remove the checkpoints of jobs, and the steps that were taken in transactions."""
    for portion in portions(sorted(ids)):
        tx.execute(_FORGET_STEPS, {"ids": portion})


def orphans(tx: Tx, past: Mapping[str, str], limit: int) -> tuple[list[str], Mapping[str, str]]:
    """Return ids of jobs that are gone while notes of them are here, and where the next look goes
    on. A program of a release that does not know the tables deletes jobs without their notes.

    :param past: table -> the last id that was looked at
    :param limit: rows to look at in each table
    """
    gone: set[str] = set()
    ends = {}
    for table, statement in _NOTED.items():
        rows = tx.execute(statement, {"past": past[table], "at_most": limit}).all()
        gone.update(row.job_id for row in rows if not row.kept)
        ends[table] = rows[-1].job_id if len(rows) == limit else ""
    return sorted(gone), ends


def forget_orphans(tx: Tx, ids: Iterable[str]) -> None:
    """Remove the notes of these jobs, but of a job that is there."""
    rows = [{"job": job_id} for job_id in ids]
    for statement in _ORPHANED:
        tx.execute(statement, rows)


def _rows(tx: Tx, statement: Any, ids: Iterable[str]) -> Mapping[str, JobRow]:
    return {
        row.id: row for portion in portions(ids) for row in tx.execute(statement, {"ids": portion})
    }


def _is_last(row: JobRow | None, claim: Claim) -> bool:
    """Return whether the claim holds the job, or has ended the job's last run."""
    return (
        row is not None
        and row.token == claim.token
        and row.host_id == claim.host_id
        and row.queue == claim.queue
        and (row.status == JobStatus.IN_PROGRESS.value or row.settled_token == claim.token)
    )


def _write(tx: Tx, notes: Sequence[ProgressNote]) -> None:
    known = _heads(tx, sorted({note.claim.job_id for note in notes}))
    heads: list[dict[str, object]] = []
    lines: list[dict[str, object]] = []
    overfull: list[dict[str, object]] = []
    for note in sorted(notes, key=lambda note: (note.claim.job_id, note.attempt)):
        attempts = known.setdefault(note.claim.job_id, {})
        if note.attempt not in attempts:
            _make_room(tx, note.claim.job_id, attempts)
        before = attempts.get(note.attempt, _NOTHING)
        after, added = _after(note, before, tx.now)
        attempts[note.attempt] = after
        lines += added
        key = {"job_id": note.claim.job_id, "attempt": note.attempt}
        heads.append({**key, **vars(after)})
        if added and (after.number > LINES_KEPT or after.bytes > BYTES_KEPT):
            overfull.append(
                {
                    "of": note.claim.job_id,
                    "at_attempt": note.attempt,
                    "up_to": after.number - LINES_KEPT,
                    "up_to_bytes": after.bytes - BYTES_KEPT,
                }
            )
    tx.put(tx.flavor.insert_replace(progress, ("job_id", "attempt")), heads)
    if lines:
        tx.execute(tx.flavor.insert_ignore(log_lines), lines)
    if overfull:
        tx.execute(_OVERFULL, overfull)


def _heads(tx: Tx, ids: Sequence[str]) -> dict[str, dict[int, _Head]]:
    found: dict[str, dict[int, _Head]] = {}
    for portion in portions(ids):
        for row in tx.execute(_HEADS, {"ids": portion}):
            found.setdefault(row.job_id, {})[row.attempt] = _Head(
                token=number_or(row.token, 0),
                progress=row.progress,
                seq=number_or(row.seq, 0),
                number=number_or(row.number, 0),
                bytes=number_or(row.bytes, 0),
            )
    return found


def _after(note: ProgressNote, before: _Head, now: int) -> tuple[_Head, list[dict[str, object]]]:
    """Return what the store has after a note, and the lines to add."""
    goes_on = before.token == note.claim.token
    seq, number = (before.seq, before.number) if goes_on else (0, before.number)
    first, size = number - seq, before.bytes
    rows: list[dict[str, object]] = []
    for line in note.lines:
        if line.seq <= seq:
            continue
        seq, number = line.seq, first + line.seq
        rows.append(
            {
                "job_id": note.claim.job_id,
                "attempt": note.attempt,
                "number": number,
                "token": note.claim.token,
                "at": to_us(line.at),
                "level": line.level,
                "text": line.text,
                "begins": size,
            }
        )
        size += len(line.text.encode())
    text = before.progress if goes_on else None
    if note.progress is not None:
        text = progress_text(note.progress, note.attempt, now)
    return _Head(note.claim.token, text, seq, number, size), rows


def _make_room(tx: Tx, job_id: str, attempts: dict[int, _Head]) -> None:
    """Remove the attempts that ran first, where a further one would be too many."""
    excess = len(attempts) + 1 - ATTEMPTS_KEPT
    if excess > 0:
        oldest = sorted(attempts, key=lambda attempt: attempts[attempt].token)[:excess]
        rows = [{"of": job_id, "at_attempt": attempt} for attempt in oldest]
        tx.execute(_OLD_LINES, rows)
        tx.execute(_OLD_ATTEMPT, rows)
        for attempt in oldest:
            del attempts[attempt]
