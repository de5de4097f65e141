"""Named rate limits, as handlers and callers use them."""

import asyncio
import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import NamedTuple

from msgspec import Struct

from forge_jobs.clock import Clock, SystemClock
from forge_jobs.errors import InvalidInput, NotFound, StorageError, Unavailable
from forge_jobs.handlers.durations import check_duration
from forge_jobs.handlers.outcomes import check_count
from forge_jobs.home_loop import HomeLoop
from forge_jobs.lanes import Lane
from forge_jobs.model.names import check_name, command_line
from forge_jobs.model.queues import RateAsk, RateLimit, TokenGrant
from forge_jobs.runtime.shared.rates.meter import RateMeter
from forge_jobs.storage.protocols import ConfigStore
from forge_jobs.storage.set_back import LONGEST_TURN

LONGEST_PAUSE = timedelta(seconds=5)
"""A waiter asks again this often, whatever the store said: an operator may raise the limit."""

SHORTEST_PAUSE = timedelta(milliseconds=1)
"""A timer that ends a moment early must not make a waiter spin."""

LATEST_USE = timedelta(milliseconds=100)
"""Reserved tokens that would be used later than this after their time are asked for anew. A process
that was frozen, or whose event loop stood still, would use those of all that time at once."""

_MOST_LATE = 3
"""So often a caller asks anew. In a process that is always late tokens are used at their pace."""

REPEAT_FOR = timedelta(seconds=10)
"""How long calls to an unreachable store are repeated before the caller gets ``Unavailable``."""

START_PATIENCE = 2.0
"""Seconds. A worker stays taken while its job asks for a token."""

_ZERO = timedelta(0)

Pause = Callable[[timedelta], Awaitable[None]]


class _Request(NamedTuple):
    """Tokens for one caller.

    :param within: how long the caller can wait for them
    """

    tokens: int
    within: timedelta


class _Answer(Struct, frozen=True):
    """The answer to one request of a batch: a grant, or why there is none."""

    grant: TokenGrant | None
    error: StorageError | None = None


class RateLimiter:
    """Takes tokens from the store's buckets, for any number of callers of one event loop.

    Callers of one scope share round trips: at most one call per scope is in flight. Requests that
    arrive meanwhile go into the next call together.

    :param pause: how to let time pass. Tests give their own
    :ivar asked: how often jobs and callers have asked for tokens. A request that is repeated counts
        each time
    :ivar meter: counts the tokens that were asked for. A turn of a job is no request for tokens
    """

    def __init__(
        self, config: ConfigStore, *, clock: Clock | None = None, pause: Pause | None = None
    ) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._pause = pause or _let_pass
        self._lanes: dict[str, Lane[_Request, _Answer]] = {}
        self._home = HomeLoop("this rate limiter")
        self._lines: dict[str, Lane[int, timedelta | None]] = {}
        self._starts: Lane[RateAsk, TokenGrant | None] = Lane(self._take_or_turn, repeat_for=_ZERO)
        self._ahead: Lane[Sequence[RateAsk], list[bool]] = Lane(
            self._take_ahead, repeat_for=_ZERO, count_of=len
        )
        self._asked: deque[tuple[float, asyncio.Future[TokenGrant | None]]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self.asked = 0
        self._rng = random.Random()
        self.meter = RateMeter(self._clock)

    async def acquire(
        self, scope: str, count: int = 1, *, wait: timedelta | float | None = None
    ) -> bool:
        """Take ``count`` tokens, all or none. False: too few tokens are there.

        Callers that wait are served in the order of their calls over all pods, also one that wants
        many tokens: the store reserves what a caller waits for. A caller that stops waiting leaves
        its tokens taken, and so delays others by these tokens. So does one whose process was frozen
        when the tokens came. Such a caller asks anew.

        :param wait: wait at most this long, a timedelta or seconds. None: do not wait. Returns
            False at once when the tokens cannot be there in time
        :raises NotFound: the scope is not declared
        :raises InvalidInput: ``count`` is below 1 or above the capacity
        :raises Unavailable: the store could not be reached for a while
        """
        check_count(count)
        self._home.here()
        if not wait:
            if wait is not None:
                check_duration("wait", wait)
            granted = (await self._ask(scope, _Request(count, _ZERO))).granted
            self.meter.count(scope, count, granted=granted)
            return granted
        until = self._clock.elapsed() + check_duration("wait", wait).total_seconds()
        late = 0
        while True:
            left = timedelta(seconds=max(until - self._clock.elapsed(), 0.0))
            grant = await self._ask(scope, _Request(count, left))
            if grant.granted:
                self.meter.count(scope, count, granted=True)
                if not await self._is_late_after(grant.retry_in) or late == _MOST_LATE:
                    return True
                late += 1
                continue
            left = timedelta(seconds=max(until - self._clock.elapsed(), 0.0))
            if left <= _ZERO or grant.retry_in > left:
                self.meter.count(scope, count, granted=False)
                return False
            await self._pause(min(max(grant.retry_in, SHORTEST_PAUSE), LONGEST_PAUSE, left))

    async def _is_late_after(self, length: timedelta) -> bool:
        """Wait for the time of reserved tokens, and return whether that was too long."""
        if not length:
            return False
        began = self._clock.elapsed()
        await self._pause(length)
        over = self._clock.elapsed() - began - length.total_seconds()
        return over > LATEST_USE.total_seconds()

    async def turn(self, scope: str, count: int = 1) -> timedelta:
        """Return when a job that found too few tokens may ask again.

        Turns follow each other at the pace of the tokens, for the whole cluster. Where the line is
        longer than ``LONGEST_TURN``, the answer is a random time in the second half of
        ``LONGEST_TURN``. The job then asks for its turn again.

        :raises NotFound: the scope is not declared
        :raises InvalidInput: ``count`` is below 1 or above the capacity
        :raises Unavailable: the store could not be reached
        """
        lane = self._lines.get(scope)
        if lane is None:
            check_name("scope", scope)

            async def call(counts: Sequence[int]) -> list[timedelta | None]:
                return await self._config.take_turns(scope, counts, LONGEST_TURN)

            lane = self._lines[scope] = Lane(call, repeat_for=_ZERO)
        try:
            turn = await lane.submit(count)
        except NotFound:
            self._lines.pop(scope, None)
            raise _undeclared(scope) from None
        return self._beyond_the_line() if turn is None else turn

    async def start(self, ask: RateAsk, limit: Callable[[], RateLimit]) -> TokenGrant:
        """Take the token of a job that is about to run, or say when the job may ask again.

        Requests of all workers share round trips. A time beyond ``LONGEST_TURN`` is as in
        :meth:`turn`.

        :param limit: returns the size, which is declared again where an operator has deleted the
            rate limit
        :raises NotFound: the rate limit cannot be read
        :raises Unavailable: the store could not be reached
        :raises TimeoutError: the store gave no answer for ``START_PATIENCE``
        """
        self.asked += 1
        grant = await self._soon(self._starts.send(ask))
        if grant is None:
            async with asyncio.timeout(START_PATIENCE):
                await self._config.ensure_rate_limit(ask.scope, limit())
                grant = await self._starts.send(ask)
        if grant is None:
            fix = f"set it anew with {command_line('limits set', ask.scope)}, or delete it"
            raise NotFound(f"the rate limit {ask.scope!r} cannot be read; {fix}")
        self.meter.count(ask.scope, 1, granted=grant.granted)
        if grant.granted or grant.retry_in < LONGEST_TURN:
            return grant
        return TokenGrant(False, self._beyond_the_line())

    def ahead(self, asks: Sequence[RateAsk]) -> "asyncio.Future[list[bool]]":
        """Take tokens for jobs that begin within ``RateAsk.ahead``, where plenty are there.

        Returns the future answer, one per request. False: the job asks when it begins.
        """
        self.asked += len(asks)
        return self._ahead.send(asks)

    async def _take_ahead(self, batch: Sequence[Sequence[RateAsk]]) -> list[list[bool]]:
        asks = [ask for each in batch for ask in each]
        grants = await self._config.take_or_turn(asks, _ZERO)
        granted = [grant is not None and grant.granted for grant in grants]
        taken = Counter(ask.scope for ask, is_taken in zip(asks, granted, strict=True) if is_taken)
        for scope, tokens in taken.items():
            self.meter.count(scope, tokens, granted=True)
        answers = iter(granted)
        return [[next(answers) for _ in each] for each in batch]

    def _soon(
        self, answer: "asyncio.Future[TokenGrant | None]"
    ) -> "asyncio.Future[TokenGrant | None]":
        """Let the wait for an answer end after ``START_PATIENCE``.

        All waits share one timer, since a timer of its own costs a job as much as the request does.
        """
        asked, loop = self._asked, answer.get_loop()
        while asked and asked[0][1].done():
            asked.popleft()
        asked.append((loop.time() + START_PATIENCE, answer))
        if self._timer is None:
            self._timer = loop.call_later(START_PATIENCE, self._give_up)
        return answer

    def _give_up(self) -> None:
        """End the waits that have lasted too long, and come again for the next one."""
        self._timer = None
        asked = self._asked
        while asked:
            until, answer = asked[0]
            left = until - answer.get_loop().time()
            if left > 0 and not answer.done():
                self._timer = answer.get_loop().call_later(left, self._give_up)
                return
            asked.popleft()
            if not answer.done():
                answer.set_exception(TimeoutError())

    def _beyond_the_line(self) -> timedelta:
        """Return when a job may ask again for which the line of turns is too long."""
        return LONGEST_TURN * self._rng.uniform(0.5, 1.0)

    async def _take_or_turn(self, asks: Sequence[RateAsk]) -> list[TokenGrant | None]:
        return await self._config.take_or_turn(asks, LONGEST_TURN)

    async def drain(self, scope: str) -> None:
        """Empty the bucket for the whole cluster: the upstream said that the budget is used up.

        :raises NotFound: the scope is not declared
        """
        self._home.here()
        try:
            await self._config.drain_tokens(scope)
        except NotFound:
            raise _undeclared(scope) from None

    async def _ask(self, scope: str, request: _Request) -> TokenGrant:
        self.asked += 1
        answer = await self._lane(scope).submit(request)
        if isinstance(answer.error, NotFound):
            # Names come from handlers: lanes of names that lead nowhere must not pile up.
            self._lanes.pop(scope, None)
            raise _undeclared(scope) from None
        if answer.error is not None:
            raise answer.error
        assert answer.grant is not None
        return answer.grant

    def _lane(self, scope: str) -> Lane[_Request, _Answer]:
        lane = self._lanes.get(scope)
        if lane is None:
            check_name("scope", scope)

            async def call(requests: Sequence[_Request]) -> list[_Answer]:
                return await self._take(scope, requests)

            lane = self._lanes[scope] = Lane(call, repeat_for=REPEAT_FOR)
        return lane

    async def _take(self, scope: str, requests: Sequence[_Request]) -> list[_Answer]:
        """Answer a batch: all at once when there is enough, else in order of arrival."""
        if len(requests) > 1:
            try:
                total = sum(request.tokens for request in requests)
                together = await self._config.take_tokens(scope, total)
            except InvalidInput:
                pass  # more than the bucket ever holds
            else:
                if together.granted:
                    return [_Answer(together)] * len(requests)
        answers: list[_Answer] = []
        denied: dict[_Request, TokenGrant] = {}
        for request in requests:
            # A request for as much, as soon, as was just denied need not be sent.
            known = next((denied[least] for least in denied if _is_no_less(request, least)), None)
            answer = _Answer(known) if known else await self._take_alone(scope, request, answers)
            if answer.grant is not None and not answer.grant.granted:
                denied.setdefault(request, answer.grant)
            answers.append(answer)
        return answers

    async def _take_alone(
        self, scope: str, request: _Request, earlier: Sequence[_Answer]
    ) -> _Answer:
        try:
            return _Answer(await self._config.take_tokens(scope, *request))
        except Unavailable as error:
            # Repeating the batch would take the tokens of requests already answered again.
            if not earlier:
                raise
            return _Answer(None, error)
        except StorageError as error:
            return _Answer(None, error)


def _is_no_less(request: _Request, denied: _Request) -> bool:
    return request.tokens >= denied.tokens and request.within <= denied.within


def _undeclared(scope: str) -> NotFound:
    return NotFound(
        f"the rate limit {scope!r} is not declared: declare "
        f"QueueRuntime(..., rate_limits={{{scope!r}: RateLimit(capacity, per=seconds)}})"
    )


async def _let_pass(duration: timedelta) -> None:
    try:
        async with asyncio.timeout(duration.total_seconds()):
            await asyncio.Event().wait()
    except TimeoutError:
        return
