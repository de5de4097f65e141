"""Judges what an outbox brings by the strikes of the destination, before the jobs are stored."""

from collections.abc import Sequence

import msgspec
from msgspec import structs

from forge_jobs.clients.strikes import READ_EVERY, are_struck
from forge_jobs.clock import Clock
from forge_jobs.errors import CONCERNS_ALL, StorageError, StorageRefused, Unavailable
from forge_jobs.model.jobs import NewJob
from forge_jobs.model.strikes import struck_by
from forge_jobs.policy.strikes import Judge
from forge_jobs.privacy.encryption import Encryption, Part, decrypted
from forge_jobs.privacy.secrets import ORIGIN
from forge_jobs.reports import reporter
from forge_jobs.storage.protocols import Storage

logger = reporter(__name__)


class OutboxJudge:
    """Gives the jobs of an outbox the fate that a strike of the destination has for them.

    Reads the strikes every 10 seconds at most, and once more before a job is held or cancelled: by
    what the store says now, never by a strike that has been lifted.

    :param there: the destination
    :param encryption: of the outbox, so that encrypted payloads are judged in plain text
    """

    def __init__(self, there: Storage, encryption: Encryption | None, clock: Clock) -> None:
        self._there = there
        self._encryption = encryption
        self._clock = clock
        self._known = Judge()
        self._due_at: float | None = None

    async def judged(self, jobs: Sequence[NewJob]) -> Sequence[NewJob]:
        """Return the jobs with their fates. Jobs that wait for others and the like are left to
        pods, as of :class:`Struck`.

        :raises StorageError: the destination is away
        """
        if self._due_at is None or self._clock.elapsed() >= self._due_at:
            await self._read()
        if not self._known:
            return jobs
        found = [self._judged(job) for job in jobs]
        if not are_struck(found):
            return jobs
        await self._read()
        return [self._judged(job) for job in jobs]

    async def _read(self) -> None:
        try:
            self._known = Judge(await self._there.config.strikes())
        except StorageError as error:
            is_away = isinstance(error, CONCERNS_ALL) and not isinstance(error, StorageRefused)
            if is_away and not (self._there.is_parted and isinstance(error, Unavailable)):
                raise
            # This role may not read of strikes, or the part with these is silent, and others take
            # jobs. Pods judge them.
            logger.debug("the strikes of the destination cannot be read: %s", error)
            self._known = Judge()
        self._due_at = self._clock.elapsed() + READ_EVERY.total_seconds()

    def _judged(self, job: NewJob) -> NewJob:
        strike = self._known.verdict(job.kind, lambda: self._payload(job))
        return job if strike is None else structs.replace(job, struck=struck_by(strike))

    def _payload(self, job: NewJob) -> str:
        metadata = msgspec.json.decode(job.metadata, type=dict[str, str])
        return decrypted(
            self._encryption,
            job.payload,
            job_id=job.id,
            kind=job.kind,
            part=Part.PAYLOAD,
            origin=metadata.get(ORIGIN, ""),
        )
