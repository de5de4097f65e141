"""Values of the running job that a parameter gets by the annotation alone."""

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

from forge_jobs.handlers.injection.annotations import classes_of
from forge_jobs.handlers.outcomes import Dead


def _letter_of(context: Any) -> Any:
    letter = context.dead_letter
    if letter is None:
        raise Dead(
            f"job {context.job_id} of kind {context.kind!r} is no letter of a dead job: the store "
            "makes these jobs, where a queue has the setting dead_letter"
        )
    return letter


DEAD_LETTER = "forge_jobs.model.letters.DeadLetter"
"""The class whose value stands for the payload of a job."""

OF_THE_JOB: Mapping[str, Callable[[Any], Any]] = {
    "forge_jobs.handlers.context.JobContext": lambda context: context,
    "forge_jobs.clients.client.JobClient": attrgetter("client"),
    "forge_jobs.clients.blocking.SyncJobClient": attrgetter("client.sync"),
    "logging.Logger": attrgetter("log"),
    "logging.LoggerAdapter": attrgetter("log"),
    "forge_jobs.handlers.context.JobProgress": attrgetter("progress"),
    DEAD_LETTER: _letter_of,
}
"""Class, by name because a class may lie above this package -> how the context gives the value."""

OF_THE_POD = frozenset(
    ["forge_jobs.clients.client.JobClient", "forge_jobs.clients.blocking.SyncJobClient"]
)
"""The classes above whose value lives as long as a pod."""


def value_of(annotation: object) -> str | None:
    """Return the key of :data:`OF_THE_JOB` for an annotation, None for one that is not there."""
    for kind in classes_of(annotation):
        name = f"{kind.__module__}.{kind.__qualname__}"
        if name in OF_THE_JOB:
            return name
    return None


def names() -> str:
    """Return the classes for people."""
    return ", ".join(name.rpartition(".")[2] for name in OF_THE_JOB)
