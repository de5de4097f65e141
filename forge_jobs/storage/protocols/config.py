"""Queue settings, pauses, cool-downs, rate limits."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Protocol

from forge_jobs.model.queues import (
    LimitHolders,
    LimitKey,
    LimitState,
    QueueChange,
    QueueSettings,
    QueueState,
    RateAsk,
    RateLimit,
    RateLimitState,
    TokenGrant,
)
from forge_jobs.model.strikes import Strike, StrikeRule

NOT_AHEAD = timedelta(0)
"""Take what is there, and reserve nothing."""


class ConfigStore(Protocol):
    """Queue settings, pauses, cool-downs, rate limits."""

    store_id: str

    async def ensure_queue(self, name: str, settings: QueueSettings) -> QueueState:
        """Declare a queue from code. Settings that an operator has set stay as they are.

        The whole declaration is kept beside, see :meth:`settings_of_code`.

        :raises InvalidInput: ``name`` is no name
        """
        ...

    async def settings_of_code(self) -> dict[str, QueueSettings]:
        """Return what code has declared last, by queue. Queues that no code declares, or whose
        declaration cannot be read, are left out."""
        ...

    async def set_queue(self, name: str, change: QueueChange) -> QueueState:
        """Store an operator's edit, and create the queue if unknown. Wakes beats and the
        coordinator.

        The settings of ``change.back`` must become the code's again in the same step.

        :raises InvalidInput: ``name`` is no name
        """
        ...

    async def set_paused(self, name: str, paused: bool) -> QueueState:
        """Pause or resume: running jobs finish, nothing new is claimed. Wakes beats.

        Pausing a paused queue again must not change the time since when the queue is paused.

        :raises NotFound: no such queue
        """
        ...

    async def clear_cooldown(self, name: str) -> QueueState:
        """End a cool-down and forget its level.

        :raises NotFound: no such queue
        """
        ...

    async def delete_queue(self, name: str) -> None:
        """Forget a queue: settings, pause and cool-down.

        Counters and events of the queue stay until their retention ends. An enqueue, a pod or a
        schedule that names the queue later creates the queue again with default settings. So does a
        call that was under way, or a program that enqueued there within a minute: then ``queues``
        may leave the queue out until the next sweep, while its jobs run all the same.

        :raises NotFound: no such queue
        :raises Conflict: the queue has jobs of any status, or a live pod declares the queue.
            Nothing has changed then. The text says how many
        """
        ...

    async def queues(self) -> list[QueueState]:
        """Return every known queue, by name."""
        ...

    async def ensure_rate_limit(self, scope: str, limit: RateLimit) -> None:
        """Declare a bucket from code. A bucket that an operator has set stays as it is.

        Another size than before counts like an operator's edit.

        :raises InvalidInput: ``scope`` is no name
        """
        ...

    async def set_rate_limit(self, scope: str, limit: RateLimit) -> None:
        """Store an operator's edit of a bucket.

        Tokens that are missing from the bucket stay missing, rounded up to the smallest step in
        which a token and the gain of a microsecond are both whole.

        :raises InvalidInput: ``scope`` is no name
        """
        ...

    async def delete_rate_limit(self, scope: str) -> None:
        """Remove a bucket. Taking tokens from it is ``NotFound`` until a program declares it again,
        full.

        :raises NotFound: no such bucket
        """
        ...

    async def rate_limits(self) -> list[RateLimitState]:
        """Return every bucket, by scope."""
        ...

    async def take_tokens(
        self, scope: str, count: int, within: timedelta = NOT_AHEAD
    ) -> TokenGrant:
        """Take ``count`` tokens, or none.

        Where they are not there yet and will be ``within`` the time, they are reserved: the answer
        is a grant, with the time after which the caller may go on in ``retry_in``. Later requests
        get later tokens, so callers that wait are served in the order of their calls, also one that
        wants many. A reservation is not given back. Tokens are reserved up to 15 minutes ahead,
        less for the finest limits (``storage.buckets.furthest_us``). Another size of the bucket
        leaves the times of reserved tokens as they are.

        Must be exact for any number of concurrent callers, and must not stay short
        of tokens for longer than the bucket's period after the store's clock stepped back.

        :raises NotFound: no such bucket
        :raises InvalidInput: ``count`` below 1 or above the capacity
        """
        ...

    async def take_turns(
        self, scope: str, counts: Sequence[int], within: timedelta
    ) -> list[timedelta | None]:
        """Give turns to requests that found too few tokens: how long each has to wait.

        Turns are given in the order of ``counts`` and of the calls, at the pace at which tokens
        come, so that each request finds tokens at its turn if no other caller takes them. A turn
        takes no token and reserves none.

        Must give each turn once for any number of concurrent callers. No turn is later than
        ``within``, also after the store's clock stepped back. A change of the bucket's size forgets
        all turns.

        :returns: None for a request whose turn would be later than ``within``. Such a request takes
            no place among the turns
        :raises NotFound: no such bucket
        :raises InvalidInput: a count below 1 or above the capacity. No turn is given then
        """
        ...

    async def take_or_turn(
        self, asks: Sequence[RateAsk], within: timedelta
    ) -> list[TokenGrant | None]:
        """Take one token for each request. A request that finds none gets a turn.

        Requests for one bucket are served in their order. Answers are as of :meth:`take_tokens`,
        with the time until the turn (see :meth:`take_turns`) in ``retry_in``. A turn that would be
        later than ``within`` takes no place among the turns, and the answer is ``within``. No more
        does the turn of a job that does not wait.

        Turns follow each other at the pace of the tokens, so each has a token of its own. A request
        that had no turn leaves these: a token is given from one token's time after the last turn
        on, or while the bucket is full, as when those with turns do not come.

        A token that is asked for ``ahead`` counts as taken at the end of that time: until then the
        bucket gets back nothing of what is missing. So the bound of :class:`RateLimit` holds for
        the times of use, whenever within ``ahead`` these are. Such a request is granted only while
        the bucket stays half full, and never takes a place among the turns.

        The bucket of a key is full until a token is taken. Its size is that of the rate limit, also
        after a change of the rate limit: tokens that are missing stay missing, and turns are
        forgotten. A bucket that is full again leaves nothing in the store for long.

        Must be exact for any number of concurrent callers, and must not stay short of tokens for
        longer than the bucket's period after the store's clock stepped back.

        :returns: None where there is no such rate limit, or where the rate limit cannot be read
        """
        ...

    async def drain_tokens(self, scope: str) -> None:
        """Empty the bucket: the upstream said that the budget is used up.

        :raises NotFound: no such bucket
        """
        ...

    async def put_strike(self, name: str, rule: StrikeRule, by: str) -> None:
        """Store a strike, or set one of that name anew. Wakes beats, by which pods read strikes.

        :param by: who sets the strike
        :raises InvalidInput: ``name`` is no name, or there are ``MOST_STRIKES`` others
        """
        ...

    async def lift_strike(self, name: str) -> None:
        """Remove a strike. Wakes beats. Jobs that the strike held stay as they are until they are
        made due (``JobStore.run_now``), or their pause is over.

        :raises NotFound: no such strike
        """
        ...

    async def strikes(self) -> list[Strike]:
        """Return every strike, by name.

        Must show, to calls that begin later, each strike whose :meth:`put_strike` has returned.
        """
        ...

    async def ensure_limits(
        self, queue: str, limits: Mapping[str, int], shares: Mapping[str, int] | None = None
    ) -> None:
        """Declare limits of a queue from code: by name, how many jobs of each key may be in
        progress. Limits that an operator has set stay as they are. All or none are written.

        Of the jobs of the queue with one ``limit_name`` and ``limit_key`` at most as many are
        in_progress as the limit of that name says, with any number of concurrent claims. Due jobs
        beyond that must be put on hold (``limit``), so that later claims do not meet them again, a
        thousand or so in one claim. As soon as a claim of the limit and key has ended in any way,
        the next of the jobs on hold, in the order of the queue, must be there for the next claim,
        and waiters of the queue must wake where the same call does not claim it. A job that became
        ready and then goes without a claim must keep no other waiting.

        Keys of a limit with a share take turns. A claim must put each due job of such a limit that
        comes next on hold, and claim nothing while it cannot do so for all that come first. Then it
        takes jobs of the keys with jobs on hold: of the lowest priority first, then of the key with
        the fewest jobs in progress in proportion to the share, then of the key whose turn is the
        longest ago. A key that is new has its turn at the due time of its first job. Within a key
        the order is that of the queue. Jobs without a share take their places among these by their
        due times. A claim that wants more jobs than other keys have takes more of one key, up to
        ``at_most``. At least 100 keys take part in one claim, those with the oldest turns.

        :param shares: by name, of limits that have one. None: no limit has
        :raises InvalidInput: a number below 1, a share without its limit, or a queue or limit
            whose text is no name
        """
        ...

    async def set_limit(
        self, queue: str, name: str, at_most: int, share: int | None = None
    ) -> None:
        """Store an operator's edit of a limit, and make the limit if there is none.

        Jobs that the limit held back and that now may run must become ready in the order of the
        queue, and waiters of the queue must wake. Running jobs stay, also where they are more.

        :param share: None: the limit has none from now on
        :raises InvalidInput: ``at_most`` or ``share`` is below 1, or a text is no name
            or a limit
        """
        ...

    async def delete_limit(self, queue: str, name: str) -> None:
        """Remove a limit. Jobs that the limit held back become ready, and waiters of the queue
        wake. A program that declares the limit makes it again.

        :raises NotFound: the queue has no such limit
        """
        ...

    async def limits(self) -> list[LimitState]:
        """Return every limit, by queue and name."""
        ...

    async def limit_keys(
        self, queue: str, name: str, *, after: str | None = None, limit: int = 100
    ) -> list[LimitKey]:
        """Return the keys of a limit at which jobs are on hold for the limit, by key, in the order
        of code points. A key without such jobs is not among them, however many of its jobs run.

        The cost grows with the answer, never with the jobs of the queue. A queue or limit that
        there is not has no keys.

        :param after: begin behind this key. None: with the first
        :param limit: 1 to 1,000 keys
        """
        ...

    async def limit_holders(
        self, queue: str, name: str, key: str, *, limit: int = 100
    ) -> LimitHolders:
        """Return the jobs of a key that are in progress, and those on hold for the limit.

        A key without jobs has an empty answer.

        :param limit: 1 to 1,000 jobs of each
        """
        ...
