"""Reads that are made at once."""

import anyio
import anyio.lowlevel
import pytest

from forge_jobs.errors import Unavailable
from forge_jobs.operating.together import all_of, together

pytestmark = pytest.mark.anyio


class Calls:
    """Calls that note when they begin and end."""

    def __init__(self) -> None:
        self.noted: list[str] = []

    async def call(self, name: str) -> str:
        self.noted.append(f"{name} begins")
        await anyio.lowlevel.checkpoint()
        self.noted.append(f"{name} ends")
        return name

    async def endless(self) -> str:
        try:
            await anyio.sleep_forever()
        finally:
            self.noted.append("ended")
        return ""


async def silent() -> str:
    """Fail as a store that does not answer."""
    raise Unavailable("the store is silent")


async def test_each_call_begins_before_the_first_has_ended() -> None:
    calls = Calls()
    assert await together(calls.call("one"), calls.call("two")) == ("one", "two")
    assert calls.noted == ["one begins", "two begins", "one ends", "two ends"]


async def test_answers_are_in_the_order_of_the_calls() -> None:
    calls = Calls()
    names = [f"{number}" for number in range(20)]
    assert await all_of([calls.call(name) for name in names]) == names
    assert await all_of([]) == []


async def test_the_first_error_is_raised_and_ends_the_others() -> None:
    calls = Calls()
    with pytest.raises(Unavailable, match="the store is silent"):
        await together(calls.endless(), silent())
    assert calls.noted == ["ended"]
