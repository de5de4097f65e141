"""``/api/v1/live``: a stream for who asks for one, else the same document once."""

import msgspec
from sse_starlette import EventSourceResponse
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from forge_jobs.errors import InvalidInput
from forge_jobs.model.ids import JobId, check_job_id
from forge_jobs.operating.access import Actor, Right
from forge_jobs.operating.documents import plain
from forge_jobs.operating.operations import API
from forge_jobs.web.api.document import LIVE, MAX_JOBS
from forge_jobs.web.live.hub import Hub, Viewer
from forge_jobs.web.problems import Refused
from forge_jobs.web.source import Source
from forge_jobs.web.values import nearest, tagged

SEND_SECONDS = 20.0
"""A viewer who takes nothing for so long is let go. The page of one that is still there returns."""

STOP_SECONDS = 0.5
"""How long a stream has to end at a stop of the server, before the connection is cut."""

_STREAM = "text/event-stream"


def live_route(source: Source, *, with_messages: bool = True) -> Route:
    """Return the route. The hub behind reads the store while a viewer looks."""
    hub = Hub(source, with_messages=with_messages)

    async def live(request: Request) -> Response:
        """Answer a stream, or the newest state as one document."""
        actor: Actor = request.state.actor
        actor.need(Right.READ)
        jobs = _jobs(request)
        if _STREAM not in request.headers.get("accept", ""):
            state = await hub.newest(actor, jobs)
            return tagged(request, msgspec.json.encode(plain(state)), "application/json")
        hub.check_room()
        request.state.time_limit.reschedule(None)
        return EventSourceResponse(
            hub.stream(Viewer(actor=actor, jobs=jobs)),
            ping=0,
            send_timeout=SEND_SECONDS,
            shutdown_event=hub.closing,
            shutdown_grace_period=STOP_SECONDS,
        )

    return Route(API + LIVE, live)


def _jobs(request: Request) -> tuple[JobId, ...]:
    """Return the ids that the viewer looks at, each once.

    :raises Refused: an unknown parameter
    :raises InvalidInput: a wrong id, or too many
    """
    for key in request.query_params:
        if key != "job":
            fix = "did you mean job?" if nearest(key, ["job"]) else "the parameters are: job"
            raise Refused(
                400, "unknown-parameter", f"{key[:40]!r} is no parameter", fix, field=key[:40]
            )
    given = request.query_params.getlist("job")
    if len(given) > MAX_JOBS:
        raise InvalidInput("job", f"names {len(given)} jobs", f"name at most {MAX_JOBS}")
    return tuple(dict.fromkeys(check_job_id(each, "job") for each in given))
