"""Bugs of bursts: many new jobs of one key, on hold while their key has room."""

from tests.meta.bugs import Bug, Edit

_BURSTS = "tests/conformance/test_bursts.py::test_"
_IN_FRONT = "the_first_free_job_behind_a_burst_is_claimed_at_once"
_GOES = "when_ready_jobs_of_a_burst_go_before_they_run_the_next_ones_come"
_KINDS = "jobs_of_a_kind_that_no_pod_serves_keep_no_other_of_a_burst_waiting"
_FILES = {
    "sqlite": "forge_jobs/storage/sql/hot/behind.py",
    "postgres": "forge_jobs/storage/sql/hot/enqueue.py",
    "redis": "forge_jobs/storage/redis/lua/lib/jobs/enqueue/parking.lua",
}


def _bug(backend: str, name: str, old: str, new: str, test: str, file: str = "") -> Bug:
    edit = Edit(file or _FILES[backend], old, new)
    return Bug(f"bursts on {backend}: {name}", (_BURSTS + test,), (edit,), backend)


BURST_BUGS: tuple[Bug, ...] = (
    _bug(
        "sqlite",
        "all jobs of a burst are ready",
        "elif self._counts[key] > room + MANY:",
        "elif False:",
        _IN_FRONT,
    ),
    _bug(
        "sqlite",
        "a burst leaves no opening",
        "        self._open(chosen)\n",
        "",
        _IN_FRONT,
    ),
    _bug(
        "sqlite",
        "a few jobs more than there is room are a burst",
        "MANY = 100\n",
        "MANY = 0\n",
        "few_jobs_more_than_there_is_room_are_ready",
    ),
    _bug(
        "sqlite",
        "a burst goes on hold behind many others that are ready",
        "if left[queue] > 0 and ready[queue] < most:",
        "if left[queue] > 0:",
        "a_burst_behind_many_ready_jobs_is_ready_too",
    ),
    _bug(
        "sqlite",
        "any number of bursts goes on hold",
        "if left[queue] > 0 and ready[queue] < most:",
        "if ready[queue] < most:",
        "few_keys_of_a_queue_have_bursts_on_hold_at_once",
    ),
    _bug(
        "sqlite",
        "an opening is closed while a burst waits and the key has room",
        "                gone += ids[1:]\n",
        "                gone += ids\n",
        _GOES,
        "forge_jobs/storage/sql/hot/permits.py",
    ),
    _bug(
        "postgres",
        "all jobs of a burst are ready",
        "CASE WHEN jobs > at_most - used + {behind.MANY} THEN (",
        "CASE WHEN false THEN (",
        _IN_FRONT,
    ),
    _bug(
        "postgres",
        "a burst leaves no opening",
        "FROM decided CROSS JOIN moment WHERE is_beyond",
        "FROM decided CROSS JOIN moment WHERE is_beyond AND jobs < 100",
        _IN_FRONT,
    ),
    _bug(
        "postgres",
        "a burst goes on hold behind many others that are ready",
        ") < jobs / {behind.IN_FRONT} AND (",
        ") < 1000000 AND (",
        "a_burst_behind_many_ready_jobs_is_ready_too",
    ),
    _bug(
        "postgres",
        "any number of bursts goes on hold",
        ") < {behind.MOST_OPEN} ELSE false END",
        ") < 1000000 ELSE false END",
        "few_keys_of_a_queue_have_bursts_on_hold_at_once",
    ),
    _bug(
        "postgres",
        "a large burst leaves no opening",
        "self._tx.free(*key)",
        "pass",
        _IN_FRONT,
        _FILES["sqlite"],
    ),
    _bug(
        "postgres",
        "an opening is closed while a burst waits and the key has room",
        "    IF cardinality(seen_names) > 0 THEN\n",
        "    IF false THEN\n",
        _GOES,
        "forge_jobs/storage/sql/migrations/0034_turns_left_out.postgresql.sql",
    ),
    _bug(
        "redis",
        "all jobs of a burst are ready",
        "is_held = numbers[permit] > room + MANY",
        "is_held = false",
        _IN_FRONT,
    ),
    _bug(
        "redis",
        "fewer jobs of a burst are ready than there is room",
        "freed_permits[permit], at_end = room, open_freed",
        "freed_permits[permit], at_end = room - 1, open_freed",
        _IN_FRONT,
    ),
    _bug(
        "redis",
        "a ready job of a burst that goes brings no other",
        "    remove_ready(base, job)\n    free_permit(base, job.permit)\n",
        "    remove_ready(base, job)\n",
        _GOES,
        "forge_jobs/storage/redis/lua/lib/jobs/finalize/jobs.lua",
    ),
    _bug(
        "redis",
        "a ready job of a burst that is postponed brings no other",
        "    free_permit(base, before.permit)\n",
        "    local _ = before\n",
        _GOES,
        "forge_jobs/storage/redis/lua/jobs/one/edit.lua",
    ),
    _bug(
        "redis",
        "a ready job of an unknown kind brings no other",
        "      free_permit(base, job.permit)\n",
        "",
        _KINDS,
        "forge_jobs/storage/redis/lua/jobs/claim/hold.lua",
    ),
    _bug(
        "redis",
        "a job that comes first waits behind ready ones of its key",
        "and is_before(place, first_places[of]) then",
        "and false then",
        "a_job_with_a_higher_priority_goes_before_the_ready_ones_of_a_burst",
    ),
)
