"""Limits that handlers declare: how many jobs of a kind, or of a key, run at once."""

from collections.abc import Iterable

from msgspec import Struct, UnsetType

from forge_jobs.errors import InvalidInput, a_type
from forge_jobs.handlers.limits.keys import check_template, key_of
from forge_jobs.model.names import check_name
from forge_jobs.model.queues import check_limits

_FIX = "give Limit(count)"


class Limit(Struct, frozen=True):
    """How many jobs of a handler run at once in a queue, over all pods.

    A job beyond that waits without a slot, in the order of the queue, until a running one has ended
    in any way. No attempt is used up::

        @handlers.job("crawl.page", concurrency=Limit(2, key="{host}"))
        async def crawl(host: str, path: str) -> None: ...

    :param at_most: jobs of one key in progress, 1 to ``MAX_WORKERS_LIMIT``. Jobs that a pod holds
        ahead count too
    :param key: jobs of each value are counted by themselves: a text with names of arguments in
        braces. An argument that the request leaves out counts as an empty text. "": all are counted
        together
    :param name: of the limit, under which operators see and change it. Handlers with the same name
        are counted together. "": the kind of the handler
    """

    at_most: int
    key: str = ""
    name: str = ""


def check_limit(value: object) -> Limit:
    """``value``, held to be a limit that can be counted.

    :raises InvalidInput: names the field
    """
    if not isinstance(value, Limit):
        raise InvalidInput("concurrency", f"is {a_type(value)}", _FIX)
    if value.name != "":
        check_name("concurrency.name", value.name)
    try:
        check_limits({value.name or "limit": value.at_most})
    except InvalidInput as error:
        raise InvalidInput("concurrency", error.problem, error.fix) from None
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


def declared_limits(limits: Iterable[tuple[str, Limit | None]]) -> dict[str, int]:
    """Return the limits that handlers declare, by name.

    :param limits: the kind and the limit of each handler
    :raises InvalidInput: two handlers declare one name with different numbers
    """
    found: dict[str, tuple[str, int]] = {}
    for kind, limit in limits:
        if limit is None:
            continue
        name = limit.name or kind
        other, known = found.setdefault(name, (kind, limit.at_most))
        if known != limit.at_most:
            raise InvalidInput(
                "concurrency",
                f"of {kind!r} declares {name!r} with another number than {other!r} does",
                "give both the same number, or names of their own",
            )
    return {name: at_most for name, (_, at_most) in found.items()}
