"""Kinds as pods have described them: over HTTP, in forms, and in the checks of payloads."""

import re
from datetime import timedelta
from html import unescape
from typing import Annotated, Any

import httpx
import pytest
from ulid import ULID

from forge_jobs import Encryption, HandlerRegistry, QueueRuntime, Secret, Unique
from forge_jobs.handlers.schema import MOST_BYTES, published
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId
from forge_jobs.storage.protocols import Storage
from forge_jobs.web import Access, Actor, dashboard
from tests.support.factories import get_job
from tests.support.runtimes import quick_settings
from tests.web.conftest import client_of

pytestmark = pytest.mark.anyio

HTML = {"Accept": "text/html"}


def shop() -> HandlerRegistry:
    handlers = HandlerRegistry()

    @handlers.job(
        "card.charge",
        queue="cards",
        aliases=["card.pay"],
        priority=-5,
        max_attempts=7,
        timeout=90,
        tags=["money"],
        unique=Unique(by=("order",)),
    )
    async def charge(order: int, pin: Annotated[str, Secret], note: str = "none") -> None:
        """Charge the card of an order."""

    @handlers.job("mail.send")
    async def send(to: str, copies: list[str] | None = None) -> None: ...

    return handlers


@pytest.fixture
async def described(storage: Storage) -> Storage:
    """A store in which a pod that is gone has described its kinds."""
    await storage.procs.publish_kinds(published(shop()))
    return storage


async def refused(caller: httpx.AsyncClient, body: dict[str, Any]) -> dict[str, Any]:
    answer = await caller.post("/api/v1/jobs", json=body)
    assert answer.status_code == 400, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_pod_describes_its_kinds_when_it_starts(
    storage: Storage, caller: httpx.AsyncClient
) -> None:
    runtime = QueueRuntime(storage, shop(), settings=quick_settings()).with_queues(cards=1)
    async with runtime.start():
        found = (await caller.get("/api/v1/kinds")).json()["kinds"]
    assert [(each["kind"], each["pods"]) for each in found] == [
        ("card.charge", 1),
        ("mail.send", 1),
    ]
    one = (await caller.get("/api/v1/kinds/card.pay")).json()
    schema = one["payload_schema"]
    assert (one["kind"], one["pods"], one["timeout"]) == ("card.charge", 0, 90.0)
    assert schema["required"] == ["order", "pin"]
    assert schema["properties"]["pin"]["writeOnly"]
    assert (await caller.get("/api/v1/kinds/none")).status_code == 404


async def test_without_the_handlers_a_job_is_checked_and_gets_what_the_handler_says(
    described: Storage, caller: httpx.AsyncClient
) -> None:
    good = {"order": 2**63, "pin": "1234 secret"}
    for payload, field, said in (
        ({"order": "x", "pin": "1"}, "payload.order", 'the value is not of type "integer"'),
        ({"order": 1}, "payload", '"pin" is a required property'),
        ({"order": 1, "pin": "very secret", "note": 4}, "payload.note", "not of type"),
    ):
        found = await refused(caller, {"kind": "card.charge", "payload": payload})
        assert found["field"] == field
        assert said in found["problem"]
        assert "very secret" not in str(found)

    answer = await caller.post("/api/v1/jobs", json={"kind": "card.pay", "payload": good})

    assert answer.status_code == 200
    job = await get_job(described, answer.json()["job_id"])
    assert (job.queue, job.priority, job.max_attempts) == ("cards", -5, 7)
    assert (job.timeout, job.tags) == (timedelta(seconds=90), ("money",))
    assert "9223372036854775808" in job.payload
    shown = (await caller.get(f"/api/v1/jobs/{job.id}")).json()["payload"]
    assert shown == {"order": 2**63, "pin": "***"}
    again = await caller.post(
        "/api/v1/jobs", json={"kind": "card.charge", "payload": good, "priority": 3}
    )
    assert again.json()["deduplicated"]


async def test_a_kind_that_no_pod_has_described_is_taken_as_it_is(
    described: Storage, caller: httpx.AsyncClient
) -> None:
    answer = await caller.post("/api/v1/jobs", json={"kind": "unheard", "payload": {"a": []}})
    assert (await get_job(described, answer.json()["job_id"])).queue == "default"


async def test_a_kind_whose_payloads_are_encrypted_takes_no_plain_payload(
    storage: Storage, caller: httpx.AsyncClient
) -> None:
    handlers = HandlerRegistry(encryption=Encryption([Encryption.new_key()]))
    handlers.register(lambda: None, "private")
    await storage.procs.publish_kinds(published(handlers))
    found = await refused(caller, {"kind": "private"})
    assert (found["field"], found["problem"]) == ("kind", "has encrypted payloads")
    assert (await storage.jobs.counts()) == {}


async def test_an_edit_and_a_schedule_are_checked_by_the_schema(
    described: Storage, caller: httpx.AsyncClient
) -> None:
    made = await caller.post(
        "/api/v1/jobs",
        json={"kind": "mail.send", "payload": {"to": "ada"}, "delay": 3600, "queue": "q"},
    )
    path = f"/api/v1/jobs/{made.json()['job_id']}"
    wrong = await caller.patch(path, json={"payload": {"to": 5}})
    assert (wrong.status_code, wrong.json()["field"]) == (400, "payload.to")
    typed = await caller.post(path.removeprefix("/api/v1") + "/edit", data={"payload": '{"to":[]}'})
    assert "to the value is not of type" in unescape(typed.text)
    assert (await caller.patch(path, json={"payload": {"to": "bob"}})).status_code == 200

    plan = {"kind": "mail.send", "expression": "@daily", "payload": {"to": 5}}
    wrong = await caller.put("/api/v1/schedules/nightly", json=plan)
    assert (wrong.status_code, wrong.json()["field"]) == (400, "payload.to")
    right = await caller.put("/api/v1/schedules/nightly", json=plan | {"payload": {"to": "a"}})
    assert right.status_code == 200
    wrong = await caller.patch("/api/v1/schedules/nightly", json={"payload": {}})
    assert (wrong.status_code, wrong.json()["field"]) == (400, "payload")
    wrong = await caller.patch("/api/v1/schedules/nightly", json={"kind": "card.charge"})
    assert wrong.status_code == 400
    [stored] = await described.cron.schedules()
    assert (stored.spec.kind, stored.spec.payload) == ("mail.send", '{"to":"a"}')


def fields(text: str) -> dict[str, str]:
    found = dict(re.findall(r'<input[^>]*name="(\w+)"[^>]*? value="([^"]*)"', text))
    found |= dict(re.findall(r'<textarea[^>]*name="(\w+)"[^>]*>([^<]*)</textarea>', text))
    return {name: unescape(value) for name, value in found.items()}


async def test_the_form_of_a_kind_enqueues_what_was_typed_once(
    described: Storage, caller: httpx.AsyncClient
) -> None:
    assert "/jobs/new" in (await caller.get("/jobs", headers=HTML)).text
    listed = (await caller.get("/jobs/new", headers=HTML)).text
    assert "/jobs/new?kind=card.charge" in listed
    assert "Charge the card of an order." in listed
    shown = await caller.get("/jobs/new?kind=card.charge", headers=HTML)
    assert "No live pod knows the kind" in shown.text
    typed = fields(shown.text)
    assert typed["payload"] == '{\n  "order": 0,\n  "pin": "",\n  "note": "none"\n}'

    wrong = await caller.post("/jobs/new", data=typed | {"payload": '{"order":"7","pin":"x"}'})
    assert "order the value is not of type" in unescape(wrong.text)
    assert '{"order":"7","pin":"x"}' in unescape(wrong.text)
    for name, value in (("delay", "soon"), ("priority", "high"), ("queue", "\0"), ("tags", "\0")):
        wrong = await caller.post("/jobs/new", data=typed | {name: value})
        assert wrong.status_code == 200, name
        assert 'aria-invalid="true"' in wrong.text, name
    good = typed | {"payload": '{"order":7,"pin":"x"}', "delay": "2h", "tags": "a, b"}
    done = await caller.post("/jobs/new", data=good)
    assert "The job is stored." in done.text
    assert "The job is stored." in (await caller.post("/jobs/new", data=good)).text
    assert len((await described.jobs.list(JobFilter(), limit=5)).jobs) == 1
    other = good | {"id": str(ULID())}
    assert "Nothing new" in (await caller.post("/jobs/new", data=other)).text
    job = await get_job(described, JobId(good["id"]))
    assert (job.kind, job.queue, job.tags) == ("card.charge", "cards", ("a", "b"))
    assert job.due_at - job.enqueued_at == timedelta(hours=2)


async def test_a_copy_of_a_job_begins_as_the_job_is(
    described: Storage, caller: httpx.AsyncClient
) -> None:
    made = await caller.post("/api/v1/jobs", json={"kind": "mail.send", "payload": {"to": "ada"}})
    at = made.json()["job_id"]
    assert f"/jobs/new?copy={at}" in (await caller.get(f"/jobs/{at}", headers=HTML)).text
    typed = fields((await caller.get(f"/jobs/new?copy={at}", headers=HTML)).text)
    assert typed["payload"] == '{\n  "to": "ada"\n}'
    done = await caller.post("/jobs/new", data=typed)
    assert "The job is stored." in done.text
    assert (await get_job(described, JobId(typed["id"]))).payload == '{\n  "to": "ada"\n}'


async def test_a_caller_of_some_queues_sees_no_kind_of_another_queue_and_enqueues_none(
    described: Storage,
) -> None:
    access = Access(actions=frozenset({"enqueue"}), queues=frozenset({"mail"}))
    app = dashboard(described, authorize=lambda _: Actor(name="bob", access=access))
    async with client_of(app) as caller:
        assert [each["kind"] for each in (await caller.get("/api/v1/kinds")).json()["kinds"]] == [
            "mail.send"
        ]
        assert (await caller.get("/api/v1/kinds/card.charge")).status_code == 404
        body = {"kind": "card.charge", "payload": {"order": 1, "pin": "1"}}
        assert (await caller.post("/api/v1/jobs", json=body)).status_code == 403
    reader = Actor(name="eve", access=Access())
    async with client_of(dashboard(described, authorize=lambda _: reader)) as caller:
        assert (await caller.get("/jobs/new", headers=HTML)).status_code == 403
        assert "/jobs/new" not in (await caller.get("/jobs", headers=HTML)).text


async def test_what_cannot_be_read_or_checked_stops_nobody(
    storage: Storage, caller: httpx.AsyncClient
) -> None:
    entry = published(shop())["mail.send"]
    strange = entry.replace('"type":"object"', '"type":"no such type"')
    remote = re.sub(
        r'"payload_schema":\{.*\},"keep', '"payload_schema":{"$ref":"http://x/"},"keep', entry
    )
    assert remote != entry != strange
    await storage.procs.publish_kinds({"a": "{", "b": "[]", "c": strange, "d": remote})
    for kind in "abcd":
        answer = await caller.post("/api/v1/jobs", json={"kind": kind, "payload": {"to": 1}})
        assert answer.status_code == 200, kind
    assert (await caller.get("/jobs/new?kind=c", headers=HTML)).status_code == 200


def test_an_entry_without_bound_is_published_without_the_schema() -> None:
    handlers = HandlerRegistry()
    text = "x" * MOST_BYTES

    @handlers.job("large")
    async def large(name: str = text) -> None: ...

    entry = published(handlers)["large"]
    assert len(entry) < 1_000
    assert '"payload_schema":{}' in entry
