"""Requests: what a caller asks for, before defaults are filled in and values are checked."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, TypedDict, Unpack

import msgspec
from msgspec import UNSET, Struct, UnsetType

from forge_jobs.handlers.options import HandlerOptions, check_option_names
from forge_jobs.model.jobs import After, Result_co, Unique


class CheckedJson(str):
    """JSON text that a handler has already checked against the signature."""

    __slots__ = ()


class OurKey(str):
    """A key of metadata that forge_jobs itself writes into a request."""

    __slots__ = ()


class Share(Struct, frozen=True):
    """The part of one request of many in a window. ``enqueue_many(..., spread=window)`` makes them.

    :param index: of the request, from 0
    :param count: of all requests
    """

    window: timedelta
    index: int
    count: int


class EnqueueOptions(TypedDict, total=False):
    """The options of one job, for type checkers::

        async def tonight(request: EnqueueRequest, **options: Unpack[EnqueueOptions]) -> None:
            await client.enqueue(request, run_at=at_ten(), **options)

    What is left out falls back to the handler, then to the defaults. A given value wins, also when
    it equals a default.

    :param id: a ULID. Makes a repeat of the same request store one job
    :param queue: else the handler's, else the router's choice, else "default"
    :param priority: lower first, -100 to 100
    :param run_at: due from this aware instant
    :param delay: due this long after the store's now, a timedelta or seconds. Not with ``run_at``
    :param spread: due later than said by a part of this window, a timedelta or seconds. The id of
        the job decides which part. None: at the moment said, also where the handler has a window
    :param max_attempts: at least 1. None means no bound
    :param unique_key: short for ``unique=Unique(key)``
    :param unique: what happens while another job of the queue has the same key. None: no key, also
        where the handler has one
    :param concurrency_key: the key under which the job is counted, in place of the one that the
        handler's limit makes of the arguments. The limit is the handler's, else that of the kind's
        name. "" for all jobs without a key
    :param sequence_key: the key of the sequence in place of the one that the handler's makes of the
        arguments. Without one of the handler dead jobs are waited for. "" for none
    :param after: jobs that must end first, as ids or :class:`After`
    :param timeout: of one run, a timedelta or seconds. None means no limit
    :param metadata: strings, for people and tools. Never interpreted. Keys that begin with
        ``forge_jobs.`` are refused, since they are ours
    :param expires_at: aware. A job that has not started by then is cancelled
    :param keep_result: store what the handler returns
    :param result_ttl: how long the result is kept. None: as long as the job
    :param trace: trace context headers, carried apart from the payload
    """

    id: str | None
    queue: str
    priority: int
    run_at: datetime | None
    delay: timedelta | float | None
    spread: timedelta | float | None
    max_attempts: int | None
    unique_key: str | None
    unique: Unique | None
    concurrency_key: str
    sequence_key: str
    after: Sequence[str | After]
    timeout: timedelta | float | None
    tags: Sequence[str]
    metadata: Mapping[str, str]
    expires_at: datetime | None
    keep_result: bool
    result_ttl: timedelta | float | None
    trace: Mapping[str, str]


class GivenOptions(Struct, frozen=True, kw_only=True):
    """:class:`EnqueueOptions` as a request holds them, those left out included."""

    id: str | None = None
    queue: str | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    run_at: datetime | None = None
    delay: timedelta | float | None = None
    spread: timedelta | float | Share | UnsetType | None = UNSET
    max_attempts: int | UnsetType | None = UNSET
    unique_key: str | None = None
    unique: Unique | UnsetType | None = UNSET
    concurrency_key: str | UnsetType = UNSET
    sequence_key: str | UnsetType = UNSET
    after: Sequence[str | After] = ()
    timeout: timedelta | float | UnsetType | None = UNSET
    tags: Sequence[str] | UnsetType = UNSET
    metadata: Mapping[str, str] = {}
    expires_at: datetime | None = None
    keep_result: bool | UnsetType = UNSET
    result_ttl: timedelta | float | None = None
    trace: Mapping[str, str] = {}


OPTION_NAMES = frozenset(GivenOptions.__struct_fields__)


class EnqueueRequest(GivenOptions, Generic[Result_co], frozen=True):
    """A job to be enqueued: ``EnqueueRequest("gh.sync_issue", {"number": 7}, priority=1)``.

    All fields behind ``result_type`` are options of the enqueue, each described at
    ``EnqueueOptions``. Nothing is checked here. ``enqueue`` checks. ``handler.request(...)`` makes
    a request whose payload is already checked, and the only one a type checker can check: an
    ``EnqueueRequest[Report]``, where the handler returns a ``Report``.

    :param kind: names the handler
    :param payload: the handler's arguments by name, or the JSON text of such an object
    :param handler_options: defaults of the handler that made the request, so that they hold
        also where the registry is not at hand
    :param result_type: what ``client.result`` reads the result as, for the outcome of the enqueue
    """

    kind: str
    payload: Mapping[str, Any] | str = {}
    handler_options: HandlerOptions | None = None
    result_type: Any = Any

    def options(self, **options: Unpack[EnqueueOptions]) -> "EnqueueRequest[Result_co]":
        """A copy with these options put on. The others stay.

        :raises InvalidInput: there is no such option
        """
        if not options:
            return self
        check_option_names(options, OPTION_NAMES, "enqueue")
        return msgspec.structs.replace(self, **options)
