"""How scripts and commands run on the servers of one store."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import cache, partial
from typing import Any, TypeVar

import msgspec
from redis.exceptions import NoScriptError

from forge_jobs.clock import Clock, SystemClock
from forge_jobs.errors import SchemaMismatch, StorageClosed, Unavailable
from forge_jobs.model.queues import Wake
from forge_jobs.storage.elsewhere import KnownElsewhere
from forge_jobs.storage.listening import Waiters
from forge_jobs.storage.protocols.bundle import StoreHealth
from forge_jobs.storage.redis.base.answers import Decoder
from forge_jobs.storage.redis.base.hints import Hints
from forge_jobs.storage.redis.base.parts import Answers, Silence, unavailable_in
from forge_jobs.storage.redis.base.places import KnownOfStore
from forge_jobs.storage.redis.base.scripts import script
from forge_jobs.storage.redis.base.spoilt import (
    SpoiltKeys,
    WrongKey,
    is_of_locators,
    parted,
    wrong_type_in,
)
from forge_jobs.storage.redis.base.waiting import NOTE_AFTER_S, Waits
from forge_jobs.storage.redis.driver.address import RedisUrl
from forge_jobs.storage.redis.driver.connections import Command, Turn
from forge_jobs.storage.redis.driver.errors import TRANSLATED, WrongType, translate
from forge_jobs.storage.redis.driver.replicas import Replicas, Wait
from forge_jobs.storage.redis.driver.routing import servers_of, use_of
from forge_jobs.storage.redis.keys import queue_of

T = TypeVar("T")

_SYSTEM_CLOCK = SystemClock()

_LOOK_AT_KEYS = "key_types"

BASES_AT_ONCE = 100
"""The most queues of one step, so that every step is short."""

_Group = Sequence[tuple[str, object]]
"""Bases, each with its request, that one script takes in one step."""

_Take = Callable[[Sequence[Turn]], Awaitable[list[list[Any]]]]

_elapsed = SystemClock().elapsed

_encode = msgspec.msgpack.Encoder().encode


class Database:
    """Servers, scripts and waits that the views of one bundle share, for one event loop.

    A separate task makes each call. A caller that is cancelled stops waiting, and the call ends by
    itself. So a script whose caller went away has run wholly or not at all, as any script.

    :param clock: the store's clock in place of the server's
    :param waiters: the wake-ups of this bundle
    :param known: what the bundles of one store share
    """

    def __init__(
        self,
        url: RedisUrl,
        *,
        store_id: str,
        waiters: Waiters,
        clock: Clock | None,
        known: KnownOfStore | None = None,
    ) -> None:
        self.keys = url.keys
        self.known = known or KnownOfStore(url.keys)
        self.places = self.known.places
        self.store_id = store_id
        self.is_cluster = url.kind == "cluster"
        self.servers = servers_of(url)
        self.queues_met: frozenset[str] = frozenset()
        """The names of all queues, as of late. See ``fleet.in_all_queues``."""
        self.known_elsewhere = KnownElsewhere()
        self.silence = Silence(url.keys.fleet)
        self._url = url
        self._clock = clock
        self._waiters = waiters
        self._calls: set[asyncio.Task[None]] = set()
        self._late: set[asyncio.Task[None]] = set()
        self._closed = False
        self.hints = Hints(url, self.known, self.commands)
        self._to_end: list[Callable[[], Awaitable[None]]] = []
        self._replicas = Replicas(url)
        self.spoilt = SpoiltKeys(url.keys.fleet, self._look_at_keys, self.elapsed)
        """Queues that cannot be worked, as a key of theirs is none of ours."""
        self.waits = Waits(self._note_waits)
        """The queues that this bundle waits for, as the store knows them."""

    async def run(
        self,
        name: str,
        requests: Mapping[str, object],
        answer: type[T],
        *,
        also: Collection[str] = (),
        silent: dict[str, Unavailable] | None = None,
        wait: bool = True,
    ) -> dict[str, T]:
        """Run the script ``name`` for each base with its request. Return base -> decoded answer.

        On one server the bases of a call change together, a hundred at a time. In a cluster each
        base is a separate step. False stands for no answer.

        :param also: further keys, on the same server as every base
        :param silent: go on without bases that have a key of another type, and in a cluster without
            bases whose servers do not answer, and note them here. See :meth:`run_some`
        :param wait: False: ask no server that was silent the last time
        :raises StorageError: translated. After :class:`Unavailable` the outcome is unknown
        """
        if self.spoilt.known and name != _LOOK_AT_KEYS:
            requests = await self.spoilt.without(requests, silent)
        if not requests:
            return {}
        take: _Take | None = None
        if silent is not None and self.is_cluster:
            take = partial(self.servers.take_some, wait=wait)
        items = list(requests.items())
        size = 1 if self.is_cluster else BASES_AT_ONCE
        groups = [items[start : start + size] for start in range(0, len(items), size)]
        calls = [self._arguments(group, also) for group in groups]
        replies = await self.guarded(lambda: self._run(name, calls, take))
        decoded: dict[str, T] = {}
        decoder = _decoder(answer)  # type: ignore[arg-type]
        for group, reply in zip(groups, replies, strict=True):
            if silent is not None and (error := unavailable_in(reply)):
                silent[group[0][0]] = error
                continue
            bases, packed = [base for base, _ in group], reply
            if isinstance(reply, list):
                packed, bases, spoilt, left = parted(reply, bases)
                if spoilt:
                    await self._note_spoilt(spoilt, silent)
                rest = {base: requests[base] for base in left}
                decoded |= await self.run(name, rest, answer, also=also, silent=silent, wait=wait)
            decoded.update(zip(bases, decoder.decode(packed), strict=True))
        return decoded

    async def _note_spoilt(
        self, bases: Sequence[str], silent: dict[str, Unavailable] | None
    ) -> None:
        if any(map(is_of_locators, bases)):
            raise WrongType("a key of locators holds something of another type")
        errors = await self.spoilt.found(bases)
        if silent is None:
            raise next(iter(errors.values()))
        silent |= errors

    async def _look_at_keys(self, bases: Iterable[str]) -> dict[str, list[WrongKey]]:
        fleet = self.keys.fleet
        asked = {base: "fleet" if base == fleet else "queue" for base in bases}
        return (await self.run_some(_LOOK_AT_KEYS, asked, list[WrongKey])).found

    async def run_some(
        self, name: str, requests: Mapping[str, object], answer: type[T], *, wait: bool = True
    ) -> Answers[T]:
        """:meth:`run`, without queues that cannot be read (see ``spoilt.py``), and in a cluster
        without bases on servers that do not answer.

        Such a server delays the call for half of the time limit, and the next calls hardly at all.

        :param wait: False: ask no server that was silent the last time
        :raises StorageError: any other error. On one server also that the server does not answer
        """
        silent: dict[str, Unavailable] = {}
        found = await self.run(name, requests, answer, silent=silent, wait=wait)
        # What is spoilt answers, and says itself what is wrong.
        mute = {base: each for base, each in silent.items() if not isinstance(each, WrongType)}
        self.silence.note(found, mute)
        return Answers(found, silent)

    async def run_one(self, name: str, base: str, request: object, answer: type[T]) -> T:
        """:meth:`run` for one base."""
        return (await self.run(name, {base: request}, answer))[base]

    async def run_alone(self, name: str, keys: Sequence[str], *arguments: str | int) -> Any:
        """Run a script that stands alone, and return the reply.

        :param arguments: those behind the time
        :raises StorageError: as for :meth:`run`
        """
        call = (len(keys), *keys, self.clock_argument, *arguments)
        [reply] = await self.guarded(lambda: self._run(name, [call]))
        return reply

    async def commands(self, commands: Sequence[Command], *, some: bool = False) -> list[Any]:
        """Run plain commands of one key each, the first argument, in as few round trips as may be.

        Every command is a separate step.

        :param some: :class:`Unavailable` is the reply of a server of a cluster that does not
            answer, and for a key of another type than the command needs. See :meth:`run_some`
        :raises StorageError: translated, also when only some were refused
        """
        if not commands:
            return []
        take = self.servers.take_some if some else self.servers.take
        read = _heard if some and self.is_cluster else _value

        async def run() -> list[Any]:
            replies = await self._commands(commands, take)
            told = zip(commands, replies, strict=True)
            return [(some and wrong_type_in(*each)) or read(each[1]) for each in told]

        return await self.guarded(run)

    @property
    def clock_argument(self) -> str:
        """The time to pass to a script: '' for the server's."""
        return "" if self._clock is None else str(self._clock.time_us())

    def elapsed(self) -> float:
        """Seconds that go on, by this process's clock."""
        return (self._clock or _SYSTEM_CLOCK).elapsed()

    async def wait(
        self, queues: frozenset[str], at_most: timedelta, waiter: object | None = None
    ) -> Wake:
        """See ``JobStore.wait_for_work``."""
        end = _elapsed() + at_most.total_seconds()
        while True:
            await self._waiters.listen(queues)
            heard = self._waiters.health()
            if heard.wakes and (missed := await self.waits.note(queues, heard.silences)):
                self.wake(Wake(queues=missed))
            left = max(0.0, end - _elapsed())
            part = min(left, NOTE_AFTER_S / 2)
            wake = await self._waiters.wait(queues, part, waiter)
            if wake or part == left:
                return wake

    async def _note_waits(self, queues: list[str]) -> dict[str, Any]:
        bases = {self.keys.queue(queue): queue for queue in queues}
        told = await self.run_some("note_waits", dict.fromkeys(bases, True), str)
        return {queue: told.found.get(base, "missing") for base, queue in bases.items()}

    async def hear(
        self, queues: frozenset[str], at_most: timedelta, waiter: object | None = None
    ) -> Wake:
        """Wait for wake-ups of names that are no queues, so that the store knows no waiter."""
        await self._waiters.listen(queues)
        return await self._waiters.wait(queues, at_most.total_seconds(), waiter)

    def wake(self, wake: Wake) -> None:
        """See ``JobStore.wake``."""
        self._waiters.wake(wake)

    def health(self) -> StoreHealth:
        """See ``Storage``."""
        heard = self._waiters.health()
        return msgspec.structs.replace(
            heard,
            unreplicated=self._replicas.unreplicated,
            silent=self.silence.queues | {queue_of(base) for base in self.spoilt.stopped},
            unreadable=self.spoilt.reasons,
            layout=self.places.in_words(is_cluster=self.is_cluster),
            problem=self.known.problem,
            **use_of(self.servers.pools(), self._url.pool_size),
        )

    async def _commands(self, commands: Sequence[Command], take: _Take) -> list[Any]:
        return [reply for [reply] in await take([[command] for command in commands])]

    async def _run(
        self, name: str, calls: Sequence[Command], take: _Take | None = None
    ) -> list[Any]:
        """Return the replies to all calls of a script, in as few round trips as may be.

        :param take: goes on without servers that do not answer. None: all must answer
        """
        wanted = script(name)
        waits = self._url.wait_replicas if wanted.writes else 0
        send = take or self.servers.take
        replies = await self._take([("EVALSHA", wanted.sha, *call) for call in calls], waits, send)
        # Not on a new, restarted or flushed server. Nothing has run there.
        unknown = [n for n, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if unknown:
            texts = [("EVAL", wanted.text, *calls[n]) for n in unknown]
            again = await self._take(texts, waits, send)
            for n, reply in zip(unknown, again, strict=True):
                replies[n] = reply
        return replies if take else [_value(reply) for reply in replies]

    def _arguments(self, group: _Group, also: Collection[str]) -> Command:
        keys = [*(base for base, _ in group), *also]
        requests = _encode([request for _, request in group])
        wakes = (self.keys.channel, self.known.publish)
        return (len(keys), *keys, self.clock_argument, requests, *wakes)

    async def _take(self, commands: Sequence[Command], waits: int, take: _Take) -> list[Any]:
        if not waits:
            return await self._commands(commands, take)
        waits_of = [Wait(self._replicas) for _ in commands]
        # One connection for each, so that missing replicas cost one time limit, not many.
        taken = await asyncio.gather(
            *(take([[command, wait]]) for command, wait in zip(commands, waits_of, strict=True)),
            return_exceptions=True,
        )
        replies = []
        for wait, each in zip(waits_of, taken, strict=True):
            if isinstance(each, BaseException):
                raise each
            [[reply, reached]] = each
            replies.append(reply)
            if not isinstance(reply, Exception):
                wait.ended(_value(reached))
        return replies

    async def guarded(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do ``work`` with the servers in a separate task, within the time limit.

        :raises StorageError: translated
        """
        if self._closed:
            raise StorageClosed("this program has closed the storage; open it again")
        if self.known.problem:
            raise SchemaMismatch(self.known.problem)
        # Set by the task itself: asyncio.shield would answer a turn of the event loop later.
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        task = loop.create_task(self._answer(work, answer))
        self._calls.add(task)
        # Fewer steps than asyncio.timeout takes, for every call.
        limit = loop.call_later(self._url.timeout, self._end_late, task)
        task.add_done_callback(partial(self._ended, answer, limit))
        return await answer

    async def _answer(self, work: Callable[[], Awaitable[T]], answer: "asyncio.Future[T]") -> None:
        """Give the outcome to the caller, who may have gone."""
        try:
            result = await work()
        except Exception as error:
            if not answer.done():
                answer.set_exception(translate(error) if isinstance(error, TRANSLATED) else error)
        else:
            if not answer.done():
                answer.set_result(result)

    def _end_late(self, task: "asyncio.Task[None]") -> None:
        self._late.add(task)
        task.cancel()

    def _ended(
        self, answer: "asyncio.Future[Any]", limit: asyncio.TimerHandle, task: "asyncio.Task[None]"
    ) -> None:
        limit.cancel()
        self._calls.discard(task)
        if task in self._late and not answer.done():
            answer.set_exception(
                Unavailable(f"{self._url.server} gave no answer within {self._url.timeout:g} s")
            )
        self._late.discard(task)
        # Without an answer, the event loop is being ended.
        answer.cancel()

    def at_close(self, end: Callable[[], Awaitable[None]]) -> None:
        """Call ``work`` when this database is closed."""
        self._to_end.append(end)

    async def close(self) -> None:
        """Let calls in flight finish, then disconnect. Closing twice is fine."""
        if self._closed:
            return
        self._closed = True
        for end in self._to_end:
            await end()
        if self._calls:
            await asyncio.wait(set(self._calls))
        await self.servers.close()
        await self._waiters.close()


@cache
def _decoder(answer: Any) -> Decoder[Any]:
    return Decoder(list[answer])


def _value(reply: Any) -> Any:
    if isinstance(reply, Exception):
        raise reply
    return reply


def _heard(reply: Any) -> Any:
    return unavailable_in(reply) or reply
