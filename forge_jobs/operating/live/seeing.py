"""The part of the newest state that one viewer may see."""

from collections.abc import Sequence
from typing import TypeVar

from msgspec import structs

from forge_jobs.model.ids import JobId
from forge_jobs.model.progress import JobState
from forge_jobs.operating.access import Access, Actor, Right
from forge_jobs.operating.hiding import hide_state
from forge_jobs.operating.live.documents import LivePod, LiveState
from forge_jobs.operating.live.reading import Now, Versioned
from forge_jobs.policy.judgement.problems.problem import Problem

V = TypeVar("V")


def needs_problems(access: Access) -> bool:
    """Return whether the access allows the list of problems."""
    return access.read and access.has(Right.QUEUES)


def seen(
    now: Now,
    actor: Actor,
    jobs: Sequence[JobId],
    *,
    since: int = 0,
    with_messages: bool = True,
) -> LiveState:
    """Return what has changed for an actor.

    What lies in a queue that is closed to the actor is left out. Messages of progress need the
    right to payloads.

    :param jobs: ids that the actor looks at
    :param since: the version that the actor has seen. 0: none
    :param with_messages: False leaves the messages of progress out, which may hold hidden fields
    :raises Forbidden: the actor may not read
    """
    actor.need(Right.READ)
    assert now.at is not None, "nothing was read"
    if since < now.renamed:
        since = 0
    whole = since == 0
    queues = [each.value for each in now.queues.values() if each.version > since]
    states = [
        _visible(now.jobs[each], actor, with_messages) for each in jobs if _is_new(now, each, since)
    ]
    found = [state for state in states if state is not None]
    visible = {state.id for state in found}
    return LiveState(
        at=now.at,
        fleet_at=now.fleet_at,
        counts_at=now.counts_at,
        whole=whole,
        queues=tuple(queue for queue in queues if actor.sees(queue.name)),
        pods=_pods(now.pods, actor, since),
        problems=_problems(now, actor, since),
        jobs=tuple(found),
        gone=tuple(each for each in jobs if _is_new(now, each, since) and each not in visible),
    )


def _is_new(now: Now, job: JobId, since: int) -> bool:
    return job in now.jobs and now.jobs[job].version > since


def _visible(
    state: Versioned[JobState | None], actor: Actor, with_messages: bool
) -> JobState | None:
    value = state.value
    if value is None or not actor.sees(value.queue):
        return None
    return value if with_messages and actor.access.payloads else hide_state(value)


def _pods(
    pods: Versioned[tuple[LivePod, ...]], actor: Actor, since: int
) -> tuple[LivePod, ...] | None:
    if since and pods.version <= since:
        return None
    if actor.access.queues is None:
        return pods.value
    return tuple(_open(pod, actor) for pod in pods.value)


def _open(pod: LivePod, actor: Actor) -> LivePod:
    return structs.replace(
        pod,
        slots={name: each for name, each in pod.slots.items() if actor.sees(name)},
        in_progress={name: each for name, each in pod.in_progress.items() if actor.sees(name)},
    )


def _problems(now: Now, actor: Actor, since: int) -> tuple[Problem, ...] | None:
    problems = now.problems
    if problems is None or not needs_problems(actor.access):
        return None
    return problems.value if problems.version > since else None
