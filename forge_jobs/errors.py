"""All exceptions of forge_jobs, except the outcomes that a handler raises.

::

    ForgeJobsError
    ├── StorageError              the store refused or failed. Never carries driver text
    │   ├── InvalidInput          a value is wrong. Names the field, the problem and the fix
    │   ├── Conflict              the value is fine, but contradicts what is stored
    │   ├── NotFound              no such job, queue, schedule or rate-limit scope
    │   ├── Unavailable           the store cannot be reached or is busy. Repeating may help
    │   │   ├── PartlyUnavailable of some of what was asked for nothing is known
    │   │   ├── Locked            an open transaction holds what this call needs
    │   │   └── StorageRefused    a login, a right or a table is missing, or an unknown error
    │   ├── SchemaMismatch        the store's schema is older or newer than this program
    │   └── StorageClosed         this program has closed the storage
    ├── ConfigError               settings, environment or a settings file are wrong
    ├── RegistrationError         a handler cannot be registered as written
    ├── LifespanFailed            the lifespan of a registry raised, so the worker does not start
    ├── UndecodablePayload        a stored payload does not fit the handler's annotations
    ├── KeyMissing                a payload or result is encrypted with a key that is not at hand
    ├── DecryptionFailed          an encrypted payload or result was changed, or moved
    ├── Forbidden                 an operator lacks the right for what was asked
    ├── WrongEventLoop            an asynchronous object is used in a second event loop
    ├── ResultTimeout             the job had not ended when the caller stopped waiting
    └── JobNotSuccessful          the awaited job ended without a result
        ├── JobDead               the job gave up. Carries the last error and remote traceback
        └── JobCancelled          the job was cancelled, or expired before a run

``RateLimited``, ``Throttled``, ``Snoozed``, ``Failed`` and ``Dead`` are outcomes, not errors: a
handler raises or returns them (:mod:`forge_jobs.handlers.outcomes`).
"""

from collections.abc import Iterable, Mapping
from typing import Any


def a_type(value: object) -> str:
    """Name the type of a wrong value, with the article that suits the name."""
    name = type(value).__name__
    return f"an {name}" if name[:1] in "AEIOUaeiou" else f"a {name}"


class ForgeJobsError(Exception):
    """Base of the classes above: ``except ForgeJobsError`` catches all of them."""


class StorageError(ForgeJobsError):
    """The store could not do what was asked. Nothing of the call was applied.

    The one exception to "nothing was applied" is :class:`Unavailable`.
    """


class InvalidInput(StorageError, ValueError):
    """A value that no store accepts.

    :param field: the name of the parameter or option, as the caller wrote the name
    :param problem: what is wrong with the value
    :param fix: what would be accepted
    """

    def __init__(self, field: str, problem: str, fix: str) -> None:
        super().__init__(field, problem, fix)
        self.field = field
        self.problem = problem
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.field}: {self.problem}; {self.fix}"


class Conflict(StorageError):
    """The request contradicts what is stored, for example an id used for another job."""


class NotFound(StorageError, LookupError):
    """The store has no record that the caller named."""


class Unavailable(StorageError):
    """The store cannot be reached, is starting, is full, or stayed locked too long.

    The outcome of the call is unknown: the store may have applied the call although no answer
    came. Every method of the storage protocols can be repeated afterwards.
    """


class PartlyUnavailable(Unavailable):
    """A part of the store does not answer a call that reads things by name, while others do.

    :param found: what the others have answered, by id
    :param unknown: the ids of which nothing is known
    """

    def __init__(
        self, message: str, found: Mapping[Any, Any] | None = None, unknown: Iterable[str] = ()
    ) -> None:
        super().__init__(message)
        self.found = found or {}
        self.unknown = frozenset(unknown)


class Locked(Unavailable):
    """An open transaction holds a record or key that the call needs, a unique key for example.

    Nothing of the call was applied. The call may go well as soon as that transaction has ended.
    Calls that do not need the record go well now.
    """


class StorageRefused(Unavailable):
    """The store answers, and refuses, for a reason that no value of the call explains.

    A login, a right or a table is missing, or the error is an unknown one. Nothing of the call
    was applied. Once an operator has removed the cause, the same call goes well. Such an error
    alone does not tell whether all calls are concerned or a single item of this one: a trigger
    that raises for one row looks like a missing right. So calls of many items are bisected, and
    the opening of a store and the start of a worker do not wait for an end of such errors.
    """


class SchemaMismatch(StorageError):
    """The schema in the store is not one this program can work with. The text names the fix."""


class StorageClosed(StorageError):
    """This program has closed the storage: all later calls fail."""


CONCERNS_ALL = (Unavailable, SchemaMismatch, StorageClosed)
"""Errors that do not depend on the items: splitting the batch cannot help. But see
:class:`Locked` and :class:`StorageRefused`."""

OF_VALUES = (InvalidInput, Conflict, NotFound)
"""Errors of the item itself: sent again, the item would be refused again."""


class ConfigError(ForgeJobsError, ValueError):
    """A setting is wrong, or two settings contradict each other."""


class RegistrationError(ForgeJobsError, TypeError):
    """A handler cannot be registered: bad signature, or the kind belongs to another handler."""


class LifespanFailed(ForgeJobsError):
    """A lifespan of the registry raised at the start of a worker. The cause is chained."""


class UndecodablePayload(ForgeJobsError, ValueError):
    """A stored payload does not fit the handler's annotations: that job's failure alone.

    :param field: the path of the offending part, as ``sync_issue.items[0].quantity``
    :param problem: what is wrong with that part
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(field, problem)
        self.field = field
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.field}: {self.problem}"


class KeyMissing(ForgeJobsError):
    """A payload, checkpoint or result is encrypted with a key that this program does not have.

    A handler whose own job is meant lets the exception out: the job then waits for a pod that has
    the key, and no attempt is used.

    :param job_id: whose text that is
    :param key_name: the start of the SHA-256 of the key, "" when even that cannot be read
    """

    def __init__(self, job_id: str, part: str, key_name: str) -> None:
        super().__init__(job_id, part, key_name)
        self.job_id = job_id
        self.key_name = key_name

    def __str__(self) -> str:
        job_id, part, _ = self.args
        return (
            f"the {part} of job {job_id} is encrypted with key {self.key_name or '(unreadable)'}, "
            "which is not at hand; give it in Encryption([...])"
        )


class DecryptionFailed(ForgeJobsError):
    """An encrypted payload or result was changed after it was written, or is another job's."""


class Forbidden(ForgeJobsError):
    """An operator lacks a right. Nothing was read or changed.

    :param actor: the name of who asked
    :param right: the missing right: ``read``, ``actions``, ``queues`` or ``payloads``
    :param action: the name of the operation that is not among the actions. "" for other rights
    """

    def __init__(self, actor: str, right: str, action: str = "") -> None:
        super().__init__(actor, right, action)
        self.actor = actor
        self.right = right
        self.action = action

    def __str__(self) -> str:
        return (
            f"{self.actor} lacks the right {self.right!r} for {self.action or 'this'}; ask for "
            f"an Access with {self.right}"
        )


class WrongEventLoop(ForgeJobsError, RuntimeError):
    """An asynchronous client, or what belongs to one, is used in a second event loop."""


class ResultTimeout(ForgeJobsError, TimeoutError):
    """The job had not reached a terminal state in the time the caller was willing to wait."""


class SlowWatcher(ForgeJobsError):
    """So many changes of a watched queue waited to be read that the watch was given up."""


class JobNotSuccessful(ForgeJobsError):
    """The job a caller waited for ended without success.

    :param job_id: the job
    :param message: why the job ended
    :param remote_traceback: the traceback text of the last error, empty without one
    """

    def __init__(self, job_id: str, message: str, remote_traceback: str = "") -> None:
        super().__init__(job_id, message, remote_traceback)
        self.job_id = job_id
        self.message = message
        self.remote_traceback = remote_traceback

    def __str__(self) -> str:
        text = f"job {self.job_id}: {self.message}"
        return f"{text}\n\n{self.remote_traceback}" if self.remote_traceback else text


class JobDead(JobNotSuccessful):
    """The job gave up: the attempts are used up, or the handler said so."""


class JobCancelled(JobNotSuccessful):
    """The job was cancelled, or expired before a run."""
