"""``/metrics``, for a Prometheus with the right to read."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from forge_jobs.operating.access import Actor, Right
from forge_jobs.operating.metrics.exposition import CONTENT_TYPE, exposition
from forge_jobs.operating.metrics.reading import Scraper
from forge_jobs.operating.snapshots.shared import Reader
from forge_jobs.web.source import Source


def metrics_route(source: Source) -> Route:
    """Return the route. The caller needs the right to read, of all queues."""
    scrapers: dict[Reader, Scraper] = {}

    async def metrics(request: Request) -> Response:
        """Answer the text that Prometheus reads."""
        actor: Actor = request.state.actor
        actor.need(Right.READ)
        actor.need(Right.QUEUES)
        reader = source.reader()
        if reader not in scrapers:
            scrapers.clear()
            scrapers[reader] = Scraper(reader)
        scrape = await scrapers[reader].read()
        text = await asyncio.to_thread(exposition, scrape)
        return Response(text, headers={"Content-Type": CONTENT_TYPE})

    return Route("/metrics", metrics)
