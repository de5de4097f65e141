"""Strikes, as people who operate set and lift them."""

from msgspec import Struct

from forge_jobs.model.names import check_name
from forge_jobs.model.strikes import Strike, StrikeRule, hidden_values
from forge_jobs.operating.access import Right
from forge_jobs.operating.jobs.calls import JobCalls
from forge_jobs.policy.strikes import Judge

_AT_ONCE, _BATCHES = 1_000, 20


class StrikeList(Struct, frozen=True):
    """All strikes, by name."""

    strikes: tuple[Strike, ...]


class Lifted(Struct, frozen=True, kw_only=True):
    """A lifted strike.

    :param released: how many held jobs this call has made ready, at most 20,000. The leader of the
        pods does the same beside it, so all become ready. A job that another strike means is held
        again
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

        A strike of the same name is set anew. Jobs that the old one held and the new one does not
        mean by the same rule are ready, to be judged again. Running jobs go on.
        """
        self._may_strike("add_strike", name)
        config, by = self.storage.config, self.actor.name
        await self._recorded("add_strike", name, lambda: config.put_strike(name, rule, by))
        await self._release_struck()
        found = {strike.name: strike for strike in await config.strikes()}
        return found[name]

    async def lift_strike(self, name: str) -> Lifted:
        """Remove a strike. The jobs that it held are ready in the order of their queues, and pods
        judge them again.

        A program that dies in between leaves the rest of the jobs to the leader of the pods, which
        looks at once after a lift, and each minute.

        :raises NotFound: no such strike
        """
        self._may_strike("lift_strike", name)
        config = self.storage.config
        await self._recorded("lift_strike", name, lambda: config.lift_strike(name))
        return Lifted(name=name, released=await self._release_struck())

    async def _release_struck(self) -> int:
        marks, released = Judge(await self.storage.config.strikes()).marks, 0
        for _ in range(_BATCHES):
            count = await self.storage.jobs.release_struck(marks, _AT_ONCE)
            released += count
            if count < _AT_ONCE:
                break
        return released

    def _may_strike(self, action: str, name: str) -> None:
        self.actor.act(action)
        self.actor.need(Right.QUEUES)
        check_name("name", name)
