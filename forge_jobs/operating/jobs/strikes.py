"""Strikes, as people who operate set and lift them."""

from msgspec import Struct

from forge_jobs.model.filters import JobFilter
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.model.names import check_name
from forge_jobs.model.strikes import Strike, StrikeRule, hidden_values
from forge_jobs.operating.access import Right
from forge_jobs.operating.jobs.calls import JobCalls


class StrikeList(Struct, frozen=True):
    """All strikes, by name."""

    strikes: tuple[Strike, ...]


class Lifted(Struct, frozen=True, kw_only=True):
    """A lifted strike.

    :param released: how many held jobs are due now. A job that another strike means is held again
    """

    name: str
    released: int


class StrikeCalls(JobCalls):
    """A part of the methods of an operator. See ``Operator``."""

    async def list_strikes(self) -> StrikeList:
        """All strikes. A strike belongs to no queue, so an actor of some queues sees none.

        Without the right to payloads the values of conditions are asterisks.
        """
        self.actor.need(Right.READ)
        self.actor.need(Right.QUEUES)
        found = await self.storage.config.strikes()
        if not self.actor.access.payloads:
            found = [hidden_values(strike) for strike in found]
        return StrikeList(tuple(found))

    async def add_strike(self, name: str, rule: StrikeRule) -> Strike:
        """Keep jobs of a kind, or with a payload that a condition means, from running.

        A strike of the same name is set anew. Running jobs go on.
        """
        self._may_strike("add_strike", name)
        config, by = self.storage.config, self.actor.name
        await self._recorded("add_strike", name, lambda: config.put_strike(name, rule, by))
        found = {strike.name: strike for strike in await config.strikes()}
        return found[name]

    async def lift_strike(self, name: str) -> Lifted:
        """Remove a strike. The jobs that strikes hold are due now, and pods judge them again.

        A program that dies in between leaves an action that pods continue, or jobs that pods judge
        again when their pause of five minutes is over.

        :raises NotFound: no such strike
        """
        self._may_strike("lift_strike", name)
        config = self.storage.config
        lifted = next((each for each in await config.strikes() if each.name == name), None)
        await self._recorded("lift_strike", name, lambda: config.lift_strike(name))
        kinds = (lifted.rule.kind,) if lifted and lifted.rule.kind else ()
        if lifted and lifted.unreadable:
            kinds = ()
        held = JobFilter(kinds=kinds, statuses=(JobStatus.PENDING,), causes=(Cause.STRUCK,))
        released = await self._visited("run_jobs_now", held, f"the strike {name} was lifted")
        return Lifted(name=name, released=len(released.changed))

    def _may_strike(self, action: str, name: str) -> None:
        self.actor.act(action)
        self.actor.need(Right.QUEUES)
        check_name("name", name)
