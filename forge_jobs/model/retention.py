"""What a pass of retention has done, batch by batch."""

from collections.abc import Mapping
from datetime import timedelta

from msgspec import Struct

from forge_jobs.model.ids import JobId

EVENTS_KEPT = timedelta(days=7)
"""How long timeline events stay where nothing else is said."""


class Cleaned(Struct, frozen=True, kw_only=True):
    """One batch of a pass.

    :param removed: rows that went
    :param rest: what the pass has still to do, for the next call; None: it has ended
    :param held: jobs that the database refuses to remove, for a foreign key of the user's for
        example, and what refuses it
    """

    removed: int
    rest: object | None = None
    held: Mapping[JobId, str] = {}
