"""Reasons why a job has no slot of the queue, and the state of a job in a slot."""

from collections.abc import Sequence

from forge_jobs.model.jobs import Job
from forge_jobs.model.processes import PodState, WorkerState
from forge_jobs.policy import remedies
from forge_jobs.policy.explanations import (
    ZERO,
    Explanation,
    Reason,
    Situation,
    at,
    count,
    how_known,
    name_of,
    names_of,
)

_MOST_HOLDERS = 10


def of_fleet(job: Job, around: Situation) -> Explanation:
    """The reason of a job that could be claimed by a pod with a free slot."""
    declaring = [pod for pod in around.live if job.queue in pod.pod.queues]
    if not declaring:
        return _without_pods(job, around)
    takers = [pod for pod in declaring if not pod.draining]
    if not takers:
        return Explanation(
            reason=Reason.ONLY_DRAINING_PODS,
            text=f"every pod that serves the queue is shutting down: {names_of(declaring)}",
            help=remedies.start_worker(job.queue),
        )
    with_slots = [pod for pod in takers if _grant(pod, job.queue, around) > 0]
    if not with_slots:
        return _without_slots(job, takers, around)
    able = [pod for pod in with_slots if job.kind in pod.pod.kinds]
    if not able:
        return _without_kind(job, takers, with_slots, around)
    return _by_slots(job, around, able, where="" if able == with_slots else _KNOWING)


_KNOWING = " on pods that know the kind"


def _without_pods(job: Job, around: Situation) -> Explanation:
    text = "no live pod serves the queue (FORGE_QUEUES)"
    since = None
    lost = [pod for pod in around.pods if job.queue in pod.pod.queues]
    if lost:
        last = max(lost, key=lambda pod: pod.last_beat_at)
        since = max(last.last_beat_at, job.due_at)
        text += f"; pod {name_of(last)} did until {at(last.last_beat_at)}"
    elif around.live:
        text += f"; {count(len(around.live), 'pod')} of other queues live"
    return Explanation(
        reason=Reason.NO_POD, text=text, since=since, help=remedies.start_worker(job.queue)
    )


def _without_slots(job: Job, takers: Sequence[PodState], around: Situation) -> Explanation:
    text = f"{count(len(takers), 'pod')} of the queue without a slot"
    begun = max(min(pod.started_at for pod in takers), job.due_at)
    if around.leader is None or around.leader.remaining <= ZERO:
        return Explanation(
            reason=Reason.NO_LEADER,
            text=f"{text}: no coordinator holds the leader lease",
            since=max(begun, around.now - around.leader.ended_for) if around.leader else begun,
            help=remedies.EXAMINE,
        )
    return Explanation(
        reason=Reason.NO_SLOTS,
        text=f"{text} yet: the coordinator grants them once others have given theirs back",
        since=begun,
        help=remedies.LOOK_AT_PODS,
        held_by=_holders(job, around),
    )


def _without_kind(
    job: Job, takers: Sequence[PodState], with_slots: Sequence[PodState], around: Situation
) -> Explanation:
    text = f"no pod with slots of the queue knows the kind: {names_of(with_slots)}"
    knowing = [pod for pod in takers if job.kind in pod.pod.kinds]
    if not knowing:
        return Explanation(
            reason=Reason.NO_POD_WITH_KIND,
            text=f"{text}{how_known(job.kind)}",
            help=remedies.start_worker(job.queue),
        )
    return Explanation(
        reason=Reason.NO_POD_WITH_KIND,
        text=f"{text}; within seconds the coordinator moves slots to {names_of(knowing)}, "
        "which get them as running jobs end",
        help=remedies.LOOK_AT_PODS,
        held_by=_holders(job, around),
    )


def _by_slots(job: Job, around: Situation, able: Sequence[PodState], *, where: str) -> Explanation:
    # A pod's jobs in progress include claims held ahead, so they may exceed the slots.
    granted = sum(_grant(pod, job.queue, around) for pod in able)
    used = sum(min(_held(pod, job.queue), _grant(pod, job.queue, around)) for pod in able)
    slots = f"{used} of {count(granted, 'slot')}{where} in use"
    if used < granted and all(map(_runs_all_it_may, able)):
        return Explanation(
            reason=Reason.SLOTS_BUSY,
            text="every pod with a slot runs as many jobs as it may at once (--concurrency): "
            f"{names_of(able)}; {slots}",
            help=remedies.start_worker(job.queue),
            held_by=_holders(job, around),
        )
    if used < granted:
        return Explanation(reason=Reason.READY, text=f"ready; {slots}")
    holders = _holders(job, around)
    text = f"no slot is free: {slots}"
    return Explanation(
        reason=Reason.SLOTS_BUSY,
        text=f"{text}, the longest by {holders[0]}" if holders else text,
        help=_for_more_slots(job, around, granted, where),
        held_by=holders,
    )


def _for_more_slots(job: Job, around: Situation, granted: int, where: str) -> str:
    most = around.queue.settings.max_workers if around.queue else granted
    if where or granted < most:
        return remedies.start_worker(job.queue)
    return remedies.set_max_workers(job.queue, most + 1)


def _holders(job: Job, around: Situation) -> tuple[str, ...]:
    """The holders of the queue's slots, the longest-running first. No more than a few."""
    names = {pod.pod.host_id: name_of(pod) for pod in around.pods}

    def holder(worker: WorkerState) -> str:
        pod = names.get(worker.host_id, worker.host_id)
        since = at(worker.started_at)
        return f"job {worker.job_id} ({worker.kind!r}) on pod {pod} since {since}"

    found = [worker for worker in around.workers if worker.queue == job.queue]
    found.sort(key=lambda worker: (worker.started_at, worker.job_id))
    return tuple(holder(worker) for worker in found[:_MOST_HOLDERS])


def in_progress(job: Job, around: Situation) -> Explanation:
    """How a claimed job does."""
    owner = next((pod for pod in around.pods if pod.pod.host_id == job.host_id), None)
    where = f"on pod {name_of(owner) if owner else job.host_id}"
    if owner is None or owner.lease_remaining <= ZERO:
        return _silent(job, where, around)
    if job.cancel_requested:
        return Explanation(
            reason=Reason.CANCELLING,
            text=f"asked to cancel {where}; its handler has not stopped yet",
            since=job.started_at or job.claimed_at,
        )
    if job.started_at is None:
        return Explanation(
            reason=Reason.HELD_AHEAD,
            text=f"claimed {where}, not started: waits for a worker there",
            since=job.claimed_at,
        )
    most = "" if job.max_attempts is None else f" of {job.max_attempts}"
    text = (
        f"attempt {job.attempt}{most} runs {where}, worker {job.worker_id}, "
        f"since {at(job.started_at)}"
    )
    due = job.started_at + job.timeout if job.timeout else None
    if due is not None and due < around.now:
        return Explanation(
            reason=Reason.OVERRUNNING,
            text=f"{text}, past its timeout of {job.timeout}: its handler has extended it, or does "
            "not stop",
            since=due,
        )
    return Explanation(reason=Reason.RUNNING, text=text, since=job.started_at, forecast=due)


def _silent(job: Job, where: str, around: Situation) -> Explanation:
    text = f"claimed {where}, which shows no sign of life"
    if around.live:
        return Explanation(
            reason=Reason.OWNER_SILENT,
            text=f"{text}; another pod revives it once the claim is stale",
            since=job.heartbeat_at,
        )
    return Explanation(
        reason=Reason.OWNER_SILENT,
        text=f"{text}; no live pod is there to revive it",
        since=job.heartbeat_at,
        help=remedies.start_worker(job.queue),
    )


def _runs_all_it_may(pod: PodState) -> bool:
    most = pod.pod.concurrency
    return most is not None and sum(pod.in_progress.values()) >= most


def _held(pod: PodState, queue: str) -> int:
    return pod.in_progress.get(queue, 0)


def _grant(pod: PodState, queue: str, around: Situation) -> int:
    slots = pod.slots.get(queue)
    if around.allocation is not None:
        slots = around.allocation.pods.get(pod.pod.host_id)
    return slots.grant if slots is not None else 0
