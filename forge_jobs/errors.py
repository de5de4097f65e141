"""Every exception forge_jobs raises, except the outcomes a handler raises itself.

::

    ForgeJobsError
    ├── StorageError              the store refused or failed; never carries driver text
    │   ├── InvalidInput          a value is wrong; names the field, the problem and the fix
    │   ├── Conflict              the value is fine, but contradicts what is stored
    │   ├── NotFound              no such job, queue, schedule or rate-limit scope
    │   ├── Unavailable           the store cannot be reached or is busy; repeating may help
    │   │   ├── PartlyUnavailable of some of what was asked for nothing is known
    │   │   ├── Locked            somebody's open transaction holds what this call needs
    │   │   └── StorageRefused    a login, a right, a table, or what nobody has named yet
    │   ├── SchemaMismatch        the store's schema is older or newer than this program
    │   └── StorageClosed         this program has closed the storage
    ├── ConfigError               settings, environment or a settings file are wrong
    ├── RegistrationError         a handler cannot be registered as written
    ├── UndecodablePayload        a stored payload does not fit its handler's annotations
    ├── WrongEventLoop            an asynchronous object is used in a second event loop
    ├── ResultTimeout             the job had not ended when the caller stopped waiting
    └── JobNotSuccessful          the awaited job ended without a result
        ├── JobDead               it gave up; carries its last error and remote traceback
        └── JobCancelled          it was cancelled, or expired before it ran

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
    """Base of everything above: ``except ForgeJobsError`` catches all of it."""


class StorageError(ForgeJobsError):
    """The store could not do what was asked. Nothing of the call was applied.

    The one exception to "nothing was applied" is :class:`Unavailable`.
    """


class InvalidInput(StorageError, ValueError):
    """A value that no store accepts.

    :param field: the name of the parameter or option, as the caller wrote it
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
    """What the caller named does not exist in the store."""


class Unavailable(StorageError):
    """The store cannot be reached, is starting, is full, or stayed locked too long.

    The outcome of the call is unknown: it may have been applied although no answer came.
    Every method of the storage protocols can be repeated after it.
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
    """Somebody's open transaction holds what the call needs, a unique key for example.

    Nothing of the call was applied. It may go well as soon as that transaction has ended; calls
    that need something else go well now.
    """


class StorageRefused(Unavailable):
    """The store answers, and refuses, for a reason that no value of the call explains.

    A login or a right is missing, a table, or it is an error that nobody has named. Nothing of the
    call was applied. Somebody has to mend it; the very same call goes well then. Nobody can tell
    from such an error alone whether it befalls every call or a single item of this one: a trigger
    that raises for one row looks like a right that is missing. So calls of many items are looked
    into, and what opens a store or starts a worker does not wait for it.
    """


class SchemaMismatch(StorageError):
    """The schema in the store is not one this program can work with; the text names the fix."""


class StorageClosed(StorageError):
    """This program has closed the storage: no call of it can go well any more."""


CONCERNS_ALL = (Unavailable, SchemaMismatch, StorageClosed)
"""Errors that do not depend on the items: splitting the batch cannot help. But see
:class:`Locked` and :class:`StorageRefused`."""

OF_VALUES = (InvalidInput, Conflict, NotFound)
"""What lies in the item itself: sent again, it would be refused again."""


class ConfigError(ForgeJobsError, ValueError):
    """A setting is wrong, or two settings contradict each other."""


class RegistrationError(ForgeJobsError, TypeError):
    """A handler cannot be registered: bad signature, or its kind belongs to another one."""


class UndecodablePayload(ForgeJobsError, ValueError):
    """A stored payload does not fit its handler's annotations: that job's failure alone.

    :param field: the path of the offending part, as ``sync_issue.items[0].quantity``
    :param problem: what is wrong with it
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(field, problem)
        self.field = field
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.field}: {self.problem}"


class WrongEventLoop(ForgeJobsError, RuntimeError):
    """An asynchronous client, or what belongs to one, is used in a second event loop."""


class ResultTimeout(ForgeJobsError, TimeoutError):
    """The job had not reached a terminal state in the time the caller was willing to wait."""


class JobNotSuccessful(ForgeJobsError):
    """The job a caller waited for ended without success.

    :param job_id: the job
    :param message: why it ended
    :param remote_traceback: the traceback text of its last error, empty when there was none
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
    """The job gave up: its attempts are used up, or the handler said so."""


class JobCancelled(JobNotSuccessful):
    """The job was cancelled, or expired before it ran."""
