"""The contract between the runtime and a store: four protocols, and the bundle of them.

A fourth backend can be written from this page. ``tests/conformance`` is the executable form of the
contract: each "must" below has a test there, run against every backend.

Rules for every method
----------------------
**One atomic step.** A call happens wholly or not at all, unless the method says "per item". Items
of one call are independent in their outcome, and outcomes come in the order of the items.

**The runtime decides, the store applies.** The next state of a job arrives as a value
(:class:`~forge_jobs.model.transitions.Transition`). A store must check only the conditions that
need a transaction: ownership, uniqueness, compare-and-set, a live lease.

**One clock.** Every comparison of times must use the store's own clock, once per call. Callers pass
durations. The only instants they pass are those a user gave, and those computed from the ``now`` a
store returned. A store opened with ``clock=`` uses that clock instead. Boundaries: a job is due
when ``run_at <= now``, a lease has run out when ``until <= now``, a claim is stale when
``heartbeat_at + stale_after <= now``, and a job has expired when ``expires_at <= now``.

**Fenced and repeatable.** A write to a claimed job acts only where the job is in_progress under the
same token. Any call may be repeated after :class:`Unavailable`.

**Errors.** Only :class:`~forge_jobs.errors.StorageError` and its subclasses leave a method. Driver
exceptions never escape, nor do driver texts, paths, host names or credentials. The caller has
checked names and payloads with ``model.names`` and ``model.payloads``. A store must keep what
passed those checks byte for byte.

**Never cancelled half way.** A caller may stop waiting for a call, but must not cancel the call.
Every call has a time limit of the store's own, after which the call raises ``Unavailable``.

**Exact counts.** Each change of a job must add to the counter of the job's queue, minute (of the
store's clock) and pod, in the same step. Counter names: ``enqueued``, ``deduplicated``,
``claimed``, and the ``Cause`` of each transition, revival and operator's change. A refused change
counts nothing.

**Parts.** A store may have several parts, each with some of the queues (``Storage.is_parted``). One
part may be silent while others answer. Calls that concern one queue then fail or succeed with the
part of that queue. Calls over many queues leave out the silent queues, and
``Storage.health().silent`` must name these. But a call that names queues or ids, or changes the
jobs of a filter, raises ``Unavailable``. Nothing may be concluded of a silent queue. A pod's lease
then counts part by part: see :class:`~forge_jobs.model.processes.Beat`. A job whose id was made for
that job alone (no ``fingerprint`` and no ``schedule``) must be stored while the job's queue
answers.

**Wake-ups** shorten a wait and nothing else: see :meth:`JobStore.wait_for_work`.
"""

from forge_jobs.storage.protocols.bundle import OpenTransactions as OpenTransactions
from forge_jobs.storage.protocols.bundle import Storage as Storage
from forge_jobs.storage.protocols.bundle import StoreHealth as StoreHealth
from forge_jobs.storage.protocols.bundle import StoreReport as StoreReport
from forge_jobs.storage.protocols.bundle import check_storage as check_storage
from forge_jobs.storage.protocols.config import ConfigStore as ConfigStore
from forge_jobs.storage.protocols.cron import CronStore as CronStore
from forge_jobs.storage.protocols.jobs import JobStore as JobStore
from forge_jobs.storage.protocols.procs import ProcStore as ProcStore

__all__ = [
    "ConfigStore",
    "CronStore",
    "JobStore",
    "OpenTransactions",
    "StoreReport",
    "ProcStore",
    "Storage",
    "StoreHealth",
    "check_storage",
]
