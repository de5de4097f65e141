"""Settings of every test: the event loop's kind, and how hard Hypothesis searches."""

import gc
import os
import signal
import zlib
from collections.abc import Collection, Generator, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from forge_jobs.reports import flush_reports, report_counts
from tests.support import servers, waiting
from tests.support.backends import BACKENDS, ONE_PLACE, VARIANTS, try_on
from tests.support.cases import named_cases
from tests.support.compiled import share_compiled_statements
from tests.support.introspected import share_introspected_types
from tests.support.loops import LOOPS
from tests.support.shared_statements import shares_statements

share_compiled_statements()
share_introspected_types()

_COMMON = settings(
    deadline=None,
    print_blob=True,
    # A failing example is replayed from the printed blob, so that nothing is left on disk.
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
# The same examples on each run: a change is refused for what it does, not by the luck of a draw.
settings.register_profile("quick", parent=_COMMON, max_examples=100, derandomize=True)
settings.register_profile("thorough", parent=_COMMON, max_examples=5_000)
settings.load_profile(os.environ.get("FORGE_HYPOTHESIS_PROFILE", "quick"))


_HANDLED: dict[signal.Signals, Any] = {
    signal.SIGHUP: signal.SIG_DFL,
    signal.SIGINT: signal.default_int_handler,
    signal.SIGQUIT: signal.SIG_DFL,
}


def _hear_signals() -> None:
    """Undo what ``nohup`` or a shell's ``&`` ignores, also for the processes that tests start."""
    for each, handler in _HANDLED.items():
        if signal.getsignal(each) is signal.SIG_IGN:
            signal.signal(each, handler)


_hear_signals()

_LOG_END = 8_000
"""Characters of a log that are shown with a failure."""


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """Name asyncio: the drivers of forge_jobs know no other loop.

    ``FORGE_TEST_LOOP`` names another kind of loop: see :mod:`tests.support.loops`.
    """
    return "asyncio", {"loop_factory": LOOPS[os.environ.get("FORGE_TEST_LOOP", "asyncio")]}


class _WholeLog(pytest.LogCaptureFixture):  # type: ignore[misc]
    """The log with the reports that wait for the thread which logs them."""

    @property
    def handler(self) -> Any:
        if report_counts().waiting:
            flush_reports()
        return super().handler


@pytest.fixture
def caplog(request: pytest.FixtureRequest) -> Iterator[pytest.LogCaptureFixture]:
    """As pytest's own, without a wait in each test for reports of other threads."""
    log = _WholeLog(request.node, _ispytest=True)
    yield log
    log._finalize()


_CROSSES_QUEUES = (
    "conformance/test_children",
    "conformance/test_exchange",
    "conformance/test_races",
    "conformance/test_storage",
    "conformance/test_wake",
)
"""Modules about what a cluster of Redis servers does its own way. All else is the scripts of one
server, run in one slot. ``make test-all`` tries those on a cluster too.
"""


_OF_PODS = ("tests/runtime/", "tests/executors/", "tests/commands/")
"""Tests of what one pod does. A child of a pod, and a program that a pod starts, know no store."""

_PROGRAMS = (
    "tests/backends/sqlite/",
    "tests/cli/",
    "tests/cluster/",
    "tests/docs/test_orders",
    "tests/kit/",
    "tests/web/",
)
"""Tests of whole programs of this package. Each of their processes takes as long as thirty tests of
a store. ``make test`` starts the programs for what is marked ``daily``, ``make test-all`` for all.
"""

_SERVERS = ("redis-cluster", "redis", "postgres")

_ABOVE_STORES = (
    "tests/commands/",
    "tests/executors/",
    "tests/operating/",
    "tests/problems/",
    "tests/web/",
    "tests/unit/test_client_",
    "tests/cli/terminal/",
    "tests/cli/test_job_logs",
)
"""Tests of what programs make of a store's answers, which the conformance suite holds alike. What
runs on SQLite too runs there every day, and on servers by ``make test-all``.
"""

_ONLY_SERVERS_HAVE = (
    "cluster/test_store_faults",
    "cluster/test_cases_outages",
)
"""Fleets of real processes that are tried on Redis every day. The others run on SQLite then, and
on all stores by ``make test-all``."""


_SLOW = frozenset(
    f"tests/{name}.py"
    for name in (
        "conformance/model/test_model",
        "conformance/test_bursts",
        "conformance/test_filter_terms",
        "conformance/test_list_orders",
        "conformance/test_sequence_walks",
        "runtime/test_bad_log_handlers",
        "runtime/test_blocked_loop",
        "runtime/test_clock_set_back",
        "runtime/test_cooldowns",
        "runtime/test_injection_in_trouble",
        "runtime/test_letters",
        "runtime/test_outbox",
        "runtime/test_outbox_order",
        "runtime/test_parts",
        "runtime/test_progress",
        "runtime/test_queues_added_later",
        "runtime/test_set_aside",
        "runtime/test_stopping_a_handler",
        "runtime/test_stopping_a_silent_store",
        "runtime/test_stopping_with_threads",
        "runtime/test_strikes",
        "unit/test_client_follow_log",
        "unit/test_client_watch",
        "unit/test_policy_desired_pods",
        "unit/test_policy_forecast",
        "unit/test_policy_what_if",
    )
)
"""Modules left out of ``make quick``, of which they were half of the time with 400 of 5,200 tests:
what they test takes seconds to happen, or thousands of cases. ``make test`` runs them."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Import a share of the test modules in each worker of xdist before all collect all of them.

    Of a new tree, pytest rewrites the assertions of each module and keeps the result in a file.
    Workers that collect in step would all rewrite all modules.
    """
    if not session.config.pluginmanager.hasplugin("dsession"):
        # What is collected stays, and each look for garbage would go through all of that.
        gc.disable()
    share: dict[str, Any] | None = getattr(session.config, "workerinput", None)
    if share is None:
        return
    folders = [Path(each) for each in session.config.args if Path(each).is_dir()]
    files = sorted({file for folder in folders for file in folder.rglob("test_*.py")})
    number, count = int(share["workerid"].removeprefix("gw")), share["workercount"]
    for file in files[number::count]:
        relative = file.resolve().relative_to(session.config.rootpath).with_suffix("")
        # The collection reports an import that fails.
        with suppress(Exception):
            import_module(".".join(relative.parts))


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Try in one place what knows no store: on a cluster only tests that a case names (ADR 269)."""
    test = metafunc.definition
    is_any_store = test.get_closest_marker("any_store") is not None
    knows_no_store = is_any_store or test.nodeid.startswith(_ABOVE_STORES)
    module, *_, name = test.nodeid.split("::")
    if not knows_no_store or f"{module}::{name}" in named_cases():
        return
    for fixture, found in metafunc._arg2fixturedefs.items():
        if list(found[-1].params or ()) == sorted(BACKENDS):
            try_on(metafunc, fixture, ONE_PLACE)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as long the tests that repeat on a store what another store shows, and mix the modules.

    Each worker of xdist begins with a part of the list, and one that has done its part takes from
    the ends of others. Modules that start processes wait most of the time, and some of their tests
    take a minute. They are the first part: other workers compute meanwhile, and none ends the run
    alone with such a test.
    """
    processes = {_module(item) for item in items if item.get_closest_marker("processes")}
    items.sort(key=lambda item: (_module(item) not in processes, _mixed(item)))
    on_a_file = {item.nodeid for item in items if "sqlite" in item.name}
    for item in items:
        if _module(item) in _SLOW:
            item.add_marker(pytest.mark.slow)
        if (
            _repeats_on_a_cluster(item)
            or _repeats_on_a_server(item)
            or _repeats_shared_statements(item)
            or _goes_another_way(item)
            or _asks_only_protocols(item)
            or _shows_the_same_on_a_file(item, on_a_file)
            or _is_an_example(item)
            or _repeats_a_daily_one(item)
        ):
            item.add_marker(pytest.mark.long)


def _module(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _mixed(item: pytest.Item) -> int:
    """Return a place for the module of a test, away from the modules beside it in the tree."""
    return zlib.crc32(_module(item).encode())


def _repeats_on_a_cluster(item: pytest.Item) -> bool:
    of_stores = item.nodeid.startswith(("tests/conformance/", *_OF_PODS))
    crosses = any(name in item.nodeid for name in _CROSSES_QUEUES)
    return of_stores and "redis-cluster" in item.name and not crosses


def _repeats_shared_statements(item: pytest.Item) -> bool:
    if "postgres" not in item.name:
        return False
    return shares_statements(item.nodeid, item.function)  # type: ignore[attr-defined]


def _goes_another_way(item: pytest.Item) -> bool:
    """Return whether a test of one rule goes another way, which the model tries every day."""
    return any(way in item.name for way in VARIANTS) and "conformance/model" not in item.nodeid


def _asks_only_protocols(item: pytest.Item) -> bool:
    """A runtime uses only the protocols of a store: a file and a server show both kinds."""
    return item.nodeid.startswith(_OF_PODS) and "postgres" in item.name


def _shows_the_same_on_a_file(item: pytest.Item, on_a_file: Collection[str]) -> bool:
    return item.nodeid.startswith(_ABOVE_STORES) and any(
        server in item.name and item.nodeid.replace(server, "sqlite") in on_a_file
        for server in _SERVERS
    )


def _is_an_example(item: pytest.Item) -> bool:
    """Programs of examples use what other tests test, and each starts a few processes."""
    is_program = item.get_closest_marker("processes") is not None
    return item.nodeid.startswith("tests/examples/") and is_program


def _repeats_a_daily_one(item: pytest.Item) -> bool:
    """Return whether ``daily`` leaves out the parameter, or the start of a program."""
    daily = item.get_closest_marker("daily")
    if daily is not None:
        return bool(daily.args) and not any(each in item.name for each in daily.args)
    is_program = item.get_closest_marker("processes") is not None
    return is_program and item.nodeid.startswith(_PROGRAMS)


def _repeats_on_a_server(item: pytest.Item) -> bool:
    on_a_server = "postgres" in item.name or "redis" in item.name
    return on_a_server and (
        item.get_closest_marker("any_store") is not None or _is_of_a_fleet(item)
    )


def _is_of_a_fleet(item: pytest.Item) -> bool:
    folders = (
        "tests/cluster/",
        "tests/chaos/",
        "tests/docs/test_orders",
        "tests/examples/",
        "tests/cli/test_demo",
    )
    every_day = "redis" in item.name and any(name in item.nodeid for name in _ONLY_SERVERS_HAVE)
    return item.nodeid.startswith(folders) and not every_day


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Processes start slowly where many do."""
    has_processes = item.get_closest_marker("processes") is not None
    waiting.be_patient(waiting.OF_PROCESSES if has_processes else waiting.IN_PROCESS)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what programs have said to a failure, as text that can be printed.

    Handlers of tests raise texts that are not UTF-8, and a worker of xdist can pass none on.
    """
    report = yield
    if report.failed:
        report.sections += _logs(item)
    report.sections = [
        (name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections
    ]
    return report


def _logs(item: pytest.Item) -> Iterator[tuple[str, str]]:
    """The ends of the logs that programs have written into the folder of the test."""
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    if not isinstance(folder, Path):
        return
    for path in sorted(folder.rglob("*log")):
        if path.is_file():
            said = path.read_text(errors="backslashreplace")[-_LOG_END:]
            yield f"{path.relative_to(folder)}", said


def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep what was collected for good, and begin what takes long to start."""
    # Else each full collection of garbage looks through thousands of tests.
    gc.collect()
    gc.freeze()
    gc.enable()
    # What a test makes is mostly gone by itself: a tenth as many looks find the rest as well.
    gc.set_threshold(7_000, 10, 10)
    # A cluster takes two seconds, so its start begins while other tests run.
    if servers.are_ours("redis-cluster") and any(
        "redis-cluster" in item.nodeid for item in session.items
    ):
        servers.begin_redis_cluster()
