"""A viewer of a live stream: calls an ASGI application, and takes what is sent, or does not."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from starlette.types import ASGIApp, Message

from tests.support.waiting import IN_PROCESS, wait_until

_ROOM = 4


class Viewing:
    """A stream that is open.

    A viewer who takes nothing leaves the application waiting, as a connection does whose buffers
    are full.
    """

    def __init__(self) -> None:
        self.started: dict[str, Any] = {}
        self.sent: asyncio.Queue[bytes] = asyncio.Queue(_ROOM)
        self.left = asyncio.Event()
        self.ended = asyncio.Event()
        """The application has returned."""

    @property
    def status(self) -> int:
        status: int = self.started["status"]
        return status

    async def receive(self) -> Message:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = dict(message)
        elif message.get("body"):
            await self.sent.put(message["body"])

    async def event(self) -> tuple[str, Any]:
        """Return the name and the document of the next event."""
        async with asyncio.timeout(IN_PROCESS):
            name, data, *_ = (await self.sent.get()).decode().split("\n")
        return name.removeprefix("event: "), msgspec.json.decode(data.removeprefix("data: "))

    async def until(self, fits: Callable[[str, Any], bool]) -> Any:
        """Take events until one fits, and return that one's document."""
        async with asyncio.timeout(IN_PROCESS):
            while True:
                name, document = await self.event()
                if fits(name, document):
                    return document


@asynccontextmanager
async def viewing(
    app: ASGIApp, path: str = "/api/v1/live", query: str = ""
) -> AsyncIterator[Viewing]:
    """Open a stream, and leave at the end."""
    view = Viewing()
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(b"host", b"localhost"), (b"accept", b"text/event-stream")],
        "client": ("127.0.0.1", 5000),
        "server": ("localhost", 80),
    }
    calling = asyncio.ensure_future(app(scope, view.receive, view.send))
    calling.add_done_callback(lambda _: view.ended.set())
    try:
        await wait_until(lambda: view.started or calling.done(), description="the answer begins")
        yield view
    finally:
        view.left.set()
        calling.cancel()
        await asyncio.wait([calling])
