"""``/healthz`` and ``/readyz`` of the process that serves the dashboard."""

import asyncio

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from forge_jobs.errors import ForgeJobsError
from forge_jobs.web.problems import Refused
from forge_jobs.web.source import Source

_SECONDS = 5.0
"""The limit for the store's answer to a probe."""


def probes(source: Source) -> list[Route]:
    """Return the routes of both probes. Neither asks who calls, and neither says much."""

    async def live(_: Request) -> Response:
        """Answer: an outage of the store is no fault of this process."""
        return PlainTextResponse("ok\n")

    async def ready(_: Request) -> Response:
        """Answer whether the store does."""
        try:
            async with asyncio.timeout(_SECONDS):
                await source.storage().cron.now()
        except (ForgeJobsError, Refused, TimeoutError):
            return PlainTextResponse("the store does not answer\n", 503)
        return PlainTextResponse("ok\n")

    return [Route("/healthz", live), Route("/readyz", ready)]
