"""The fates of requests, with and without unique keys, in the words of ``meeting.lua``."""

from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import EnqueueOutcome

NEW = frozenset({"new", "new+"})
"""A job is stored. The ``+`` says that the job waits as a follow-up."""

WRITING = NEW | {"replaced", "replaced+", "duplicate"}
"""A job is stored or changed, or an expired holder of a key may have to end."""


def outcome_of(word: str, job_id: str) -> EnqueueOutcome:
    """Return what a word, and the job that the request stands for, say to the caller."""
    what, follow_up, _ = word.partition("+")
    return EnqueueOutcome(JobId(job_id), what == "duplicate", what == "replaced", follow_up == "+")
