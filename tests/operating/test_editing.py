"""Edits by operators: checked, recorded with old and new values, and undone."""

from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec
import pytest

from forge_jobs import HandlerRegistry, Secret, Unique
from forge_jobs.errors import Conflict, Forbidden, ForgeJobsError, InvalidInput, NotFound
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.payloads import ENCRYPTED_START
from forge_jobs.operating.access import ALL, Access, Actor
from forge_jobs.operating.actions.editing import JobEdit
from forge_jobs.operating.documents import document
from forge_jobs.operating.operator import Operator
from forge_jobs.storage.protocols import Storage
from tests.support.factories import claim_one, enqueue_one, failed, finish, get_job, register
from tests.support.situations import a_job

pytestmark = pytest.mark.anyio

DAY = timedelta(days=1)
EDITS = frozenset({"edit_job"})


def operator(storage: Storage, access: Access = ALL, **options: Any) -> Operator:
    return Operator(storage, Actor(name="ada", access=access), **options)


def payload(text: str) -> msgspec.Raw:
    return msgspec.Raw(text.encode())


async def test_an_edit_changes_what_is_given_and_is_recorded(storage: Storage) -> None:
    job_id = await enqueue_one(storage, payload='{"n":1}', tags=("a",))
    due = await storage.cron.now() + DAY
    async with operator(storage) as boss:
        edit = JobEdit(
            payload=payload('{"n":  9223372036854775808}'), priority=-3, due_at=due,
            max_attempts=None, timeout=timedelta(seconds=9), expires_at=due + DAY,
            tags=("b",), metadata={"who": "ada"}, reason="the customer asked",
        )  # fmt: skip
        done = await boss.edit_job(job_id, edit)
        [kept] = (await boss.list_actions()).actions
    job = await get_job(storage, job_id)
    assert (job.payload, job.priority, job.due_at) == ('{"n":  9223372036854775808}', -3, due)
    assert (job.max_attempts, job.timeout, job.expires_at) == (
        None,
        timedelta(seconds=9),
        due + DAY,
    )
    assert (job.tags, dict(job.metadata)) == (("b",), {"who": "ada"})
    assert kept == done
    assert (done.verb, done.target, done.reason) == ("edit_job", job_id, "the customer asked")
    before, after = msgspec.json.decode(done.before), msgspec.json.decode(done.after)
    assert (before["payload"], before["tags"], before["priority"]) == ({"n": 1}, ["a"], 0)
    assert (after["max_attempts"], after["metadata"]) == (None, {"who": "ada"})
    assert '"n":  9223372036854775808' in done.after


async def test_only_what_changes_is_recorded(storage: Storage) -> None:
    job_id = await enqueue_one(storage, priority=2)
    async with operator(storage) as boss:
        done = await boss.edit_job(job_id, JobEdit(priority=5, tags=()))
    assert (done.before, done.after) == ('{"priority":2}', '{"priority":5}')


async def test_an_undo_writes_the_old_values_back(storage: Storage) -> None:
    job_id = await enqueue_one(storage, payload='{"n":1}', expires_at=None)
    before = await get_job(storage, job_id)
    later = await storage.cron.now() + DAY
    async with operator(storage) as boss:
        edit = JobEdit(payload=payload('{"n":2}'), due_at=later, expires_at=later, tags=("x",))
        done = await boss.edit_job(job_id, edit)
        undone = await boss.undo_action(done.id)
        assert (await get_job(storage, job_id)) == before
        assert undone.undoes == done.id
        again = await boss.undo_action(undone.id)
        assert again.after == done.after
    assert (await get_job(storage, job_id)).payload == '{"n":2}'


async def test_an_undo_is_refused_when_the_value_was_changed_since(storage: Storage) -> None:
    job_id = await enqueue_one(storage)
    async with operator(storage) as boss:
        done = await boss.edit_job(job_id, JobEdit(priority=5))
        await boss.edit_job(job_id, JobEdit(priority=6))
        with pytest.raises(Conflict, match="was changed since"):
            await boss.undo_action(done.id)
        await boss.edit_job(job_id, JobEdit(priority=5, tags=("other",)))
        await boss.undo_action(done.id)
    job = await get_job(storage, job_id)
    assert (job.priority, job.tags) == (0, ("other",))


async def test_an_edit_is_refused_once_the_job_has_run(storage: Storage) -> None:
    lease = await register(storage)
    job_id = await enqueue_one(storage)
    async with operator(storage) as boss:
        version = (await boss.get_job(job_id)).version
        claimed = await claim_one(storage, lease)
        with pytest.raises(Conflict, match="changed since"):
            await boss.edit_job(job_id, JobEdit(priority=5, version=version))
        with pytest.raises(Conflict, match="runs"):
            await boss.edit_job(job_id, JobEdit(priority=5))
        await finish(storage, claimed, failed(DAY))
        with pytest.raises(Conflict, match="changed since"):
            await boss.edit_job(job_id, JobEdit(priority=5, version=version))
        version = (await boss.get_job(job_id)).version
        await boss.edit_job(job_id, JobEdit(priority=5, version=version))
        with pytest.raises(Conflict, match="changed since"):
            await boss.edit_job(job_id, JobEdit(priority=6, version=version))
    assert (await get_job(storage, job_id)).priority == 5


async def test_a_time_that_has_passed_means_now(sqlite_storage: Storage) -> None:
    job_id = await enqueue_one(sqlite_storage, delay=DAY)
    now = await sqlite_storage.cron.now()
    async with operator(sqlite_storage) as boss:
        await boss.edit_job(job_id, JobEdit(due_at=now - DAY))
    assert (await get_job(sqlite_storage, job_id)).due_at >= now


@pytest.mark.parametrize(
    ("edit", "field"),
    [
        (JobEdit(), "edit"),
        (JobEdit(priority=0), "edit"),
        (JobEdit(priority=101), "priority"),
        (JobEdit(max_attempts=0), "max_attempts"),
        (JobEdit(timeout=timedelta(0)), "timeout"),
        (JobEdit(tags=("a,b",)), "tags"),
        (JobEdit(metadata={"forge_jobs.secrets": "[]"}), "metadata"),
        (JobEdit(payload=payload("[1]")), "payload"),
        (JobEdit(payload=payload("{")), "payload"),
        (JobEdit(due_at=datetime(2030, 1, 1)), "due_at"),  # noqa: DTZ001
        (JobEdit(expires_at=datetime.fromisoformat("2020-01-01T00:00:00Z")), "expires_at"),
    ],
)
async def test_a_wrong_value_is_named_and_nothing_changes(
    sqlite_storage: Storage, edit: JobEdit, field: str
) -> None:
    job_id = await enqueue_one(sqlite_storage)
    before = await get_job(sqlite_storage, job_id)
    async with operator(sqlite_storage) as boss:
        with pytest.raises(InvalidInput) as refused:
            await boss.edit_job(job_id, edit)
        assert (await boss.list_actions()).actions == ()
    assert refused.value.field == field
    assert await get_job(sqlite_storage, job_id) == before


async def test_the_payload_is_checked_by_the_handler(sqlite_storage: Storage) -> None:
    registry = HandlerRegistry()

    @registry.job("tests.sized", max_attempts=2)
    async def sized(size: int) -> None: ...

    job_id = await enqueue_one(sqlite_storage, kind="tests.sized", payload='{"size":1}')
    async with operator(sqlite_storage, handlers=registry) as boss:
        with pytest.raises(InvalidInput, match="size"):
            await boss.edit_job(job_id, JobEdit(payload=payload('{"size":"big"}')))
        await boss.edit_job(job_id, JobEdit(payload=payload('{"size":2}')))
    job = await get_job(sqlite_storage, job_id)
    assert (job.payload, job.max_attempts) == ('{"size":2}', 5)


async def test_secrets_stay_hidden_and_stay_as_they_are(storage: Storage) -> None:
    registry = HandlerRegistry()

    @registry.job("tests.login")
    async def login(user: str, token: Annotated[str, Secret]) -> None: ...

    async with operator(storage, handlers=registry) as boss:
        [job] = await boss.client.prepared([login.request(user="ada", token="swordfish")])
        await storage.jobs.enqueue([job])
        shown = (await boss.get_job(job.id)).payload
        assert "swordfish" not in shown
        done = await boss.edit_job(job.id, JobEdit(payload=payload(shown.replace("ada", "bob"))))
        stored = await get_job(storage, job.id)
        assert msgspec.json.decode(stored.payload) == {"user": "bob", "token": "swordfish"}
        other = await boss.edit_job(
            job.id, JobEdit(payload=payload('{"user":"bob","token":"mackerel"}'))
        )
        assert "mackerel" in (await get_job(storage, job.id)).payload
        with pytest.raises(Conflict, match="has changed a secret"):
            await boss.undo_action(other.id)
        await boss.undo_action(done.id)
        stored = await get_job(storage, job.id)
        assert msgspec.json.decode(stored.payload) == {"user": "ada", "token": "mackerel"}
        told = document(await boss.list_actions())
    assert b"swordfish" not in told
    assert b"mackerel" not in told


async def test_an_encrypted_payload_is_not_edited_and_other_values_are(
    sqlite_storage: Storage,
) -> None:
    job_id = await enqueue_one(sqlite_storage, payload=f"{ENCRYPTED_START}1}}}}")
    async with operator(sqlite_storage) as boss:
        with pytest.raises(Conflict, match="is encrypted"):
            await boss.edit_job(job_id, JobEdit(payload=payload('{"n":1}')))
        await boss.edit_job(job_id, JobEdit(priority=3))
    assert (await get_job(sqlite_storage, job_id)).priority == 3


async def test_a_payload_that_makes_the_unique_key_changes_only_beside_the_key(
    sqlite_storage: Storage,
) -> None:
    registry = HandlerRegistry()

    @registry.job("tests.sync", unique=Unique(by=("customer",)))
    async def sync(customer: int, full: bool = False) -> None: ...

    async with operator(sqlite_storage, handlers=registry) as boss:
        outcome = await boss.enqueue(sync.request(customer=1))
        job_id = outcome.job_id
        with pytest.raises(Conflict, match="unique key"):
            await boss.edit_job(job_id, JobEdit(payload=payload('{"customer":2,"full":false}')))
        await boss.edit_job(job_id, JobEdit(payload=payload('{"customer":1,"full":true}')))
    async with operator(sqlite_storage) as boss:
        with pytest.raises(Conflict, match="is not known here"):
            await boss.edit_job(job_id, JobEdit(payload=payload('{"customer":1}')))


@pytest.mark.parametrize(
    ("access", "edit", "error"),
    [
        (Access(), JobEdit(priority=1), Forbidden),
        (Access(actions=EDITS), JobEdit(payload=payload("{}")), Forbidden),
        (Access(actions=EDITS), JobEdit(metadata={}), Forbidden),
        (Access(actions=EDITS, queues=frozenset({"other"})), JobEdit(priority=1), NotFound),
    ],
)
async def test_rights_of_an_edit(
    sqlite_storage: Storage, access: Access, edit: JobEdit, error: type[ForgeJobsError]
) -> None:
    job_id = await enqueue_one(sqlite_storage)
    async with operator(sqlite_storage, access) as limited:
        with pytest.raises(error):
            await limited.edit_job(job_id, edit)


async def test_an_unknown_job_is_not_found(sqlite_storage: Storage) -> None:
    async with operator(sqlite_storage) as boss:
        with pytest.raises(NotFound):
            await boss.edit_job(new_job_id(), JobEdit(priority=1))


@pytest.mark.parametrize("status", ["blocked", "failed"])
async def test_other_jobs_that_wait_are_edited_too(storage: Storage, status: str) -> None:
    lease = await register(storage)
    job_id: JobId = await a_job(storage, lease, JobStatus(status))
    async with operator(storage) as boss:
        await boss.edit_job(job_id, JobEdit(tags=("seen",)))
    assert (await get_job(storage, job_id)).tags == ("seen",)
