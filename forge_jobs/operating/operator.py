"""The one operator under all surfaces."""

from collections.abc import Collection
from types import TracebackType

from forge_jobs.clients.client import JobClient
from forge_jobs.errors import InvalidInput, a_type
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.routing import Router
from forge_jobs.operating.access import Actor
from forge_jobs.operating.actions.calls import ActionCalls
from forge_jobs.operating.board.calls import BoardCalls
from forge_jobs.operating.errors.calls import ErrorCalls
from forge_jobs.operating.jobs.calls import JobCalls
from forge_jobs.operating.jobs.exporting import ExportCalls
from forge_jobs.operating.jobs.hints import HintCalls
from forge_jobs.operating.jobs.strikes import StrikeCalls
from forge_jobs.operating.jobs.workflows import WorkflowCalls
from forge_jobs.operating.kinds.calls import KindCalls
from forge_jobs.operating.pods.calls import PodCalls
from forge_jobs.operating.redaction import Redaction
from forge_jobs.operating.settings.concurrency import ConcurrencyCalls
from forge_jobs.operating.settings.history import HistoryCalls
from forge_jobs.operating.settings.limits import LimitCalls
from forge_jobs.operating.settings.outbox import OutboxCalls
from forge_jobs.operating.settings.queues import QueueCalls
from forge_jobs.operating.settings.schedules import ScheduleCalls
from forge_jobs.operating.snapshots.objectives import ObjectiveCalls
from forge_jobs.operating.snapshots.outlook import OutlookCalls
from forge_jobs.storage.protocols import Storage, check_storage


class Operator(
    WorkflowCalls,
    StrikeCalls,
    JobCalls,
    ExportCalls,
    HintCalls,
    ErrorCalls,
    KindCalls,
    ActionCalls,
    QueueCalls,
    HistoryCalls,
    ObjectiveCalls,
    ScheduleCalls,
    LimitCalls,
    ConcurrencyCalls,
    OutboxCalls,
    BoardCalls,
    PodCalls,
    OutlookCalls,
):
    """All reads and actions of people who operate an installation, for one actor.

    The command line, the HTTP API and the dashboard call these methods and nothing else of the
    store. Each method checks the actor's rights before the store is asked: what is not allowed
    raises ``Forbidden`` and changes nothing. What lies in a queue that is closed to the actor does
    not exist for the actor.

    Belongs to one event loop, as a ``JobClient``. The storage stays open.

    :param actor: who operates, from where, and what that one may do
    :param handlers: as of a ``JobClient``: payloads of their kinds are checked at the enqueue
    :param router: as of a ``JobClient``
    :param redact: names of fields that are hidden as secrets are, for jobs whose handler marks no
        ``Secret``: ``password``, or ``card.number`` for the number of a card
    :raises InvalidInput: a parameter has a wrong type
    """

    def __init__(
        self,
        storage: Storage,
        actor: Actor,
        *,
        handlers: HandlerRegistry | None = None,
        router: Router | None = None,
        redact: Collection[str] | Redaction = (),
    ) -> None:
        self.storage = check_storage(storage)
        if not isinstance(actor, Actor):
            raise InvalidInput("actor", f"is {a_type(actor)}", "give Actor(name=...)")
        self.actor = actor
        self.redaction = redact if isinstance(redact, Redaction) else Redaction(redact)
        self.handlers = handlers
        self.client = JobClient(storage, handlers, router=router)

    async def aclose(self) -> None:
        """Finish what is being enqueued. Closing twice is fine."""
        await self.client.aclose()

    async def __aenter__(self) -> "Operator":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()
