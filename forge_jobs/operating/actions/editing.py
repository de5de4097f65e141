"""Edits of a job that waits, with a record of the old and new values."""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType, structs

from forge_jobs.errors import Conflict, InvalidInput
from forge_jobs.handlers.preparing import unencrypted
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.handlers.unique_keys import derived_key
from forge_jobs.model.actions import Action, ActionRecord
from forge_jobs.model.edits import CONTENT, JobContent, changed_fields, content_of, version_of
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Job
from forge_jobs.model.payloads import check_json_text
from forge_jobs.operating.access import Right
from forge_jobs.operating.actions.documents import ActionView
from forge_jobs.operating.actions.recording import RecordedCalls
from forge_jobs.operating.documents import widened
from forge_jobs.operating.hiding import OURS
from forge_jobs.operating.kinds.schemas import check_payload
from forge_jobs.operating.redaction import NO_REDACTION, Redaction
from forge_jobs.privacy.encryption import is_encrypted
from forge_jobs.privacy.secrets import readable, with_secrets_of
from forge_jobs.storage.protocols import Storage

EDIT_JOB = "edit_job"
_DERIVED = "by:"


class _Content(Struct, frozen=True, kw_only=True):
    """The fields of ``JobContent``, those that are given."""

    payload: msgspec.Raw | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    due_at: datetime | UnsetType = UNSET
    max_attempts: int | UnsetType | None = UNSET
    timeout: timedelta | UnsetType | None = UNSET
    expires_at: datetime | UnsetType | None = UNSET
    tags: tuple[str, ...] | UnsetType = UNSET
    metadata: Mapping[str, str] | UnsetType = UNSET


class JobEdit(_Content, frozen=True, kw_only=True):
    """Another content of a job. What is left out stays. Durations are seconds in JSON.

    :param payload: an object. Where a secret is shown as ``***`` and left so, the secret stays
    :param due_at: an aware datetime. One that has passed means due now
    :param max_attempts: None for no bound
    :param timeout: of one run. None for no bound
    :param expires_at: an aware datetime ahead. None for no expiry
    :param metadata: all of it
    :param version: of the job as it was seen, as ``JobView`` says. "" edits the job as it is now
    :param reason: for people. Stays with the record
    """

    version: str = ""
    reason: str = ""


class _Recorded(_Content, frozen=True, kw_only=True, omit_defaults=True):
    """The fields of an edit as the record of the action has them. Secrets are hidden."""

    secrets: str = ""
    """"changed" when the edit has written another secret, which no record keeps."""

    seal: str = ""
    """A hash of a payload that the record shows in part only. No surface shows the hash."""


class EditCalls(RecordedCalls):
    """A part of the methods of an operator. See ``Operator``."""

    handlers: HandlerRegistry | None

    async def edit_job(self, job_id: str, edit: JobEdit) -> ActionView:
        """Give a job that waits another payload, priority, due time or other content.

        All or nothing, and only while the job is as it was seen. The payload is checked by the
        handler where the program knows the handler, else by the schema that pods publish. Returns
        the record of the action.

        :raises NotFound: there is no such job
        :raises InvalidInput: a value is wrong, or nothing would change
        :raises Conflict: the job runs, has ended, or was changed since. Or the payload is
            encrypted, or the unique key is made from what would change
        """
        self.actor.act(EDIT_JOB)
        if edit.payload is not UNSET or edit.metadata is not UNSET:
            self.actor.need(Right.PAYLOADS)
        job = await self._stored(job_id)
        if edit.version and edit.version != version_of(job):
            raise Conflict(f"job {job.id} was changed since you looked; look again, then edit")
        after, is_secret = self._edited(job, edit, await self.storage.cron.now())
        if after.payload != job.payload:
            await check_payload(self.storage, self.handlers, job.kind, after.payload)
        return await self._write_edit(job, after, edit.reason, is_secret=is_secret)

    async def _write_edit(
        self, job: Job, after: JobContent, reason: str, *, is_secret: bool, undoes: str = ""
    ) -> ActionView:
        before = content_of(job)
        changed = changed_fields(before, after)
        if not changed:
            raise InvalidInput("edit", "changes nothing", "give another value")
        action = self._action(
            EDIT_JOB,
            target=job.id,
            concerns=(job.queue,),
            before=_record(before, changed, self._marks(job)),
            after=_record(
                after, changed, self._marks(job, after), is_secret=is_secret, sealed_for=job.id
            ),
            reason=reason,
            undoes=undoes,
        )
        jobs = self.storage.jobs
        change = partial(jobs.edit, job.id, token=job.token, before=before, after=after)
        _, settled = await self._change_one(action, change)
        jobs.announce_changes([job.queue])
        return self._shown(settled)

    async def _undo_edit(self, record: ActionRecord) -> ActionView:
        """Write the old values back, if no other edit or run has changed them since.

        :raises Conflict: a value was changed since, or was a secret
        """
        action = record.action
        old = msgspec.json.decode(action.before, type=_Recorded)
        new = msgspec.json.decode(action.after, type=_Recorded)
        if new.secrets:
            raise Conflict(
                f"the edit {action.id} has changed a secret, and no record keeps secrets"
            )
        job = await self._stored(action.target)
        if not _has(job, new, action.after, self.redaction):
            raise Conflict(
                f"job {job.id} was changed since the action {action.id}; look at what is there "
                "now, and edit what you want"
            )
        values = {name: getattr(old, name) for name in _names(new)}
        if "payload" in values:
            text = bytes(values["payload"]).decode()
            values["payload"], _ = with_secrets_of(text, job.payload, self._marks(job))
        if "metadata" in values:
            values["metadata"] = {**values["metadata"], **_ours(job.metadata)}
        after = structs.replace(content_of(job), **values)
        reason = f"undo of {action.id}"
        return await self._write_edit(job, after, reason, is_secret=False, undoes=action.id)

    def _shown(self, record: ActionRecord) -> ActionView:
        action = record.action
        if not self.actor.access.payloads:
            action = structs.replace(action, before="", after="")
        else:
            action = structs.replace(
                action,
                before=self.redaction.document(action.before),
                after=self.redaction.document(_unsealed(action.after)),
            )
        view: ActionView = widened(
            ActionView,
            action,
            state=record.state,
            parts=record.parts,
            silent=record.silent,
            changed=sum(part.changed for part in record.parts),
            requested=sum(part.requested for part in record.parts),
            refused=sum(sum(part.refused.values()) for part in record.parts),
        )
        return view

    def _marks(self, job: Job, after: JobContent | None = None) -> Mapping[str, str]:
        """The metadata of a job with the places of hidden fields."""
        payload = job.payload if after is None else after.payload
        return self.redaction.marks(payload, job.metadata)

    def _edited(self, job: Job, edit: JobEdit, now: datetime) -> tuple[JobContent, bool]:
        """Return the content that an edit asks for, checked, and whether a secret changes."""
        before, is_secret, payload = content_of(job), False, job.payload
        given = {name: getattr(edit, name) for name in CONTENT}
        wanted = {
            name: value
            for name, value in given.items()
            if value is not UNSET and value != getattr(before, name)
        }
        if "payload" in wanted:
            if is_encrypted(job.payload):
                raise Conflict(
                    f"the payload of job {job.id} is encrypted, and cannot be edited in part; "
                    "cancel the job and enqueue another"
                )
            text = check_json_text("payload", bytes(wanted["payload"]).decode("utf-8"))
            payload, is_secret = with_secrets_of(text, job.payload, self._marks(job))
        checked = self._checked(job, payload, wanted)
        if "payload" in wanted:
            wanted["payload"] = checked.payload
            self._check_key(job, checked.payload)
        if "due_at" in wanted:
            wanted["due_at"] = max(_instant("due_at", wanted["due_at"]), now)
        if (
            wanted.get("expires_at") is not None
            and _instant("expires_at", wanted["expires_at"]) <= now
        ):
            raise InvalidInput("expires_at", "has passed", "give a time ahead, or cancel the job")
        if "metadata" in wanted:
            own = msgspec.json.decode(checked.metadata, type=dict[str, str])
            wanted["metadata"] = {**own, **_ours(job.metadata)}
        for name in ("timeout", "tags"):
            if name in wanted:
                wanted[name] = getattr(checked, name)
        return structs.replace(before, **wanted), is_secret

    def _checked(self, job: Job, payload: str, wanted: Mapping[str, Any]) -> Any:
        """Return the request that the edited job would be, checked as at an enqueue."""
        names = ("priority", "max_attempts", "timeout", "expires_at", "tags", "metadata")
        options = {name: wanted[name] for name in names if name in wanted}
        if "payload" not in wanted:
            payload = "{}"
        request: EnqueueRequest[Any] = EnqueueRequest(
            job.kind, payload, queue=job.queue, unique=None, spread=None, **options
        )
        registry = self.handlers if "payload" in wanted else None
        return unencrypted(request, registry)[0]

    def _check_key(self, job: Job, payload: str) -> None:
        """Refuse a payload that the job's unique key is made from, unless the key stays."""
        if job.unique_key is None or not job.unique_key.startswith(_DERIVED):
            return
        handler = None if self.handlers is None else self.handlers.get(job.kind)
        rule = None if handler is None else handler.options.unique
        fix = "cancel the job and enqueue another"
        if rule is None or not rule.by:
            raise Conflict(
                f"the unique key of job {job.id} is made from the payload, and which fields make "
                f"the key is not known here; {fix}"
            )
        if derived_key(job.kind, payload, rule.by) != job.unique_key:
            raise Conflict(f"the unique key of job {job.id} is made from what would change; {fix}")


async def is_edited(storage: Storage, action: Action) -> bool:
    """Return whether a job has what an edit asked for, also where the record hides a part."""
    job_id = JobId(action.target)
    job = (await storage.jobs.get([job_id])).get(job_id)
    new = msgspec.json.decode(action.after, type=_Recorded)
    if job is None:
        return False
    if not new.seal:
        return not new.secrets and _has(job, new, action.after)
    rest = structs.replace(new, payload=UNSET, secrets="", seal="")
    text = msgspec.json.encode(rest).decode()
    return new.seal == _seal(job.payload, job.id) and _has(job, rest, text)


def _seal(payload: str, job_id: str) -> str:
    salt = job_id.encode()[-hashlib.blake2b.SALT_SIZE :]
    return hashlib.blake2b(payload.encode(), digest_size=16, salt=salt).hexdigest()


def _unsealed(text: str) -> str:
    """Return what an edit has written, as surfaces show that."""
    if '"seal"' not in text:
        return text
    try:
        recorded = msgspec.json.decode(text, type=_Recorded)
    except msgspec.MsgspecError:
        # Of another verb.
        return text
    if not recorded.seal:
        return text
    return msgspec.json.encode(structs.replace(recorded, seal="")).decode()


def _has(job: Job, recorded: _Recorded, text: str, redaction: Redaction = NO_REDACTION) -> bool:
    """Return whether a job has what the text of a record says."""
    marks = redaction.marks(job.payload, job.metadata)
    has = _record(content_of(job), _names(recorded), marks)
    return has == redaction.document(_unsealed(text))


def _names(recorded: _Recorded) -> tuple[str, ...]:
    return tuple(name for name in CONTENT if getattr(recorded, name) is not UNSET)


def _instant(field: str, value: datetime) -> datetime:
    if value.tzinfo is None:
        raise InvalidInput(field, "has no time zone", "give an instant with an offset")
    return value.astimezone(UTC)


def _ours(metadata: Mapping[str, str]) -> dict[str, str]:
    return {key: text for key, text in metadata.items() if key in OURS}


def _record(
    content: JobContent,
    names: tuple[str, ...],
    metadata: Mapping[str, str],
    *,
    is_secret: bool = False,
    sealed_for: str = "",
) -> str:
    values: dict[str, Any] = {name: getattr(content, name) for name in names}
    seal = ""
    if "payload" in values:
        shown = readable(content.payload, metadata)
        if sealed_for and shown != content.payload:
            seal = _seal(content.payload, sealed_for)
        values["payload"] = msgspec.Raw(shown.encode())
    if "metadata" in values:
        values["metadata"] = {
            key: text for key, text in content.metadata.items() if key not in OURS
        }
    recorded = _Recorded(**values, secrets="changed" if is_secret else "", seal=seal)
    return msgspec.json.encode(recorded).decode()
