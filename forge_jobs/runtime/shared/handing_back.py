"""The last call of a process that ends: release its claims to other pods."""

from collections.abc import Awaitable, Callable

from forge_jobs.model.jobs import Claim
from forge_jobs.storage.protocols import JobStore


async def release_all(
    jobs: JobStore, left: list[Claim], pause: Callable[[], Awaitable[object]]
) -> None:
    """Release the claims, again and again while other transactions hold their rows.

    :param left: claims still to be released. Released claims are removed from the list
    """
    while left:
        answers = await jobs.release(left)
        left[:] = [claim for claim, answer in zip(left, answers, strict=True) if answer is None]
        if left:
            await pause()
