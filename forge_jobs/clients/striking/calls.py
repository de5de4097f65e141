"""The calls of clients that set, lift and list strikes."""

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Literal, TypeVar, cast

from forge_jobs.clients.flows.blocking import SyncFlowCalls
from forge_jobs.clients.flows.calls import FlowCalls
from forge_jobs.clients.records.changing import change_one
from forge_jobs.clients.strikes import Strikes
from forge_jobs.clients.striking import Lifted, Recorded, lift_strike, put_strike
from forge_jobs.errors import InvalidInput
from forge_jobs.home_loop import HomeLoop
from forge_jobs.model.actions import Action
from forge_jobs.model.ids import new_job_id
from forge_jobs.model.names import check_stored_text
from forge_jobs.model.strikes import Effect, Strike, StrikeRule

T = TypeVar("T")

_BY = "code"
_LONGEST_BY = 100


class StrikingCalls(FlowCalls):
    """A part of the methods of every client. See ``JobClient``."""

    known_strikes: Strikes
    _home: HomeLoop

    async def strike(
        self,
        name: str,
        *,
        kind: str = "",
        where: str = "",
        effect: Effect | Literal["hold", "cancel"] = Effect.HOLD,
        reason: str = "",
        by: str = _BY,
    ) -> Strike:
        """Keep jobs of a kind, or with a payload that a condition means, from running.

        A strike of the same name is set anew. Jobs that wait are judged before their run, new ones
        by this client at once and by others within 10 seconds. Running jobs go on. Leaves the same
        record as ``forge-jobs strikes add``.

        :param kind: of the jobs. "" for every kind
        :param where: a condition on the payload, as ``"customer.id in [7, 9]"``. "" for every one
        :param effect: ``hold`` the jobs until the strike is lifted, or ``cancel`` them
        :param reason: for people, at most 1,000 characters
        :param by: who sets the strike, 1 to 100 characters, for the record
        :raises InvalidInput: a value is wrong, neither ``kind`` nor ``where`` is given, or there
            are 1,000 other strikes
        """
        rule = StrikeRule(kind=kind, where=where, effect=cast("Effect", effect), reason=reason)
        strike = await put_strike(self.storage, self._as(by), name, rule, by)
        await self.known_strikes.read_again()
        return strike

    async def lift_strike(self, name: str, *, by: str = _BY) -> Lifted:
        """Lift a strike. The jobs that it held are ready, and pods judge them again.

        When the program dies in between, the leader of the pods makes the rest of them ready.

        :param by: who lifts the strike, for the record
        :raises NotFound: no such strike
        """
        lifted = await lift_strike(self.storage, self._as(by), name)
        await self.known_strikes.read_again()
        return lifted

    async def strikes(self) -> list[Strike]:
        """Return every strike, by name."""
        self._home.here()
        return await self.storage.config.strikes()

    def _as(self, by: str) -> Recorded:
        self._home.here()
        if not isinstance(by, str) or not 0 < len(by) <= _LONGEST_BY:
            raise InvalidInput("by", "is no text of 1 to 100 characters", "name who does this")
        check_stored_text("by", by)

        async def recorded(verb: str, target: str, change: Callable[[], Awaitable[None]]) -> None:
            action = Action(id=new_job_id(), actor=by, surface="code", verb=verb, target=target)
            await change_one(self.storage, action, change)

        return recorded


class SyncStrikingCalls(SyncFlowCalls):
    """A part of the methods of the blocking client. See ``SyncJobClient``."""

    @abstractmethod
    def _call(self, method: Callable[[StrikingCalls], Coroutine[Any, Any, T]]) -> T: ...

    def strike(
        self,
        name: str,
        *,
        kind: str = "",
        where: str = "",
        effect: Effect | Literal["hold", "cancel"] = Effect.HOLD,
        reason: str = "",
        by: str = _BY,
    ) -> Strike:
        """Keep jobs of a kind or with a payload from running. As ``JobClient.strike``."""
        return self._call(
            lambda client: client.strike(
                name, kind=kind, where=where, effect=effect, reason=reason, by=by
            )
        )

    def lift_strike(self, name: str, *, by: str = _BY) -> Lifted:
        """Lift a strike. Jobs that it held are ready. As ``JobClient.lift_strike``."""
        return self._call(lambda client: client.lift_strike(name, by=by))

    def strikes(self) -> list[Strike]:
        """Return every strike, by name. As ``JobClient.strikes``."""
        return self._call(lambda client: client.strikes())
