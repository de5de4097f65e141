"""Texts that are no UTF-8, as arguments of a command may be, are refused by the field's name."""

import pytest

from forge_jobs import EnqueueRequest, Workflow
from forge_jobs.errors import InvalidInput
from forge_jobs.model.strikes import StrikeRule
from forge_jobs.operating.access import ALL, Actor
from forge_jobs.operating.operator import Operator
from forge_jobs.storage.protocols import Storage

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]

BAD = ("caf\udce9", "NUL \0")


@pytest.mark.parametrize("text", BAD, ids=ascii)
async def test_of_strikes(storage: Storage, text: str) -> None:
    async with Operator(storage, Actor(name="ada", access=ALL)) as ada:
        with pytest.raises(InvalidInput, match=r"^kind: contains a lone surrogate or NUL"):
            await ada.add_strike("s", StrikeRule(kind=text))
        with pytest.raises(InvalidInput, match=r"^where: contains"):
            await ada.add_strike("s", StrikeRule(where=f"{text} == 1"))
        with pytest.raises(InvalidInput, match=r"^reason: contains"):
            await ada.add_strike("s", StrikeRule(kind="mail", reason=text))
        with pytest.raises(InvalidInput, match=r"^kind: contains"):
            await ada.preview_strike(text)
        with pytest.raises(InvalidInput, match=r"^by: contains"):
            await ada.client.strike("s", kind="mail", by=text)
        assert (await ada.list_strikes()).strikes == ()


@pytest.mark.parametrize("text", BAD, ids=ascii)
async def test_of_reasons(storage: Storage, text: str) -> None:
    workflow = Workflow("w")
    workflow.step("a", EnqueueRequest("tests.noop", queue="mail"))
    async with Operator(storage, Actor(name="ada", access=ALL)) as ada:
        stored = await ada.client.enqueue_workflow(workflow)
        with pytest.raises(InvalidInput, match=r"^reason: contains a lone surrogate or NUL"):
            await ada.cancel_workflow(stored.id, reason=text)
        assert (await ada.client.workflow(stored.id)).waiting == 1
        assert (await ada.list_actions()).actions == ()


@pytest.mark.parametrize("text", BAD, ids=ascii)
async def test_of_keys_of_a_limit(storage: Storage, text: str) -> None:
    await storage.config.set_limit("mail", "fetch", 2)
    async with Operator(storage, Actor(name="ada", access=ALL)) as ada:
        with pytest.raises(InvalidInput, match=r"^key: contains a lone surrogate or NUL"):
            await ada.get_concurrency("mail", "fetch", key=text)
        with pytest.raises(InvalidInput, match=r"^after: contains a lone surrogate or NUL"):
            await ada.get_concurrency("mail", "fetch", after=text)
        assert (await ada.get_concurrency("mail", "fetch", key="caf\u00e9")).key == "caf\u00e9"
