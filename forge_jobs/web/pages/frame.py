"""The frame of every page: templates, tabs, and the operator behind the page."""

import asyncio
import functools
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jinja2
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from forge_jobs.durations import format_duration
from forge_jobs.model.names import command_line, path_part
from forge_jobs.operating.access import Actor, Right
from forge_jobs.operating.operator import Operator
from forge_jobs.operating.snapshots.shared import Reader
from forge_jobs.operating.words import counted
from forge_jobs.policy.judgement.problems.problem import Problem
from forge_jobs.storage.protocols import Storage
from forge_jobs.web.pages import judged, words
from forge_jobs.web.pages.assets import asset
from forge_jobs.web.pages.judged import Judge
from forge_jobs.web.source import Source
from forge_jobs.web.values import tagged

HTML = "text/html"

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""Characters that no page may hold. Messages of errors and log lines have some."""

TABS = (
    ("Overview", "/"),
    ("Jobs", "/jobs"),
    ("Errors", "/errors"),
    ("Queues", "/queues"),
    ("Pods", "/pods"),
    ("Cron", "/cron"),
    ("Limits", "/limits"),
    ("Workflows", "/workflows"),
    ("Store", "/store"),
    ("Audit", "/audit"),
)


class Shown(Struct, frozen=True, kw_only=True):
    """A page that is ready to be written.

    :param template: the name of the template
    :param values: of the template
    :param commands: what reads the same in a terminal
    """

    template: str
    title: str
    values: Mapping[str, Any]
    commands: tuple[str, ...] = ()


class Visit(Struct, frozen=True, kw_only=True):
    """A request for a page, with all that a page needs.

    :param now: the store's time
    :param asked: when the store was asked for ``now``, in seconds of the event loop
    """

    request: Request
    operator: Operator
    now: datetime
    asked: float
    reader: Reader
    judge: Judge

    def read_at(self) -> datetime:
        """Return the store's time of this moment. All that has been read so far is older."""
        return self.now + timedelta(seconds=asyncio.get_running_loop().time() - self.asked)

    @property
    def actor(self) -> Actor:
        """The person who looks at the page."""
        return self.operator.actor

    @property
    def storage(self) -> Storage:
        """The store that the page shows."""
        return self.operator.storage

    async def problems(self) -> Sequence[Problem]:
        """Return what is wrong now, the worst first.

        :raises Forbidden: the actor may not see all queues
        :raises Unavailable: the store is silent, or the part with pods and schedules
        """
        self.actor.need(Right.READ)
        self.actor.need(Right.QUEUES)
        return await self.judge.problems(self.reader, self.now)

    @property
    def root(self) -> str:
        """The path at which the dashboard is mounted."""
        root: str = self.request.scope.get("root_path", "")
        return root

    def parameter(self, name: str) -> str:
        """Return a parameter of the query, "" when not given."""
        return self.request.query_params.get(name, "")

    def name(self, key: str) -> str:
        """Return a name of the path."""
        text: str = self.request.path_params[key]
        return text.replace("\x1f", "/")


View = Callable[[Visit], Awaitable[Shown]]


def page(
    source: Source, judge: Judge, path: str, view: View, methods: tuple[str, ...] = ("GET",)
) -> Route:
    """Return the route of a page."""

    async def serve(request: Request) -> Response:
        reader = source.reader()
        async with source.operator(request.state.actor) as operator:
            with reader.visit(judged.FRESH):
                now = (await reader.fleet(judged.FRESH)).now
                asked = asyncio.get_running_loop().time() - reader.age
                visit = Visit(
                    request=request,
                    operator=operator,
                    now=now,
                    asked=asked,
                    reader=reader,
                    judge=judge,
                )
                shown = await view(visit)
                # The numbers on the tabs are of now.
                is_past = bool(visit.parameter("at"))
                badges = {} if is_past else await judge.badges(reader, visit.actor.access, now)
        return written(request, shown, visit, badges)

    return Route(path, serve, methods=list(methods))


def written(
    request: Request,
    shown: Shown,
    visit: Visit | None,
    badges: Mapping[str, int] | None = None,
) -> Response:
    """Return the page as a response.

    :param badges: numbers of problems by the tabs whose pages solve them
    """
    frame = _frame(request, shown, visit, badges or {})
    body = templates().get_template(shown.template).render(**frame, **shown.values)
    body = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", body)
    return tagged(request, body.encode("utf-8", "replace"), HTML)


def _frame(
    request: Request, shown: Shown, visit: Visit | None, badges: Mapping[str, int]
) -> dict[str, Any]:
    root: str = request.scope.get("root_path", "")
    path = request.scope["path"].removeprefix(root)
    now = visit.now if visit else None
    return {
        "root": root,
        "asset": functools.partial(asset, root),
        "tabs": [
            {
                "name": name,
                "key": name[0].lower(),
                "href": f"{root}{href}",
                "is_here": _is_here(path, href),
                "problems": badges.get(href.strip("/"), 0),
            }
            for name, href in TABS
        ],
        "is_past": visit is not None and bool(visit.parameter("at")),
        "title": shown.title,
        "commands": shown.commands,
        "version": version("forge-jobs"),
        "actor": getattr(request.state, "actor", None),
        "store_name": visit.storage.name if visit else "",
        "now": now,
        "read_at": visit.read_at() if visit else None,
        "when": functools.partial(words.when, now=now) if now else None,
        "exactly": words.exactly,
        "link": functools.partial(link, root),
        "term": words.term,
    }


def _is_here(path: str, href: str) -> bool:
    return path == href or (href != "/" and path.startswith(f"{href}/"))


def link(root: str, *parts: str, **query: object) -> str:
    """Return an address of the dashboard, with every part quoted."""
    path = "/".join(path_part(part) for part in parts)
    given = {key: value for key, value in query.items() if value not in (None, "", ())}
    return f"{root}/{path}" + (f"?{urlencode(given, doseq=True)}" if given else "")


@functools.cache
def templates() -> jinja2.Environment:
    """Return the templates. Every value is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parents[1] / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        counted=counted,
        duration=format_duration,
        number=words.number,
        length=words.length,
        moment=words.moment,
        size=words.size,
        share=words.share,
        percent=words.percent,
        state=words.state,
        short=lambda text: str(text)[-6:],
        length_of=len,
    )
    environment.globals["command_line"] = command_line
    return environment
