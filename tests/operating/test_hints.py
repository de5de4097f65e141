"""Words that complete a line of the filter language: ``job_hints``."""

from typing import Any

import pytest

from forge_jobs import Access, Actor, Operator
from forge_jobs.errors import Forbidden, InvalidInput
from forge_jobs.model.queries.reading import parse_query
from forge_jobs.model.queues import QueueSettings
from forge_jobs.storage.protocols import Storage
from tests.support.factories import register

pytestmark = pytest.mark.anyio


async def words(storage: Storage, line: str, **access: Any) -> list[str]:
    actor = Actor(name="ada", access=Access(**access))
    async with Operator(storage, actor) as operator:
        found = await operator.job_hints(line)
    return [found.start + word for word in found.words]


@pytest.fixture
async def filled(storage: Storage) -> Storage:
    for name in ("gh", "ghost", "a+b"):
        await storage.config.ensure_queue(name, QueueSettings())
    await storage.procs.publish_kinds({"mail.send": "{"})
    await register(storage, kinds=("card.charge", "mail.send"))
    return storage


async def test_the_last_word_is_completed(filled: Storage) -> None:
    assert await words(filled, "que") == ["queue:"]
    assert await words(filled, "status:dead -sta") == ["status:dead -status:"]
    assert await words(filled, "queue:g") == ["queue:gh", "queue:ghost"]
    assert await words(filled, "queue:gh,ghos") == ["queue:gh,ghost"]
    assert (await words(filled, 'error:"card declined" queue:A'))[0] == (
        'error:"card declined" queue:"a+b"'
    )
    assert await words(filled, "kind:charge") == ["kind:card.charge"]
    assert await words(filled, "-status:de") == ["-status:dead"]
    assert len(await words(filled, "")) == 20
    assert await words(filled, "nothing:x") == []
    assert len(await words(filled, "pod:")) == 1
    for line in ("queue:", "status:", "kind:", "pod:", "cause:"):
        for each in await words(filled, line):
            parse_query(each)


async def test_hints_end_where_the_rights_of_the_actor_do(filled: Storage) -> None:
    mine = frozenset({"gh"})
    assert await words(filled, "queue:", queues=mine) == ["queue:gh"]
    assert await words(filled, "kind:", queues=mine) == []
    assert await words(filled, "pod:", queues=mine) == []
    with pytest.raises(Forbidden):
        await words(filled, "", read=False)


async def test_no_line_is_too_odd(filled: Storage) -> None:
    for line in ('"', "\\", 'queue:"', "-", ":", "queue:\0", 'a"b\\" c', "x" * 5_000, "\u2028"):
        await words(filled, line)
    async with Operator(filled, Actor(name="ada")) as operator:
        for limit in (0, 101):
            with pytest.raises(InvalidInput, match="limit"):
                await operator.job_hints("", limit=limit)
