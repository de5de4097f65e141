"""Queue settings, pauses, cool-downs, rate limits."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from forge_jobs.model.queues import (
    QueueChange,
    QueueSettings,
    QueueState,
    RateLimit,
    RateLimitState,
    TokenGrant,
)


class ConfigStore(Protocol):
    """Queue settings, pauses, cool-downs, rate limits."""

    store_id: str

    async def ensure_queue(self, name: str, settings: QueueSettings) -> QueueState:
        """Declare a queue from code: settings an operator has set stay as they are."""
        ...

    async def set_queue(self, name: str, change: QueueChange) -> QueueState:
        """An operator's edit; creates the queue. Wakes beats and the coordinator."""
        ...

    async def set_paused(self, name: str, paused: bool) -> QueueState:
        """Pause or resume: running jobs finish, nothing new is claimed. Wakes beats.

        To pause a paused queue again must not change since when it is paused.

        :raises NotFound: no such queue
        """
        ...

    async def clear_cooldown(self, name: str) -> QueueState:
        """End a cool-down and forget its level.

        :raises NotFound: no such queue
        """
        ...

    async def delete_queue(self, name: str) -> None:
        """Forget a queue: its settings, its pause and its cool-down.

        What was counted and told of it stays for its time. Whatever names the queue later, an
        enqueue, a pod or a schedule, creates it with default settings. So does a call that was
        under way, or a program that had enqueued there before: then ``queues`` may leave it out
        until the next sweep, and its jobs run all the same.

        :raises NotFound: no such queue
        :raises Conflict: it has jobs, whatever their status, or a live pod declares it. Nothing has
            changed then. The text says how many
        """
        ...

    async def queues(self) -> list[QueueState]:
        """Every known queue, by name."""
        ...

    async def ensure_rate_limit(self, scope: str, limit: RateLimit) -> None:
        """Declare a bucket from code; one that an operator has set stays as it is. Another size
        than before counts like an operator's edit.
        """
        ...

    async def set_rate_limit(self, scope: str, limit: RateLimit) -> None:
        """An operator's edit. What is missing from the bucket stays missing, in tokens, rounded
        up to the smallest step in which a token and what a microsecond brings are both whole.
        """
        ...

    async def delete_rate_limit(self, scope: str) -> None:
        """Remove a bucket. Who takes tokens from it is told that there is none; a program that
        declares it brings it back, full.

        :raises NotFound: no such bucket
        """
        ...

    async def rate_limits(self) -> list[RateLimitState]:
        """Every bucket, by scope."""
        ...

    async def take_tokens(self, scope: str, count: int) -> TokenGrant:
        """Take ``count`` tokens, or none.

        Must be exact for any number of concurrent callers, and must not stay short
        of tokens for longer than the bucket's period after the store's clock stepped back.

        :raises NotFound: no such bucket
        :raises InvalidInput: ``count`` below 1 or above the capacity
        """
        ...

    async def take_turns(
        self, scope: str, counts: Sequence[int], within: timedelta
    ) -> list[timedelta | None]:
        """Give requests that found too few tokens their turns: how long each has to wait.

        Turns are given in the order of ``counts`` and of the calls, in the pace at which tokens
        come, so that each finds its tokens at its turn while nobody else takes them. A turn takes
        no token and keeps none back. No turn is later than ``within``: None where the line is
        longer, and then no place in it is taken.

        Must give each place once for any number of concurrent callers. No turn is later than
        ``within`` after the store's clock stepped back either. A change of the bucket's size
        forgets the line.

        :raises NotFound: no such bucket
        :raises InvalidInput: a count below 1 or above the capacity; no turn is given then
        """
        ...

    async def drain_tokens(self, scope: str) -> None:
        """Empty the bucket: the upstream said that the budget is used up.

        :raises NotFound: no such bucket
        """
        ...
