"""The expected state of a store: dicts, and the rules of the protocols' prose.

Written as plainly as possible: no indexes, no batches, no concurrency, no import of a store. The
methods are those of the four protocols and of clients that make groups, without ``async``. The
answers of a real store must be equal, apart from the list in ``tests.conformance.model.leeway``.
"""

from forge_jobs.clock import ManualClock
from tests.conformance.model.reference.config import ReferenceConfig
from tests.conformance.model.reference.cron import ReferenceCron
from tests.conformance.model.reference.groups import ReferenceFlows
from tests.conformance.model.reference.jobs import ReferenceJobs
from tests.conformance.model.reference.procs import ReferenceProcs
from tests.conformance.model.reference.state import World


class Reference:
    """The four views of one pretended store, and what a client makes of them."""

    def __init__(self, clock: ManualClock) -> None:
        self.world = World(clock)
        self.jobs = ReferenceJobs(self.world)
        self.procs = ReferenceProcs(self.world)
        self.config = ReferenceConfig(self.world)
        self.cron = ReferenceCron(self.world)
        self.flows = ReferenceFlows(self.world)
