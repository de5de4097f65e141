"""Bugs of limits by key, with the test that catches each. Redis has its own in ``permit_bugs``."""

from tests.meta.bugs import Bug, Edit

_SUITE = "tests/conformance/test_limits_by_key.py::test_"
_SQL = "storage/sql/"


def _bug(name: str, module: str, old: str, new: str, test: str, backend: str = "sqlite") -> Bug:
    edit = Edit(f"forge_jobs/{module}.py", old, new)
    return Bug(f"limit: {name}", (f"{_SUITE}{test}",), (edit,), backend)


_ENDS = "any_end_of_a_claim_makes_room_for_the_next_job"
_EACH = "of_each_key_as_many_jobs_run_as_the_limit_says"

_ADMISSION = ("tests/admission/test_admission.py",)
_PERMITS = f"forge_jobs/{_SQL}hot/permits.py"


def _drawn(name: str, file: str, old: str, new: str, backend: str = "sqlite") -> Bug:
    """A bug that the simulation must meet in the seeds of every landing."""
    return Bug(f"limit: {name}", _ADMISSION, (Edit(file, old, new),), backend)


_FUNCTIONS = f"forge_jobs/{_SQL}migrations/0033_openings_by_key.postgresql.sql"
_JOB_BY_JOB = f"forge_jobs/{_SQL}migrations/0034_turns_left_out.postgresql.sql"


def _step(name: str, old: str, new: str, test: str, file: str = _JOB_BY_JOB) -> Bug:
    """A bug of the functions that claim on Postgres."""
    edit = Edit(file, old, new)
    return Bug(f"limit: on Postgres {name}", (f"{_SUITE}{test}",), (edit,), "postgres")


_AT_ENQUEUE = "tests/conformance/test_limits_at_enqueue.py::test_"


def _enqueued(backend: str, name: str, file: str, old: str, new: str, test: str) -> Bug:
    """A bug of jobs that are on hold from the enqueue on."""
    edit = Edit(f"forge_jobs/storage/{file}", old, new)
    return Bug(
        f"limit at the enqueue on {backend}: {name}", (f"{_AT_ENQUEUE}{test}",), (edit,), backend
    )


_ON_HOLD = "a_new_job_of_a_full_key_is_on_hold_and_no_claim_has_to_meet_it"
_NOT_DUE = "a_new_job_that_is_not_due_at_once_is_not_put_on_hold"

_MORE = "a_claim_says_that_more_may_follow_behind_jobs_it_put_on_hold"

LIMIT_BUGS = [
    _enqueued(
        "sqlite",
        "jobs of a full key are ready",
        "sql/hot/behind.py",
        "if is_behind or room <= 0 or row.share is not None:",
        "if is_behind or row.share is not None:",
        _ON_HOLD,
    ),
    _enqueued(
        "sqlite",
        "a key that is new has no turn",
        "sql/hot/behind.py",
        "turns.append(key)",
        "pass",
        "with_a_share_new_jobs_wait_for_their_turn_from_the_enqueue_on",
    ),
    _enqueued(
        "sqlite",
        "jobs with a time of their own go on hold",
        "sql/hot/behind.py",
        "        and request.delay is None\n",
        "",
        _NOT_DUE,
    ),
    _enqueued(
        "postgres",
        "many jobs at once leave no opening",
        "sql/hot/behind.py",
        "self._tx.free(*key)",
        "pass",
        "a_key_with_a_turn_starts_after_many_jobs_at_once",
    ),
    _enqueued(
        "postgres",
        "a key that is new has no turn",
        "sql/hot/enqueue.py",
        "FROM decided CROSS JOIN moment WHERE is_beyond",
        "FROM decided CROSS JOIN moment WHERE false",
        "with_a_share_new_jobs_wait_for_their_turn_from_the_enqueue_on",
    ),
    _enqueued(
        "postgres",
        "the last job on hold may expire meanwhile",
        "sql/hot/enqueue.py",
        "> moment.now + {_SOON}, false)",
        "> 0, false)",
        "a_job_behind_expired_ones_on_hold_starts",
    ),
    _enqueued(
        "redis",
        "jobs of a full key are ready",
        "redis/lua/lib/jobs/enqueue/parking.lua",
        "used and (room <= 0 or share)) and",
        "used and share) and",
        _ON_HOLD,
    ),
    _enqueued(
        "redis",
        "a key that is new has no turn",
        "redis/lua/lib/jobs/enqueue/parking.lua",
        "if is_held and share and room > 0 and",
        "if false and",
        "with_a_share_new_jobs_wait_for_their_turn_from_the_enqueue_on",
    ),
    _enqueued(
        "redis",
        "jobs with a time of their own go on hold",
        "redis/lua/lib/jobs/enqueue/parking.lua",
        "template.delay or template.run_at",
        "template.run_at",
        _NOT_DUE,
    ),
    _bug(
        "a claim does not say that more may follow",
        f"{_SQL}jobs/claim",
        "    return picked, is_cut, is_cut and (bool(permits.parked) or permits.goes_on)\n",
        "    return picked, is_cut, False\n",
        _MORE,
    ),
    _step(
        "a claim does not say that more may follow",
        "goes_on := is_cut AND cardinality(parked) > 0;",
        "goes_on := false;",
        _MORE,
    ),
    _bug(
        "a claim on Redis does not say that more may follow",
        "storage/redis/jobs/claim",
        "goes_on=answer.left == _FULL,",
        "goes_on=False,",
        _MORE,
        "redis",
    ),
    _bug(
        "running jobs are not counted",
        f"{_SQL}hot/permits",
        "self._left[key] = at_most - used",
        "self._left[key] = at_most",
        "many_callers_at_once_never_pass_a_limit",
    ),
    _bug(
        "an end opens nothing",
        f"{_SQL}base/transaction",
        "            self.freed[queue, limit_name, limit_key] = None\n",
        "            pass\n",
        _ENDS,
    ),
    _bug(
        "a plain success opens nothing",
        f"{_SQL}jobs/finalize",
        "row.host_id] += 1\n        if row.limit_name is not None:\n",
        "row.host_id] += 1\n        if False:\n",
        _ENDS,
    ),
    _bug(
        "a lapse, a failure and a hand-back open nothing",
        f"{_SQL}jobs/finalize",
        "        tx.count(row.queue, cause, row.host_id)\n"
        "        tx.free(row.queue, row.limit_name, row.limit_key)\n",
        "        tx.count(row.queue, cause, row.host_id)\n",
        _ENDS,
    ),
    _bug(
        "another number opens nothing",
        f"{_SQL}config/limits",
        "    for name in changed:\n        _reopen(tx, queue, name)\n",
        "",
        "a_raised_limit_lets_the_next_jobs_run_and_a_lowered_one_stops_none",
    ),
    _bug(
        "jobs on hold become ready in another order",
        f"{_SQL}hot/permits",
        "    ORDER BY priority, run_at, id\n    LIMIT :count",
        "    ORDER BY priority, run_at DESC, id\n    LIMIT :count",
        "jobs_of_a_key_start_in_the_order_of_the_queue",
    ),
    _bug(
        "an expired job takes the place of the next one",
        f"{_SQL}hot/permits",
        "{PARKED} AND {_UNEXPIRED}\n",
        "{PARKED}\n",
        "expired_jobs_on_hold_take_no_place",
    ),
    _bug(
        "an opening is closed while jobs wait and the key has room",
        f"{_SQL}hot/permits",
        "                gone += ids[1:]\n",
        "                gone += ids\n",
        "a_job_that_was_made_ready_and_goes_keeps_no_other_waiting",
    ),
    _bug(
        "an end that opens a key wakes no pod",
        f"{_SQL}base/transaction",
        "        self.wake_queues(queue for queue, *_ in self.freed)\n",
        "",
        "whatever_makes_room_wakes_the_queue",
    ),
    _bug(
        "a job of a full key stays in the index of ready jobs",
        f"{_SQL}hot/permits",
        '        self._tx.rows(_PARK, {"ids": _listed(list(ids))})\n',
        "",
        "jobs_of_a_full_key_wait_on_hold_and_others_pass",
    ),
    _bug(
        "a limit counts over all queues",
        f"{_SQL}hot/permits",
        '_OF_KEY = "queue = :queue AND limit_name',
        '_OF_KEY = ":queue = :queue AND limit_name',
        "a_limit_counts_within_its_queue",
    ),
    Bug(
        "limit: a page of keys begins with the last of the page before",
        ("tests/conformance/test_limit_keys.py::test_keys_are_answered_in_pages",),
        (
            Edit(
                "forge_jobs/storage/sql/config/limit_keys.py",
                '_KEYS_AFTER = text(_KEYS.format(first="> :after"))',
                '_KEYS_AFTER = text(_KEYS.format(first=">= :after"))',
            ),
        ),
        "sqlite",
    ),
    Bug(
        "limit: those that wait for a key are shown in the order of their ids",
        (
            "tests/conformance/test_limit_keys.py"
            "::test_the_jobs_of_a_key_are_answered_in_the_order_in_which_they_come",
        ),
        (
            Edit(
                "forge_jobs/storage/sql/config/limit_keys.py",
                "order_by(jobs.c.priority, jobs.c.run_at, jobs.c.id)",
                "order_by(jobs.c.id)",
            ),
        ),
        "sqlite",
    ),
    _bug(
        "code takes the place of an operator's number",
        f"{_SQL}config/limits",
        "if name not in stored or not stored[name].overridden",
        "if name not in stored or stored[name].overridden is not None",
        "code_declares_a_limit_and_an_operators_number_stays",
    ),
    _bug(
        "on Postgres the statement of plain queues claims from a queue with limits",
        f"{_SQL}hot/claim",
        "NOT ({IS_LIMITED})",
        "true",
        _EACH,
        "postgres",
    ),
    _bug(
        "an end of the call of a claim opens nothing",
        f"{_SQL}base/transaction",
        "            del self.freed[key]\n",
        "            del self.freed[key]\n        found = []\n",
        "the_exchange_that_ends_a_job_claims_the_next_one",
    ),
    Bug(
        "limit: on Postgres claims of a queue do not wait for each other",
        ("tests/backends/postgres/test_limits.py::test_a_claim_waits_for_one_that_has_the_lock",),
        (
            Edit(
                _FUNCTIONS,
                "is_locked := pg_advisory_xact_lock(queue_lock) IS NOT NULL;",
                "is_locked := true;",
            ),
        ),
        "postgres",
    ),
    _step(
        "a job that no limit holds is passed over",
        "at_most IS NOT NULL AND turn >",
        "at_most IS NULL OR turn >",
        _EACH,
    ),
    _step(
        "running jobs are not counted",
        "                CASE WHEN turn = 1 THEN at_most - (",
        "                CASE WHEN turn = 1 THEN at_most - 0 * (",
        "a_job_that_comes_while_its_key_is_full_waits",
    ),
    _step(
        "running jobs are not counted where all may be taken",
        "bound.at_most >= wanted.jobs + (",
        "bound.at_most >= wanted.jobs + 0 * (",
        "a_job_that_came_before_its_key_was_full_waits_too",
        _FUNCTIONS,
    ),
    _step(
        "claims of one call do not count where all may be taken",
        "SELECT limit_name, limit_key, count(*) AS jobs FROM met",
        "SELECT limit_name, limit_key, 1 AS jobs FROM met",
        _EACH,
        _FUNCTIONS,
    ),
    _step(
        "jobs on hold are overtaken where all that come first may be taken",
        "SELECT are_any FROM gate, of_keys\n            WHERE are_free AND (",
        "SELECT are_any FROM gate, of_keys\n            WHERE (",
        _EACH,
        _FUNCTIONS,
    ),
    _step(
        "a key that an end frees is not looked at where all that come first may be taken",
        "            ) AND NOT (is_waiting AND EXISTS (\n",
        "            ) AND NOT (false AND EXISTS (\n",
        "the_exchange_that_ends_a_job_claims_the_next_one_before_those_behind",
        _FUNCTIONS,
    ),
    _step(
        "openings that a claim has not read are left without a word",
        "is_cut := unread IS NOT NULL AND NOT",
        "is_cut := false AND NOT",
        "a_claim_of_very_many_keys_with_room_leaves_none_without_saying_so",
        _FUNCTIONS,
    ),
    _step(
        "claims of one call do not count",
        "min(found_room) OVER key AS is_beyond",
        "min(found_room) OVER key + 1 AS is_beyond",
        _EACH,
    ),
    _step(
        "an end of the call opens nothing",
        "coalesce(freed_names, '{}');",
        "'{}';",
        "the_exchange_that_ends_a_job_claims_the_next_one",
    ),
    _step(
        "jobs on hold become ready in another order",
        "ORDER BY priority, run_at, id\n                    LIMIT greatest",
        "ORDER BY priority, run_at DESC, id\n                    LIMIT greatest",
        "jobs_of_a_key_start_in_the_order_of_the_queue",
    ),
    _step(
        "a job that comes later takes the place of one on hold",
        "        IF cardinality(names) > 0 OR (NOT by_kind",
        "        IF (NOT by_kind",
        "with_many_keys_at_once_jobs_on_hold_come_before_later_ones",
    ),
    _step(
        "an opening is closed while jobs wait and the key has room",
        "    IF cardinality(seen_names) > 0 THEN\n",
        "    IF false THEN\n",
        "a_job_that_was_made_ready_and_goes_keeps_no_other_waiting",
    ),
    _step(
        "an expired job takes the place of the next one",
        "AND hold = 'limit' AND (expires_at IS NULL OR expires_at > at_time)\n"
        "                    ORDER BY",
        "AND hold = 'limit'\n                    ORDER BY",
        "expired_jobs_on_hold_take_no_place",
    ),
    _step(
        "a job of a full key stays in the index of ready jobs",
        "        IF cardinality(beyond) > 0 THEN\n",
        "        IF false THEN\n",
        "jobs_of_a_full_key_wait_on_hold_and_others_pass",
    ),
    _drawn(
        "claims of one call do not count",
        _PERMITS,
        "                left[key] -= 1\n                admitted",
        "                admitted",
    ),
    _drawn(
        "an end in the simulation opens nothing",
        f"forge_jobs/{_SQL}base/transaction.py",
        "            self.freed[queue, limit_name, limit_key] = None\n",
        "            pass\n",
    ),
    _drawn(
        "in the simulation one job more than may run",
        "forge_jobs/storage/redis/lua/lib/base/permits.lua",
        "return limit[1] - used, limit",
        "return limit[1] - used + 1, limit",
        "redis",
    ),
    _drawn(
        "a job that was not met yet goes before those on hold",
        _PERMITS,
        "                is_changed |= self._open(key) > 0\n",
        "                pass\n",
    ),
    _drawn(
        "an opening is closed while the key has room, in the simulation",
        _PERMITS,
        "                gone += ids[1:]\n",
        "                gone += ids\n",
    ),
    _drawn(
        "on Redis two ends of a key in one step open one place",
        "forge_jobs/storage/redis/lua/lib/base/openings.lua",
        "(freed_permits[permit] or 0) + 1",
        "1",
        "redis",
    ),
    _drawn(
        "on Redis no pod wakes, in the simulation",
        "forge_jobs/storage/redis/lua/lib/base/openings.lua",
        "    wake_queue(base)\n",
        "",
        "redis",
    ),
]
