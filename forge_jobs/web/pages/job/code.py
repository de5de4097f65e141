"""A job as code and as a command that enqueue the same."""

from datetime import timedelta
from typing import Any

from forge_jobs.durations import format_duration
from forge_jobs.model.jobs import DEFAULT_MAX_ATTEMPTS, Job
from forge_jobs.model.names import command_line


def _options(job: Job) -> dict[str, Any]:
    """Return what differs from a request of kind, payload and queue alone."""
    found: dict[str, Any] = {"queue": job.queue}
    if job.priority:
        found["priority"] = job.priority
    if job.max_attempts != DEFAULT_MAX_ATTEMPTS:
        found["max_attempts"] = job.max_attempts
    if job.timeout is not None:
        found["timeout"] = job.timeout
    if job.tags:
        found["tags"] = job.tags
    return found


def as_python(job: Job) -> str:
    """Return the request in Python. The unique key, parents and times are left out."""
    options = _options(job)
    if job.metadata:
        options["metadata"] = dict(job.metadata)
    words = [repr(job.kind), repr(job.payload)]
    for name, value in options.items():
        text = str(value.total_seconds()) if isinstance(value, timedelta) else repr(value)
        words.append(f"{name}={text}")
    return f"EnqueueRequest({', '.join(words)})"


def as_command(job: Job) -> str:
    """Return the command that enqueues the same, without metadata."""
    words = ["--payload", job.payload]
    for name, value in _options(job).items():
        if name == "tags":
            words += [part for tag in value for part in ("--tag", tag)]
            continue
        text = format_duration(value) if isinstance(value, timedelta) else str(value)
        words.append(f"--{name.replace('_', '-')}={'unlimited' if value is None else text}")
    return command_line("enqueue", job.kind, options=words)
