"""Requests to pods and their answers, in the fleet's slot."""

import msgspec

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
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.scripts import request_of

_KEPT_US = duration_us(REQUESTS_KEPT)


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    """A request as ``REQUEST_FIELDS`` of ``requests.lua`` lists the parts."""

    host: str
    epoch: str
    verb: str
    by: str
    asked: str
    until: str
    heard: str
    answered: str
    done: str
    answer: str
    id: str

    def told(self, now: int) -> PodRequest | None:
        return stored_request(
            now,
            id=self.id,
            host_id=self.host,
            epoch=self.epoch,
            verb=self.verb,
            asked_by=self.by,
            asked_at=self.asked,
            until=self.until,
            heard_at=self.heard or None,
            answered_at=self.answered or None,
            done=bool(self.done),
            answer=self.answer,
        )


class _Found(msgspec.Struct, frozen=True, array_like=True):
    now: int
    requests: list[_Stored]

    @property
    def readable(self) -> list[PodRequest]:
        found = (each.told(self.now) for each in self.requests)
        return [each for each in found if each is not None]


class RequestCalls:
    """A part of the methods of the process store. See ``AskedStore``."""

    _database: Database

    async def ask_pod(
        self, host_id: HostId, verb: PodVerb, *, request_id: str, asked_by: str = ""
    ) -> PodRequest:
        """See ``AskedStore``."""
        check_request(request_id, asked_by)
        request = request_of(
            "ask_pod",
            id=request_id,
            host=host_id,
            verb=verb.value,
            by=asked_by,
            within=duration_us(ANSWERED_WITHIN),
            kept=_KEPT_US,
            most=MOST_REQUESTS,
        )
        fleet = self._database.keys.fleet
        outcome = await self._database.run_one("ask_pod", fleet, request, str)
        if outcome == "absent":
            raise NotFound(absent_pod(host_id))
        if outcome == "full":
            raise Conflict(asked_too_often(host_id))
        return same_request(await self.pod_request(request_id), host_id, verb)

    async def hear_requests(self, lease: PodLease) -> list[PodRequest]:
        """See ``AskedStore``."""
        request = request_of("hear_requests", host=lease.host_id, epoch=lease.epoch, kept=_KEPT_US)
        fleet = self._database.keys.fleet
        return (await self._database.run_one("hear_requests", fleet, request, _Found)).readable

    async def answer_request(
        self, lease: PodLease, request_id: str, answer: str, *, done: bool = True
    ) -> bool:
        """See ``AskedStore``."""
        check_answer(answer)
        request = request_of(
            "answer_request",
            id=request_id,
            host=lease.host_id,
            epoch=lease.epoch,
            answer=answer,
            done=done,
            kept=_KEPT_US,
        )
        fleet = self._database.keys.fleet
        return await self._database.run_one("answer_request", fleet, request, bool)

    async def pod_request(self, request_id: str) -> PodRequest:
        """See ``AskedStore``."""
        found = await self._requests(request_id, "")
        if not found:
            raise NotFound(unknown(request_id))
        return found[0]

    async def pod_requests(self, host_id: HostId) -> list[PodRequest]:
        """See ``AskedStore``."""
        return await self._requests("", host_id)

    async def _requests(self, request_id: str, host_id: str) -> list[PodRequest]:
        request = request_of("pod_requests", id=request_id, host=host_id, kept=_KEPT_US)
        fleet = self._database.keys.fleet
        return (await self._database.run_one("pod_requests", fleet, request, _Found)).readable
