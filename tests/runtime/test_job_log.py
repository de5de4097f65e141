"""Log lines about the ends of jobs, and the job in the lines of a handler."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import pytest

from forge_jobs import Dead, Fixed, HandlerRegistry, JobContext, Secret, Snoozed
from forge_jobs.model.ids import HostId
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.model.transitions import Transition
from forge_jobs.policy.transitions import SUCCESS, AttemptEnd
from forge_jobs.runtime.queue import job_log
from forge_jobs.runtime.queue.job_log import LINES_PER_SECOND, JobLog
from forge_jobs.storage.protocols import Storage
from tests.support.backends import BACKENDS
from tests.support.factories import a_claimed_job
from tests.support.runtimes import a_runtime, ended, job_because
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

DONE = Transition(status=JobStatus.DONE, cause=Cause.SUCCEEDED)
AT_ONCE = Fixed(timedelta(0))


@pytest.fixture
async def storage(tmp_path: Path) -> AsyncGenerator[Storage]:
    """The log knows nothing of stores, so one will do."""
    async with BACKENDS["sqlite"](tmp_path, None) as opened:
        yield opened


class Lines:
    """Records that a logger was given."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    def of(self, name: str) -> list[logging.LogRecord]:
        return [each for each in self._caplog.records if each.name == name]

    @property
    def ends(self) -> list[logging.LogRecord]:
        return self.of("forge_jobs.runtime.queue.job_log")

    @property
    def texts(self) -> list[str]:
        return [each.getMessage() for each in self.ends]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[Lines]:
    with caplog.at_level(logging.DEBUG, logger="forge_jobs"):
        yield Lines(caplog)


# -- failures ------------------------------------------------------------------------------------


async def test_failures_are_grouped_by_kind_and_error_and_bring_their_exception(
    storage: Storage, lines: Lines
) -> None:
    handlers = HandlerRegistry()

    @handlers.job("mail 100%", max_attempts=2, retry=AT_ONCE)
    async def fail(address: str) -> None:
        raise ValueError(f"no such mailbox: {address}")

    async with a_runtime(storage, handlers).start() as handle:
        for address in ("ada", "bob"):
            outcome = await handle.enqueue(fail.request(address))
            await ended(storage, outcome.job_id)

    first, last, other_first, other_last = lines.ends
    assert first.msg == other_first.msg, "one group for each kind and error"
    assert last.msg == other_last.msg != first.msg
    assert first.getMessage().startswith(
        "mail 100% failed with ValueError, retry in 0.0 s: no such"
    )
    assert last.getMessage().startswith("mail 100% failed with ValueError, now dead: no such")
    assert (first.levelno, last.levelno) == (logging.WARNING, logging.ERROR)
    assert last.exc_info is not None
    kind, raised, frames = last.exc_info
    assert (kind, str(raised)) == (ValueError, "no such mailbox: ada")
    assert frames is not None
    assert frames.tb_frame.f_code.co_name == "fail", "from the handler on"
    fields = vars(first)
    assert (fields["kind"], fields["error_type"]) == ("mail 100%", "ValueError")
    assert fields["job_id"] in first.getMessage()


async def test_a_timeout_is_logged_as_one(storage: Storage, lines: Lines) -> None:
    handlers = HandlerRegistry()

    @handlers.job("slow", max_attempts=1, timeout=0.05)
    async def slow() -> None:
        await asyncio.Event().wait()

    async with a_runtime(storage, handlers).start() as handle:
        outcome = await handle.enqueue(slow.request())
        await ended(storage, outcome.job_id)

    [line] = lines.ends
    assert line.getMessage().startswith("slow timed out with TimeoutError, now dead: ")
    assert line.exc_info is not None
    assert line.exc_info[0] is TimeoutError
    assert line.exc_info[2] is not None


async def test_an_exception_that_cannot_be_printed_costs_no_slot(
    storage: Storage, lines: Lines
) -> None:
    handlers = HandlerRegistry()

    class Unprintable(Exception):
        def __str__(self) -> str:
            raise SystemExit("no text")

    @handlers.job("fails", max_attempts=1)
    async def fails() -> None:
        raise Unprintable

    async with a_runtime(storage, handlers).start() as handle:
        for _ in range(2):
            outcome = await handle.enqueue(fails.request())
            assert (await ended(storage, outcome.job_id)).status is JobStatus.DEAD
    assert all("<unprintable" in text for text in lines.texts)


async def test_a_log_filter_that_ends_the_process_costs_no_slot(
    storage: Storage, lines: Lines
) -> None:
    def refuse(record: logging.LogRecord) -> bool:
        raise SystemExit("the filter is the program's code")

    handlers = HandlerRegistry()

    @handlers.job("fails", max_attempts=1)
    async def fails() -> None:
        raise Dead("as wanted")

    job_log.logger.logger.addFilter(refuse)
    try:
        async with a_runtime(storage, handlers).start() as handle:
            for _ in range(2):
                outcome = await handle.enqueue(fails.request())
                assert (await ended(storage, outcome.job_id)).status is JobStatus.DEAD
    finally:
        job_log.logger.logger.removeFilter(refuse)
    told = lines.of("forge_jobs.runtime.queue.ends")
    assert [each.getMessage().endswith(": SystemExit") for each in told] == [True, True]


# -- every job -----------------------------------------------------------------------------------


async def test_in_a_program_of_its_own_only_debug_shows_every_job(
    storage: Storage, lines: Lines
) -> None:
    handlers = HandlerRegistry()
    waits = [True]

    @handlers.job("mail")
    async def mail() -> None:
        if waits:
            raise Snoozed(waits.pop() and 0)

    async with a_runtime(storage, handlers).start() as handle:
        outcome = await handle.enqueue(mail.request())
        await ended(storage, outcome.job_id)

    assert [each.levelno for each in lines.ends] == [logging.DEBUG, logging.DEBUG]
    snoozed, done = lines.texts
    assert snoozed.startswith("mail snoozed after 0.")
    assert "due again in 0.0 s" in snoozed
    assert done.startswith("mail done after 0.")
    assert done.endswith(f"(job {outcome.job_id}, attempt 1 of 5)")


async def test_a_runtime_logs_every_job_when_it_is_asked_to(storage: Storage, lines: Lines) -> None:
    handlers = HandlerRegistry()

    @handlers.job("mail")
    async def mail() -> None: ...

    async with a_runtime(storage, handlers, logs_every_job=True).start() as handle:
        outcome = await handle.enqueue(mail.request())
        await job_because(storage, outcome.job_id, Cause.SUCCEEDED)

    assert [each.levelno for each in lines.ends] == [logging.INFO]


async def test_beyond_twenty_a_second_there_are_counts(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_log, "_WINDOW", 0.2)
    log = JobLog(HostId("POD"), every_job=True)
    failure = AttemptEnd(cause=Cause.SNOOZED)
    again = Transition(status=JobStatus.PENDING, cause=Cause.SNOOZED)

    def shown() -> list[str]:
        return [each.getMessage() for each in lines.ends if each.levelno == logging.INFO]

    for _ in range(LINES_PER_SECOND + 30):
        log.ended(a_claimed_job(kind="mail"), SUCCESS, DONE, 0.1)
    log.ended(a_claimed_job(kind="report"), failure, again, 0.1)
    assert len(shown()) == LINES_PER_SECOND

    await wait_until(lambda: len(shown()) > LINES_PER_SECOND, description="the counts are said")
    assert shown()[-1].startswith("31 jobs ended in 0.")
    assert shown()[-1].endswith(" s: mail done 30, report snoozed 1")

    # More than may be shown ended in that second, so the next one begins with counting.
    log.ended(a_claimed_job(kind="mail"), SUCCESS, DONE, 0.1)
    await wait_until(lambda: shown()[-1].startswith("1 jobs"), description="the pace has slowed")
    log.ended(a_claimed_job(kind="mail"), SUCCESS, DONE, 0.1)
    assert shown()[-1].startswith("mail done after 0.100 s")


async def test_what_was_counted_is_said_at_the_end(lines: Lines) -> None:
    log = JobLog(HostId("POD"), every_job=True)
    for _ in range(LINES_PER_SECOND + 1):
        log.ended(a_claimed_job(kind="mail"), SUCCESS, DONE, 0.1)

    log.close()
    log.close()

    said = [text for text in lines.texts if "jobs ended in" in text]
    assert len(said) == 1
    assert said[0].endswith(": mail done 1")


# -- ctx.log -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "args", "text"),
    [
        ("to %s, %d times", ("ada", 2), "to ada, 2 times"),
        ("100% sure", (), "100% sure"),
        ("to %(who)s", ({"who": "ada"},), "to ada"),
        (ValueError("odd %s"), (), "odd %s"),
    ],
)
async def test_the_lines_of_a_handler_name_their_job(
    storage: Storage, lines: Lines, message: Any, args: tuple[Any, ...], text: str
) -> None:
    handlers = HandlerRegistry()

    @handlers.job("mail")
    async def mail(ctx: JobContext) -> None:
        ctx.log.info(message, *args, extra={"order": 7})

    async with a_runtime(storage, handlers).start() as handle:
        outcome = await handle.enqueue(mail.request())
        await ended(storage, outcome.job_id)

    [line] = lines.of("forge_jobs.job")
    assert line.getMessage() == f"{text} [mail, job {outcome.job_id}, attempt 1]"
    assert line.funcName == "mail", "the caller's place, not ours"
    assert outcome.job_id not in line.msg, "one group for all jobs"
    assert (vars(line)["kind"], vars(line)["order"]) == ("mail", 7)


class Login:
    """A value whose text holds a secret."""

    def __init__(self, password: str) -> None:
        self._password = password

    def __str__(self) -> str:
        return f"login by {self._password}"


async def test_the_lines_of_a_handler_show_no_secret(storage: Storage, lines: Lines) -> None:
    handlers = HandlerRegistry()

    def speak(ctx: JobContext, password: str) -> None:
        ctx.log.info("%s of 100%%: %r %d", Login(password), [password], 7)
        ready_made = f"with {password}, 100%"
        ctx.log.debug(ready_made, stack_info=True)
        ctx.log.warning(password, extra={"order": 7, "form": {"password": password}})
        wants_a_number = f"%d {password}"
        ctx.log.warning(wants_a_number, "none")
        try:
            raise PermissionError(f"wrong: {password} %s")
        except PermissionError as error:
            ctx.log.exception("refused with 100%%: %s", error)
            ctx.log.error("once more", exc_info=error)

    @handlers.job("log.in")
    async def log_in(ctx: JobContext, password: Annotated[str, Secret]) -> None:
        speak(ctx, password)

    async with a_runtime(storage, handlers).start() as handle:
        job_id = (await handle.enqueue(log_in.request("hunter2"))).job_id
        job = await ended(storage, job_id)
    assert job.errors == ()
    spoken = lines.of("forge_jobs.job")
    name = f"[log.in, job {job_id}, attempt 1]"
    texts = [line.getMessage() for line in spoken]
    assert texts[:3] == [
        f"login by *** of 100%: ['***'] 7 {name}",
        f"with ***, 100% {name}",
        f"*** {name}",
    ]
    assert texts[3].startswith("%d *** (could not be formatted: TypeError) ")
    assert texts[4].startswith(f"refused with 100%: wrong: *** %s {name}\nTraceback (most recent")
    assert texts[4].endswith("PermissionError: wrong: *** %s")
    assert texts[5].startswith(f"once more {name}\nTraceback (most recent")
    assert {line.funcName for line in spoken} == {"speak"}, "the caller's place, not ours"
    fields = vars(spoken[2])
    assert (fields["order"], fields["form"]) == (7, "{'password': '***'}")
    shown = [logging.Formatter().format(line) for line in lines.of("forge_jobs.job")]
    assert "hunter2" not in "".join(shown)
    assert all("hunter2" not in repr(vars(line)) for line in spoken)
