"""Requests to pods and their answers."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import BigInteger, Row, and_, bindparam, delete, insert, select, update

from forge_jobs.clock import duration_us
from forge_jobs.errors import Conflict, NotFound
from forge_jobs.model.ids import HostId
from forge_jobs.model.pod_requests import (
    ANSWERED_WITHIN,
    MOST_REQUESTS,
    REQUESTS_KEPT,
    PodRequest,
    PodVerb,
    check_answer,
    check_request,
)
from forge_jobs.model.processes import PodLease
from forge_jobs.storage.pod_requests import (
    absent_pod,
    asked_too_often,
    same_request,
    stored_request,
    unknown,
)
from forge_jobs.storage.sql.base.action_tables import pod_requests
from forge_jobs.storage.sql.base.database import Database
from forge_jobs.storage.sql.base.tables import pods
from forge_jobs.storage.sql.base.transaction import Tx

_FORGOTTEN_AT_ONCE = 100
_WITHIN_US, _KEPT_US = duration_us(ANSWERED_WITHIN), duration_us(REQUESTS_KEPT)

_NOW: Any = bindparam("now", type_=BigInteger)
_IS_OPEN = and_(
    pod_requests.c.host_id == bindparam("by"),
    pod_requests.c.epoch == bindparam("at_epoch"),
    pod_requests.c.answered_at.is_(None),
    pod_requests.c.until > _NOW,
)

WAITS = select(pod_requests.c.id).where(_IS_OPEN).exists()
"""The condition that a request to a lease waits. Takes ``by``, ``at_epoch`` and ``now``."""

_OPEN = (
    select(pod_requests)
    .where(_IS_OPEN, pod_requests.c.asked_at <= _NOW)
    .order_by(pod_requests.c.asked_at, pod_requests.c.id)
)
_HEAR = (
    update(pod_requests)
    .where(pod_requests.c.id == bindparam("request"), pod_requests.c.heard_at.is_(None))
    .values(heard_at=_NOW)
)
_ONE = select(pod_requests).where(
    pod_requests.c.id == bindparam("request"), pod_requests.c.asked_at > bindparam("since")
)
_NEWEST = (
    select(pod_requests)
    .where(pod_requests.c.host_id == bindparam("by"), pod_requests.c.asked_at > bindparam("since"))
    .order_by(pod_requests.c.asked_at.desc(), pod_requests.c.id.desc())
    .limit(MOST_REQUESTS)
)
# Locked, so that of two who ask at the same time the second counts the request of the first.
_LEASE = select(pods.c.epoch, pods.c.lease_until).where(pods.c.host_id == bindparam("by"))
_PAST = (
    select(pod_requests.c.id)
    .where(pod_requests.c.asked_at <= bindparam("since"))
    .order_by(pod_requests.c.id)
    .limit(_FORGOTTEN_AT_ONCE)
)
_OF_LEASE = (
    pod_requests.c.id == bindparam("request"),
    pod_requests.c.host_id == bindparam("by"),
    pod_requests.c.epoch == bindparam("at_epoch"),
)
_IS_THERE = select(pod_requests.c.id).where(*_OF_LEASE)
_ANSWER = (
    update(pod_requests)
    .where(*_OF_LEASE, pod_requests.c.answered_at.is_(None))
    .values(answered_at=_NOW, answer=bindparam("told"), done=bindparam("was_done"))
)


def _request_of(row: Row[Any], now: int) -> PodRequest:
    found = stored_request(now, **row._mapping)
    if found is None:
        raise NotFound(unknown(row.id))
    return found


def _readable(rows: Iterable[Row[Any]], now: int) -> list[PodRequest]:
    found = (stored_request(now, **row._mapping) for row in rows)
    return [each for each in found if each is not None]


def _ask(tx: Tx, host_id: HostId, verb: PodVerb, request_id: str, asked_by: str) -> PodRequest:
    lease = tx.execute(_LEASE.with_for_update(), {"by": host_id}).first()
    since = tx.now - _KEPT_US
    if found := tx.execute(_ONE, {"request": request_id, "since": since}).first():
        return same_request(_request_of(found, tx.now), host_id, verb)
    if lease is None or lease.lease_until <= tx.now:
        raise NotFound(absent_pod(host_id))
    newest = tx.execute(_NEWEST, {"by": host_id, "since": since}).all()
    if sum(row.until > tx.now for row in newest) >= MOST_REQUESTS:
        raise Conflict(asked_too_often(host_id))
    kept = [row.id for row in newest[: MOST_REQUESTS - 1]]
    of_pod = delete(pod_requests).where(
        pod_requests.c.host_id == host_id, pod_requests.c.id.not_in(kept)
    )
    tx.execute(of_pod)
    if past := tx.execute(_PAST, {"since": since}).scalars().all():
        tx.execute(delete(pod_requests).where(pod_requests.c.id.in_(list(past))))
    tx.execute(
        insert(pod_requests),
        {
            "id": request_id,
            "host_id": host_id,
            "epoch": lease.epoch,
            "verb": verb.value,
            "asked_by": asked_by,
            "asked_at": tx.now,
            "until": tx.now + _WITHIN_US,
        },
    )
    tx.wake_beats()
    return _get(tx, request_id)


def _get(tx: Tx, request_id: str) -> PodRequest:
    row = tx.execute(_ONE, {"request": request_id, "since": tx.now - _KEPT_US}).first()
    if row is None:
        raise NotFound(unknown(request_id))
    return _request_of(row, tx.now)


def _hear(tx: Tx, lease: PodLease) -> list[PodRequest]:
    values = {"by": lease.host_id, "at_epoch": lease.epoch, "now": tx.now}
    ids = {row.id for row in tx.execute(_OPEN, values)}
    for request_id in sorted(ids):
        tx.execute(_HEAR, {"request": request_id, "now": tx.now})
    # Without one that was made in between, which is heard by the next call.
    return _readable((row for row in tx.execute(_OPEN, values) if row.id in ids), tx.now)


def _answer(tx: Tx, lease: PodLease, request_id: str, answer: str, done: bool) -> bool:
    of_lease = {"request": request_id, "by": lease.host_id, "at_epoch": lease.epoch}
    told = {"told": answer, "was_done": done, "now": tx.now}
    if tx.execute(_ANSWER, {**of_lease, **told}).rowcount:
        return True
    return tx.execute(_IS_THERE, of_lease).first() is not None


class RequestCalls:
    """A part of the methods of the process store. See ``AskedStore``."""

    _database: Database

    async def ask_pod(
        self, host_id: HostId, verb: PodVerb, *, request_id: str, asked_by: str = ""
    ) -> PodRequest:
        """See ``AskedStore``."""
        check_request(request_id, asked_by)
        return await self._database.write(lambda tx: _ask(tx, host_id, verb, request_id, asked_by))

    async def hear_requests(self, lease: PodLease) -> list[PodRequest]:
        """See ``AskedStore``."""
        return await self._database.write(lambda tx: _hear(tx, lease))

    async def answer_request(
        self, lease: PodLease, request_id: str, answer: str, *, done: bool = True
    ) -> bool:
        """See ``AskedStore``."""
        check_answer(answer)
        return await self._database.write(lambda tx: _answer(tx, lease, request_id, answer, done))

    async def pod_request(self, request_id: str) -> PodRequest:
        """See ``AskedStore``."""
        return await self._database.read(lambda tx: _get(tx, request_id))

    async def pod_requests(self, host_id: HostId) -> list[PodRequest]:
        """See ``AskedStore``."""

        def script(tx: Tx) -> list[PodRequest]:
            values = {"by": host_id, "since": tx.now - _KEPT_US}
            return _readable(tx.execute(_NEWEST, values), tx.now)

        return await self._database.read(script)
