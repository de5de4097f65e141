"""Rate limits that handlers declare: how often jobs of a kind, or of a key, may start."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Literal, get_args

import msgspec

from forge_jobs.errors import InvalidInput, a_type
from forge_jobs.handlers.limits.keys import check_template, key_of
from forge_jobs.model.names import check_name
from forge_jobs.model.queues import RateAsk, RateLimit

RateMode = Literal["defer", "drop"]

_FIX = "give Rate(count, per=seconds)"


class Rate(msgspec.Struct, frozen=True):
    """How often jobs of a handler may start, in the whole cluster.

    A job takes one token of a bucket before each run, in any pod. A job that finds none waits
    without a slot, uses up no attempt and never dies of waiting::

        @handlers.job("mail.send", rate=Rate(10, per=60, key="{customer}"))
        async def send(customer: str, text: str) -> None: ...

    :param capacity: jobs per ``per``, and how many may start at once after a pause. See
        :class:`RateLimit` for the exact bound
    :param per: seconds, or a timedelta
    :param key: each value has a bucket of its own: a text with names of arguments in braces. An
        argument that the request leaves out counts as an empty text. "": one bucket for all
    :param name: of the rate limit, under which operators see and change it. Handlers with the same
        name share its buckets. "": the kind of the handler
    :param mode: ``"defer"``: without a token the job is due again when its token comes. ``"drop"``:
        the job is cancelled, with the cause ``dropped``
    """

    capacity: int
    per: float | timedelta = 1.0
    key: str = ""
    name: str = ""
    mode: RateMode = "defer"

    @property
    def limit(self) -> RateLimit:
        """The size of each bucket."""
        return RateLimit(self.capacity, self.per)


def check_rate(value: object) -> Rate:
    """``value``, held to be a rate that can be counted.

    :raises InvalidInput: names the field
    """
    if not isinstance(value, Rate):
        raise InvalidInput("rate", f"is {a_type(value)}", _FIX)
    try:
        _ = value.limit
    except InvalidInput as error:
        raise InvalidInput(f"rate.{error.field}", error.problem, error.fix) from None
    if value.name != "":
        check_name("rate.name", value.name)
    if value.mode not in get_args(RateMode):
        names = " or ".join(repr(each) for each in get_args(RateMode))
        raise InvalidInput("rate.mode", f"is {value.mode!r:.80}", f"give {names}")
    check_template("rate.key", value.key)
    return value


def ask_of(rate: Rate, kind: str, payload: str, *, is_private: bool) -> RateAsk:
    """Return the request for the token of a job.

    :param kind: the handler's own kind, also where the job names an alias
    :param payload: JSON text of an object
    :param is_private: the payload is encrypted or has secrets: the key is stored as a hash
    """
    scope, waits = rate.name or kind, rate.mode == "defer"
    return RateAsk(scope, key_of(rate.key, payload, is_private=is_private), waits)


def declared_rates(rates: Iterable[tuple[str, Rate | None]]) -> dict[str, RateLimit]:
    """Return the rate limits that handlers declare, by name.

    :param rates: the kind and the rate of each handler
    :raises InvalidInput: two handlers declare one name in different sizes
    """
    found: dict[str, tuple[str, RateLimit]] = {}
    for kind, rate in rates:
        if rate is None:
            continue
        name, limit = rate.name or kind, rate.limit
        other, known = found.setdefault(name, (kind, limit))
        if (known.capacity, known.period) != (limit.capacity, limit.period):
            raise InvalidInput(
                "rate",
                f"of {kind!r} declares {name!r} in another size than {other!r} does",
                "give both the same numbers, or names of their own",
            )
    return {name: limit for name, (_, limit) in found.items()}
