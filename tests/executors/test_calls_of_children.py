"""A handler in a process reaches the pod: the context, the log, the store."""

import logging
import socket

import msgspec
import pytest

from forge_jobs import RateLimit, Workflow
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.model.progress import LINE_BYTES
from forge_jobs.runtime.executors.messages import Frames, FromChild
from forge_jobs.runtime.executors.remote import Pod, PodNotes
from forge_jobs.runtime.executors.sending import OwnSocket
from forge_jobs.storage.protocols import Storage
from tests.support import process_handlers as jobs
from tests.support.factories import a_claimed_job, enqueue_one, get_job
from tests.support.runtimes import a_runtime, ended

pytestmark = [pytest.mark.anyio, pytest.mark.processes]


@pytest.mark.parametrize("kind", ["enqueues", "enqueues_async"])
async def test_a_handler_enqueues_through_its_pod(storage: Storage, kind: str) -> None:
    async with a_runtime(storage, jobs.handlers, workers=2).start() as handle:
        outcome = await handle.enqueue(getattr(jobs, kind).request())
        job_ids = await handle.result(outcome.job_id, 60)
        assert (await handle.result(job_ids[0], 60))[0] == 3
    first = await get_job(storage, job_ids[0])
    if kind == "enqueues":
        assert first.priority == 7
    else:
        assert first.tags == ("from-a-child",)


async def test_a_handler_adds_steps_through_its_pod(storage: Storage) -> None:
    workflow = Workflow("in a child")
    workflow.step("adds", jobs.adds_steps.request())
    async with a_runtime(storage, jobs.handlers, workers=2).start() as handle:
        stored = await handle.enqueue_workflow(workflow)
        assert await handle.result(stored.steps["adds"].job_id, 60) == ["many", "sum"]
        state = await handle.client.workflow(stored.id)
    assert state.total == 3
    assert state.steps["many"].after == {"sum": "continue"}
    assert (await get_job(storage, state.steps["many"].job_id)).tags == ("many",)
    assert (await handle.client.group(state.steps["many"].job_id)).total == 2


async def test_what_the_pod_refuses_is_refused_in_the_child_with_the_same_words(
    storage: Storage,
) -> None:
    async with a_runtime(storage, jobs.handlers).start() as handle:
        outcome = await handle.enqueue(jobs.misuses.request())
        delay, scope, finish = await handle.result(outcome.job_id, 60)
    assert delay.startswith("InvalidInput: delay: is")
    assert scope.startswith("NotFound: ")
    assert finish.startswith("InvalidInput: finish_in: is not there for a handler in a process")


async def test_a_timeout_is_extended_and_tokens_are_taken_from_a_child(storage: Storage) -> None:
    runtime = a_runtime(storage, jobs.handlers, rate_limits={"api": RateLimit(1, per=3600)})
    async with runtime.start() as handle:
        outcome = await handle.enqueue(jobs.extends.request())
        assert await handle.result(outcome.job_id, 60) is True


async def test_a_line_is_cut_in_the_child_without_a_part_of_a_secret() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        notes = PodNotes(Pod(OwnSocket(theirs))).open(a_claimed_job(), ("secret-word",))
        notes.add_line(notes.now(), 20, "x" * (LINE_BYTES - 8) + "secret-word" + "y" * 50_000)
        [call] = Frames(FromChild).feed(ours.recv(100_000))
    level, text = msgspec.msgpack.decode(call.arguments, type=tuple[int, str])
    assert (level, len(text)) == (20, LINE_BYTES)
    assert "sec" not in text


async def test_lines_of_a_child_reach_the_log_of_the_pod(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with a_runtime(storage, jobs.handlers).start() as handle:
        outcome = await handle.enqueue(jobs.logs.request())
        await handle.result(outcome.job_id, 60)
    [own] = [each for each in caplog.records if "half done" in each.getMessage()]
    assert f"job {outcome.job_id}" in own.getMessage()
    assert own.__dict__["job_id"] == outcome.job_id
    [odd] = [each for each in caplog.records if each.name == "shop"]
    assert (odd.levelno, odd.__dict__["order"]) == (logging.ERROR, 7)
    assert odd.exc_text is not None
    assert "ValueError: odd" in odd.exc_text


async def test_arguments_are_checked_in_the_child_and_the_pod_decodes_nothing(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_runtime(storage, jobs.handlers).start() as handle:
        good = await handle.enqueue(jobs.checked.request(jobs.Size(3)))

        def refuse(*_: object) -> None:
            raise AssertionError("the pod decodes no payload of a handler in a process")

        monkeypatch.setattr(jobs.checked, "decode", refuse)
        assert await handle.result(good.job_id, 60) == 3
    job = await get_job(storage, good.job_id)
    assert job.status is JobStatus.DONE


async def test_a_payload_that_does_not_fit_fails_its_job_alone(storage: Storage) -> None:
    payload = '{"size": {"width": "wide"}}'
    stored = await enqueue_one(storage, kind="process.checked", payload=payload, max_attempts=1)
    async with a_runtime(storage, jobs.handlers).start():
        job = await ended(storage, stored)
    assert (job.status, job.cause) == (JobStatus.DEAD, Cause.FAILED)
    assert job.errors[0].message.startswith("checked.size.width")


async def test_a_result_of_ten_megabytes_is_refused_as_from_a_thread(storage: Storage) -> None:
    async with a_runtime(storage, jobs.handlers).start() as handle:
        most = await handle.enqueue(jobs.large.request(1_000_000))
        too_much = await handle.enqueue(jobs.large.request(10_000_000))
        job = await ended(storage, too_much.job_id)
        assert len(await handle.result(most.job_id, 60)) == 1_000_000
    assert job.status is JobStatus.DONE
    assert "takes 10000002 bytes as JSON" in job.errors[0].message


async def test_lines_of_a_child_show_no_secret(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with a_runtime(storage, jobs.handlers).start() as handle:
        outcome = await handle.enqueue(jobs.whispers.request("hunter2"))
        await ended(storage, outcome.job_id)
    assert "with *** [process.whispers, job " in caplog.text
    assert "hunter2" not in caplog.text


async def test_a_result_that_json_cannot_carry_is_no_failure(storage: Storage) -> None:
    async with a_runtime(storage, jobs.handlers).start() as handle:
        job = await ended(storage, (await handle.enqueue(jobs.not_json.request())).job_id)
    assert job.status is JobStatus.DONE
    assert job.errors[0].cause is Cause.SUCCEEDED


async def test_progress_lines_and_results_of_parents_cross(storage: Storage) -> None:
    async with a_runtime(storage, jobs.handlers).start() as handle:
        parent = await handle.enqueue(jobs.adds.request(20, 3))
        child = await handle.enqueue(jobs.tells.request(), after=[parent.job_id])
        assert await handle.result(child.job_id, 60) == [23]
    progress = (await storage.jobs.states([child.job_id]))[child.job_id].progress
    assert progress is not None
    assert (progress.current, progress.total, progress.message) == (1, 2, "half")
    lines = (await storage.jobs.job_log(child.job_id, attempt=None)).lines
    assert [line.text for line in lines] == ["a kept line"]
