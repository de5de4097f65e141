"""Unique keys: who holds them, and what requests change of jobs that wait.

The jobs that a call may change are locked before the call decides, in id order together with the
parents that the call names. The index of active jobs decides between calls that store. The call
that meets a holder which waits and has expired ends that holder.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import structs
from sqlalchemy import bindparam, or_, select, update

from forge_jobs.clock import duration_us
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After, Cause, JobStatus, NewJob, Unique
from forge_jobs.model.unique.keys import (
    FOLLOWING,
    REPLACED,
    REPLACEMENT_KEPT,
    REPLACING,
    is_following,
    key_of,
    length,
    place_after,
)
from forge_jobs.storage.salvage import number_or
from forge_jobs.storage.sql.base.job_columns import REPLACED_WITH
from forge_jobs.storage.sql.base.job_rows import (
    due_at,
    ends_at_once,
    new_job_values,
    with_content,
)
from forge_jobs.storage.sql.base.lists import one_of, portions
from forge_jobs.storage.sql.base.tables import jobs
from forge_jobs.storage.sql.base.transaction import Overtaken, Tx
from forge_jobs.storage.sql.base.unique_tables import replacements, unique_windows
from forge_jobs.storage.sql.jobs.endings import end_waiting
from forge_jobs.storage.sql.jobs.unique_keys.holders import Key, key_holders, windows_of
from forge_jobs.storage.sql.progress.notes import forget_steps

_WINDOW = ("queue", "unique_key", "job_id", "opened_at", "ends_at")

_ACTIVE = frozenset({"blocked", "pending", "in_progress", "failed"})
_BLOCKED, _IN_PROGRESS = JobStatus.BLOCKED.value, JobStatus.IN_PROGRESS.value

_LOCK = (
    select(
        jobs.c.id,
        jobs.c.status,
        jobs.c.run_at,
        jobs.c.enqueued_at,
        jobs.c.fingerprint,
        jobs.c.token,
        jobs.c.expires_at,
    )
    .where(one_of(jobs.c.id, "ids"))
    .order_by(jobs.c.id)
    .with_for_update(key_share=True)
)
_REPLACE = (
    update(jobs)
    .where(jobs.c.id == bindparam("job"))
    .values(hold=None, **{name: bindparam(f"new_{name}") for name in REPLACED_WITH})
)
_NEVER = 2**63 - 1
_CLOSE_WINDOW = unique_windows.delete().where(
    unique_windows.c.queue == bindparam("of"),
    unique_windows.c.unique_key == bindparam("with_key"),
    or_(
        unique_windows.c.ends_at <= bindparam("now"),
        unique_windows.c.opened_at == bindparam("at"),
        # On SQLite what is no number is greater than all numbers.
        unique_windows.c.opened_at > _NEVER,
    ),
)
_REPLACEMENTS = select(replacements.c.request_id, replacements.c.job_id).where(
    one_of(replacements.c.request_id, "ids"), replacements.c.ends_at > bindparam("now")
)


@dataclass
class Holder:
    """An active job with a key: stored, or accepted earlier in the same call."""

    id: JobId
    place: str
    status: str
    run_at: int = 0
    enqueued_at: int = 0
    fingerprint: str = ""
    has_run: bool = False
    expires_at: int | None = None

    @property
    def is_follow_up(self) -> bool:
        return self.status == _BLOCKED and is_following(self.place)

    def has_expired(self, now: int) -> bool:
        waits = self.status != _IN_PROGRESS
        return waits and self.expires_at is not None and self.expires_at <= now


class Keys:
    """The keys of one call.

    :param locks: False for a call that only looks, and that leaves changes to another one
    :raises Overtaken: a job that holds one of the keys has ended meanwhile
    """

    def __init__(self, tx: Tx, requests: Sequence[NewJob], *, locks: bool = True) -> None:
        self._tx = tx
        self._changes: dict[JobId, dict[str, Any]] = {}
        self._begun: set[JobId] = set()
        self._windows: dict[Key, JobId] = {}
        self._ahead: dict[Key, int] = {}
        self._opened: dict[Key, NewJob] = {}
        self._merged: dict[JobId, JobId] = {}
        self._noted: list[dict[str, Any]] = []
        self._stored_anew: list[Key] = []
        self._expired: list[JobId] = []
        keyed = [(one, one.unique) for one in requests if one.unique is not None]
        self._held: dict[Key, list[Holder]] = {}
        if not keyed:
            return
        found = key_holders(tx, ((one.queue, unique.key) for one, unique in keyed))
        self._held = {
            key: [
                Holder(JobId(row.id), row.unique_key, row.status, expires_at=row.expires_at)
                for row in rows
            ]
            for key, rows in found.items()
        }
        replacing = [(one, unique) for one, unique in keyed if unique.mode in REPLACING]
        if replacing:
            self._merged = _replacements(tx, [one.id for one, _ in replacing])
        if locks:
            self._lock(keyed, requests)
        cooling = {(one.queue, unique.key) for one, unique in keyed if unique.mode == "cooldown"}
        if cooling:
            self._look_at_windows(cooling)

    def _look_at_windows(self, keys: Iterable[Key]) -> None:
        """Read which windows last. One that opens in the future is from before a clock step.

        While this call was on the way another one may have opened a window later than ``tx.now``,
        and the job of that window may have run: the clock is read once more.
        """
        now = self._tx.now
        found = windows_of(self._tx, keys)
        # A window whose begin cannot be read makes way like one that opens in the future.
        opened = {key: number_or(row.opened_at, _NEVER) for key, row in found.items()}
        if any(each > now for each in opened.values()):
            now = self._tx.flavor.now_us(self._tx.connection)
        self._windows = {key: JobId(found[key].job_id) for key, at in opened.items() if at <= now}
        self._ahead = {key: found[key].opened_at for key, at in opened.items() if at > now}

    def _lock(self, keyed: Sequence[tuple[NewJob, Unique]], requests: Sequence[NewJob]) -> None:
        """Lock the jobs that may change, end or be followed, and the parents that the call names.

        A running job is locked for the first follow-up alone, so that the end of the job seldom
        meets a lock.
        """
        holders: dict[JobId, Holder] = {}
        for one, unique in keyed:
            for target in self._targets(one, unique):
                if target.status != _IN_PROGRESS or unique.mode in FOLLOWING:
                    holders[target.id] = target
        if not holders:
            return
        parents = {after.job_id for request in requests for after in request.after}
        for portion in portions(sorted({*holders, *parents})):
            for row in self._tx.execute(_LOCK, {"ids": portion}):
                holder = holders.pop(row.id, None)
                if holder is None:
                    continue
                if row.status not in _ACTIVE or (holder.is_follow_up and row.status != _BLOCKED):
                    # The follow-up of the job may not have been seen.
                    raise Overtaken
                holder.status, holder.run_at = row.status, row.run_at
                holder.enqueued_at, holder.fingerprint = row.enqueued_at, row.fingerprint
                holder.expires_at = row.expires_at
                # Before the first claim the token is the time of the enqueue.
                holder.has_run = row.token != row.enqueued_at
        if holders:
            raise Overtaken

    def _targets(self, request: NewJob, unique: Unique) -> list[Holder]:
        """Return the holders that the request may change, follow or end."""
        held = sorted(self._held_by(request), key=lambda each: not each.is_follow_up)
        expired = [each for each in held if each.has_expired(self._tx.now)]
        if unique.mode not in REPLACING:
            return expired
        # The end of one of two leaves the other one to be changed.
        return held if expired else held[:1]

    def merged_into(self, request: NewJob) -> JobId | None:
        """Return the job that has taken the content of the request before."""
        return self._merged.get(request.id)

    def is_follow_up(self, job_id: JobId) -> bool:
        """Return whether the job waits for the holder of its key, as far as the call has seen."""
        return any(
            one.id == job_id and one.is_follow_up for held in self._held.values() for one in held
        )

    def leave_expired(self, request: NewJob) -> None:
        """Take the key from jobs that wait and have expired. :meth:`write_before` ends them."""
        held = self._held_by(request)
        for one in [each for each in held if each.has_expired(self._tx.now)]:
            held.remove(one)
            self._expired.append(one.id)

    def holder(self, request: NewJob) -> Holder | None:
        """Return the job that holds the key: of two the one that may run."""
        held = self._held_by(request)
        return min(held, key=lambda one: one.is_follow_up) if held else None

    def waiting(self, request: NewJob) -> Holder | None:
        """Return the job whose content a request of this key replaces."""
        for one in sorted(self._held_by(request), key=lambda one: not one.is_follow_up):
            return one if one.status != _IN_PROGRESS else None
        return None

    def cooling_down(self, request: NewJob) -> JobId | None:
        """Return the job that opened a window which still lasts."""
        return self._windows.get(_key_of(request))

    def _held_by(self, request: NewJob) -> list[Holder]:
        return self._held.get(_key_of(request), [])

    def accept(self, request: NewJob) -> None:
        """Note that the request becomes a job with the key, unless a strike ends that job."""
        unique = request.unique
        if unique is None:
            return
        key, now = _key_of(request), self._tx.now
        if not ends_at_once(request):
            status = JobStatus.BLOCKED if request.after else JobStatus.PENDING
            due, content = due_at(request, now), request.fingerprint
            holder = Holder(request.id, unique.key, status.value, due, now, content)
            self._held.setdefault(key, []).append(holder)
        if unique.mode == "cooldown":
            self._windows[key] = request.id
            self._opened[key] = request
        if unique.mode in REPLACING:
            self._stored_anew.append(key)

    def replace(self, target: Holder, request: NewJob, accepted: dict[str, NewJob]) -> None:
        """Give the content of the request to a job that waits.

        :param accepted: jobs that the call will store
        """
        tx = self._tx
        self._merged[request.id] = target.id
        ends_at = tx.now + duration_us(REPLACEMENT_KEPT)
        self._noted.append({"request_id": request.id, "job_id": target.id, "ends_at": ends_at})
        due = _due(request, target, tx.now)
        target.run_at, target.fingerprint = due, target.fingerprint or REPLACED
        earlier = accepted.get(target.id)
        if earlier is not None:
            # A request without a time of its own stays one, where the job is due from now on.
            is_given = request.run_at is not None or due < tx.now
            accepted[target.id] = with_content(earlier, request, due if is_given else None)
            return
        if target.has_run:
            self._begun.add(target.id)
        row = new_job_values(request, tx.now, has_children=False)
        row |= {"run_at": due, "fingerprint": target.fingerprint}
        if row["requested_run_at"] is not None:
            row["requested_run_at"] = due
        values = {f"new_{name}": row[name] for name in REPLACED_WITH}
        self._changes[target.id] = {"job": target.id, **values}
        if due <= tx.now and target.status != _BLOCKED:
            tx.wake_queue(request.queue)

    def has_changes(self) -> bool:
        """Return whether a job that waits is to be changed or ended."""
        return bool(self._noted or self._expired)

    def write_before(self) -> None:
        """End expired jobs, open windows and change jobs, before the new jobs are stored.

        The checkpoint and the steps of a job that has run are of the content before.

        :raises Overtaken: another call has opened a window of one of the keys
        """
        tx = self._tx
        if self._expired:
            end_waiting(tx, sorted(self._expired), Cause.EXPIRED)
        if self._opened:
            self._open_windows()
        if self._changes:
            tx.execute(_REPLACE, [self._changes[each] for each in sorted(self._changes)])
            forget_steps(tx, self._begun)
        if self._noted:
            noted = sorted(self._noted, key=lambda one: str(one["request_id"]))
            tx.put(tx.flavor.insert_replace(replacements, ("request_id",)), noted)

    def _open_windows(self) -> None:
        tx, windows = self._tx, []
        for key, request in sorted(self._opened.items(), key=lambda each: each[0]):
            assert request.unique is not None
            ends_at = tx.now + duration_us(length(request.unique.window))
            windows.append(dict(zip(_WINDOW, (*key, request.id, tx.now, ends_at), strict=True)))
        over = [
            {"of": queue, "with_key": key, "now": tx.now, "at": self._ahead.get((queue, key))}
            for queue, key in sorted(self._opened)
        ]
        tx.execute(_CLOSE_WINDOW, over)
        insert = tx.flavor.insert_ignore(unique_windows).returning(unique_windows.c.unique_key)
        if len(tx.execute(insert, windows).all()) < len(windows):
            raise Overtaken

    def check_after(self, accepted: Mapping[str, NewJob]) -> None:
        """Check, once the new jobs are stored, that no other job has become active since.

        The index knows places. Between a first look and the insert a holder and its follow-up may
        have come, and the holder may have ended.

        :raises Overtaken: there is such a job
        """
        if not self._stored_anew or not self._tx.flavor.locks_rows:
            return
        known = {one.id for held in self._held.values() for one in held}
        for rows in key_holders(self._tx, self._stored_anew).values():
            if any(row.id not in known and row.id not in accepted for row in rows):
                raise Overtaken


def follow_up(request: NewJob, holder: Holder) -> NewJob:
    """Return the request as a job that waits for the end of the holder."""
    assert request.unique is not None
    return structs.replace(
        request,
        unique=structs.replace(request.unique, key=place_after(holder.place)),
        after=(After(holder.id, "continue"),),
    )


def _due(request: NewJob, target: Holder, now: int) -> int:
    """Return when the changed job is due. A job that is due already keeps its place."""
    assert request.unique is not None
    due = due_at(request, now)
    if request.unique.at_most is not None:
        due = min(due, target.enqueued_at + duration_us(length(request.unique.at_most)))
    if due > now:
        return due
    return min(target.run_at, now) if isinstance(target.run_at, int) else now


def _key_of(request: NewJob) -> Key:
    assert request.unique is not None
    return request.queue, key_of(request.unique.key)


def _replacements(tx: Tx, ids: Sequence[JobId]) -> dict[JobId, JobId]:
    return {
        JobId(row.request_id): JobId(row.job_id)
        for portion in portions(ids)
        for row in tx.execute(_REPLACEMENTS, {"ids": portion, "now": tx.now})
    }
