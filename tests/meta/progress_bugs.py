"""Bugs of progress, log lines and watches, with the test that catches each."""

from tests.meta.bugs import Bug, Edit

_STORES = "tests/conformance/test_progress.py::test_"
_RUNTIME = "tests/runtime/test_progress.py::test_"
_WATCH = "tests/unit/test_client_watch.py::test_"


def _bug(name: str, path: str, old: str, new: str, test: str) -> Bug:
    backend = "redis" if "/redis/" in path else "sqlite"
    return Bug(name, (test,), (Edit(f"forge_jobs/{path}", old, new),), backend)


PROGRESS_BUGS = [
    _bug(
        "progress: a lost claim is heard on SQL",
        "storage/sql/progress/notes.py",
        "        and (row.status == JobStatus.IN_PROGRESS.value"
        " or row.settled_token == claim.token)\n",
        "",
        f"{_STORES}a_lost_claim_tells_nothing",
    ),
    _bug(
        "progress: the pod of a claim does not count on Redis",
        "storage/redis/lua/lib/progress/noting.lua",
        "v[4] == host and ",
        "",
        f"{_STORES}every_part_of_the_claim_counts",
    ),
    _bug(
        "progress: no bound of bytes on SQL",
        "storage/sql/progress/notes.py",
        "after.bytes - BYTES_KEPT",
        "0",
        f"{_STORES}the_bytes_of_an_attempt_are_bounded",
    ),
    _bug(
        "progress: no bound of lines on Redis",
        "storage/redis/lua/lib/progress/noting.lua",
        "    redis.call('LTRIM', key, -most_lines, -1)\n",
        "",
        f"{_STORES}the_newest_lines_stay",
    ),
    _bug(
        "progress: lines of all attempts come together on SQL",
        "storage/sql/progress/read.py",
        '        log_lines.c.attempt == bindparam("at_attempt"),\n',
        '        log_lines.c.attempt >= 0 * bindparam("at_attempt"),\n',
        f"{_STORES}each_attempt_has_lines_of_its_own",
    ),
    _bug(
        "progress: the last words of a run come after the end",
        "runtime/queue/loop.py",
        "        if ends and progress.waiting:\n",
        "        if False:\n",
        f"{_RUNTIME}what_a_run_tells_last_is_there_when_its_end_is_seen",
    ),
    _bug(
        "watch: the state that is not read stays, and the last is lost",
        "clients/watching.py",
        "        self._waiting[state.id] = state\n",
        "        self._waiting.setdefault(state.id, state)\n",
        f"{_WATCH}what_comes_between_two_reads_is_merged_and_the_last_is_there",
    ),
]
