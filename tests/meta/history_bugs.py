"""Bugs of the history: of groups of failures and of series."""

from tests.meta.bugs import Bug, Edit, files_of

_SQL = "forge_jobs/storage/sql/history/failures.py"
_REDIS = "forge_jobs/storage/redis/lua/"
_BOTH = "forge_jobs/storage/history/failures.py"
_FAILURES = files_of("failures")
_RUNTIME = "tests/runtime/test_failures.py::test_"
_RECORDER = "forge_jobs/runtime/shared/failures.py"


def _bug(name: str, file: str, old: str, new: str, tests: tuple[str, ...] = _FAILURES) -> Bug:
    return Bug(f"failures: {name}", tests, (Edit(file, old, new),))


def _redis(name: str, file: str, old: str, new: str) -> Bug:
    edit = Edit(f"{_REDIS}{file}.lua", old, new)
    return Bug(f"redis failures: {name}", _FAILURES, (edit,), "redis")


def _of_recorder(name: str, old: str, new: str, test: str) -> Bug:
    return _bug(name, _RECORDER, old, new, (f"{_RUNTIME}{test}",))


_HEARTBEAT = "forge_jobs/storage/sql/jobs/heartbeat.py"
_SERIES = files_of("series")
_SHARED = "forge_jobs/storage/history/"
_CALLS = "forge_jobs/runtime/shared/store_calls.py"
_LISTS = "forge_jobs/storage/sql/jobs/lists/"


def _total(name: str, file: str, old: str, new: str) -> Bug:
    return Bug(f"totals: {name}", files_of("flow_totals"), (Edit(file, old, new),))


def _series(name: str, file: str, old: str, new: str) -> Bug:
    return Bug(f"series: {name}", _SERIES, (Edit(file, old, new),))


HISTORY_BUGS = (
    Bug(
        "calls of the store: an answer of the store counts as an error",
        ("tests/runtime/test_store_calls.py",),
        (Edit(_CALLS, "(Conflict, InvalidInput, NotFound)", "(Conflict, InvalidInput)"),),
    ),
    Bug(
        "calls of the store: a minute begins with the calls of the one before",
        ("tests/runtime/test_store_calls.py",),
        (Edit(_CALLS, "verbs, self._verbs = self._verbs, {}", "verbs = self._verbs"),),
    ),
    Bug(
        "calls of the store: the wait for a connection counts",
        ("tests/backends/test_pool_sizes.py",),
        (
            Edit(
                _CALLS,
                "            observe(name, elapsed() - began - wait.seconds)\n            return",
                "            observe(name, elapsed() - began)\n            return",
            ),
        ),
        "redis",
    ),
    Bug(
        "report: a right that is missing fails the whole report",
        ("tests/backends/postgres/test_rights.py",),
        (
            Edit(
                "forge_jobs/storage/sql/postgres/reporting.py",
                "    except StorageRefused:\n        return None",
                "    except StorageRefused:\n        raise",
            ),
        ),
        "postgres",
    ),
    _bug(
        "a queue has one group too many",
        _SQL,
        "numbers[failed.queue] < MOST_GROUPS",
        "numbers[failed.queue] <= MOST_GROUPS",
    ),
    _bug(
        "a late sample moves the last failure back",
        _SQL,
        "max(last_at, failed.last_at)",
        "failed.last_at",
    ),
    _bug(
        "a page repeats its last group",
        _SQL,
        "            key\n            < tuple_(",
        "            key\n            <= tuple_(",
    ),
    _bug(
        "the minute at the end of the range counts",
        _BOTH,
        "if self.since <= minute < self.until:",
        "if self.since <= minute <= self.until:",
    ),
    _bug(
        "retried and dead are one number",
        _BOTH,
        "hour[place + 1] += sample.dead",
        "hour[place] += sample.dead",
    ),
    _bug(
        "groups stay as long as hours",
        "forge_jobs/storage/sql/jobs/cleanup/retention.py",
        "ages |= dict.fromkeys((error_groups.name, error_hours.name), kept.errors)",
        "ages |= {}",
    ),
    _redis(
        "groups of a queue behind the page come again",
        "history/error_groups",
        "and not is_before(named[index], group)",
        "and false",
    ),
    _redis(
        "a late sample moves the last failure back",
        "history/add_failures",
        "  last = math.max(whole(v[2], 0), last)\n",
        "",
    ),
    _redis(
        "a queue has any number of groups",
        "history/add_failures",
        "if redis.call('ZCARD', base .. ':errors') >= most then",
        "if false then",
    ),
    _of_recorder(
        "what the store did not take is gone",
        "                    left |= taken\n",
        "",
        "counts_survive_an_outage_and_count_once",
    ),
    _of_recorder(
        "the buffer grows without bound",
        "            while len(self._met) > self._capacity:\n",
        "            while False:\n",
        "what_is_kept_during_an_outage_is_bounded",
    ),
    _bug(
        "an interrupted run is a failure",
        "forge_jobs/policy/transitions.py",
        "if error is None or not is_failure:",
        "if error is None:",
        (f"{_RUNTIME}failures_alone_have_groups",),
    ),
    _bug(
        "minutes of the pod's clock",
        "forge_jobs/runtime/pod/pod.py",
        "failures = FailureRecorder(jobs, version=pod.version, clock=store_time)",
        "failures = FailureRecorder(jobs, version=pod.version)",
        ("tests/runtime/test_store_time.py",),
    ),
    _series(
        "depths of a minute are those of the last reading",
        f"{_SHARED}series.py",
        "= map(max, one, other)",
        "= other",
    ),
    _series(
        "counts of pods are added to those of the roll-up",
        f"{_SHARED}series.py",
        "gains[place].add(added, counts=kind != WHOLE)",
        "gains[place].add(added)",
    ),
    _series(
        "minutes count beside their hours",
        f"{_SHARED}series.py",
        "        elif at not in hours:\n",
        "        else:\n",
    ),
    _series(
        "any number of kinds",
        "forge_jobs/storage/sql/history/series.py",
        ">= MOST_KINDS",
        ">= 10 * MOST_KINDS",
    ),
    _series(
        "hours go with their minutes",
        "forge_jobs/storage/sql/jobs/cleanup/retention.py",
        "series_hours.name: kept.series",
        "series_hours.name: kept.minutes_or(MINUTES_KEPT)",
    ),
    _series(
        "the roll-up forgets the series",
        "forge_jobs/storage/sql/jobs/metrics.py",
        "    add_counts(tx, sums)\n",
        "",
    ),
    _total(
        "a total is an hour that ends",
        f"{_SHARED}series.py",
        "FOREVER = 1 << 62",
        "FOREVER = 0",
    ),
    _total(
        "totals of a deleted queue stay",
        "forge_jobs/storage/sql/config/queues.py",
        '    tx.execute(_DELETE_TOTALS, {"of": name})\n',
        "",
    ),
    _total(
        "the roll-up forgets the totals",
        f"{_SHARED}series.py",
        "gains[_total(queue, WHOLE)].counts[name] += count",
        "pass",
    ),
    Bug(
        "summaries: hours are left out",
        files_of("summaries"),
        (
            Edit(
                "forge_jobs/storage/sql/jobs/lists/summaries.py", "tx.execute(_HOURS, asked)", "()"
            ),
        ),
    ),
    Bug(
        "redis summaries: only the first minutes of a span count",
        files_of("summaries"),
        (
            Edit(
                "forge_jobs/storage/redis/jobs/metrics.py",
                "if len(minutes) == _MINUTES_AT_ONCE\n            }",
                "if len(minutes) > _MINUTES_AT_ONCE\n            }",
            ),
        ),
        "redis",
    ),
    Bug(
        "counts: an expired job counts as the oldest due",
        files_of("reads"),
        (
            Edit(
                f"{_LISTS}statuses.py",
                "*_OF_LEVEL, or_(jobs.c.expires_at.is_(None), jobs.c.expires_at > _now)",
                "*_OF_LEVEL",
            ),
        ),
    ),
    Bug(
        "counts: a bound that is reached is no sign of more",
        files_of("reads"),
        (
            Edit(
                f"{_LISTS}statuses.py",
                "if count > ended_at_most:",
                "if count > ended_at_most + 1:",
            ),
        ),
    ),
    Bug(
        "redis totals: the roll-up forgets them",
        files_of("flow_totals"),
        (
            Edit(
                f"{_REDIS}jobs/metrics/fold.lua",
                "    add_to_total(base, '', { sums })\n",
                "",
            ),
        ),
        "redis",
    ),
    Bug(
        "redis series: any number of kinds",
        _SERIES,
        (Edit(f"{_REDIS}history/add_series.lua", "- of_others >= most then", "< 0 then"),),
        "redis",
    ),
    Bug(
        "redis series: the roll-up forgets the store",
        _SERIES,
        (Edit("forge_jobs/storage/redis/jobs/metrics.py", "await add_counts(db, sums)", "pass"),),
        "redis",
    ),
    Bug(
        "series: the present minute is sent again and again",
        ("tests/runtime/test_rollup.py::test_series_get_a_minute_of_a_kind_once_it_is_over",),
        (
            Edit(
                "forge_jobs/runtime/shared/latencies.py",
                "if all_minutes or key[2] != minute]",
                "if True]",
            ),
        ),
    ),
    Bug(
        "series: the last flush beside another one takes the same counts",
        (
            "tests/runtime/test_rollup.py::test_the_last_flush_beside_another_one_counts_each_run_once",
        ),
        (
            Edit(
                "forge_jobs/runtime/shared/latencies.py",
                "FLUSH_BATCH] if key in self._flows]",
                "FLUSH_BATCH]]",
            ),
        ),
    ),
    Bug(
        "beats: a queue has the due time of another",
        ("tests/conformance/test_heartbeat.py::test_each_queue_has_a_due_time_of_its_own",),
        (
            Edit(
                "forge_jobs/storage/sql/base/levels.py",
                "jobs.c.queue == queue, jobs.c.priority == found.c.priority, text(READY))",
                "jobs.c.priority == found.c.priority, text(READY))",
            ),
        ),
    ),
    Bug(
        "beats: the queues are read while the jobs of the pod are locked",
        (
            "tests/backends/test_costs_of_many_queues.py"
            "::test_a_beat_reads_the_queues_before_it_locks_jobs",
        ),
        (
            Edit(
                "forge_jobs/storage/sql/jobs/heartbeat.py",
                "queues=queues,",
                "queues=queue_beats(tx, lease),",
            ),
            Edit(
                "forge_jobs/storage/sql/jobs/heartbeat.py",
                "    queues = queue_beats(tx, lease)\n",
                "",
            ),
        ),
    ),
    Bug(
        "coordinator: each of thousands of queues has a line",
        (
            "tests/runtime/test_coordinator.py"
            "::test_thousands_of_queues_that_no_pod_declares_are_a_few_lines",
        ),
        (Edit("forge_jobs/runtime/passes/coordinator.py", "_NAMED = 5\n", "_NAMED = 5_000\n"),),
    ),
    Bug(
        "patterns: a pod takes up 20 queues at once, however many there are",
        ("tests/runtime/test_many_queues_by_pattern.py::test_many_queues_join_in_few_portions",),
        (Edit("forge_jobs/runtime/pod/served.py", "_GROWS_BY = 0.25\n", "_GROWS_BY = 0\n"),),
    ),
    Bug(
        "series: what the store did not take is gone",
        ("tests/runtime/test_rollup.py::test_series_are_kept_while_the_store_is_away",),
        (
            Edit(
                "forge_jobs/runtime/shared/latencies.py",
                "                self._flows = _joined(taken, self._flows)\n",
                "",
            ),
        ),
    ),
    Bug(
        "gauges: the clock of the pod is compared with itself",
        (
            "tests/runtime/test_store_time.py::test_gauges_say_that_the_clock_of_the_pod_is_an_hour_ahead",
        ),
        (
            Edit(
                "forge_jobs/runtime/passes/gauges.py",
                "(meter.clock.time_us() - to_us(now))",
                "(meter.clock.time_us() - meter.clock.time_us())",
            ),
        ),
    ),
)
