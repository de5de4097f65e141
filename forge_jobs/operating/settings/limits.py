"""Reads and changes of rate limits. A limit belongs to the whole installation."""

from forge_jobs.model.names import check_name
from forge_jobs.model.processes import RateGauge
from forge_jobs.model.queues import RateLimit, RateLimitState
from forge_jobs.operating.access import Right
from forge_jobs.operating.actions.recording import RecordedCalls
from forge_jobs.operating.documents import Deleted, widened
from forge_jobs.operating.settings.documents import Limits, RateLimitView
from forge_jobs.operating.snapshots.fleet import tokens_reported
from forge_jobs.operating.together import together


class LimitCalls(RecordedCalls):
    """A part of the methods of an operator. See ``Operator``."""

    async def list_limits(self) -> Limits:
        """All rate limits, how many tokens are there now, and how many were taken and refused.

        A limit belongs to no queue, so an actor of some queues does not see the names.
        """
        self.actor.need(Right.READ)
        self.actor.need(Right.QUEUES)
        limits, pods = await together(self.storage.config.rate_limits(), self.storage.procs.pods())
        reported = tokens_reported(pods)
        return Limits(tuple(_view(each, reported.of(each.scope)) for each in limits))

    async def set_limit(self, name: str, limit: RateLimit) -> RateLimitState:
        """Set a rate limit. The size stays over later deploys. Creates the limit."""
        self._may_change("set_limit", name)
        config = self.storage.config
        await self._recorded("set_limit", name, lambda: config.set_rate_limit(name, limit))
        return await self._limit(name)

    async def delete_limit(self, name: str) -> Deleted:
        """Delete a rate limit. A program that declares the limit brings the limit back.

        :raises NotFound: no such limit
        """
        self._may_change("delete_limit", name)
        config = self.storage.config
        await self._recorded("delete_limit", name, lambda: config.delete_rate_limit(name))
        return Deleted(name=name)

    async def drain_limit(self, name: str) -> RateLimitState:
        """Take all tokens of a rate limit: the upstream said that the budget is used up.

        :raises NotFound: no such limit
        """
        self._may_change("drain_limit", name)
        config = self.storage.config
        await self._recorded("drain_limit", name, lambda: config.drain_tokens(name))
        return await self._limit(name)

    def _may_change(self, action: str, name: str) -> None:
        self.actor.act(action)
        self.actor.need(Right.QUEUES)
        check_name("name", name)

    async def _limit(self, name: str) -> RateLimitState:
        found = {state.scope: state for state in await self.storage.config.rate_limits()}
        return found[name]


def _view(limit: RateLimitState, reported: RateGauge | None) -> RateLimitView:
    return widened(
        RateLimitView,
        limit,
        taken_a_minute=reported.taken if reported else None,
        refused_a_minute=reported.refused if reported else None,
    )
