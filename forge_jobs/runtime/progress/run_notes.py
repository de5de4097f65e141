"""Progress and lines of one run: kept in memory until the store has taken them."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime

from msgspec import structs

from forge_jobs.model.jobs import ClaimedJob
from forge_jobs.model.progress import (
    BYTES_KEPT,
    LINE_BYTES,
    LINES_KEPT,
    MESSAGE_BYTES,
    NewLine,
    NewProgress,
    ProgressNote,
)
from forge_jobs.privacy.secrets import without
from forge_jobs.runtime.shared.clean_texts import clean_text


class RunNotes:
    """The progress and the lines of one run that are not stored yet. Any thread may add.

    Holds at most what a store keeps of an attempt. Beyond that the oldest lines are dropped, and
    the gap in their count says how many.

    :param changed: called with this object when there is something to store after a time without.
        Callable from any thread
    :param secrets: texts of the payload that no person may read
    :ivar secrets: those texts
    """

    def __init__(
        self,
        job: ClaimedJob,
        changed: Callable[["RunNotes"], None],
        secrets: Sequence[str] = (),
    ) -> None:
        self.claim = job.claim
        self._attempt = job.attempt
        self._changed = changed
        self.secrets = secrets
        self._lock = threading.Lock()
        self._progress: NewProgress | None = None
        self._lines: deque[tuple[int, NewLine]] = deque()
        self._bytes = 0
        self._seq = 0
        self._is_waiting = False
        self._is_over = False

    def set_progress(self, progress: NewProgress) -> None:
        """Replace the progress."""
        progress = structs.replace(progress, message=self._cleaned(progress.message, MESSAGE_BYTES))
        with self._lock:
            if self._is_over:
                return
            self._progress = progress
            is_first, self._is_waiting = not self._is_waiting, True
        if is_first:
            self._changed(self)

    def add_line(self, at: datetime, level: int, text: str) -> None:
        """Add a line."""
        text = self._cleaned(text, LINE_BYTES)
        size = len(text.encode())
        with self._lock:
            if self._is_over:
                return
            self._seq += 1
            self._lines.append((size, NewLine(self._seq, at, level, text)))
            self._bytes += size
            while self._bytes > BYTES_KEPT or len(self._lines) > LINES_KEPT:
                self._bytes -= self._lines.popleft()[0]
            is_first, self._is_waiting = not self._is_waiting, True
        if is_first:
            self._changed(self)

    def _cleaned(self, text: str, most: int) -> str:
        return clean_text(without(text, self.secrets), most)

    def size(self) -> int:
        """Return about how many bytes the next note has."""
        return self._bytes + 32 * len(self._lines)

    def note(self) -> ProgressNote:
        """Return what is not stored yet, and keep that until :meth:`stored`."""
        with self._lock:
            return ProgressNote(
                claim=self.claim,
                attempt=self._attempt,
                progress=self._progress,
                lines=tuple(line for _, line in self._lines),
            )

    def stored(self, note: ProgressNote) -> bool:
        """Drop what the store has taken. Return whether more has come since."""
        with self._lock:
            if self._progress is note.progress:
                self._progress = None
            last = note.lines[-1].seq if note.lines else 0
            while self._lines and self._lines[0][1].seq <= last:
                self._bytes -= self._lines.popleft()[0]
            self._is_waiting = self._progress is not None or bool(self._lines)
            return self._is_waiting

    def end(self) -> None:
        """Keep nothing any more: the store refuses what this run tells."""
        with self._lock:
            self._is_over = True
            self._is_waiting = False
            self._progress = None
            self._lines.clear()
            self._bytes = 0
