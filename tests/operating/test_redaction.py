"""Fields that ``redact=`` names are hidden as secrets are, and revealing one is recorded."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec import structs

from forge_jobs.errors import Forbidden, InvalidInput
from forge_jobs.model.failures import FailureSample
from forge_jobs.model.failures.fingerprints import error_group
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId
from forge_jobs.model.progress import NewLine, NewProgress, ProgressNote
from forge_jobs.model.queries.reading import parse_query
from forge_jobs.operating.access import ALL, Access, Actor
from forge_jobs.operating.actions.editing import JobEdit
from forge_jobs.operating.documents import document
from forge_jobs.operating.operator import Operator
from forge_jobs.operating.redaction import Redaction
from forge_jobs.operating.settings.specs import ScheduleEdit
from forge_jobs.privacy.secrets import SECRETS
from forge_jobs.storage.protocols import Storage
from tests.support.factories import claim_one, enqueue_one, error, failed, finish, register

pytestmark = pytest.mark.anyio

SECRET, CARD = "swordfish", "4111 1111 1111"
PAYLOAD = {
    "user": {"Password": SECRET, "name": "ada"},
    "cards": [{"card": {"number": CARD, "year": 2031}}],
    "number": 7,
}
NAMES = ("password", "card.number", "token")
EVERY = Access(actions=frozenset({"*"}), payloads=True)


def operator(storage: Storage, access: Access = EVERY, **options: Any) -> Operator:
    return Operator(storage, Actor(name="ada", access=access), redact=NAMES, **options)


async def a_failed_job(storage: Storage) -> tuple[JobId, str]:
    """A job with hidden fields, which has failed with one of them in the message."""
    text = msgspec.json.encode(PAYLOAD).decode()
    job_id = await enqueue_one(
        storage, kind="k", payload=text, metadata='{"token":"swordfish too","who":"ada"}'
    )
    lease = await register(storage, queues=("default",), kinds=("k",))
    claimed = await claim_one(storage, lease, kinds=("k",))
    note = ProgressNote(
        claim=claimed.claim,
        attempt=claimed.attempt,
        progress=NewProgress(1, 2, message=f"as {SECRET}"),
        lines=(NewLine(1, await storage.cron.now(), 20, f"trying {SECRET}"),),
    )
    assert await storage.jobs.note_progress([note]) == [True]
    group = error_group("k", "ValueError", SECRET)
    why = structs.replace(
        error(f"no login with {SECRET} and {CARD}"), error_group=group, traceback=f"line {SECRET}"
    )
    await finish(storage, claimed, failed(timedelta(hours=1), error=why))
    now = await storage.cron.now()
    sample = FailureSample(
        queue="default", group=group, kind="k", type="ValueError", message=f"no {SECRET}",
        minute=now.replace(second=0, microsecond=0), first_at=now, last_at=now, retried=1,
        jobs=(job_id,),
    )  # fmt: skip
    assert not await storage.jobs.add_failures([sample])
    return job_id, group


READS: dict[str, Callable[[Operator, JobId, str], Awaitable[Any]]] = {
    "get_job": lambda boss, job, _: boss.get_job(job),
    "explain_job": lambda boss, job, _: boss.explain_job(job),
    "job_timeline": lambda boss, job, _: boss.job_timeline(job),
    "job_kin": lambda boss, job, _: boss.job_kin(job),
    "job_hints": lambda boss, _, __: boss.job_hints("error:"),
    "job_log": lambda boss, job, _: boss.job_log(job),
    "job_progress": lambda boss, job, _: boss.job_progress(job),
    "job_result": lambda boss, job, _: boss.job_result(job),
    "list_jobs": lambda boss, _, __: boss.list_jobs(),
    "export_jobs": lambda boss, _, __: boss.export_jobs(),
    "preview_action": lambda boss, _, __: boss.preview_action(
        "cancel_jobs", JobFilter(kinds=("k",))
    ),
    "list_errors": lambda boss, _, __: boss.list_errors(),
    "get_error": lambda boss, _, group: boss.get_error("default", group),
    "problems": lambda boss, _, __: boss.problems(),
    "board": lambda boss, _, __: boss.board(),
}


@pytest.mark.parametrize("read", READS)
async def test_no_read_shows_a_hidden_field(storage: Storage, read: str) -> None:
    job_id, group = await a_failed_job(storage)
    async with operator(storage) as boss:
        told = document(await READS[read](boss, job_id, group))

    assert SECRET.encode() not in told
    assert CARD.encode() not in told


async def test_what_is_beside_a_hidden_field_is_shown(storage: Storage) -> None:
    job_id, _ = await a_failed_job(storage)
    async with operator(storage) as boss:
        job = await boss.get_job(job_id)
        [line] = (await boss.list_jobs()).jobs
        [failures] = (await boss.list_errors()).groups
        [logged] = (await boss.job_log(job_id)).lines

    assert msgspec.json.decode(job.payload) == {
        "user": {"Password": "***", "name": "ada"},
        "cards": [{"card": {"number": "***", "year": 2031}}],
        "number": 7,
    }
    assert dict(job.metadata) == {"token": "***", "who": "ada"}
    assert job.is_hidden
    assert "no login with *** and ***" in line.last_error
    assert logged.text == "trying ***"
    assert failures.message == "no login with *** and ***"


async def test_a_payload_without_such_fields_stays_byte_for_byte(storage: Storage) -> None:
    job_id = await enqueue_one(storage, payload='{"n":  9223372036854775808, "x": 1.10}')
    async with operator(storage) as boss:
        job = await boss.get_job(job_id)

    assert job.payload == '{"n":  9223372036854775808, "x": 1.10}'
    assert not job.is_hidden


async def test_a_reveal_shows_all_and_is_recorded_with_actor_and_job(storage: Storage) -> None:
    job_id, _ = await a_failed_job(storage)
    async with operator(storage, ALL) as boss:
        job = await boss.reveal_job(job_id, reason="the customer asked")
        [record] = (await boss.list_actions()).actions

    assert msgspec.json.decode(job.payload) == PAYLOAD
    assert dict(job.metadata) == {"token": "swordfish too", "who": "ada"}
    assert SECRET in job.errors[0].message
    assert (record.verb, record.target, record.actor) == ("reveal_job", job_id, "ada")
    assert (record.id, record.reason) == (job.action_id, "the customer asked")
    assert record.state.value == "done"
    assert SECRET.encode() not in document(record)


async def test_a_marked_secret_is_revealed_too(storage: Storage) -> None:
    marks = msgspec.json.encode({SECRETS: '[["pin"]]'}).decode()
    job_id = await enqueue_one(storage, payload='{"pin":"2580","n":1}', metadata=marks)
    async with Operator(storage, Actor(name="ada", access=ALL)) as boss:
        assert (await boss.get_job(job_id)).payload == '{"pin":"***","n":1}'
        assert (await boss.get_job(job_id)).is_hidden
        assert (await boss.reveal_job(job_id)).payload == '{"pin":"2580","n":1}'


@pytest.mark.parametrize(
    "access",
    [
        Access(actions=frozenset({"*"}), payloads=True),
        Access(actions=frozenset({"reveal_job"})),
        Access(actions=frozenset({"reveal_job"}), payloads=True, read=False),
    ],
    ids=["not named", "no payloads", "no reads"],
)
async def test_a_reveal_has_to_be_named_and_leaves_nothing_when_refused(
    sqlite_storage: Storage, access: Access
) -> None:
    job_id, _ = await a_failed_job(sqlite_storage)
    async with operator(sqlite_storage, access) as boss:
        with pytest.raises(Forbidden):
            await boss.reveal_job(job_id)
    async with operator(sqlite_storage, ALL) as boss:
        assert (await boss.list_actions()).actions == ()


@pytest.mark.parametrize(
    "text", ["payload.user.password:swordfish", "-payload.token:1", "error:swordfish"]
)
async def test_a_hidden_field_is_not_found_by_asking(sqlite_storage: Storage, text: str) -> None:
    await a_failed_job(sqlite_storage)
    which = JobFilter(terms=parse_query(text).terms)
    async with operator(sqlite_storage) as boss:
        for call in (boss.list_jobs, boss.count_jobs, boss.cancel_jobs, boss.export_jobs):
            with pytest.raises(Forbidden):
                await call(which)
        other = JobFilter(terms=parse_query("payload.user.name:ada").terms)
        assert len((await boss.list_jobs(other)).jobs) == 1


async def test_an_edit_keeps_what_is_hidden_and_no_record_shows_one(storage: Storage) -> None:
    job_id, _ = await a_failed_job(storage)
    async with operator(storage) as boss:
        shown = msgspec.json.decode((await boss.get_job(job_id)).payload)
        shown["number"] = 8
        payload = msgspec.Raw(msgspec.json.encode(shown))
        done = await boss.edit_job(job_id, JobEdit(payload=payload))
        stored = (await storage.jobs.get([job_id]))[job_id]
        assert msgspec.json.decode(stored.payload) == PAYLOAD | {"number": 8}
        assert SECRET.encode() not in document(done)
        await boss.undo_action(done.id)
    stored = (await storage.jobs.get([job_id]))[job_id]
    assert msgspec.json.decode(stored.payload) == PAYLOAD


async def test_records_from_before_the_name_was_given_are_hidden_too(storage: Storage) -> None:
    job_id = await enqueue_one(storage, payload='{"token":"swordfish"}')
    async with Operator(storage, Actor(name="ada", access=ALL)) as before:
        edit = ScheduleEdit(
            kind="k", expression="@daily", queue="default", payload='{"token":"swordfish"}'
        )
        await before.add_schedule("nightly", edit)
        await before.set_schedule("nightly", ScheduleEdit(priority=3))
        await before.edit_job(job_id, JobEdit(payload=msgspec.Raw(b'{"token":"swordfish!"}')))
    async with operator(storage) as boss:
        told = document([await boss.list_actions(), await boss.list_schedules()])
        assert SECRET.encode() not in told
        assert b"nightly" in told
        await boss.set_schedule("nightly", ScheduleEdit(payload='{"token":"***","n":1}'))
    stored = await storage.cron.get_schedule("nightly")
    assert stored is not None
    assert msgspec.json.decode(stored.spec.payload) == {"token": SECRET, "n": 1}


@pytest.mark.parametrize("names", ["password", [""], ["a..b"], [3], 3])
def test_wrong_names_are_refused(names: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        Redaction(names)
    assert refused.value.field == "redact"
