"""Settings of a queue in place: what is in force, what code says, who has set what, and the way
back."""

import re
from html import unescape

import httpx
import pytest

from forge_jobs.clients.records.values import value_of
from forge_jobs.model.queues import QueueChange, QueueSettings, QueueState
from forge_jobs.storage.protocols import Storage

pytestmark = pytest.mark.anyio

HTML = {"Accept": "text/html"}


async def state_of(storage: Storage) -> QueueState:
    [state] = await storage.config.queues()
    return state


@pytest.fixture
async def declared(storage: Storage) -> Storage:
    await storage.config.ensure_queue("mail", QueueSettings(max_workers=3))
    return storage


async def page(caller: httpx.AsyncClient) -> str:
    return (await caller.get("/queues/mail", headers=HTML)).text


def forms(text: str) -> list[list[tuple[str, str]]]:
    """The fields of each form of a setting, as a browser without JavaScript sends them."""
    found = []
    for form in re.findall(r'<form class="stack" action="/act/set_queue">(.*?)</form>', text, re.S):
        fields = re.findall(r'<input[^>]*name="(\w+)" value="([^"]*)"', form)
        for name, body in re.findall(r'<select[^>]*name="(\w+)">(.*?)</select>', form, re.S):
            [chosen] = re.findall(r"<option selected>([^<]*)<", body)
            fields.append((name, chosen))
        found.append([(name, unescape(value)) for name, value in fields])
    return found


async def test_each_setting_says_what_code_says_and_who_has_set_it(
    declared: Storage, caller: httpx.AsyncClient
) -> None:
    await caller.patch("/api/v1/queues/mail", json={"max_workers": 9})
    await declared.config.ensure_queue(
        "mail", QueueSettings(max_workers=5, objective="9% within 1s")
    )

    lines = (await caller.get("/api/v1/queues/mail/settings")).json()

    found = {each.pop("name"): each for each in lines["settings"]}
    assert lines["is_declared"]
    assert (found["max_workers"]["value"], found["max_workers"]["of_code"]) == (9, 5)
    assert (found["max_workers"]["actor"], found["max_workers"]["is_overridden"]) == ("ada", True)
    assert found["objective"]["value"] == found["objective"]["of_code"] == "9% within 1s"
    assert found["retention"]["of_code"]["done"] == 604800.0
    assert (found["retry"]["actor"], found["retry"]["at"]) == ("", None)
    text = await page(caller)
    assert re.search(r"Max workers</td><td[^>]*><b>9</b></td><td[^>]*>5</td>", text)
    assert ">ada</a>" in text
    assert text.count("from_code=") == 1


async def test_every_form_as_shown_changes_nothing_but_whose_the_setting_is(
    declared: Storage, caller: httpx.AsyncClient
) -> None:
    before = await state_of(declared)
    shown = forms(await page(caller))
    assert len(shown) == len(QueueSettings.__struct_fields__)
    for fields in shown:
        if ("retry", "") in fields:
            continue  # nothing is there to be set
        path = str(httpx.URL("/act/set_queue", params=fields))
        preview = await caller.get(path, headers=HTML)
        assert preview.status_code == 200, fields
        done = await caller.post(path)
        assert "Done" in done.text, fields
    after = await state_of(declared)
    assert after.settings == before.settings
    assert after.overridden == frozenset(QueueSettings.__struct_fields__) - {"retry"}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"max_workers": "many"}, "whole number"),
        ({"cooldown": "steep"}, "flat or exponential"),
        ({"cooldown_base": "soon"}, "duration"),
        ({"keep_done": "long"}, "duration"),
        ({"max_dead": "-1"}, "whole number"),
        ({"retry": "sometimes"}, "exponential"),
        ({"objective": "soon"}, "objective"),
        ({"dead_letter": "\x00"}, "dead_letter"),
        ({"from_code": "workers"}, "which is no setting"),
        ({}, "is given no setting"),
    ],
)
async def test_a_wrong_value_is_named(
    declared: Storage, caller: httpx.AsyncClient, fields: dict[str, str], said: str
) -> None:
    before = await state_of(declared)
    path = str(httpx.URL("/act/set_queue", params={"name": "mail", **fields}))
    answer = await caller.post(path)
    assert answer.status_code == 200
    assert said in unescape(answer.text)
    assert (await caller.get(path, headers=HTML)).status_code in (200, 400)
    assert await state_of(declared) == before


async def test_a_setting_goes_back_to_code_and_the_way_back_is_undone(
    declared: Storage, caller: httpx.AsyncClient
) -> None:
    await caller.patch("/api/v1/queues/mail", json={"max_workers": 9, "dead_letter": "broken"})
    preview = (await caller.get("/act/set_queue?name=mail&from_code=max_workers")).text
    assert "max workers as in code" in preview
    assert "forge-jobs queues set mail --from-code max_workers" in unescape(preview)
    await caller.post("/act/set_queue?name=mail&from_code=max_workers")
    state = await state_of(declared)
    assert (state.settings.max_workers, state.overridden) == (3, frozenset({"dead_letter"}))
    [last] = (await caller.get("/api/v1/actions?limit=1")).json()["actions"]

    await caller.post(f"/api/v1/actions/{last['id']}/undo")

    state = await state_of(declared)
    assert state.settings.max_workers == 9
    assert state.overridden == frozenset({"dead_letter", "max_workers"})


async def test_the_undo_of_a_change_gives_the_setting_back_to_code(
    declared: Storage, caller: httpx.AsyncClient
) -> None:
    await caller.patch("/api/v1/queues/mail", json={"max_workers": 9})
    [last] = (await caller.get("/api/v1/actions?limit=1")).json()["actions"]
    await caller.post(f"/api/v1/actions/{last['id']}/undo")
    state = await state_of(declared)
    assert (state.settings.max_workers, state.overridden) == (3, frozenset())


async def test_a_record_of_an_earlier_release_is_undone_too(
    declared: Storage, caller: httpx.AsyncClient
) -> None:
    await declared.config.set_queue("mail", QueueChange(**{
        name: getattr(QueueSettings(max_workers=3), name)
        for name in QueueSettings.__struct_fields__
        if name != "retry"
    }))  # fmt: skip
    await caller.patch(
        "/api/v1/queues/mail", json={"max_workers": 9, "retry": {"type": "fixed", "delay": 5}}
    )
    [last] = await declared.jobs.actions(limit=1)
    old = re.sub(r',"overridden":\[[^\]]*\]', "", last.action.after)
    assert old != last.action.after
    value = value_of("set_queue")
    assert value is not None
    assert value.is_same(last.action.after, old)
    assert not value.is_same(last.action.after, old.replace('"max_workers":9', '"max_workers":8'))
