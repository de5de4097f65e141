"""Jobs as scripts take and give them, and as their hashes hold them."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from operator import attrgetter

import msgspec

from forge_jobs.clock import EPOCH, duration_us, from_us, to_us
from forge_jobs.model.edges import EdgeState
from forge_jobs.model.ids import HostId, JobId, WorkerId
from forge_jobs.model.jobs import (
    Cause,
    Claim,
    ClaimedJob,
    ErrorRecord,
    Hold,
    Job,
    JobStatus,
    NewJob,
)
from forge_jobs.model.strikes import Struck, name_of
from forge_jobs.model.transitions import Occurrence, struck_record
from forge_jobs.model.unique.keys import WITH_WINDOW, is_following, key_of, length
from forge_jobs.storage.redis.base.requests import JobFields, TemplateFields
from forge_jobs.storage.salvage import Fields


class Doc(msgspec.Struct, frozen=True, array_like=True):
    """The field ``doc``: what no script looks at, as JSON.

    :param timeout: microseconds
    """

    max_attempts: int | None
    timeout: int | None
    keep_result: bool
    metadata: str
    trace: str


class StoredClaim(msgspec.Struct, frozen=True, array_like=True):
    """A claim as ``claiming.lua`` gives it. That of a plain job ends before ``attempt``."""

    id: str
    kind: str
    payload: str
    doc: str
    token: int
    priority: int
    run_at: int
    enqueued: str
    attempt: int = 1
    crashes: int = 0
    snoozes: int = 0
    tags: str = ""
    schedule: str = ""
    cancel: bool = False
    snoozed: str = ""
    rate_limit: str = ""


decode_doc = msgspec.json.Decoder(Doc).decode
_decode_metadata = msgspec.json.Decoder(dict[str, str]).decode
_decode_error = msgspec.json.Decoder(ErrorRecord).decode
_encode = msgspec.json.encode


class Templates:
    """The values that several jobs of one call share, numbered from 1."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[object, ...], int] = {}
        self.fields: list[list[object]] = []
        """As ``planning.lua`` takes them. Not set is False."""

    def number_of(self, request: NewJob) -> int:
        """Return the number of the job's template."""
        shared = _shared(request)
        number = self._numbers.setdefault(shared, len(self._numbers) + 1)
        if number > len(self.fields):
            self.fields.append(_template_fields(request))
        return number


_OWN = {"id", "queue", "payload", "unique", "after", "fingerprint", "limit_name", "limit_key"}
_OWN |= {"sequence", "struck"}
_shared = attrgetter(*(name for name in NewJob.__struct_fields__ if name not in _OWN))


def new_job_fields(request: NewJob, template: int, parents: Collection[str]) -> object:
    """A request as ``planning.lua`` takes it. Not set is False.

    :param template: the number of the job's template
    :param parents: the jobs that the job waits for, and the edges to them, in turn
    """
    unique = request.unique
    permit, line = f"{request.limit_name}\n{request.limit_key}", request.sequence
    asked = unique or permit != "\n" or line or request.fingerprint or parents
    if not (asked or request.struck):
        return request.id, request.payload, template
    window = at_most = None
    if unique is not None and unique.mode in WITH_WINDOW:
        window, at_most = unique.window, unique.at_most
    return JobFields(
        id=request.id,
        payload=request.payload,
        template=template,
        key=False if unique is None else unique.key,
        mode=False if unique is None or unique.mode == "keep" else unique.mode,
        fingerprint=request.fingerprint or False,
        parents=list(parents) or False,
        window=window is not None and duration_us(length(window)),
        at_most=at_most is not None and duration_us(length(at_most)),
        permit=permit != "\n" and permit,
        sequence=line is not None and f"{line.on_failure} {line.key}",
        struck=request.struck is not None and _struck_fields(request.struck),
    )


def _struck_fields(struck: Struck) -> list[object]:
    record = struck.message and error_json(struck_record(struck.message))
    return [struck.mark, record or False]


def is_plain(request: NewJob) -> bool:
    """Return whether the job is due at once and the hash needs no optional field."""
    return not (
        request.unique
        or request.after
        or request.fingerprint
        or request.tags
        or request.schedule
        or request.run_at is not None
        or request.delay is not None
        or request.expires_at is not None
        or request.result_ttl is not None
        or request.limit_name
        or request.limit_key
        or request.sequence
        or request.struck
    )


def doc_of(request: NewJob | Occurrence) -> str:
    """The field ``doc`` of a new job, or of a job that begins anew."""
    timeout = request.timeout
    doc = Doc(
        max_attempts=request.max_attempts,
        timeout=None if timeout is None else duration_us(timeout),
        keep_result=request.keep_result,
        metadata=request.metadata,
        trace=request.trace,
    )
    return _encode(doc).decode()


def _template_fields(request: NewJob) -> list[object]:
    ttl = request.result_ttl
    shared = TemplateFields(
        kind=request.kind,
        doc=doc_of(request),
        priority=request.priority,
        # As texts, which stay exact however far away they are.
        run_at=False if request.run_at is None else str(to_us(request.run_at)),
        delay=False if request.delay is None else duration_us(request.delay),
        expires=False if request.expires_at is None else str(to_us(request.expires_at)),
        tags="\n".join(request.tags) or False,
        schedule=request.schedule or False,
        result_ttl=False if ttl is None else duration_us(ttl),
    )
    fields: list[object] = [*msgspec.structs.astuple(shared)]
    while fields[-1] is False:
        fields.pop()
    return fields


def claimed_job(queue: str, host_id: HostId, stored: StoredClaim) -> ClaimedJob:
    """Return a claim that the pod has just made.

    :raises UNREADABLE: a field of the claim cannot be read
    """
    doc = decode_doc(stored.doc)
    if doc.metadata != "{}":
        _decode_metadata(doc.metadata)
    enqueued = int(stored.enqueued)
    enqueued_at = from_us(enqueued)
    return ClaimedJob(
        claim=Claim(queue, JobId(stored.id), stored.token, host_id),
        kind=stored.kind,
        payload=stored.payload,
        attempt=stored.attempt,
        max_attempts=doc.max_attempts,
        crashes=stored.crashes,
        snoozes=stored.snoozes,
        priority=stored.priority,
        timeout=None if doc.timeout is None else timedelta(microseconds=doc.timeout),
        tags=tags_of(stored.tags),
        metadata=doc.metadata,
        trace=doc.trace,
        run_at=enqueued_at if stored.run_at == enqueued else from_us(stored.run_at),
        enqueued_at=enqueued_at,
        keep_result=doc.keep_result,
        cancel_requested=stored.cancel,
        schedule=stored.schedule,
        snoozed_since=from_us(int(stored.snoozed)) if stored.snoozed else None,
        rate_limit=stored.rate_limit,
    )


def error_json(error: ErrorRecord) -> str:
    """Return a record as the list ``err:<id>`` holds it, behind the time that a script adds."""
    return _encode(error).decode()


def decode_error(stored: bytes | str) -> ErrorRecord:
    """An element of the list ``err:<id>``."""
    text = stored.decode() if isinstance(stored, bytes) else stored
    at, _, record = text.partition(" ")
    return msgspec.structs.replace(_decode_error(record), at=from_us(int(at)))


def job(
    queue: str,
    job_id: str,
    fields: Mapping[str, str],
    errors: Iterable[bytes | str],
    waits_for: Mapping[str, str],
) -> Job:
    """Return a whole job.

    :param fields: the hash of the job
    :param errors: the list of errors, oldest first
    :param waits_for: parents that have not settled, and the states of these edges
    """
    read = StoredFields(fields)
    doc = read.read("doc", decode_doc, NO_DOC)
    cause = read.member("cause", Cause.ENQUEUED)
    if "waits" in fields:
        read.count("waits")
    parents, place = sorted(waits_for), fields.get("key")
    limit_name, _, limit_key = fields.get("permit", "").partition("\n")
    found = Job(
        id=JobId(job_id),
        queue=queue,
        kind=read.text("kind"),
        payload=read.text("payload"),
        status=read.member("status", JobStatus.PENDING),
        cause=cause,
        priority=read.number("priority"),
        attempt=read.count("attempt"),
        max_attempts=doc.max_attempts,
        token=read.number("token"),
        crashes=read.count("crashes"),
        snoozes=read.count("snoozes"),
        enqueued_at=read.instant("enqueued"),
        due_at=read.instant("run_at"),
        claimed_at=read.instant_if_set("claimed"),
        started_at=read.instant_if_set("started"),
        heartbeat_at=read.instant_if_set("beat"),
        finished_at=read.instant_if_set("finished"),
        expires_at=read.instant_if_set("expires"),
        timeout=read.value("timeout", doc.timeout, _duration, None),
        unique_key=None if place is None else key_of(place),
        hold=read.member_or_none("hold", Hold) if "hold" in fields else None,
        host_id=HostId(fields.get("host", "")),
        worker_id=WorkerId(fields.get("worker", "")),
        cancel_requested="cancel" in fields,
        tags=tags_of(fields.get("tags", "")),
        metadata=read.value("metadata", doc.metadata, _decode_metadata, {}),
        trace=doc.trace,
        schedule=fields.get("schedule", ""),
        keep_result=doc.keep_result,
        result=fields.get("result"),
        errors=read.value("errors", errors, decode_all_errors, ()),
        waits_for=tuple(JobId(parent) for parent in parents),
        held_by=tuple(JobId(one) for one in parents if waits_for[one] == EdgeState.HELD),
        rate_limit=fields.get("limit") if cause is Cause.RATE_LIMITED else None,
        struck_by=name_of(fields.get("limit")) if cause is Cause.STRUCK else None,
        follow_up=is_following(place),
        limit_name=limit_name,
        limit_key=limit_key,
    )
    return msgspec.structs.replace(found, unreadable=read.problems) if read.problems else found


class StoredFields(Fields):
    """The fields of a hash, which holds texts alone."""

    def number(self, name: str, otherwise: int = 0) -> int:
        return self.read(name, int, otherwise)

    def count(self, name: str) -> int:
        """Return a number, zero where none is set."""
        return self.number(name) if self._stored.get(name) else 0

    def instant(self, name: str) -> datetime:
        return self.read(name, _instant, EPOCH)

    def instant_if_set(self, name: str) -> datetime | None:
        """Return an instant, None where the hash has no such field."""
        return self.read(name, _instant, None) if self._stored.get(name) else None


NO_DOC = Doc(max_attempts=None, timeout=None, keep_result=True, metadata="{}", trace="")


def _instant(stored: str) -> datetime:
    return from_us(int(stored))


def _duration(microseconds: int | None) -> timedelta | None:
    return None if microseconds is None else timedelta(microseconds=microseconds)


def decode_all_errors(stored: Iterable[bytes | str]) -> tuple[ErrorRecord, ...]:
    """The list ``err:<id>``."""
    return tuple(map(decode_error, stored))


def tags_of(joined: str) -> tuple[str, ...]:
    """The field ``tags``."""
    return tuple(joined.split("\n")) if joined else ()
