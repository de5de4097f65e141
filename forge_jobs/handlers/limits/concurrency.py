"""Limits that handlers declare: how many jobs of a kind, or of a key, run at once."""

from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct, UnsetType

from forge_jobs.errors import InvalidInput, a_type
from forge_jobs.handlers.limits.keys import check_template, key_of
from forge_jobs.model.names import check_name
from forge_jobs.model.queues import MAX_WORKERS_LIMIT, check_limits

_FIX = "give Limit(count)"


class Limit(Struct, frozen=True):
    """How many jobs of a handler run at once in a queue, over all pods.

    A job beyond that waits without a slot, in the order of the queue, until a running one has ended
    in any way. No attempt is used up::

        @handlers.job("crawl.page", concurrency=Limit(2, key="{host}"))
        async def crawl(host: str, path: str) -> None: ...

    With a share the keys take turns, and no key waits behind the backlog of another::

        @handlers.job("report.build", concurrency=Limit(key="{tenant}", share=1))
        async def build(tenant: str, month: str) -> None: ...

    :param at_most: jobs of one key in progress, 1 to ``MAX_WORKERS_LIMIT``, which is no bound. Jobs
        that a pod holds ahead count too
    :param key: jobs of each value are counted by themselves: a text with names of arguments in
        braces. An argument that the request leaves out counts as an empty text. "": all are counted
        together
    :param name: of the limit, under which operators see and change it. Handlers with the same name
        are counted together. "": the kind of the handler
    :param share: weight of each key. A slot goes to the key with the fewest jobs in progress in
        proportion to this number, and among such keys to the one whose turn is the longest ago. A
        key has more than its part only while no other key has a job that waits. None: jobs of all
        keys start in the order of the queue
    """

    at_most: int = MAX_WORKERS_LIMIT
    key: str = ""
    name: str = ""
    share: int | None = None


class Declared(NamedTuple):
    """Limits that handlers declare, by name.

    :ivar at_most: how many jobs of a key run at once
    :ivar shares: of those that have one
    """

    at_most: dict[str, int]
    shares: dict[str, int]


def check_limit(value: object) -> Limit:
    """``value``, held to be a limit that can be counted.

    :raises InvalidInput: names the field
    """
    if not isinstance(value, Limit):
        raise InvalidInput("concurrency", f"is {a_type(value)}", _FIX)
    if value.name != "":
        check_name("concurrency.name", value.name)
    name = value.name or "limit"
    try:
        check_limits({name: value.at_most}, {} if value.share is None else {name: value.share})
    except InvalidInput as error:
        field = "share" if error.field == "share" else "at_most"
        raise InvalidInput(f"concurrency.{field}", error.problem, error.fix) from None
    check_template("concurrency.key", value.key)
    return value


def limit_of(
    limit: Limit | None, given: str | UnsetType, kind: str, payload: str, *, is_private: bool
) -> tuple[str, str]:
    """Return the name of the limit and the key of a job.

    :param limit: of the handler
    :param given: the key that the request asks for
    :param kind: the name of the limit where the handler gives none
    :param payload: JSON text of an object, not encrypted yet
    :param is_private: a key that is made of the payload is a hash
    :raises InvalidInput: the given key is no name. "" is one
    """
    name = kind if limit is None else limit.name or kind
    if not isinstance(given, UnsetType):
        return name, "" if given == "" else check_name("concurrency_key", given)
    return name, "" if limit is None else key_of(limit.key, payload, is_private=is_private)


def declared_limits(limits: Iterable[tuple[str, Limit | None]]) -> Declared:
    """Return the limits that handlers declare.

    :param limits: the kind and the limit of each handler
    :raises InvalidInput: two handlers declare one name with different numbers
    """
    found: dict[str, tuple[str, Limit]] = {}
    for kind, limit in limits:
        if limit is None:
            continue
        name = limit.name or kind
        other, known = found.setdefault(name, (kind, limit))
        if (known.at_most, known.share) != (limit.at_most, limit.share):
            raise InvalidInput(
                "concurrency",
                f"of {kind!r} declares {name!r} with another number than {other!r} does",
                "give both the same number, or names of their own",
            )
    return Declared(
        {name: limit.at_most for name, (_, limit) in found.items()},
        {name: limit.share for name, (_, limit) in found.items() if limit.share is not None},
    )
