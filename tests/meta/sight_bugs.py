"""Bugs in what people are shown of limits by key: when a key opens, and which keys starve."""

from tests.meta.bugs import Bug, Edit

_EXPLAINED = "tests/problems/test_explained_keys.py::test_"
_PERMITS = "forge_jobs/policy/slots/permits.py"
_KEYS, _LINES = (f"forge_jobs/clients/explaining/{name}.py" for name in ("keys", "lines"))
_STARVED = "tests/problems/test_keys.py::test_"
_LOAD = "tests/conformance/test_looks.py::test_the_load_of_limits_by_key"
_JOBS = "forge_jobs/operating/snapshots/jobs.py"
_LOADS = "forge_jobs/storage/sql/jobs/looks/limits.py"
_LUA = "forge_jobs/storage/redis/lua/jobs/read/limit_loads.lua"
_PLACE = f"{_EXPLAINED}a_job_at_a_full_key_is_told_its_place_and_when_a_permit_comes_free"
_TURNS = f"{_EXPLAINED}a_key_with_a_share_is_told_its_place_in_the_turns"
_FRONT = f"{_EXPLAINED}a_job_of_a_sequence_is_told_what_the_one_in_front_does"


def _bug(name: str, file: str, old: str, new: str, test: str, backend: str = "sqlite") -> Bug:
    return Bug(f"sight: {name}", (test,), (Edit(file, old, new),), backend)


SIGHT_BUGS = [
    _bug(
        "a permit comes free with the last of the holders",
        _PERMITS,
        "sorted(times)[place : place + 1]",
        "sorted(times)[-1:]",
        _PLACE,
    ),
    _bug(
        "a lowered limit opens with the first end",
        _PERMITS,
        "beyond = max(key.running - limit.at_most, 0)",
        "beyond = 0",
        f"{_EXPLAINED}a_lowered_limit_opens_once_as_many_have_ended_as_run_beyond",
    ),
    _bug(
        "as many run as may where more do",
        _PERMITS,
        "        beyond = key.running - limit.at_most\n",
        "        beyond = 0\n",
        f"{_EXPLAINED}a_lowered_limit_opens_once_as_many_have_ended_as_run_beyond",
    ),
    _bug(
        "an estimate that has passed is a time to come",
        _PERMITS,
        "if opens_at > now else",
        "if opens_at else",
        _PLACE,
    ),
    _bug(
        "a job counts itself among those before it",
        _KEYS,
        "LinePlace(ahead=waiting.index(job_id))",
        "LinePlace(ahead=waiting.index(job_id) + 1)",
        _PLACE,
    ),
    _bug(
        "a place beyond the bound is none",
        _KEYS,
        "is_more = len(waiting) >= MOST_KEY_JOBS",
        "is_more = len(waiting) > MOST_KEY_JOBS",
        f"{_EXPLAINED}a_place_is_counted_up_to_a_bound",
    ),
    _bug(
        "a key is among the others of the limit",
        _KEYS,
        "for each in keys if each.key != job.limit_key",
        "for each in keys",
        _TURNS,
    ),
    _bug(
        "keys with as many jobs in progress come first",
        _KEYS,
        "sum(each < running for each in others)",
        "sum(each <= running for each in others)",
        _TURNS,
    ),
    _bug(
        "the job in front is the one before",
        _LINES,
        "between < _STEPS",
        "between < 0",
        _FRONT,
    ),
    _bug(
        "each blocked job is in a sequence",
        _LINES,
        "return edges.get(parent) in OF_SEQUENCES",
        "return parent in edges",
        f"{_EXPLAINED}parents_that_are_no_sequence_are_told_of_too",
    ),
    _bug(
        "a start at a full key is no progress",
        _JOBS,
        "since=max(key.due_at, key.claimed_at)",
        "since=key.due_at",
        f"{_STARVED}a_busy_key_with_a_long_line_is_no_problem",
    ),
    _bug(
        "a line waits since the claim before its first job",
        _JOBS,
        "since=max(key.due_at, key.claimed_at)",
        "since=key.claimed_at",
        f"{_STARVED}a_line_that_has_just_formed_is_no_problem",
    ),
    _bug(
        "runs that are long by their nature starve others",
        "forge_jobs/policy/judgement/problems/limits.py",
        "(UNKNOWN_RUN if key.usual is None else key.usual)",
        "timedelta(0)",
        f"{_STARVED}runs_that_are_long_by_their_nature_are_no_problem",
    ),
    _bug(
        "limits are looked for where there are none",
        _JOBS,
        "name for name in fleet.limited if name in counts",
        "name for name in counts",
        f"{_STARVED}a_fleet_without_limits_by_key_reads_none",
    ),
    _bug(
        "a key stands since its oldest claim",
        _LOADS,
        "func.max(jobs.c.claimed_at)",
        "func.min(jobs.c.claimed_at)",
        f"{_STARVED}a_key_where_one_of_two_jobs_hangs_and_others_pass_is_no_problem",
    ),
    _bug(
        "a key with room is full",
        _LOADS,
        "row.used >= at_most > 0",
        "row.used > 0",
        _LOAD,
    ),
    _bug(
        "a queue with limits is not named",
        "forge_jobs/storage/sql/config/store.py",
        "if row.is_limited",
        "if False",
        "tests/conformance/test_looks.py::test_the_queues_with_limits_by_key_are_named",
    ),
    _bug(
        "on Redis a key stands since its oldest claim",
        _LUA,
        "'ZRANGE', using, -1, -1, 'WITHSCORES'",
        "'ZRANGE', using, 0, 0, 'WITHSCORES'",
        _LOAD,
        "redis",
    ),
    _bug(
        "on Redis a key with room is full",
        _LUA,
        "local is_full = at_most > 0 and size >= at_most",
        "local is_full = true",
        _LOAD,
        "redis",
    ),
    _bug(
        "metrics count waiting jobs as running",
        "forge_jobs/operating/metrics/exposition.py",
        '"running"), each.running',
        '"running"), each.waiting',
        "tests/operating/test_limit_metrics.py::test_limits_are_shown_by_limit_and_not_by_key",
    ),
    _bug(
        "the form drops the share",
        "forge_jobs/web/pages/forms/same.py",
        "return [_at_most(meant), _share(meant)]",
        "return [_at_most(meant), None]",
        "tests/web/test_concurrency_page.py::test_a_share_is_given_and_taken_away",
    ),
    _bug(
        "the list of limits knows nothing of jobs",
        "forge_jobs/operating/settings/concurrency.py",
        "if load is None:",
        "if load:",
        "tests/web/test_concurrency_page.py::test_a_full_key_says_who_holds_it_and_who_waits",
    ),
    _bug(
        "tab never comes to limits",
        "forge_jobs/cli/commands/terminal/screen/view.py",
        'if each != "limits" or self.limits()',
        'if each != "limits"',
        "tests/unit/test_top_view.py::"
        "test_keys_go_to_limits_and_pass_over_them_where_there_are_none",
    ),
    _bug(
        "the better of two measurements of an outbox counts",
        "forge_jobs/operating/snapshots/store.py",
        "        aside_since=_earlier(one.aside_since, other.aside_since),\n",
        "        aside_since=other.aside_since,\n",
        "tests/problems/test_drills.py::test_an_incident_is_seen_in_time_and_ends",
    ),
    _bug(
        "an outbox with waiting jobs is measured as set aside",
        "forge_jobs/runtime/passes/outbox.py",
        "set_aside=state.set_aside,",
        "set_aside=state.waiting,",
        "tests/problems/test_real_drills.py::test_an_outbox_whose_jobs_are_refused",
    ),
]
