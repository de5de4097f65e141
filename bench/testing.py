"""How long a test of a handler takes with the kit: ``python -m bench.testing [--storage URL]``."""

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable

from forge_jobs import HandlerRegistry
from forge_jobs.testing import Kit
from forge_jobs.testing.kit.fixtures import lend

_TESTS = 100

handlers = HandlerRegistry()


@handlers.job("bench.async")
async def double(number: int) -> int:
    """Return twice the number."""
    return 2 * number


@handlers.job("bench.def")
def triple(number: int) -> int:
    """Return three times the number."""
    return 3 * number


def inline(kit: Kit) -> None:
    """Run a handler once, on a new event loop."""
    assert asyncio.run(kit.run_inline(double, 2)) == 4


def inline_without_a_loop(kit: Kit) -> None:
    """Run a plain function once, on this thread."""
    assert kit.sync.run_inline(triple, 2) == 6


def enqueue_and_assert(kit: Kit) -> None:
    """Enqueue a job and look for the job."""
    kit.sync.enqueue(double.request(2))
    kit.sync.assert_enqueued(double, payload={"number": 2}, count=1)


def enqueue_and_drain(kit: Kit) -> None:
    """Enqueue a job and run everything that is due."""
    kit.sync.enqueue(double.request(2))
    assert len(kit.sync.drain()) == 1


def milliseconds(test: Callable[[Kit], None], url: str) -> list[float]:
    """Return how long each of many tests took, the fixture included."""
    took = []
    for _ in range(_TESTS):
        began = time.perf_counter()
        with lend(url) as lent:
            test(lent.kit(handlers))
        took.append((time.perf_counter() - began) * 1_000)
    return took


def main() -> None:
    """Print the median and the 95th percentile of each kind of test."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--storage", default="", help="as for pytest --forge-storage")
    url = parser.parse_args().storage
    milliseconds(enqueue_and_drain, url)
    for test in (inline, inline_without_a_loop, enqueue_and_assert, enqueue_and_drain):
        took = sorted(milliseconds(test, url))
        worst = took[int(0.95 * _TESTS)]
        print(f"{test.__name__:24} {statistics.median(took):5.2f} ms, 95 %: {worst:5.2f} ms")


if __name__ == "__main__":
    main()
