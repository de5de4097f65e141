"""Words of runs about themselves: progress, lines and checkpoints."""

from collections.abc import Sequence

from forge_jobs.errors import Conflict
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Claim, JobStatus
from forge_jobs.model.progress import JobState, LogLine, LogPage, Progress, ProgressNote
from tests.conformance.model.reference.state import ModelAttempt, ModelJob, World


def note_progress(world: World, notes: Sequence[ProgressNote]) -> list[bool]:
    return [_note(world, note) for note in notes]


def _note(world: World, note: ProgressNote) -> bool:
    job = world.jobs.get(note.claim.job_id)
    if job is None or not _is_last(job, note.claim):
        return False
    attempt = job.told.setdefault(note.attempt, ModelAttempt())
    if attempt.token != note.claim.token:
        # A further run counts its lines from one. The numbers of the attempt go on.
        attempt.before = attempt.number
        attempt.token, attempt.seq, attempt.progress = note.claim.token, 0, None
    for line in note.lines:
        if line.seq > attempt.seq:
            attempt.seq = line.seq
            attempt.lines.append(
                LogLine(
                    number=attempt.number,
                    at=line.at,
                    level=line.level,
                    text=line.text,
                    token=attempt.token,
                )
            )
    given = note.progress
    if given is not None:
        attempt.progress = Progress(
            current=given.current,
            total=given.total,
            message=given.message,
            attempt=note.attempt,
            at=world.now,
        )
    return True


def _is_last(job: ModelJob, claim: Claim) -> bool:
    """Return whether the claim holds the job, or has ended the last run."""
    runs = job.status is JobStatus.IN_PROGRESS
    return claim == job.claim and (runs or job.settled_token == claim.token)


def states(world: World, ids: Sequence[JobId]) -> dict[JobId, JobState]:
    return {job_id: _state(world.jobs[job_id]) for job_id in ids if job_id in world.jobs}


def _state(job: ModelJob) -> JobState:
    told = [each.progress for each in job.told.values() if each.token == job.token]
    return JobState(
        id=job.id,
        queue=job.queue,
        kind=job.request.kind,
        status=job.status,
        cause=job.cause,
        attempt=job.attempt,
        token=job.token,
        progress=told[0] if told else None,
    )


def job_log(world: World, job_id: JobId, attempt: int | None, after: int, limit: int) -> LogPage:
    job = world.jobs.get(job_id)
    told = {} if job is None else {n: each for n, each in job.told.items() if each.lines}
    attempts = tuple(sorted(told, key=lambda number: (told[number].token, number)))
    wanted = attempt if attempt is not None else attempts[-1] if attempts else 0
    lines = told[wanted].lines if wanted in told else []
    found = [line for line in lines if line.number > after]
    return LogPage(attempt=wanted, lines=tuple(found[:limit]), attempts=attempts)


def save_checkpoint(world: World, claim: Claim, text: str) -> bool:
    job = world.jobs.get(claim.job_id)
    if job is None or not job.is_current(claim):
        return False
    job.checkpoint = text
    return True


def checkpoint(world: World, job_id: JobId) -> str | None:
    job = world.jobs.get(job_id)
    return None if job is None else job.checkpoint


def first_time(world: World, claim: Claim, step: str) -> bool:
    job = world.jobs.get(claim.job_id)
    if job is None or not job.is_current(claim):
        raise Conflict(f"the claim of job {claim.job_id} was lost")
    is_first = step not in job.steps
    job.steps |= {step}
    return is_first
