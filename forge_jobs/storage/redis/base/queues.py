"""The queues of the fleet, and one step for each queue, as several views need them."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Protocol, TypeVar

import msgspec

from forge_jobs.errors import Unavailable
from forge_jobs.model.processes import Pod
from forge_jobs.storage.redis.base.answers import Decoder
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.scripts import item_of, request_of
from forge_jobs.storage.redis.keys import queue_of
from forge_jobs.storage.salvage import UNREADABLE

T = TypeVar("T")


class _OfPods(Protocol):
    """The answer of a script that looks at some pods and names the hosts of the others."""

    @property
    def rest(self) -> list[str]: ...


class _LivePods(msgspec.Struct, frozen=True, array_like=True):
    """The answer of ``live_pods.lua``."""

    docs: list[str]
    rest: list[str]


P = TypeVar("P", bound=_OfPods)

decode_pod = msgspec.json.Decoder(Pod).decode

_decode_names = Decoder(list[str]).decode


async def queue_names(database: Database) -> list[str]:
    """The names of all queues, in any order. One may have no record.

    While the fleet's part of a cluster is silent, those that this bundle has met.
    """
    key = f"{database.keys.fleet}:queues"
    [names] = await database.commands([("SMEMBERS", key)], some=True)
    if not isinstance(names, Unavailable):
        database.queues_met = frozenset(name.decode(errors="backslashreplace") for name in names)
    elif not database.queues_met:
        raise names
    return list(database.queues_met)


async def note_queues(database: Database, names: Iterable[str]) -> None:
    """Add to the names of all queues, before anything is written under theirs."""
    await database.run_one("note_queues", database.keys.fleet, sorted(set(names)), bool)


async def in_each_queue(
    database: Database, script: str, queues: Iterable[str], request: object, answer: type[T]
) -> dict[str, T]:
    """Run one script with one request in each of the queues. Return queue -> answer."""
    requests = {database.keys.queue(name): request for name in queues}
    answers = await database.run(script, requests, answer)
    return {queue_of(base): given for base, given in answers.items()}


async def in_some_queues(
    database: Database, script: str, queues: Iterable[str], request: object, answer: type[T]
) -> dict[str, T]:
    """:func:`in_each_queue` of those that answer."""
    requests = {database.keys.queue(name): request for name in queues}
    answers = await database.run_some(script, requests, answer)
    return {queue_of(base): given for base, given in answers.found.items()}


async def in_all_queues(
    database: Database, script: str, request: object, answer: type[T]
) -> dict[str, T]:
    """:func:`in_some_queues` of all queues. The same step asks for their names.

    One round trip, unless there are queues that this bundle has not met before. While the fleet's
    part of a cluster is silent, only the queues that this bundle has met are asked.
    """
    keys, met = database.keys, database.queues_met
    requests = {keys.fleet: False} | dict.fromkeys(map(keys.queue, met), request)
    raw, silent = await database.run_some(script, requests, msgspec.Raw)
    names = met
    if keys.fleet in raw:
        names = database.queues_met = frozenset(_decode_names(raw.pop(keys.fleet)))
    elif not met:
        raise silent[keys.fleet]
    answers = await in_some_queues(database, script, sorted(names - met), request, answer)
    decode = Decoder(answer).decode
    heard = {queue_of(base): decode(each) for base, each in raw.items()}
    return answers | {name: each for name, each in heard.items() if name in names}


async def in_every_queue(
    database: Database, script: str, request: object, answer: type[T]
) -> dict[str, T]:
    """:func:`in_each_queue` of all queues, for conclusions that must not miss a queue."""
    return await in_each_queue(database, script, await queue_names(database), request, answer)


async def of_all_pods(database: Database, script: str, answer: type[P]) -> list[P]:
    """Run a script that looks at some pods until all are looked at. Return the answers."""
    answers = [await database.run_one(script, database.keys.fleet, [], answer)]
    while rest := answers[-1].rest:
        answers.append(await database.run_one(script, database.keys.fleet, rest, answer))
    return answers


async def live_pods(database: Database) -> list[Pod]:
    """Return every pod with a live lease, as the pod described itself."""
    docs = [
        doc for each in await of_all_pods(database, "live_pods", _LivePods) for doc in each.docs
    ]
    found = []
    for doc in docs:
        # The record of the pod names the problem.
        with suppress(*UNREADABLE):
            found.append(decode_pod(doc))
    return found


async def unknown_kinds(database: Database, kinds: Iterable[str]) -> list[str]:
    """Return the kinds that no pod with a live lease has a handler for, in order."""
    # The server looks the pods through: what they say of themselves is much.
    unknown, rest = sorted(kinds), list[str]()
    while unknown:
        asked = [
            item_of("unknown_kinds", "kind", name=kind, quoted=msgspec.json.encode(kind).decode())
            for kind in unknown
        ]
        request = request_of("unknown_kinds", kinds=asked, named=rest)
        unknown, rest = await database.run_one(
            "unknown_kinds", database.keys.fleet, request, tuple[list[str], list[str]]
        )
        if not rest:
            break
    return unknown


async def due_kinds(database: Database, names: Sequence[str]) -> dict[str, dict[str, int]]:
    """See ``ProcStore.due_kinds``."""
    lines = await in_some_queues(database, "due_kinds", names, [], list[tuple[str, int]])
    due: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for queue, found in lines.items():
        for kind, number in found:
            due[queue][kind] += number
    return {queue: dict(kinds) for queue, kinds in due.items()}


async def unreadable(database: Database) -> dict[str, str]:
    """See ``Storage``."""
    keys = database.keys
    bases = [keys.fleet, *map(keys.queue, await queue_names(database))]
    return await database.spoilt.look_at(bases)
