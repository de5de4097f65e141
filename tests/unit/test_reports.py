"""Log lines of threads of the engine that must not wait for the log."""

import logging
import multiprocessing
import sys
import threading
from collections.abc import Callable

import pytest

from forge_jobs import reports
from forge_jobs.clock import SystemClock
from forge_jobs.reports import WAITING_MOST, Stack, defer_reports, flush_reports, report_counts
from tests.support.logs import BlockingHandler, RaisingHandler, added

logger = reports.reporter("forge_jobs.tests")


def on_a_deferring_thread(work: Callable[[], object]) -> None:
    """Run ``work`` as the heartbeat does, and fail when it waits."""

    def run() -> None:
        defer_reports()
        work()

    thread = threading.Thread(target=run, name="the heartbeat", daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive(), "it waits for the log"


def test_a_report_says_where_and_when_it_was_made(caplog: pytest.LogCaptureFixture) -> None:
    before = SystemClock().time_us() / 1_000_000

    def report() -> None:
        try:
            raise ValueError("wrong")
        except ValueError:
            logger.exception("of %s", "a thread", extra={"host_id": "pod"})

    on_a_deferring_thread(report)
    assert flush_reports(10)
    [record] = caplog.records
    assert (record.getMessage(), record.levelname) == ("of a thread", "ERROR")
    assert (record.threadName, record.funcName) == ("the heartbeat", "report")
    assert record.filename == "test_reports.py"
    assert record.__dict__["host_id"] == "pod"
    assert record.exc_info is not None
    assert record.exc_info[0] is ValueError
    assert before <= record.created <= SystemClock().time_us() / 1_000_000


def test_other_threads_log_at_once_with_their_place(caplog: pytest.LogCaptureFixture) -> None:
    logger.warning("now")
    assert [(each.getMessage(), each.funcName) for each in caplog.records] == [
        ("now", "test_other_threads_log_at_once_with_their_place")
    ]


def test_reports_wait_while_the_log_blocks_and_too_many_are_counted() -> None:
    log = BlockingHandler(lambda record: record.name == logger.name)
    before = report_counts()

    def more() -> None:
        for _ in range(WAITING_MOST - 1 + 5):
            logger.error("more")

    with added(log):
        on_a_deferring_thread(lambda: logger.error("one"))
        assert log.blocks.wait(10)
        on_a_deferring_thread(more)
        counts = report_counts()
        assert counts.waiting == WAITING_MOST
        assert counts.unlogged - before.unlogged == 5
        assert not flush_reports(0.01)
        log.let_go()
        assert flush_reports(10)


def test_other_threads_do_not_wait_behind_a_report_that_blocks() -> None:
    said: list[str] = []

    def blocks(record: logging.LogRecord) -> bool:
        said.append(record.getMessage())
        return "blocks" in record.getMessage()

    log = BlockingHandler(blocks)
    with added(log):
        on_a_deferring_thread(lambda: logger.error("blocks"))
        assert log.blocks.wait(10)
        logger.error("comes later")
        assert report_counts().waiting == 2
        log.let_go()
        assert flush_reports(10)
    assert said == ["blocks", "comes later"]


def test_a_handler_that_raises_is_counted_and_ends_nothing() -> None:
    before = report_counts().failed
    with added(RaisingHandler()):
        logger.error("here")
        on_a_deferring_thread(lambda: logger.error("there"))
        assert flush_reports(10)
    assert report_counts().failed == before + 2


@pytest.mark.parametrize("name", ["asyncio", "aiosqlite", "sqlalchemy.pool", "redis.cluster"])
def test_what_libraries_log_there_goes_the_same_way(name: str) -> None:
    library = logging.getLogger(name)
    log = BlockingHandler(lambda record: record.name == name)
    with added(log):
        on_a_deferring_thread(lambda: library.error("from inside"))
        assert log.blocks.wait(10), "it is logged all the same"
        log.let_go()
        assert flush_reports(10)


def test_a_stack_is_made_into_text_when_it_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    ready, go = threading.Event(), threading.Event()

    def where_it_stands() -> None:
        ready.set()
        go.wait(10)

    thread = threading.Thread(target=where_it_stands)
    thread.start()
    ready.wait(10)
    stack = Stack(sys._current_frames()[thread.ident or 0])
    go.set()
    thread.join()
    logger.warning("at\n%s", stack)
    assert "in where_it_stands\n    go.wait(10)" in caplog.text
    assert str(Stack(None)) == "(the thread has ended)"


def _child() -> None:
    on_a_deferring_thread(lambda: logger.error("in the child"))
    if not flush_reports(10):
        raise SystemExit(1)


def test_a_forked_child_reports_though_its_parent_was_blocked() -> None:
    log = BlockingHandler(lambda record: record.name == logger.name)
    with added(log):
        on_a_deferring_thread(lambda: logger.error("in the parent"))
        assert log.blocks.wait(10)
        log.let_go()
        child = multiprocessing.get_context("fork").Process(target=_child)
        child.start()
        child.join(20)
        assert child.exitcode == 0
