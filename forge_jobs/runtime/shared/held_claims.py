"""The claims of this pod, as the heartbeat thread sees them."""

import threading
from collections.abc import Iterable

from forge_jobs.model.jobs import Claim
from forge_jobs.model.processes import HeldClaim


class HeldClaims:
    """Holds claims from their arrival until the store has answered for their end.

    A claim whose end waits to be stored is still listed, so that no reaper revives the job
    meanwhile. Claims come and go on the event loop. Reading is allowed from any thread.
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
        # Without the lock: the dict keeps its size, and this runs for every job.
        if claim in self._workers:
            self._workers[claim] = worker_id

    def remove(self, claims: Iterable[Claim]) -> None:
        """Drop claims. Unknown claims are passed over."""
        with self._lock:
            for claim in claims:
                self._workers.pop(claim, None)

    def any_started(self) -> bool:
        """Return whether a handler runs, or the end of one waits to be stored."""
        with self._lock:
            return any(self._workers.values())

    def snapshot(self) -> list[HeldClaim]:
        """Return all claims as a beat reports them."""
        with self._lock:
            return [HeldClaim(claim, worker) for claim, worker in self._workers.items()]

    def __contains__(self, claim: object) -> bool:
        return claim in self._workers

    def __len__(self) -> int:
        return len(self._workers)
