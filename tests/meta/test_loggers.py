"""The engine logs by one way, which waits only where a thread may wait."""

from pathlib import Path

import forge_jobs

_PACKAGE = Path(forge_jobs.__file__).parent
_EXCEPTIONS = {
    "reports.py",  # is that way
    "runtime/queue/job_context.py",  # the log of handlers
    "runtime/executors/supply.py",  # lines of handlers in other processes
    "runtime/executors/child.py",  # is another process, without such threads
    "cli/logs.py",  # sets the levels of drivers
}


def test_the_engine_has_no_logger_that_may_block_a_thread_that_must_not_wait() -> None:
    modules = {path.relative_to(_PACKAGE).as_posix(): path for path in _PACKAGE.rglob("*.py")}
    found = {name for name, path in modules.items() if "logging.getLogger(" in path.read_text()}
    assert found == _EXCEPTIONS, "use reporter(__name__) of forge_jobs.reports"
