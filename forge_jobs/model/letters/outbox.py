"""Records of an outbox: jobs that a transaction wrote down for a queue on another store."""

from datetime import timedelta

from msgspec import Struct

from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import NewJob


class OutboxRecord(Struct, frozen=True, kw_only=True):
    """A job of an outbox, as people see it.

    :param number: grows from record to record. A transaction that commits late has a lower one
    :param age: how long ago the job was written down, by the clock of the database
    :param problem: why the job was set aside, "" while the job waits to be relayed
    """

    number: int
    job_id: JobId
    queue: str
    kind: str
    age: timedelta
    problem: str = ""


class OutboxJob(Struct, frozen=True, kw_only=True):
    """A record to relay.

    :param job: None when the record cannot be read, and ``problem`` says why
    """

    number: int
    age: timedelta
    job: NewJob | None
    problem: str = ""


class OutboxState(Struct, frozen=True, kw_only=True):
    """The number of records of an outbox for one destination.

    :param waiting: records to be relayed
    :param set_aside: records that the destination refuses, which wait for a person
    :param oldest: the age of the oldest record that waits. None: none waits
    """

    waiting: int
    set_aside: int
    oldest: timedelta | None
