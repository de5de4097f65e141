"""The locators of one call of ``enqueue``: what is known of them, and what is written."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from forge_jobs.errors import Unavailable
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import NewJob
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.scripts import item_of
from forge_jobs.storage.redis.locators.locators import mark_in, queue_in, read_sources
from forge_jobs.storage.redis.locators.moving import look_again


def has_own_id(job: NewJob) -> bool:
    """Return whether the id was made for this job alone, not chosen by a caller or a schedule."""
    return not (job.fingerprint or job.schedule)


class Ids(NamedTuple):
    """Ids of one hash of locators, and for some of them the locator that may be replaced.

    :ivar source: the hash that holds what this one lacks. '' for none
    """

    ids: list[str]
    known: dict[str, str]
    source: str

    def item(self, key: str) -> object:
        """Return the ids as ``enqueue`` takes them.

        :param key: of the hash
        """
        return item_of("enqueue", "group", key=key, **self._asdict())


class _Located(msgspec.Struct, frozen=True, array_like=True):
    """The answer of ``locate.lua``."""

    elsewhere: list[tuple[str, str]]
    marks: list[tuple[str, int]]


class Locating:
    """The locators of one call. In a cluster they are written a step before the jobs.

    A locator whose server does not answer is left for later, where the id is of our making: no
    other caller can store that id in another queue. An id of the caller's needs its locator, or two
    calls could store the job twice.
    """

    def __init__(self, db: Database, requests: Sequence[NewJob]) -> None:
        self._db = db
        self._requests = requests
        # Ids whose locator names a queue that does not have them, with that locator.
        self._known: dict[str, str] = {}
        # Of the locators that this call has written in a step before.
        self._marks: dict[str, int] = {}
        self.late: dict[JobId, str] = {}
        """Jobs whose locators were left, with their queues."""

    def by_hash(self, indexes: Iterable[int]) -> dict[str, Ids]:
        """The ids of requests by their hash."""
        found: dict[str, Ids] = {}
        places = self._db.places
        for index in indexes:
            job_id = self._requests[index].id
            key = places.of(job_id)
            if key not in found:
                found[key] = Ids([], {}, places.source(job_id))
            found[key].ids.append(job_id)
            if job_id in self._known:
                found[key].known[job_id] = self._known[job_id]
        return found

    def marks(self, indexes: Iterable[int]) -> list[int | bool]:
        """Return the locators of requests, False for one that was left."""
        return [self._marks.get(self._requests[index].id, False) for index in indexes]

    async def write(self, groups: Mapping[str, Iterable[int]]) -> list[tuple[str, str]]:
        """Write the locators of requests, in a cluster. Or answer those of ids that are, or were,
        in another queue.

        :raises Unavailable: the locator of an id of the caller's cannot be written
        """
        while True:
            seen = self._db.places.states
            elsewhere = await self._try_to_write(groups)
            if elsewhere is not None:
                return elsewhere
            await look_again(self._db, seen)

    async def _try_to_write(
        self, groups: Mapping[str, Iterable[int]]
    ) -> list[tuple[str, str]] | None:
        """None: some locators are elsewhere by now."""
        requests: defaultdict[str, list[object]] = defaultdict(list)
        left: defaultdict[str, dict[JobId, str]] = defaultdict(dict)
        mine = {one.id: one.queue for one in self._requests if has_own_id(one)}
        every = [self._requests[index].id for indexes in groups.values() for index in indexes]
        # No call has written one of our own in an old hash.
        seen = self._db.places.states
        older, unknown = await read_sources(self._db, set(every) - mine.keys(), some=True)
        if self._db.places.states != seen:
            return None
        if unknown:
            raise Unavailable(
                "a server that may know in which queues these jobs are does not answer"
            )
        before = {job_id: locator.decode() for job_id, locator in older.items()}
        for queue, indexes in groups.items():
            for key, (ids, known, _) in self.by_hash(indexes).items():
                base = key.removesuffix(":ids")
                of_ids = {job_id: before[job_id] for job_id in ids if job_id in before}
                requests[base].append(
                    item_of(
                        "locate", "request", queue=queue, wanted=ids, known=known, before=of_ids
                    )
                )
                left[base].update((JobId(job_id), queue) for job_id in ids)
        # Who waits for nothing else need not wait for a silent server either.
        is_mine = all(mine.items() >= jobs.items() for jobs in left.values())
        answers, silent = await self._db.run_some(
            "locate", requests, list[_Located], wait=not is_mine
        )
        for base, error in silent.items():
            if not mine.items() >= left[base].items():
                raise error
            self.late |= left[base]
        written = [located for answer in answers.values() for located in answer]
        self._marks.update(pair for answer in written for pair in answer.marks)
        for job_id in self._marks:
            self.late.pop(JobId(job_id), None)
        if len(written) < len(answers):
            return None
        return [pair for answer in written for pair in answer.elsewhere]

    def places(self, located: Iterable[tuple[str, str]]) -> dict[str, list[object]]:
        """Return by base of the queue that has them, or had them, the items of ``bar``. Their
        locators may be replaced from now on."""
        by_base: defaultdict[str, list[object]] = defaultdict(list)
        for job_id, locator in located:
            base = self._db.keys.queue(queue_in(locator.encode()))
            by_base[base].append(item_of("bar", "job", id=job_id, mark=mark_in(locator)))
            self._known[job_id] = locator
        return by_base
