"""The last call of a process that ends: its claims become others'."""

from collections.abc import Awaitable, Callable

from forge_jobs.model.jobs import Claim
from forge_jobs.storage.protocols import JobStore


async def release_all(
    jobs: JobStore, left: list[Claim], pause: Callable[[], Awaitable[object]]
) -> None:
    """Release the claims; those whose rows somebody's transaction holds again and again.

    :param left: those still to be released; shortened as they are
    """
    while left:
        answers = await jobs.release(left)
        left[:] = [claim for claim, answer in zip(left, answers, strict=True) if answer is None]
        if left:
            await pause()
