"""Encrypted payloads and results: what the store sees, and what a pod without the key does."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import msgspec
import pytest

from forge_jobs import FromStep, Group, Workflow, group_handlers
from forge_jobs.clients.client import JobClient
from forge_jobs.clients.schedules import put_schedule, schedule, trigger_now
from forge_jobs.errors import Conflict, DecryptionFailed, KeyMissing
from forge_jobs.handlers.context import JobContext
from forge_jobs.handlers.handler import Handler
from forge_jobs.handlers.outcomes import Snoozed
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.ids import new_job_id
from forge_jobs.model.jobs import Cause, EnqueueOutcome, Job, JobStatus, Unique
from forge_jobs.policy.explanations import Reason
from forge_jobs.privacy.encryption import Encryption, is_encrypted
from forge_jobs.privacy.secrets import Secret
from forge_jobs.storage.protocols import Storage
from tests.support.runtimes import a_runtime, ended
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]

CARD = "4111-1111-1111-1111"
OLD, NEW = Encryption.new_key(), Encryption.new_key()

Kinds: TypeAlias = tuple[HandlerRegistry, Handler[..., Any], Handler[..., Any], Handler[..., Any]]


def paying(*keys: str) -> HandlerRegistry:
    """A registry whose one handler returns the argument."""
    handlers = HandlerRegistry(encryption=Encryption(keys) if keys else None)

    @handlers.job("pay", aliases=["charge"], max_attempts=3)
    async def pay(card: str) -> str:
        return f"paid with {card}"

    return handlers


def request(handlers: HandlerRegistry, card: str = CARD) -> EnqueueRequest:
    """A request by the handler, as of a caller."""
    handler = handlers.get("pay")
    assert handler is not None
    return handler.request(card)


async def stored(storage: Storage, job_id: str) -> Job:
    """The job as stored."""
    [job] = (await storage.jobs.get([job_id])).values()  # type: ignore[list-item]
    return job


async def given_back(storage: Storage, job_id: str, token: int) -> Job:
    """The job, once a claim newer than ``token`` has been given back."""

    async def look() -> Job | None:
        job = await stored(storage, job_id)
        return job if job.token > token and job.status is JobStatus.PENDING else None

    job: Job = await wait_until(look, description="the claim is given back")
    return job


async def test_a_store_sees_neither_payload_nor_result(storage: Storage) -> None:
    handlers = paying(OLD)
    async with a_runtime(storage, handlers).start() as handle:
        outcome = await handle.enqueue(request(handlers))
        assert await handle.result(outcome.job_id, timeout=50) == f"paid with {CARD}"
    job = await ended(storage, outcome.job_id)
    assert CARD not in repr(job)
    assert is_encrypted(job.payload)
    assert is_encrypted(job.result or "")
    async with JobClient(storage, handlers) as client:
        plain = client.decrypted(job)
        assert (plain.payload, plain.result) == (f'{{"card":"{CARD}"}}', f'"paid with {CARD}"')


async def test_a_request_of_a_handler_is_encrypted_wherever_it_is_enqueued(
    storage: Storage,
) -> None:
    async with JobClient(storage) as client:
        one = await client.enqueue(request(paying(OLD)))
        many = await client.enqueue_many([request(paying(OLD))] * 3)
    jobs = [await stored(storage, each.job_id) for each in (one, *many)]
    assert all(is_encrypted(job.payload) for job in jobs)
    assert len({job.payload for job in jobs}) == 4
    handlers = paying(OLD)
    async with a_runtime(storage, handlers).start() as handle:
        for job in jobs:
            assert CARD in await handle.result(job.id, timeout=50)


async def test_a_request_by_kind_takes_the_keys_of_the_client(storage: Storage) -> None:
    async with JobClient(storage, encryption=Encryption([OLD])) as client:
        outcome = await client.enqueue(EnqueueRequest("charge", {"card": CARD}))
        assert is_encrypted((await stored(storage, outcome.job_id)).payload)
        async with a_runtime(storage, paying(OLD)).start():
            assert CARD in await client.result(outcome.job_id, timeout=50)


async def test_what_was_stored_before_the_encryption_still_runs(storage: Storage) -> None:
    async with JobClient(storage) as client:
        outcome = await client.enqueue(EnqueueRequest("pay", {"card": CARD}))
    async with a_runtime(storage, paying(OLD)).start() as handle:
        assert CARD in await handle.result(outcome.job_id, timeout=50)


async def test_keys_are_rotated_without_losing_a_job(storage: Storage) -> None:
    async with JobClient(storage, paying(OLD)) as client:
        before = await client.enqueue(request(paying(OLD)))
    handlers = paying(NEW, OLD)
    async with a_runtime(storage, handlers).start() as handle:
        after = await handle.enqueue(request(handlers))
        for outcome in (before, after):
            assert CARD in await handle.result(outcome.job_id, timeout=50)
    async with JobClient(storage, paying(NEW)) as client:
        assert CARD in await client.result(after.job_id, timeout=50)


async def test_a_job_waits_for_a_pod_with_its_key_and_loses_no_attempt(storage: Storage) -> None:
    async with JobClient(storage, paying(OLD)) as client:
        outcome = await client.enqueue(request(paying(OLD)))
        token = (await stored(storage, outcome.job_id)).token
        for keys in ((NEW,), ()):
            async with a_runtime(storage, paying(*keys)).start():
                await client.run_now(outcome.job_id)
                job = await given_back(storage, outcome.job_id, token)
            token = job.token
            assert (job.cause, job.attempt, job.errors) == (Cause.KEY_MISSING, 0, ())
            why = await client.explain(outcome.job_id)
            assert why.reason is Reason.KEY_MISSING
            assert Encryption([OLD]).key_name in why.text
        await client.run_now(outcome.job_id)
        async with a_runtime(storage, paying(NEW, OLD)).start():
            await ended(storage, outcome.job_id)
        with pytest.raises(KeyMissing):
            await JobClient(storage, paying(OLD)).result(outcome.job_id, timeout=50)


async def test_a_lost_key_of_a_checkpoint_uses_no_attempt(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    def reading(*keys: str) -> HandlerRegistry:
        handlers = HandlerRegistry(encryption=Encryption(keys))

        @handlers.job("read", max_attempts=2, retry=lambda attempt, error: 0)
        async def read(ctx: JobContext) -> str:
            if (page := await ctx.load_checkpoint(str)) is not None:
                return page
            await ctx.checkpoint("page 2")
            raise Snoozed(delay=3600)

        return handlers

    async with JobClient(storage, reading(OLD)) as client:
        outcome = await client.enqueue(EnqueueRequest("read", {}))
        token = (await stored(storage, outcome.job_id)).token
        async with a_runtime(storage, reading(NEW, OLD)).start():
            token = (await given_back(storage, outcome.job_id, token)).token
        for _ in range(3):
            await client.run_now(outcome.job_id)
            async with a_runtime(storage, reading(OLD)).start():
                job = await given_back(storage, outcome.job_id, token)
            token = job.token
            assert (job.cause, job.attempt, job.errors) == (Cause.KEY_MISSING, 0, ())
        assert "checkpoint" in (await client.explain(outcome.job_id)).text
        await client.run_now(outcome.job_id)
        async with a_runtime(storage, reading(NEW, OLD)).start():
            await ended(storage, outcome.job_id)
        assert await JobClient(storage, reading(NEW)).result(outcome.job_id, timeout=50) == "page 2"
    lines = [line for line in caplog.messages if "this pod lacks" in line]
    assert lines
    assert all(Encryption([NEW]).key_name in line for line in lines)


def _adding(*keys: str) -> Kinds:
    """A step, and two kinds of steps after it that read the result."""
    encryption = Encryption(keys)
    handlers = HandlerRegistry(encryption=encryption)
    handlers.include(group_handlers(encryption=encryption))
    first = handlers.register(one, "one", max_attempts=1)
    injected = handlers.register(add_injected, "injected", max_attempts=1)
    asked = handlers.register(add_asked, "asked", max_attempts=1)
    return handlers, first, injected, asked


async def one() -> int:
    return 1


async def add_injected(
    first: int = FromStep("first"), members: list[int] = FromStep("many")
) -> int:
    return first + sum(members)


async def add_asked(ctx: JobContext) -> int:
    return sum(each.result(int) for each in await ctx.parents())


async def test_a_lost_key_of_a_parents_result_uses_no_attempt(storage: Storage) -> None:
    handlers, first, *kinds = _adding(NEW)
    workflow = Workflow("rotation")
    workflow.step("first", first.request())
    workflow.step("many", Group([first.request(), first.request()]))
    for each in kinds:
        delayed = each.request().options(delay=3600)
        workflow.step(each.kind, delayed, after=["first", "many"])
    async with JobClient(storage, handlers) as client:
        steps = (await client.enqueue_workflow(workflow)).steps
        # The results of the parents have the old key.
        async with a_runtime(storage, _adding(OLD, NEW)[0]).start():
            for name in ("first", "many"):
                await ended(storage, steps[name].job_id)
        later = [steps[each.kind].job_id for each in kinds]
        for job_id in later:
            token = (await stored(storage, job_id)).token
            await client.run_now(job_id)
            async with a_runtime(storage, handlers).start():
                job = await given_back(storage, job_id, token)
            assert (job.cause, job.attempt, job.errors) == (Cause.KEY_MISSING, 0, ())
            assert "of its parents' results" in (await client.explain(job_id)).text
        await client.run_now(later)
        async with a_runtime(storage, _adding(NEW, OLD)[0]).start():
            for job_id in later:
                assert await client.result(job_id, timeout=50) == 3


async def test_a_lost_key_of_another_job_is_a_failure(storage: Storage) -> None:
    handlers = HandlerRegistry(encryption=Encryption([NEW]))

    @handlers.job("look", max_attempts=1)
    async def look(job_id: str) -> None:
        raise KeyMissing(job_id, "result", "0a0a0a0a")

    async with a_runtime(storage, handlers).start() as handle:
        outcome = await handle.enqueue(look.request(new_job_id()))
        job = await ended(storage, outcome.job_id)
    assert (job.status, job.cause, job.attempt) == (JobStatus.DEAD, Cause.FAILED, 1)


async def _lacks(job_id: str) -> None:
    raise KeyMissing(job_id, "checkpoint", "0a0a0a0a")


async def _lacks_among_others(job_id: str, other: BaseException | None) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_lacks(job_id))
        try:
            await asyncio.Event().wait()
        finally:
            if other is not None:
                raise other


def _grouped(*keys: str) -> HandlerRegistry:
    """A registry whose one handler lacks a key in task groups, one in the other."""
    handlers = HandlerRegistry(encryption=Encryption(keys))

    @handlers.job("group", max_attempts=1)
    async def group(ctx: JobContext, beside: str = "") -> None:
        other: Exception | None = LookupError("beside") if beside == "error" else None
        if beside == "another job":
            other = KeyMissing(new_job_id(), "result", "0a0a0a0a")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_lacks_among_others(ctx.job_id, other))
            tasks.create_task(asyncio.Event().wait())

    return handlers


async def test_a_lost_key_in_task_groups_uses_no_attempt(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    async with JobClient(storage, _grouped(NEW)) as client:
        outcome = await client.enqueue(EnqueueRequest("group", {}))
    token = (await stored(storage, outcome.job_id)).token
    async with a_runtime(storage, _grouped(NEW)).start():
        job = await given_back(storage, outcome.job_id, token)
    assert (job.status, job.cause) == (JobStatus.PENDING, Cause.KEY_MISSING)
    assert (job.attempt, job.errors) == (0, ())
    assert "encrypted with key 0a0a0a0a" in caplog.text


@pytest.mark.parametrize("beside", ["error", "another job"])
async def test_a_lost_key_beside_another_error_is_a_failure(storage: Storage, beside: str) -> None:
    async with a_runtime(storage, _grouped(NEW)).start() as handle:
        outcome = await handle.enqueue(EnqueueRequest("group", {"beside": beside}))
        job = await ended(storage, outcome.job_id)
    assert (job.status, job.cause, job.attempt) == (JobStatus.DEAD, Cause.FAILED, 1)


async def test_a_lost_key_is_said_once(storage: Storage, caplog: pytest.LogCaptureFixture) -> None:
    async with JobClient(storage, paying(OLD)) as client:
        outcomes = await client.enqueue_many([request(paying(OLD))] * 3)
    tokens = {each.job_id: (await stored(storage, each.job_id)).token for each in outcomes}
    async with a_runtime(storage, paying(NEW)).start():
        for outcome in outcomes:
            await given_back(storage, outcome.job_id, tokens[outcome.job_id])
    lines = [line for line in caplog.messages if Encryption([OLD]).key_name in line]
    assert len(lines) == 1
    assert "lacks" in lines[0]
    assert OLD not in caplog.text


async def test_a_payload_that_was_moved_to_another_job_is_final(storage: Storage) -> None:
    handlers = paying(OLD)
    async with JobClient(storage, handlers) as client:
        job = client.prepare(request(handlers))
        moved = msgspec.structs.replace(job, id=new_job_id())
        await storage.jobs.enqueue([moved])
        async with a_runtime(storage, handlers).start():
            dead = await ended(storage, moved.id)
        with pytest.raises(DecryptionFailed):
            client.decrypted(dead)
    assert (dead.status, dead.attempt) == (JobStatus.DEAD, 1)
    assert dead.errors[-1].type == "DecryptionFailed"
    assert job.id in dead.errors[-1].message


async def test_a_payload_that_another_job_may_carry_names_its_origin(storage: Storage) -> None:
    handlers = paying(OLD)
    async with JobClient(storage, handlers) as client:
        job = client.prepare(request(handlers), unique=Unique("key"))
        carried = msgspec.structs.replace(job, id=new_job_id())
        await storage.jobs.enqueue([carried])
        async with a_runtime(storage, handlers).start():
            assert CARD in await client.result(carried.id, timeout=50)


async def test_an_origin_does_not_bring_a_payload_to_another_kind(storage: Storage) -> None:
    handlers = paying(OLD)

    @handlers.job("echo")
    async def echo(card: str) -> str:
        return card

    async with JobClient(storage, handlers) as client:
        job = client.prepare(request(handlers), unique=Unique("key"))
        moved = msgspec.structs.replace(job, id=new_job_id(), kind="echo", unique=None)
        await storage.jobs.enqueue([moved])
        async with a_runtime(storage, handlers).start():
            dead = await ended(storage, moved.id)
        with pytest.raises(DecryptionFailed):
            client.decrypted(dead)
    assert (dead.status, dead.errors[-1].type) == (JobStatus.DEAD, "DecryptionFailed")


async def test_content_that_another_job_took_is_readable_there(storage: Storage) -> None:
    handlers = HandlerRegistry(encryption=Encryption([OLD]))
    runs: list[str] = []

    @handlers.job("pay", unique=Unique("k", "keep-last"))
    async def pay(ctx: JobContext, card: str) -> None:
        runs.append(card)
        if card == "one":
            for later in ("two", "three"):
                await ctx.enqueue(pay.request(later))

    async with JobClient(storage, handlers) as client:
        first = await client.enqueue(pay.request("zero"))
        assert await client.enqueue(pay.request("one")) == EnqueueOutcome(
            first.job_id, replaced=True
        )
    async with a_runtime(storage, handlers).start():
        await wait_until(lambda: len(runs) == 2, description="the follow-up has run")
    assert runs == ["one", "three"]


async def test_an_id_of_the_caller_makes_a_repeat_or_a_conflict(storage: Storage) -> None:
    handlers, own = paying(OLD), new_job_id()
    async with JobClient(storage, handlers) as client:
        first = await client.enqueue(request(handlers), id=own)
        assert await client.enqueue(request(handlers), id=own) == first
        with pytest.raises(Conflict):
            await client.enqueue(request(handlers, "another card"), id=own)


async def test_a_schedule_is_encrypted_and_a_deploy_is_no_change(storage: Storage) -> None:
    handlers = paying(OLD)
    specs = [schedule("nightly", request(handlers), "@daily") for _ in range(2)]
    assert specs[0] == specs[1]
    assert is_encrypted(specs[0].payload)
    await put_schedule(storage.cron, specs[0])
    async with a_runtime(storage, handlers).start() as handle:
        outcome = await trigger_now(storage, "nightly")
        assert CARD in await handle.result(outcome.job_id, timeout=50)
    assert CARD not in repr(await storage.cron.schedules())


async def test_no_error_and_no_log_line_holds_a_secret(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    handlers = HandlerRegistry(encryption=Encryption([OLD]))
    heard: list[Mapping[str, Any]] = []

    @handlers.job("log_in", max_attempts=1)
    async def log_in(user: str, password: Annotated[str, Secret]) -> None:
        heard.append({"user": user, "password": password})
        raise PermissionError(f"{user} may not log in with {password!r}")

    async with a_runtime(storage, handlers).start() as handle:
        outcome = await handle.enqueue(log_in.request("ada", "correct horse"))
        job = await ended(storage, outcome.job_id)
    assert heard == [{"user": "ada", "password": "correct horse"}]
    assert job.errors[-1].message == "ada may not log in with '***'"
    assert "raise PermissionError" in job.errors[-1].traceback
    assert "correct horse" not in repr(job)
    assert "ada may not log in" in caplog.text
    assert "correct horse" not in caplog.text
    assert all("correct horse" not in repr(vars(each)) for each in caplog.records)
