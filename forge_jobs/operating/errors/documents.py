"""Documents of failures."""

from collections.abc import Mapping
from datetime import datetime

from forge_jobs.model.failures import ErrorGroup
from forge_jobs.model.ids import JobId


class ErrorView(ErrorGroup, frozen=True, kw_only=True):
    """A group of failures, with the newest of them whole and what became of the jobs.

    Counted below are jobs that are stored and whose newest error is of the group,
    at most 1,000 of them, the newest.

    :param newest: the job with the newest failure of the group that can be read, None for none
    :param newest_at: when that job failed so
    :param whole_message: of that failure, with all parts. "" when ``newest`` is None
    :param traceback: of that failure
    :param looked_at: how many jobs were counted
    :param more: there are more jobs than were counted
    :param statuses: status -> jobs. ``done`` are those that went well on a retry
    :param kinds: kind -> jobs
    :param pods: label or id of the pod that had the job last -> jobs
    :param pod_versions: version of these pods -> jobs, as far as the pods are known
    """

    newest: JobId | None
    newest_at: datetime | None
    whole_message: str
    traceback: str
    looked_at: int
    more: bool
    statuses: Mapping[str, int]
    kinds: Mapping[str, int]
    pods: Mapping[str, int]
    pod_versions: Mapping[str, int]
