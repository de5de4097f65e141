"""Sequences that handlers declare: jobs of a key run one after the other."""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from forge_jobs.errors import InvalidInput, a_type
from forge_jobs.handlers.limits.concurrency import Limit, limit_of
from forge_jobs.handlers.limits.keys import check_template, key_of
from forge_jobs.model.edges import LINE_RULES
from forge_jobs.model.jobs import Line
from forge_jobs.model.names import check_name


class Sequence(Struct, frozen=True):
    """Jobs of one key run one at a time, in the order in which they were enqueued.

    A job waits, without a slot, until the job of the queue that was enqueued before with the same
    key has ended. A job that fails and is tried again has not ended. Kinds with the same key are
    one sequence::

        @handlers.job("order.event", sequence=Sequence("order:{order_id}"))
        async def event(order_id: int, what: str) -> None: ...

    :param key: a text with names of arguments in braces. An argument that the request leaves out
        counts as an empty text
    :param on_failure: what follows a job that is dead: ``wait`` for an operator, who requeues the
        dead job or releases the next one, and pass cancelled jobs, ``skip`` dead jobs and
        cancelled ones, or ``stop`` at both until an operator acts
    """

    key: str
    on_failure: Literal["wait", "skip", "stop"] = "wait"


def check_sequence(value: object) -> Sequence:
    """``value``, held to be a sequence whose keys can be made.

    :raises InvalidInput: names the field
    """
    if not isinstance(value, Sequence):
        raise InvalidInput("sequence", f"is {a_type(value)}", 'give Sequence("order:{order_id}")')
    if value.key == "":
        raise InvalidInput("sequence.key", "is empty", "name arguments, as in '{order_id}'")
    check_template("sequence.key", value.key)
    if value.on_failure not in LINE_RULES:
        problem = f"is {value.on_failure!r:.40}"
        raise InvalidInput("sequence.on_failure", problem, f"give one of {LINE_RULES}")
    return value


def line_of(
    sequence: Sequence | None, given: str | UnsetType, payload: str, *, is_private: bool
) -> Line | None:
    """Return the sequence of a job. None for none.

    :param sequence: of the handler
    :param given: the key that the request asks for. "" for none
    :param payload: JSON text of an object, not encrypted yet
    :param is_private: a key that is made of the payload is a hash
    :raises InvalidInput: the given key is no name
    """
    rule = "wait" if sequence is None else sequence.on_failure
    if not isinstance(given, UnsetType):
        return None if given == "" else Line(check_name("sequence_key", given), rule)
    if sequence is None:
        return None
    return Line(key_of(sequence.key, payload, is_private=is_private), rule)


def limits_of(
    declared: tuple[Limit | None, Sequence | None],
    given: tuple[str | UnsetType, str | UnsetType],
    kind: str,
    payload: str,
    *,
    is_private: bool,
) -> tuple[str, str, Line | None]:
    """Return the name of the limit, the key, and the sequence of a job. "" and None for none.

    :param declared: what the handler declares
    :param given: the keys that the request asks for
    :param kind: of the handler
    :param payload: JSON text of an object, not encrypted yet
    :param is_private: keys that are made of the payload are hashes
    :raises InvalidInput: a given key is no name
    """
    limit, sequence = declared
    limit_key, sequence_key = given
    name = key = ""
    if limit_key is not UNSET or limit is not None:
        name, key = limit_of(limit, limit_key, kind, payload, is_private=is_private)
    return name, key, line_of(sequence, sequence_key, payload, is_private=is_private)
