"""Documents of pods, of the store and of the actor."""

from msgspec import Struct

from forge_jobs.model.processes import PodState
from forge_jobs.operating.health.findings import Finding
from forge_jobs.policy.judgement.problems.problem import Problem


class PodView(PodState, frozen=True, kw_only=True):
    """A pod, and how the pod stands: ``live``, ``quiet``, ``draining`` or ``lost``."""

    standing: str


class Pods(Struct, frozen=True):
    """All pods that the store knows."""

    pods: tuple[PodView, ...]


class Health(Struct, frozen=True, kw_only=True):
    """The findings of an examination of the store.

    :param ok: False: something must be put right
    """

    ok: bool
    findings: tuple[Finding, ...]


class Problems(Struct, frozen=True, kw_only=True):
    """Everything that is wrong now, the worst first.

    :param ok: False: a problem is critical
    """

    ok: bool
    problems: tuple[Problem, ...]


class Me(Struct, frozen=True, kw_only=True):
    """The actor, and the rights of the actor.

    :param actions: names of the actions that are allowed. ``*`` stands for all
    :param queues: names of the only queues that are open to the actor. None: all are
    """

    name: str
    surface: str
    read: bool
    actions: tuple[str, ...]
    queues: tuple[str, ...] | None
    payloads: bool
