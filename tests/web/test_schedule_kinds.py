"""Schedules that an operator writes where the handler is elsewhere: what pods say holds."""

from typing import Annotated

import httpx
import msgspec
import pytest

from forge_jobs import Encryption, EnqueueRequest, HandlerRegistry, Limit, Secret, Sequence
from forge_jobs.clients.schedules import ensure_schedules, schedule
from forge_jobs.errors import InvalidInput
from forge_jobs.handlers.schema import published
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Line
from forge_jobs.operating.operator import Operator
from forge_jobs.operating.settings.specs import ScheduleEdit
from forge_jobs.privacy.encryption import Part, is_encrypted
from forge_jobs.privacy.secrets import ORIGIN, SECRETS
from forge_jobs.storage.protocols import Storage
from tests.support.factories import get_job
from tests.web.conftest import ADA
from tests.web.test_kinds import fields
from tests.web.test_pages import page

pytestmark = pytest.mark.anyio

PLAN = "/api/v1/schedules/nightly"
GIVEN = {
    "kind": "card.charge",
    "expression": "@daily",
    "payload": {"order": 2**63, "pin": "very secret"},
}


def shop(encryption: Encryption | None = None) -> HandlerRegistry:
    handlers = HandlerRegistry(encryption=encryption)

    @handlers.job("card.charge", queue="cards", priority=-5, max_attempts=7, timeout=90)
    async def charge(order: int, pin: Annotated[str, Secret], note: str = "none") -> None: ...

    return handlers


@pytest.fixture
async def described(storage: Storage) -> Storage:
    """A store in which a pod that is gone has described its kinds."""
    await storage.procs.publish_kinds(published(shop()))
    return storage


async def test_a_schedule_has_the_marks_of_secrets_and_the_options_of_the_kind(
    described: Storage, caller: httpx.AsyncClient
) -> None:
    made = await caller.put(PLAN, json=GIVEN)

    assert made.status_code == 200, made.text
    assert "very secret" not in made.text
    [stored] = await described.cron.schedules()
    spec = stored.spec
    assert SECRETS in msgspec.json.decode(spec.metadata)
    assert "9223372036854775808" in spec.payload
    assert (spec.queue, spec.priority, spec.max_attempts) == ("cards", -5, 7)
    for path in ("/api/v1/schedules", "/api/v1/actions", "/cron/nightly", "/audit"):
        assert "very secret" not in (await caller.get(path)).text, path
    fired = (await caller.post(f"{PLAN}/trigger")).json()["job_id"]
    job = (await caller.get(f"/api/v1/jobs/{fired}")).json()
    assert job["payload"] == {"order": 2**63, "pin": "***"}


async def test_an_edit_keeps_the_secret_that_was_left_hidden_and_marks_the_new_one(
    described: Storage, caller: httpx.AsyncClient
) -> None:
    await caller.put(PLAN, json=GIVEN)
    for change in (
        {"payload": {"order": 2, "pin": "***"}},
        {"expression": "@hourly"},
        {"payload": {"order": 3, "pin": "other secret"}},
    ):
        changed = await caller.patch(PLAN, json=change)
        assert changed.status_code == 200, changed.text
        assert "secret" not in changed.json()["spec"]["payload"]
    [stored] = await described.cron.schedules()
    assert msgspec.json.decode(stored.spec.payload) == {"order": 3, "pin": "other secret"}
    assert stored.spec.expression == "@hourly"
    assert "other secret" not in (await caller.get("/api/v1/actions")).text


async def test_a_schedule_of_code_with_secrets_is_edited(
    storage: Storage, caller: httpx.AsyncClient
) -> None:
    request = EnqueueRequest("card.charge", {"order": 1, "pin": "very secret"}, metadata={"a": "b"})
    spec = schedule("nightly", request, "@daily", registry=shop())
    await ensure_schedules(storage.cron, [spec])
    changed = await caller.patch(PLAN, json={"payload": {"order": 2, "pin": "***"}})
    assert changed.status_code == 200, changed.text
    [stored] = await storage.cron.schedules()
    assert msgspec.json.decode(stored.spec.payload) == {"order": 2, "pin": "very secret"}
    assert msgspec.json.decode(stored.spec.metadata) == msgspec.json.decode(spec.metadata)


async def test_a_schedule_without_marks_has_them_after_the_first_edit(
    storage: Storage, caller: httpx.AsyncClient
) -> None:
    await caller.put(PLAN, json=GIVEN)
    await storage.procs.publish_kinds(published(shop()))
    changed = await caller.patch(PLAN, json={"expression": "@hourly"})
    assert changed.status_code == 200, changed.text
    assert "very secret" not in changed.text


async def test_another_kind_takes_the_marks_along(
    described: Storage, caller: httpx.AsyncClient
) -> None:
    await caller.put(PLAN, json=GIVEN)
    changed = await caller.patch(PLAN, json={"kind": "unheard"})
    assert changed.status_code == 200, changed.text
    assert "very secret" not in changed.text
    back = await caller.patch(PLAN, json={"kind": "card.charge"})
    assert "very secret" not in back.text


async def test_a_kind_whose_payloads_are_encrypted_takes_no_plain_schedule(
    storage: Storage, caller: httpx.AsyncClient
) -> None:
    handlers = shop(Encryption([Encryption.new_key()]))
    await caller.put(PLAN.replace("nightly", "plain"), json=GIVEN | {"kind": "unheard"})
    await storage.procs.publish_kinds(published(handlers))
    await storage.procs.publish_kinds({"stray": published(handlers)["card.charge"]})

    refused = await caller.put(PLAN, json=GIVEN)
    assert (refused.status_code, refused.json()["field"]) == (400, "kind")
    assert refused.json()["problem"] == "has encrypted payloads"
    for change in ({"kind": "card.charge"}, GIVEN):
        refused = await caller.patch(PLAN.replace("nightly", "plain"), json=change)
        assert (refused.status_code, refused.json()["field"]) == (400, "kind")
    assert [each.spec.name for each in await storage.cron.schedules()] == ["plain"]


async def test_with_the_key_a_schedule_is_encrypted_and_an_edit_stays_encrypted(
    storage: Storage, caller: httpx.AsyncClient
) -> None:
    encryption = Encryption([Encryption.new_key()])
    await storage.procs.publish_kinds(published(shop(encryption)))
    edit = ScheduleEdit(kind="card.charge", expression="@daily", payload={"order": 1, "pin": "x"})
    for handlers in (shop(encryption), HandlerRegistry(encryption=encryption)):
        async with Operator(storage, ADA, handlers=handlers) as operator:
            await operator.add_schedule("nightly", edit)
            await operator.set_schedule("nightly", ScheduleEdit(expression="@hourly"))
            with pytest.raises(InvalidInput, match="payload"):
                await operator.set_schedule("nightly", ScheduleEdit(kind="unheard"))
            await operator.set_schedule("nightly", ScheduleEdit(payload={"order": 2, "pin": "y"}))
            with pytest.raises(InvalidInput, match="order"):
                await operator.set_schedule(
                    "nightly", ScheduleEdit(payload={"order": "z", "pin": ""})
                )
            fired = await operator.trigger_schedule("nightly")
        [stored] = await storage.cron.schedules()
        assert is_encrypted(stored.spec.payload)
        job = await get_job(storage, fired.job_id)
        origin = msgspec.json.decode(stored.spec.metadata)[ORIGIN]
        text = encryption.decrypt(
            job.payload, job_id=job.id, kind=job.kind, part=Part.PAYLOAD, origin=origin
        )
        assert msgspec.json.decode(text) == {"order": 2, "pin": "y"}
        # Without the key neither a part nor the whole is changed to plain text.
        changed = await caller.patch(PLAN, json={"payload": {"order": 3, "pin": "z"}})
        assert (changed.status_code, changed.json()["field"]) == (400, "kind")
        assert (await caller.patch(PLAN, json={"expression": "@weekly"})).status_code == 200
        await storage.cron.delete_schedule("nightly")


@pytest.fixture
async def in_lines(storage: Storage) -> Storage:
    """A store in which a pod has described a kind that is limited and in a sequence."""
    handlers = HandlerRegistry()

    @handlers.job("card.charge", sequence=Sequence("{pin}"), concurrency=Limit(2, key="{order}"))
    async def charge(order: int, pin: Annotated[str, Secret]) -> None: ...

    await storage.procs.publish_kinds(published(handlers))
    return storage


async def test_a_schedule_and_a_job_of_an_operator_keep_the_order_of_the_kind(
    in_lines: Storage, caller: httpx.AsyncClient
) -> None:
    assert (await caller.put(PLAN, json=GIVEN)).status_code == 200
    [stored] = await in_lines.cron.schedules()
    line = stored.spec.sequence
    assert line is not None
    assert line.key.startswith("#")  # The key is made of a secret.
    assert stored.spec.limit_name == "card.charge"

    body = {key: GIVEN[key] for key in ("kind", "payload")}
    made = [(await caller.post("/api/v1/jobs", json=body)).json() for _ in range(2)]
    first, second = [JobId(each["job_id"]) for each in made]
    assert await in_lines.jobs.parents([second]) == {second: (first,)}
    assert (await get_job(in_lines, second)).limit_key == stored.spec.limit_key


async def test_an_edit_keeps_the_order_or_follows_the_payload(
    in_lines: Storage, caller: httpx.AsyncClient
) -> None:
    given = EnqueueRequest("card.charge", {"order": 6, "pin": "one"}, sequence_key="all")
    await ensure_schedules(in_lines.cron, [schedule("nightly", given, "@daily")])
    assert (await caller.patch(PLAN, json={"expression": "@hourly"})).status_code == 200
    [stored] = await in_lines.cron.schedules()
    assert stored.spec.sequence == Line("all", "wait")
    payload = {"order": 7, "pin": "other"}
    assert (await caller.patch(PLAN, json={"payload": payload})).status_code == 200
    [stored] = await in_lines.cron.schedules()
    assert stored.spec.sequence not in (None, Line("all", "wait"))
    assert stored.spec.limit_name == "card.charge"


async def test_an_operator_sets_the_key_of_the_sequence_and_the_rule_stays(
    storage: Storage, caller: httpx.AsyncClient
) -> None:
    handlers = HandlerRegistry()

    @handlers.job("card.charge", sequence=Sequence("{order}", on_failure="skip"))
    async def charge(order: int, pin: str) -> None: ...

    await storage.procs.publish_kinds(published(handlers))
    made = await caller.put(PLAN, json=GIVEN | {"sequence_key": "cards"})
    assert made.json()["spec"]["sequence"] == {"key": "cards", "on_failure": "skip"}

    for change, line in (
        ({"sequence_key": "all"}, Line("all", "skip")),
        ({"expression": "@hourly"}, Line("all", "skip")),
        ({"sequence_key": "both", "payload": {"order": 2, "pin": ""}}, Line("both", "skip")),
        ({"sequence_key": ""}, None),
        ({"expression": "@daily"}, None),
        ({"sequence_key": "again"}, Line("again", "skip")),
        ({"payload": {"order": 3, "pin": ""}}, Line("3", "skip")),
    ):
        changed = await caller.patch(PLAN, json=change)
        assert changed.status_code == 200, changed.text
        [stored] = await storage.cron.schedules()
        assert stored.spec.sequence == line, change
    fired = (await caller.post(f"{PLAN}/trigger")).json()["job_id"]
    body = {"kind": "card.charge", "payload": {"order": 3, "pin": ""}}
    behind = (await caller.post("/api/v1/jobs", json=body)).json()["job_id"]
    assert await storage.jobs.parents([behind]) == {behind: (fired,)}
    refused = await caller.patch(PLAN, json={"sequence_key": "a,b"})
    assert (refused.status_code, refused.json()["field"]) == (400, "sequence_key")


async def test_the_form_of_a_schedule_shows_and_sets_the_key_of_the_sequence(
    storage: Storage, caller: httpx.AsyncClient
) -> None:
    await caller.put(PLAN, json=GIVEN | {"kind": "mail.send", "sequence_key": "a <b>"})
    assert "a &lt;b&gt;, behind a dead job others wait" in await page(caller, "/cron/nightly")
    typed = fields(await page(caller, "/cron/nightly/edit"))
    assert typed["sequence_key"] == "a <b>"
    for key, line in (("cards", Line("cards", "wait")), ("", None)):
        form = typed | {"sequence_key": key}
        assert "<h1>Done</h1>" in (await caller.post("/cron/nightly/edit", data=form)).text
        [stored] = await storage.cron.schedules()
        assert stored.spec.sequence == line
        typed = fields(await page(caller, "/cron/nightly/edit"))
    assert "Sequence</dt>" not in await page(caller, "/cron/nightly")
