"""Strikes, as people who operate set and lift them."""

from msgspec import Struct

from forge_jobs.clients.striking import ADD, LIFT, Lifted, lift_strike, put_strike
from forge_jobs.model.strikes import Strike, StrikeRule, hidden_values
from forge_jobs.operating.access import Right
from forge_jobs.operating.jobs.calls import JobCalls


class StrikeList(Struct, frozen=True):
    """All strikes, by name."""

    strikes: tuple[Strike, ...]


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

        A strike of the same name is set anew. Jobs that the old one held and the new one does not
        mean by the same rule are ready, to be judged again. Running jobs go on.
        """
        self._may_strike(ADD)
        return await put_strike(self.storage, self._recorded, name, rule, self.actor.name)

    async def lift_strike(self, name: str) -> Lifted:
        """Remove a strike. The jobs that it held are ready in the order of their queues, and pods
        judge them again.

        A program that dies in between leaves the rest of the jobs to the leader of the pods, which
        looks at once after a lift, and each minute.

        :raises NotFound: no such strike
        """
        self._may_strike(LIFT)
        return await lift_strike(self.storage, self._recorded, name)

    def _may_strike(self, action: str) -> None:
        self.actor.act(action)
        self.actor.need(Right.QUEUES)
