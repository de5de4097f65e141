"""The work of SQLite's machine, which does not depend on how busy the processor is."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from forge_jobs.storage.sql.sqlite.statements import SqliteTx
from tests.support.asked import handed_to_the_driver


@contextmanager
def steps_of_sqlite() -> Iterator[list[int]]:
    """Hundreds of steps that statements on jobs take in SQLite's machine."""
    steps = [0]

    def count() -> int:
        steps[0] += 1
        return 0

    def note(statements: SqliteTx, _statement: Any, _values: Any) -> None:
        statements.raw.set_progress_handler(count, 100)

    with handed_to_the_driver(note):
        yield steps
