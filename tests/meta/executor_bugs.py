"""Bugs of handlers in processes. Each names the test that states the rule."""

from tests.meta.bugs import Bug, Edit

_ROOM = "forge_jobs/runtime/executors"
_TESTS = "tests/executors/test_"


def _bug(name: str, module: str, old: str, new: str, test: str) -> Bug:
    return Bug(name, (f"{_TESTS}{test}",), (Edit(f"{_ROOM}/{module}.py", old, new),))


EXECUTOR_BUGS = [
    _bug(
        "process: what came from the child is not killed",
        "guardian",
        "            left = self._reap_orphans()\n            if",
        "            left = []\n            if",
        "processes.py::test_a_child_that_dies_takes_every_process_along",
    ),
    _bug(
        "process: the number of runs is ignored",
        "supply",
        "child.runs >= max_runs",
        "child.runs >= 10 * max_runs",
        "limits.py::test_a_child_is_replaced_after_its_runs",
    ),
    _bug(
        "process: a crash counts as a failure",
        "runner",
        "            cause=Cause.CRASHED, error=self._record(run, Cause.CRASHED",
        "            cause=Cause.FAILED, error=self._record(run, Cause.FAILED",
        "processes.py::test_a_job_that_kills_its_process_as_often_as_allowed_is_dead",
    ),
    _bug(
        "process: a guardian goes on without the pod",
        "guardian",
        "            self._pod_is_gone = True\n            self._kill()\n",
        "            self._pod_is_gone = True\n",
        "children.py::test_a_guardian_without_a_pod_kills_its_program",
    ),
]
