"""Bugs of requests to pods: of the stores, of the pod, and of the process that is not replaced."""

from tests.meta.bugs import Bug, Edit, files_of

_SUITE = files_of("pod_requests")
_RUN = "tests/runtime/test_pod_requests.py"
_DESK = "forge_jobs/runtime/heartbeat/requests.py"


def _sql(name: str, old: str, new: str, file: str = "fleet/requests") -> Bug:
    return Bug(f"requests: {name}", _SUITE, (Edit(f"forge_jobs/storage/sql/{file}.py", old, new),))


def _redis(name: str, file: str, old: str, new: str) -> Bug:
    edit = Edit(f"forge_jobs/storage/redis/lua/{file}.lua", old, new)
    return Bug(f"redis requests: {name}", _SUITE, (edit,), "redis")


def _pod(name: str, file: str, old: str, new: str, test: str) -> Bug:
    return Bug(f"requests: {name}", (f"{_RUN}::test_{test}",), (Edit(file, old, new),))


REQUEST_BUGS = (
    _sql(
        "the next registration obeys",
        '    pod_requests.c.host_id == bindparam("by"),\n'
        '    pod_requests.c.epoch == bindparam("at_epoch"),\n'
        "    pod_requests.c.answered_at.is_(None),\n",
        '    pod_requests.c.host_id == bindparam("by"),\n'
        "    pod_requests.c.answered_at.is_(None),\n",
    ),
    _sql("a request of the past is heard", "    pod_requests.c.until > _NOW,\n", ""),
    _sql(
        "a clock that was set back prolongs a request",
        ".where(_IS_OPEN, pod_requests.c.asked_at <= _NOW)",
        ".where(_IS_OPEN)",
    ),
    _sql(
        "the last answer counts",
        ".where(*_OF_LEASE, pod_requests.c.answered_at.is_(None))",
        ".where(*_OF_LEASE)",
    ),
    _sql("no beat is woken", "    tx.wake_beats()\n", ""),
    _sql(
        "no beat says that a request waits",
        "bool(row.letters), bool(row.requests))",
        "bool(row.letters), False)",
        "fleet/pods",
    ),
    _sql(
        "another registration ends the draining",
        '.where(*OF_LEASE, pods.c.quiet != bindparam("is_quiet"))',
        '.where(pods.c.host_id == bindparam("by"), pods.c.quiet != bindparam("is_quiet"))',
        "fleet/pods",
    ),
    _redis(
        "the next registration obeys",
        "lib/fleet/requests",
        "fields[2] == epoch and fields[8]",
        "fields[8]",
    ),
    _redis(
        "an answer hides other requests",
        "fleet/requests/answer_request",
        "text(waits))",
        "'0')",
    ),
    _redis(
        "a pod that has left comes back with an answer",
        "fleet/requests/answer_request",
        "if is_of(base, host, epoch) then",
        "if true then",
    ),
    _pod(
        "a pod acts twice when a reply was lost",
        _DESK,
        "                self._done.append(request.id)\n",
        "",
        "a_pod_whose_replies_are_lost_acts_and_answers_once",
    ),
    _pod(
        "a pod obeys what it has heard too late",
        _DESK,
        "is_in_time and took < _SLOW and request.id",
        "request.id",
        "a_request_that_is_heard_too_late_is_not_obeyed",
    ),
    _pod(
        "every beat asks for requests",
        _DESK,
        "            if is_asked:\n",
        "            if True:\n",
        "a_pod_that_is_not_asked_makes_no_call_for_requests",
    ),
    _pod(
        "stacks name whole paths",
        "forge_jobs/runtime/heartbeat/stacks.py",
        "_short(code.co_filename)",
        "code.co_filename",
        "stacks_show_where_each_job_stands_and_no_value",
    ),
    _pod(
        "stacks without a bound",
        "forge_jobs/runtime/heartbeat/stacks.py",
        "        if room < 0:\n",
        "        if False:\n",
        "stacks_of_many_jobs_are_bounded",
    ),
    Bug(
        "requests: a process follows one that was asked to stop",
        (
            "tests/cli/test_processes.py::"
            "test_a_pod_that_was_asked_to_stop_ends_and_no_process_follows",
        ),
        (Edit("forge_jobs/cli/processes/slot.py", "if ended.leaves.done():", "if False:"),),
    ),
)
