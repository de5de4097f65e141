"""The result of a stop."""

from msgspec import Struct

from forge_jobs.model.ids import JobId


class StopReport(Struct, frozen=True, kw_only=True):
    """The result of a stop.

    :param interrupted: jobs whose handlers were stopped and whose attempts were handed back
    :param abandoned: jobs whose handlers have not ended: threads, and coroutines that swallow their
        cancellation
    :param unstored: claims whose end the store has not taken. Their jobs are revived as crashed
    :param left: the pod is unregistered
    """

    interrupted: tuple[JobId, ...] = ()
    abandoned: tuple[JobId, ...] = ()
    unstored: tuple[JobId, ...] = ()
    left: bool = True

    @property
    def is_clean(self) -> bool:
        """Return whether nothing of the pod is left in the store."""
        return self.left and not self.unstored

    @property
    def exit_code(self) -> int:
        """Return the exit code of a process that ends with the pod: 1 when something is left."""
        return 0 if self.is_clean else 1
