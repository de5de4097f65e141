"""How large a call may be."""

from collections.abc import Sequence

from forge_jobs.errors import InvalidInput
from forge_jobs.model.jobs import NewJob

MAX_BATCH_BYTES = 256 * 1024 * 1024
"""Bytes of all requests of one call: half of what Redis takes in one piece, a quarter of what
PostgreSQL does. A server that is sent more ends the connection, which looks like an outage."""

_NEVER_TOO_MANY = 100
"""So many requests always fit: one takes far less than a hundredth of the limit."""

_BYTES_OF_A_CHARACTER = 4


def check_batch(requests: Sequence[NewJob]) -> None:
    """Refuse a batch that no server would take, before sending the batch.

    :raises InvalidInput: the text says how large the batch is, and how large it may be
    """
    if len(requests) <= _NEVER_TOO_MANY:
        return
    characters = sum(len(one.payload) + len(one.metadata) + len(one.trace) for one in requests)
    if characters * _BYTES_OF_A_CHARACTER <= MAX_BATCH_BYTES:
        return
    size = sum(
        len(text.encode()) for one in requests for text in (one.payload, one.metadata, one.trace)
    )
    if size > MAX_BATCH_BYTES:
        raise InvalidInput(
            "requests",
            f"take {size:,} bytes together",
            f"give at most {MAX_BATCH_BYTES:,} in one call, so several calls of fewer jobs, or "
            "store large payloads elsewhere and pass references",
        )
