"""Seeded jobs: when a job that must exist at any time counts as lost."""

from datetime import timedelta

from forge_jobs.model.jobs import Cause, JobStatus

REVIVED_AFTER = timedelta(minutes=1)
"""How long a seeded job stays dead at least, before the job gets all its attempts again."""

_MEANT = frozenset({Cause.REJECTED, Cause.CRASHED})
"""Dead jobs with these causes stay dead: the handler said ``Dead``, or the job has crashed too
often and may kill the next process too."""


def is_lost(status: JobStatus, cause: Cause, ended_for: timedelta) -> bool:
    """Return whether a seeded job must be requeued.

    A job that is done or cancelled has stopped: the handler or an operator meant that.

    :param ended_for: how long ago the job ended
    """
    return status is JobStatus.DEAD and cause not in _MEANT and ended_for >= REVIVED_AFTER
