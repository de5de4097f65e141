"""Letters of dead jobs, until they are forgotten."""

from collections.abc import Collection, Sequence

import msgspec

from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.letters import DEAD_LETTER_KIND, DeadOrigin, Letter, read_dead_letter
from forge_jobs.storage.letters import ERROR_BYTES, WrittenLetter, job_of
from tests.conformance.model.reference.state import ModelJob, World


def leave_letter(world: World, job: ModelJob) -> None:
    """Write the letter of a job that has just died, where its queue asks for one."""
    to = world.queues[job.queue].settings.dead_letter
    request = job.request
    if job.status is not JobStatus.DEAD or not to or request.kind == DEAD_LETTER_KIND:
        return
    origin = DeadOrigin(
        queue=job.queue,
        job_id=job.id,
        kind=request.kind,
        attempts=job.attempt,
        cause=job.cause,
        enqueued_at=job.enqueued_at,
        died_at=world.now,
        schedule=request.schedule,
        errors=job.errors,
    )
    written = WrittenLetter(
        to=to,
        token=job.token,
        origin=origin,
        payload=job.payload,
        priority=request.priority,
        tags=request.tags,
        metadata=request.metadata,
        trace=request.trace,
    )
    letter = Letter(id=str(world.new_number()), job=job_of(written))
    _check_errors(letter, job)
    world.letters.append(letter)


def _check_errors(letter: Letter, job: ModelJob) -> None:
    """Expect the newest errors in their order, as many as fit. Stores share what chooses them."""
    known = read_dead_letter(msgspec.json.decode(letter.job.metadata), letter.job.payload)
    kept = known.errors if known is not None else ()
    newest = job.errors[len(job.errors) - len(kept) :]
    assert [each.message for each in kept] == [each.message for each in newest]
    size = len(msgspec.json.encode(job.errors))
    assert len(kept) == len(job.errors) or (kept and size > ERROR_BYTES // 2)


def letters(world: World, skip: Collection[str], not_to: Collection[str]) -> list[Letter]:
    return [each for each in world.letters if each.id not in skip and each.job.queue not in not_to]


def forget(world: World, forgotten: Sequence[Letter]) -> None:
    ids = {each.job.id for each in forgotten}
    world.letters = [each for each in world.letters if each.job.id not in ids]
