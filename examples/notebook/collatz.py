"""Ten thousand jobs from a notebook or a script: a progress bar, and a CSV at the end.

python collatz.py 10000 steps.csv

Each "# %%" is a cell for editors that know them. In a notebook an event loop runs already: there
the last cell is ``await main(10_000, Path("steps.csv"))``.
"""

# %% What is done for each number
import csv
import os
import sys
from pathlib import Path

import anyio
from rich.progress import Progress

from forge_jobs import (
    HandlerRegistry,
    JobNotSuccessful,
    QueueHandle,
    QueueRuntime,
    open_storage,
)

handlers = HandlerRegistry()


@handlers.job("collatz.steps", queue="collatz", max_attempts=1)
async def count_steps(number: int) -> int:
    """Count the steps from a number down to 1: halve the even, triple the odd and add 1."""
    if number < 1:
        raise ValueError(f"{number} never gets to 1")
    steps = 0
    while number != 1:
        number = number // 2 if number % 2 == 0 else 3 * number + 1
        steps += 1
    return steps


# %% Enqueue all, wait for each, count on a bar
Row = tuple[int, int | None, str]


async def collect(handle: QueueHandle, count: int) -> list[Row]:
    """Run the numbers from 0 on as jobs. Return a row per number, with the steps or the error."""
    rows: list[Row] = []
    numbers = range(count)
    outcomes = await handle.enqueue_many(count_steps.request(number) for number in numbers)
    with Progress() as progress:
        bar = progress.add_task("Collatz", total=count)

        async def wait_for(number: int, job_id: str) -> None:
            try:
                rows.append((number, await handle.result(job_id, timeout=600), ""))
            except JobNotSuccessful as error:
                rows.append((number, None, error.message))
            progress.advance(bar)

        async with anyio.create_task_group() as waiting:
            for number, outcome in zip(numbers, outcomes, strict=True):
                waiting.start_soon(wait_for, number, outcome.job_id)
    return sorted(rows)


# %% Write the table
def write(rows: list[Row], path: Path) -> None:
    """Write a line per row, and print what was found."""
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["number", "steps", "error"])
        table.writerows(rows)
    steps, number = max((steps, number) for number, steps, _ in rows if steps is not None)
    failed = sum(1 for *_, error in rows if error)
    print(f"{len(rows)} numbers, {failed} failed; {number} takes {steps} steps")


# %% Everything together, with the workers in this process
async def main(count: int, path: Path) -> None:
    url = os.environ.get("FORGE_STORAGE_URL", "sqlite:///collatz.db")
    async with (
        await open_storage(url) as storage,
        QueueRuntime(storage, handlers).with_queues(collatz=50).start() as handle,
    ):
        write(await collect(handle, count), path)


if __name__ == "__main__":
    anyio.run(main, int(sys.argv[1]), Path(sys.argv[2]))
