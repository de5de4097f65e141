"""Bugs of the operator: rights, what is hidden, and what an action on many does."""

from tests.meta.bugs import Bug, Edit

_BEYOND = "rights.py::test_no_operation_goes_beyond_the_access"
_ONE_QUEUE = "rights.py::test_an_actor_of_one_queue_works_there"
_NAMES = "rights.py::test_a_refusal_names_the_right"


def _bug(name: str, module: str, old: str, new: str, *tests: str) -> Bug:
    edit = Edit(f"forge_jobs/operating/{module}.py", old, new)
    return Bug(name, tuple(f"tests/operating/test_{test}" for test in tests), (edit,))


RIGHTS = (
    _bug(
        "operator: actions need no right to read",
        "access",
        "        if not self.access.read:\n            raise",
        "        if False:\n            raise",
        _BEYOND,
    ),
    _bug(
        "operator: an access without queues has all of them",
        "base",
        "        if not queues:\n            return structs.replace(which, ids=())\n",
        "",
        _BEYOND,
    ),
    _bug(
        "operator: a filter of another queue is not narrowed",
        "base",
        "mine.intersection(which.queues) if which.queues else mine",
        "which.queues or mine",
        "rights.py::test_a_filter_of_a_closed_queue_means_no_job",
    ),
    _bug(
        "operator: a job of a closed queue is shown by id",
        "jobs",
        "if job is None or not self.actor.sees(job.queue):",
        "if job is None:",
        _BEYOND,
    ),
    _bug(
        "operator: an id of a closed queue is known by the silence about it",
        "jobs",
        "if self.actor.access.queues is not None:\n            # Jobs",
        "if False:\n            # Jobs",
        _ONE_QUEUE,
    ),
    _bug(
        "operator: messages of errors are shown without the right to payloads",
        "hiding",
        'structs.replace(error, message=HIDDEN, traceback="")',
        "error",
        _BEYOND,
    ),
    _bug(
        "operator: limits are changed by who has one queue",
        "limits",
        "        self.actor.need(Right.QUEUES)\n",
        "",
        _NAMES,
    ),
)

OPERATING_BUGS: tuple[Bug, ...] = RIGHTS
