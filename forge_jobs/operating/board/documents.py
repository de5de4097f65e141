"""The document of the board."""

from datetime import datetime, timedelta

from msgspec import Struct

from forge_jobs.model.ids import JobId
from forge_jobs.model.progress import Progress
from forge_jobs.operating.health.documents import PodView


class QueueLine(Struct, frozen=True, kw_only=True):
    """A queue in a line.

    :param running: jobs in work
    :param granted: slots of all pods
    :param due: jobs that could run now
    :param standing: how the queue stands, in words
    """

    name: str
    running: int
    granted: int
    max_workers: int
    due: int
    oldest_due_for: timedelta | None
    dead: int
    paused: bool
    standing: str


class Run(Struct, frozen=True, kw_only=True):
    """A job in work.

    :param pod: the label of the pod, or the id
    :param attempt: 0 when the job was not found any more
    """

    job_id: JobId
    queue: str
    kind: str
    pod: str
    started_at: datetime
    running_for: timedelta
    cancel_requested: bool
    attempt: int
    progress: Progress | None


class Board(Struct, frozen=True, kw_only=True):
    """Queues, pods and running jobs of this moment.

    :param store: the name of the backend
    :param at: by the store's clock
    :param runs: the longest first
    :param more_runs: jobs in work that are left out
    """

    store: str
    at: datetime
    queues: tuple[QueueLine, ...]
    pods: tuple[PodView, ...]
    runs: tuple[Run, ...]
    more_runs: int
