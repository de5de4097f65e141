"""A pod whose handler logs more than any reader takes. Run with the URL of a store."""

import asyncio
import logging
import sys

from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.storage.opening import open_storage
from tests.support.runtimes import a_runtime, quick_settings, seconds

handlers = HandlerRegistry()


@handlers.job("talks")
async def talks() -> None:
    """Log until the pipe is full, and then for ever."""
    while True:
        logging.getLogger("program").error("x" * 4_000)


async def _main() -> None:
    logging.basicConfig(stream=sys.stderr)
    settings = quick_settings(blocked_after=seconds(0.2), hung_after=seconds(2))
    async with await open_storage(sys.argv[1]) as storage:
        runtime = a_runtime(storage, handlers, settings=settings)
        async with runtime.start() as handle:
            await handle.enqueue(talks.request())
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main())
