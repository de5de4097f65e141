"""Identifiers. All are ULIDs: 26 characters that sort by creation time.

Within one process ids strictly increase, also when the wall clock steps back and also after
a fork. Between processes their order within one millisecond is random.
"""

import hashlib
import os
import secrets
import threading
import time
from typing import NewType

from ulid import ULID, base32

from forge_jobs.errors import InvalidInput, a_type

JobId = NewType("JobId", str)
HostId = NewType("HostId", str)
WorkerId = NewType("WorkerId", str)

_CROCKFORD = frozenset(base32.ENCODE)
_ULID_LENGTH = 26
_RANDOM_BITS = 80
_LAST_MOMENT = 2**48 - 1
_PAIRS = [high + low for high in base32.ENCODE for low in base32.ENCODE]


class _Ids:
    """A strictly increasing sequence of ULIDs: a random one per millisecond, then the next
    number for each further id.

    Not python-ulid's generator, whose order a second thread or a clock that steps back breaks.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest = 0
        self._head, self._head_text = -1, ""

    def next(self) -> str:
        with self._lock:
            first = time.time_ns() // 1_000_000 << _RANDOM_BITS
            if first > self._latest:
                value = first | secrets.randbits(_RANDOM_BITS)
            else:
                # The same millisecond, or the wall clock has stepped back.
                value = self._latest + 1
            self._latest = value
            head = value >> 10
            if head != self._head:
                # All but two characters, which ids of one millisecond share.
                self._head, self._head_text = head, base32.encode(value.to_bytes(16))[:-2]
            return self._head_text + _PAIRS[value & 1023]


_ids = _Ids()


def _reseed_after_fork() -> None:
    # A child that kept the parent's generator would hand out the parent's next ids.
    global _ids  # noqa: PLW0603 - module state is the point: one order per process
    _ids = _Ids()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reseed_after_fork)


def new_job_id() -> JobId:
    """A fresh job id, greater than every one this process has made."""
    return JobId(_ids.next())


def new_host_id() -> HostId:
    """A fresh pod id. One per boot of a runtime, never a host name."""
    return HostId(_ids.next())


def new_worker_id() -> WorkerId:
    """A fresh worker id. One per incarnation of a worker, never reused."""
    return WorkerId(_ids.next())


def occurrence_job_id(schedule: str, occurrence_us: int) -> JobId:
    """The id of the job that ``schedule`` enqueues for one occurrence, always the same.

    Two coordinators that fire the same occurrence make the same id, so the store keeps one.

    :param occurrence_us: the occurrence, in microseconds since the epoch, not negative
    """
    seed = f"{schedule}\n{occurrence_us}".encode()
    randomness = hashlib.blake2b(seed, digest_size=10, person=b"forge-jobs-cron").digest()
    return JobId(str(ULID((occurrence_us // 1000).to_bytes(6, "big") + randomness)))


def letter_job_id(queue: str, job_id: str, token: int, died_us: int) -> JobId:
    """The id of the job that carries the letter of one end of a job, always the same.

    :param token: of the claim that has ended so
    :param died_us: when, in microseconds since the epoch
    """
    seed = f"{queue}\n{job_id}\n{token}".encode()
    randomness = hashlib.blake2b(seed, digest_size=10, person=b"forge-jobs-dead").digest()
    moment = min(max(died_us // 1000, 0), _LAST_MOMENT)
    return JobId(str(ULID(moment.to_bytes(6, "big") + randomness)))


_SEEDED = "0000000001"
"""The time of ids of seeded jobs: a millisecond after 1970, before every id of another sort."""


def seed_job_id(kind: str) -> JobId:
    """The id of the job that is seeded for a handler of ``kind``, always the same."""
    randomness = hashlib.blake2b(kind.encode(), digest_size=10, person=b"forge-jobs-seed").digest()
    return JobId(str(ULID((1).to_bytes(6, "big") + randomness)))


def is_seed_id(job_id: str) -> bool:
    """True for the id of a seeded job, whose record no retention removes."""
    return job_id.startswith(_SEEDED)


def check_job_id(value: str, field: str = "id") -> JobId:
    """``value`` as a job id, in upper case.

    :raises InvalidInput: the value is not a ULID
    """
    if not isinstance(value, str):
        fix = "give an id, as the job_id of an outcome, or the id of a group or workflow"
        raise InvalidInput(field, f"is {a_type(value)}", fix)
    upper = value.upper()
    # The first character carries three bits only: 128 bits in 26 characters of five.
    if len(upper) != _ULID_LENGTH or not _CROCKFORD.issuperset(upper) or upper[0] > "7":
        raise InvalidInput(field, "is not a ULID", "give 26 characters, as str(ulid.ULID()) does")
    return JobId(upper)
