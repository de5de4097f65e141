"""Bodies of requests, where they differ from the arguments of the operator."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType, field

from forge_jobs.errors import InvalidInput
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.jobs import After, Unique


class NewJobBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job to enqueue. Durations are seconds. Options as of ``EnqueueOptions``.

    :param payload: an object, stored byte for byte
    """

    kind: str
    payload: msgspec.Raw = field(default_factory=lambda: msgspec.Raw(b"{}"))
    id: str | None = None
    queue: str | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    run_at: datetime | None = None
    delay: timedelta | None = None
    spread: timedelta | UnsetType | None = UNSET
    max_attempts: int | UnsetType | None = UNSET
    unique_key: str | None = None
    unique: Unique | UnsetType | None = UNSET
    after: tuple[After, ...] = ()
    timeout: timedelta | UnsetType | None = UNSET
    tags: tuple[str, ...] | UnsetType = UNSET
    metadata: Mapping[str, str] = {}
    expires_at: datetime | None = None
    keep_result: bool | UnsetType = UNSET
    result_ttl: timedelta | None = None
    trace: Mapping[str, str] = {}

    def request(self) -> EnqueueRequest[Any]:
        """Return the request that the body describes."""
        given = msgspec.structs.asdict(self)
        payload = bytes(given.pop("payload")).decode("utf-8")
        return EnqueueRequest(given.pop("kind"), payload, **given)


class WhichBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The jobs of a change: a filter, ids, or all.

    :param q: a line of the filter language
    :param ids: of jobs. Not together with ``q``
    :param all: every job of the store. Needed where nothing else is given
    """

    q: str = ""
    ids: tuple[str, ...] | None = None
    all: bool = False

    def check(self) -> None:
        """Refuse a body that could mean every job by mistake.

        :raises InvalidInput: names the field
        """
        if self.q.strip() and self.ids is not None:
            raise InvalidInput("ids", "are given together with q", "give one of the two")
        if self.all and (self.q.strip() or self.ids is not None):
            raise InvalidInput("all", "is given together with a filter", "give one of the two")
        if not (self.all or self.q.strip() or self.ids is not None):
            raise InvalidInput("q", "is empty, which means every job", "give a filter, ids or all")
