"""Previews: what an action on many would meet, and the token that stands for it."""

import base64
import zlib
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec
from msgspec import Struct, structs

from forge_jobs.errors import InvalidInput
from forge_jobs.model.filters import REFUSED, JobFilter, JobSummary, Refusal
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.queries.terms import AGES
from forge_jobs.storage.protocols import Storage

VALID_FOR = timedelta(minutes=10)
"""How long a preview may be applied."""

MAX_KEY = 200
"""Characters of a key."""

SAMPLES = 10
COUNTED = 50_000
"""A preview counts so many jobs, and then says "at least"."""

LOOKED_INTO = 500
"""Of so many jobs a preview reads keys and schedules, and of so many blocked jobs the parents."""

_PAGE = 1_000
_MOST_BYTES = 1_000_000
_MICROSECOND = timedelta(microseconds=1)


class Preview(Struct, frozen=True, kw_only=True):
    """The jobs that an action would meet now. Nothing has changed.

    :param verb: the operation, as ``cancel_jobs``
    :param which: the jobs that are meant: those that were there at the preview
    :param count: how many jobs match
    :param more: there are more than were counted
    :param samples: the newest ten of these jobs
    :param refused: how many would be left as they are for their status, by reason. A step may find
        further reasons, as a key that another job holds
    :param children: blocked jobs that wait for one of these, among the newest 500 blocked jobs
    :param schedules: schedules that fired one of the newest 500
    :param keys: how many of the newest 500 have a unique key
    :param undo: the operation that takes the action back. "" where nothing does
    :param token: apply the preview with it
    :param expires_at: the token is refused from then on, by the store's time
    :param silent: queues whose part of the store does not answer, so that none of their jobs count
    """

    verb: str
    which: JobFilter
    count: int
    more: bool
    samples: tuple[JobSummary, ...]
    refused: Mapping[Refusal, int]
    children: tuple[JobId, ...]
    schedules: tuple[str, ...]
    keys: int
    undo: str
    token: str
    expires_at: datetime
    silent: tuple[str, ...] = ()


class Apply(Struct, frozen=True, kw_only=True):
    """A preview that is to be applied.

    :param token: of the preview
    :param reason: for people. Stays with the record
    :param key: 1 to 200 characters that the actor gives no other action, so that a program that has
        lost an answer may preview again. A key is one action, whatever the tokens. "" for none
    """

    token: str
    reason: str = ""
    key: str = ""


class Ticket(Struct, frozen=True, kw_only=True):
    """The content of a token."""

    action_id: str
    verb: str
    which: JobFilter
    count: int
    actor: str
    at: datetime


def means_the_same(one: JobFilter | None, other: JobFilter) -> bool:
    """Return whether two filters ask for the same, apart from instants, which durations give."""
    return one is not None and _timeless(one) == _timeless(other)


def _timeless(which: JobFilter) -> JobFilter:
    rest = tuple(each for each in which.terms if each.name not in AGES)
    return structs.replace(which, enqueued_before=None, enqueued_after=None, terms=rest)


class Match(Struct):
    """The jobs that a filter means now, counted up to a bound."""

    count: int = 0
    more: bool = False
    newest: list[JobSummary] = []
    refused: Counter[str] = Counter()
    silent: set[str] = set()


def bounded(which: JobFilter, now: datetime) -> JobFilter:
    """The filter, of the jobs that are there now."""
    until = now + _MICROSECOND
    if which.enqueued_before is not None:
        until = min(until, which.enqueued_before)
    return structs.replace(which, enqueued_before=until)


async def match(storage: Storage, which: JobFilter, verb: str) -> Match:
    """Count the jobs that match, and those that the verb refuses for their status."""
    found = Match(newest=[], refused=Counter(), silent=set())
    cursor: str | None = None
    while True:
        page = await storage.jobs.list(which, cursor=cursor, limit=_PAGE)
        found.count += len(page.jobs)
        found.silent.update(page.silent)
        found.newest += page.jobs[: LOOKED_INTO - len(found.newest)]
        for job in page.jobs:
            refusal = REFUSED[verb].refusal(job.status.value, job.hold)
            if refusal is not None:
                found.refused[refusal.value] += 1
        cursor = page.cursor
        if cursor is None:
            return found
        if found.count >= COUNTED:
            found.more = True
            return found


async def others(storage: Storage, found: Match) -> tuple[tuple[JobId, ...], tuple[str, ...], int]:
    """Children that wait for the jobs, schedules that fired them, and how many have keys."""
    ids = [job.id for job in found.newest]
    jobs = await storage.jobs.get(ids) if ids else {}
    schedules = sorted({job.schedule for job in jobs.values() if job.schedule})
    keys = sum(job.unique_key is not None for job in jobs.values())
    blocked = JobFilter(statuses=(JobStatus.BLOCKED,))
    waiting = (await storage.jobs.list(blocked, limit=LOOKED_INTO)).jobs if ids else ()
    children = await storage.jobs.get([job.id for job in waiting]) if waiting else {}
    meant = set(ids)
    affected = sorted(
        child.id
        for child in children.values()
        if child.id not in meant and meant.intersection(child.waits_for)
    )
    return tuple(affected), tuple(schedules), keys


def token_of(ticket: Ticket) -> str:
    """The text of a ticket. A preview keeps people from mistakes, so the token is no secret."""
    document = msgspec.json.encode(ticket)
    check = zlib.crc32(document).to_bytes(4, "big")
    return base64.urlsafe_b64encode(check + zlib.compress(document)).decode().rstrip("=")


def read_token(token: object) -> Ticket:
    """Read a token.

    :raises InvalidInput: no preview has given it
    """
    try:
        text = token if isinstance(token, str) else ""
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        whole = zlib.decompressobj()
        document = whole.decompress(raw[4:], _MOST_BYTES)
        if not whole.eof or raw[:4] != zlib.crc32(document).to_bytes(4, "big"):
            raise ValueError
        return msgspec.json.decode(document, type=Ticket)
    except (ValueError, zlib.error, msgspec.MsgspecError):
        fix = "give the token of a preview, whole"
        raise InvalidInput("token", "is not one that a preview has given", fix) from None
