"""A job queue runtime for Python services, on the store they already have.

Everything public is here. What is not in ``__all__`` may change.
"""

from typing import TYPE_CHECKING

from forge_jobs.clients.blocking import SyncJobClient as SyncJobClient
from forge_jobs.clients.bulk import BulkTotals as BulkTotals
from forge_jobs.clients.client import JobClient as JobClient
from forge_jobs.clients.flows.plans import EnqueuedGroup as EnqueuedGroup
from forge_jobs.clients.flows.plans import Group as Group
from forge_jobs.clients.flows.plans import GroupState as GroupState
from forge_jobs.clients.flows.steps import Steps as Steps
from forge_jobs.clients.flows.workflows import EnqueuedWorkflow as EnqueuedWorkflow
from forge_jobs.clients.flows.workflows import StepState as StepState
from forge_jobs.clients.flows.workflows import Workflow as Workflow
from forge_jobs.clients.flows.workflows import WorkflowState as WorkflowState
from forge_jobs.config import RuntimeSettings as RuntimeSettings
from forge_jobs.errors import ConfigError as ConfigError
from forge_jobs.errors import Conflict as Conflict
from forge_jobs.errors import DecryptionFailed as DecryptionFailed
from forge_jobs.errors import Forbidden as Forbidden
from forge_jobs.errors import ForgeJobsError as ForgeJobsError
from forge_jobs.errors import InvalidInput as InvalidInput
from forge_jobs.errors import JobCancelled as JobCancelled
from forge_jobs.errors import JobDead as JobDead
from forge_jobs.errors import JobNotSuccessful as JobNotSuccessful
from forge_jobs.errors import KeyMissing as KeyMissing
from forge_jobs.errors import LifespanFailed as LifespanFailed
from forge_jobs.errors import Locked as Locked
from forge_jobs.errors import NotFound as NotFound
from forge_jobs.errors import RegistrationError as RegistrationError
from forge_jobs.errors import ResultTimeout as ResultTimeout
from forge_jobs.errors import SchemaMismatch as SchemaMismatch
from forge_jobs.errors import SlowWatcher as SlowWatcher
from forge_jobs.errors import StorageClosed as StorageClosed
from forge_jobs.errors import StorageError as StorageError
from forge_jobs.errors import StorageRefused as StorageRefused
from forge_jobs.errors import Unavailable as Unavailable
from forge_jobs.errors import UndecodablePayload as UndecodablePayload
from forge_jobs.errors import WrongEventLoop as WrongEventLoop
from forge_jobs.handlers.around.hooks import RunEnd as RunEnd
from forge_jobs.handlers.context import JobContext as JobContext
from forge_jobs.handlers.context import JobProgress as JobProgress
from forge_jobs.handlers.context import ParentJob as ParentJob
from forge_jobs.handlers.handler import Handler as Handler
from forge_jobs.handlers.injection.from_step import FromStep as FromStep
from forge_jobs.handlers.injection.markers import Depends as Depends
from forge_jobs.handlers.injection.markers import Injected as Injected
from forge_jobs.handlers.injection.markers import Shared as Shared
from forge_jobs.handlers.limits.concurrency import Limit as Limit
from forge_jobs.handlers.limits.rates import Rate as Rate
from forge_jobs.handlers.limits.sequences import Sequence as Sequence
from forge_jobs.handlers.options import JobOptions as JobOptions
from forge_jobs.handlers.outcomes import Again as Again
from forge_jobs.handlers.outcomes import Dead as Dead
from forge_jobs.handlers.outcomes import Failed as Failed
from forge_jobs.handlers.outcomes import RateLimited as RateLimited
from forge_jobs.handlers.outcomes import Snoozed as Snoozed
from forge_jobs.handlers.outcomes import Throttled as Throttled
from forge_jobs.handlers.registry import HandlerRegistry as HandlerRegistry
from forge_jobs.handlers.registry import load_registry as load_registry
from forge_jobs.handlers.requests import EnqueueOptions as EnqueueOptions
from forge_jobs.handlers.requests import EnqueueRequest as EnqueueRequest
from forge_jobs.handlers.routing import prefix_router as prefix_router
from forge_jobs.model.filters import JobFilter as JobFilter
from forge_jobs.model.jobs import After as After
from forge_jobs.model.jobs import EnqueueOutcome as EnqueueOutcome
from forge_jobs.model.jobs import Job as Job
from forge_jobs.model.jobs import JobStatus as JobStatus
from forge_jobs.model.jobs import Unique as Unique
from forge_jobs.model.letters import DEAD_LETTER_KIND as DEAD_LETTER_KIND
from forge_jobs.model.letters import DeadLetter as DeadLetter
from forge_jobs.model.letters import dead_letter_of as dead_letter_of
from forge_jobs.model.pod_requests import PodRequest as PodRequest
from forge_jobs.model.pod_requests import PodVerb as PodVerb
from forge_jobs.model.pod_requests import RequestState as RequestState
from forge_jobs.model.progress import JobState as JobState
from forge_jobs.model.progress import LogLine as LogLine
from forge_jobs.model.progress import LogPage as LogPage
from forge_jobs.model.progress import Progress as Progress
from forge_jobs.model.queues import CooldownPolicy as CooldownPolicy
from forge_jobs.model.queues import QueueSettings as QueueSettings
from forge_jobs.model.queues import RateLimit as RateLimit
from forge_jobs.model.queues import Retention as Retention
from forge_jobs.model.retries import Delays as Delays
from forge_jobs.model.retries import Exponential as Exponential
from forge_jobs.model.retries import Fixed as Fixed
from forge_jobs.model.retries import Linear as Linear
from forge_jobs.privacy.encryption import Encryption as Encryption
from forge_jobs.privacy.secrets import Secret as Secret
from forge_jobs.storage.opening import open_storage as open_storage
from forge_jobs.storage.protocols import Storage as Storage

if TYPE_CHECKING:
    from forge_jobs.clients.grouping import group_handlers as group_handlers
    from forge_jobs.clients.outbox.blocking import SyncOutbox as SyncOutbox
    from forge_jobs.clients.outbox.outbox import Outbox as Outbox
    from forge_jobs.clients.schedules import schedule as schedule
    from forge_jobs.commands.handlers import CommandResult as CommandResult
    from forge_jobs.commands.handlers import command_handlers as command_handlers
    from forge_jobs.commands.handlers import echo_handlers as echo_handlers
    from forge_jobs.commands.programs import Program as Program
    from forge_jobs.commands.warm_pool import WarmPool as WarmPool
    from forge_jobs.operating.access import Access as Access
    from forge_jobs.operating.access import Actor as Actor
    from forge_jobs.operating.actions.editing import JobEdit as JobEdit
    from forge_jobs.operating.actions.previews import Apply as Apply
    from forge_jobs.operating.operator import Operator as Operator
    from forge_jobs.runtime.pod.handle import QueueHandle as QueueHandle
    from forge_jobs.runtime.runtime import QueueRuntime as QueueRuntime

# A process that only enqueues loads none of the runtime: a third of the start-up time.
_LAZY = {
    "Access": "forge_jobs.operating.access",
    "Actor": "forge_jobs.operating.access",
    "Apply": "forge_jobs.operating.actions.previews",
    "JobEdit": "forge_jobs.operating.actions.editing",
    "Operator": "forge_jobs.operating.operator",
    "CommandResult": "forge_jobs.commands.handlers",
    "Outbox": "forge_jobs.clients.outbox.outbox",
    "Program": "forge_jobs.commands.programs",
    "QueueHandle": "forge_jobs.runtime.pod.handle",
    "QueueRuntime": "forge_jobs.runtime.runtime",
    "SyncOutbox": "forge_jobs.clients.outbox.blocking",
    "WarmPool": "forge_jobs.commands.warm_pool",
    "command_handlers": "forge_jobs.commands.handlers",
    "echo_handlers": "forge_jobs.commands.handlers",
    "group_handlers": "forge_jobs.clients.grouping",
    "schedule": "forge_jobs.clients.schedules",
}


def __getattr__(name: str) -> object:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(module), name)


__all__ = [
    "Access",
    "Actor",
    "After",
    "Again",
    "Apply",
    "BulkTotals",
    "CommandResult",
    "ConfigError",
    "Conflict",
    "CooldownPolicy",
    "DEAD_LETTER_KIND",
    "Dead",
    "DeadLetter",
    "DecryptionFailed",
    "Delays",
    "Depends",
    "Encryption",
    "EnqueueOptions",
    "EnqueueOutcome",
    "EnqueueRequest",
    "EnqueuedGroup",
    "EnqueuedWorkflow",
    "Exponential",
    "Failed",
    "Fixed",
    "Forbidden",
    "ForgeJobsError",
    "FromStep",
    "Group",
    "GroupState",
    "Handler",
    "HandlerRegistry",
    "Injected",
    "InvalidInput",
    "Job",
    "JobCancelled",
    "JobClient",
    "JobContext",
    "JobDead",
    "JobEdit",
    "JobFilter",
    "JobNotSuccessful",
    "JobOptions",
    "JobProgress",
    "JobState",
    "JobStatus",
    "KeyMissing",
    "LifespanFailed",
    "Limit",
    "Linear",
    "Locked",
    "LogLine",
    "LogPage",
    "NotFound",
    "Operator",
    "Outbox",
    "ParentJob",
    "PodRequest",
    "PodVerb",
    "Program",
    "Progress",
    "QueueHandle",
    "QueueRuntime",
    "QueueSettings",
    "Rate",
    "RateLimit",
    "RateLimited",
    "RegistrationError",
    "RequestState",
    "ResultTimeout",
    "Retention",
    "RunEnd",
    "RuntimeSettings",
    "SchemaMismatch",
    "Secret",
    "Sequence",
    "Shared",
    "SlowWatcher",
    "Snoozed",
    "StepState",
    "Steps",
    "Storage",
    "StorageClosed",
    "StorageError",
    "StorageRefused",
    "SyncJobClient",
    "SyncOutbox",
    "Throttled",
    "Unavailable",
    "UndecodablePayload",
    "Unique",
    "WarmPool",
    "Workflow",
    "WorkflowState",
    "WrongEventLoop",
    "command_handlers",
    "dead_letter_of",
    "echo_handlers",
    "group_handlers",
    "load_registry",
    "open_storage",
    "prefix_router",
    "schedule",
]
