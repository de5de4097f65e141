"""A store that says nothing at all."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from tests.support.faulty import Faults
from tests.support.waiting import wait_until


class Silence(Faults):
    """Calls are begun and get no answer until the end of the silence."""

    def __init__(self) -> None:
        super().__init__()
        self.silent = False
        self.unanswered = 0

    async def call(self, method: str, function: Any, args: Any, kwargs: Any) -> Any:
        if self.silent and method != "wait_for_work":
            self.unanswered += 1
            try:
                while self.silent:  # noqa: ASYNC110 - callers are in two event loops
                    await anyio.sleep(0.01)
            finally:
                self.unanswered -= 1
        return await super().call(method, function, args, kwargs)


@asynccontextmanager
async def silence() -> AsyncGenerator[Silence]:
    made = Silence()
    try:
        yield made
    finally:
        made.silent = False
    await wait_until(lambda: made.unanswered == 0, description="all calls are answered")
