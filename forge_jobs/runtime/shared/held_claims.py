"""What this pod holds, as the heartbeat thread sees it."""

import threading
from collections.abc import Iterable

from forge_jobs.model.jobs import Claim
from forge_jobs.model.processes import HeldClaim


class HeldClaims:
    """Claims from their arrival until the store has answered for their end.

    A claim whose end waits to be stored is still listed, so that nobody revives its job
    meanwhile. Claims come and go on the event loop; reading is allowed from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._workers: dict[Claim, str] = {}

    def add(self, claims: Iterable[Claim]) -> None:
        """Hold claims that no handler runs yet."""
        with self._lock:
            for claim in claims:
                self._workers[claim] = ""

    def start(self, claim: Claim, worker_id: str) -> None:
        """Note that a handler runs."""
        # Without the lock: it moves nothing in the dict, and is done for every job.
        if claim in self._workers:
            self._workers[claim] = worker_id

    def remove(self, claims: Iterable[Claim]) -> None:
        """Hold claims no longer; unknown ones are passed over."""
        with self._lock:
            for claim in claims:
                self._workers.pop(claim, None)

    def any_started(self) -> bool:
        """A handler runs, or its end waits to be stored."""
        with self._lock:
            return any(self._workers.values())

    def snapshot(self) -> list[HeldClaim]:
        """All claims as a beat reports them."""
        with self._lock:
            return [HeldClaim(claim, worker) for claim, worker in self._workers.items()]

    def __contains__(self, claim: object) -> bool:
        return claim in self._workers

    def __len__(self) -> int:
        return len(self._workers)
