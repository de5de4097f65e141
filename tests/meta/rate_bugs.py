"""Bugs of declared rates, with the test that catches each."""

from tests.meta.bugs import Bug, Edit

_SUITE = "tests/conformance/test_rate_keys.py::test_"
_LIMITER = "tests/runtime/test_rate_limits.py::test_"
_RUNTIME = "tests/runtime/test_declared_rates.py::test_"
_AHEAD = "tests/conformance/test_rates_ahead.py::test_"
_PODS = "tests/runtime/test_tokens_ahead.py::test_"
_UNIT = "tests/unit/test_handlers_rates.py::test_"
_TOKENS = "tests/conformance/test_reserved_tokens.py::test_"
_LINES = "tests/conformance/test_set_back_holds.py::test_"
_LUA = "storage/redis/lua/lib/config/tokens.lua"


def _bug(name: str, module: str, old: str, new: str, test: str, backend: str = "sqlite") -> Bug:
    suffix = "" if "." in module else ".py"
    return Bug(name, (test,), (Edit(f"forge_jobs/{module}{suffix}", old, new),), backend)


RATE_BUGS = [
    _bug(
        "rate: a job starts without its token",
        "runtime/queue/turns",
        "    if grant.granted:\n        return None\n    run.finish()\n    return DROPPED",
        "    if grant.granted or not grant.granted:\n        return None\n    run.finish()\n"
        "    return DROPPED",
        f"{_RUNTIME}each_key_has_its_tokens_and_the_rest_waits_without_a_slot",
    ),
    _bug(
        "rate: a job is dropped while the store is away",
        "runtime/queue/turns",
        "        run.finish()\n        return _waits(ask, _WITHOUT_ANSWER",
        '        run.finish()\n        if handler.rate.mode == "drop":\n'
        "            return DROPPED\n        return _waits(ask, _WITHOUT_ANSWER",
        f"{_RUNTIME}while_the_store_gives_no_answer_a_job_neither_runs_nor_is_dropped",
    ),
    _bug(
        "rate: a deleted limit is not declared again",
        "runtime/shared/rates/limiter",
        "                await self._config.ensure_rate_limit(ask.scope, limit())\n",
        "",
        f"{_RUNTIME}an_operators_size_holds_and_a_deleted_limit_is_declared_again",
    ),
    _bug(
        "rate: turns of a clock that was ahead stay far away",
        "storage/sql/config/rate_limits",
        "    ahead = max(0, number_or(row.updated_at, now) - now)\n",
        "    ahead = 0\n",
        f"{_LINES}a_line_of_jobs_at_a_rate_limit_is_no_longer_than_before",
    ),
    _bug(
        "rate: on Redis turns of a clock that was ahead stay far away",
        "storage/redis/lua/lib/config/buckets.lua",
        "whole(last_turn, 0) - math.max(0, updated - now)",
        "whole(last_turn, 0)",
        f"{_LINES}a_line_of_a_named_rate_limit_is_no_longer_than_before",
        "redis",
    ),
    _bug(
        "rate: what is dropped takes a place among the turns",
        "storage/sql/config/rate_keys",
        "        if ask.waits:\n",
        "        if True:\n",
        f"{_SUITE}a_job_that_does_not_wait_takes_no_place_among_the_turns",
    ),
    _bug(
        "rate: a secret names its bucket",
        "handlers/limits/keys",
        "_hashed(key) if is_private or not _is_name(key)",
        "_hashed(key) if not _is_name(key)",
        f"{_UNIT}a_secret_is_never_the_name_of_a_bucket",
    ),
    _bug(
        "tokens: a reservation is not written",
        "storage/sql/config/rate_limits",
        "        _fill(tx, row, level + count * row.period_us)\n",
        "        _fill(tx, row, level + (0 if wait else count) * row.period_us)\n",
        f"{_TOKENS}tokens_that_come_in_time_are_reserved_in_the_order_of_the_calls",
    ),
    _bug(
        "tokens: a drain forgets what is reserved",
        "storage/sql/config/rate_limits",
        "empty = max(row.capacity * row.period_us, level_at(row, tx.now))",
        "empty = row.capacity * row.period_us",
        f"{_TOKENS}reserved_tokens_survive_a_drain_and_another_size",
    ),
    _bug(
        "tokens: a reservation keeps a bucket empty after a step back of the clock",
        "storage/sql/config/rate_limits",
        "        return min(level, full)\n",
        "        return level\n",
        f"{_TOKENS}a_clock_that_steps_back_forgets_what_was_reserved",
    ),
    _bug(
        "tokens: a caller goes on before its reserved tokens are there",
        "runtime/shared/rates/limiter",
        "        await self._pause(length)\n",
        "",
        "tests/runtime/test_rate_limits.py::test_waiting_sleeps_exactly_as_long_as_the_store_said",
    ),
    _bug(
        "tokens: a caller uses reserved tokens however late",
        "runtime/shared/rates/limiter",
        "return over > LATEST_USE.total_seconds()",
        "return False",
        f"{_LIMITER}callers_of_a_frozen_process_use_no_tokens_of_that_time_at_once",
    ),
    _bug(
        "tokens: a caller that is always late asks without an end",
        "runtime/shared/rates/limiter",
        " or late == _MOST_LATE:",
        ":",
        f"{_LIMITER}a_process_that_is_always_late_gets_its_tokens",
    ),
    _bug(
        "tokens: on Redis another size forgets what is reserved",
        "storage/redis/lua/lib/config/rate_keys.lua",
        "  if reserved > 0 or part > 0 then",
        "  if false then",
        f"{_TOKENS}reserved_tokens_survive_a_drain_and_another_size",
        "redis",
    ),
    _bug(
        "rate keys: a turn beyond the end of the line takes a place",
        "storage/sql/config/rate_keys",
        "self.last_turn_at = turn if turn <= latest else last",
        "self.last_turn_at = turn",
        f"{_SUITE}no_turn_is_later_than_asked_for",
    ),
    _bug(
        "rate keys: a new job takes the token of one that has a turn",
        "storage/sql/config/rate_keys",
        "(ask.had_turn or free_at <= now or self.level <= 0)",
        "True",
        f"{_SUITE}a_new_job_takes_no_token_of_one_that_has_a_turn",
    ),
    _bug(
        "rate keys: turns that nobody comes for keep a full bucket",
        "storage/sql/config/rate_keys",
        "(ask.had_turn or free_at <= now or self.level <= 0)",
        "(ask.had_turn or free_at <= now)",
        f"{_SUITE}jobs_that_do_not_come_at_their_turns_delay_others_by_their_own_tokens",
    ),
    _bug(
        "rate keys: on Redis a new job takes the token of one that has a turn",
        _LUA,
        "(had_turn or free_at <= now or bucket.level <= 0)",
        "true",
        f"{_SUITE}a_new_job_takes_no_token_of_one_that_has_a_turn",
        "redis",
    ),
    _bug(
        "rate keys: a job does not say that it has waited",
        "runtime/queue/turns",
        "had_turn=True",
        "had_turn=False",
        f"{_RUNTIME}a_job_says_at_its_turn_that_it_has_waited",
    ),
    _bug(
        "rate keys: one statement of PostgreSQL takes the token of a job that has a turn",
        "storage/sql/postgres/config_store",
        '_NO_TURN = "last_turn_at <= now - period_us / capacity - 1"',
        '_NO_TURN = "TRUE"',
        f"{_SUITE}a_new_job_takes_no_token_of_one_that_has_a_turn",
        "postgres",
    ),
    _bug(
        "rate keys: the call of a queue goes out before jobs that begin have asked",
        "runtime/queue/loop",
        "            await _let_ask()\n",
        "            pass\n",
        "tests/runtime/test_far_stores.py::"
        "test_jobs_that_begin_ask_for_their_tokens_before_the_queue_calls",
    ),
    _bug(
        "rate keys: only the first of the jobs that ask stops waiting for the store",
        "runtime/shared/rates/limiter",
        "                self._timer = answer.get_loop().call_later(left, self._give_up)\n",
        "",
        "tests/runtime/test_far_stores.py::"
        "test_each_job_stops_waiting_for_an_answer_after_its_own_time",
    ),
    _bug(
        "rate keys: another size fills the bucket",
        "storage/sql/config/rate_keys",
        "level_after(row, limit, now), now, 0, True",
        "0, now, 0, True",
        f"{_SUITE}another_size_holds_for_each_key_and_missing_tokens_stay_missing",
    ),
    _bug(
        "rate keys: a step back of the clock stops the leak",
        "storage/sql/config/rate_keys",
        "level_at(row, now), now, last, is_ahead)",
        "level_at(row, now), row.updated_at, last, False)",
        f"{_SUITE}a_clock_that_is_set_back_keeps_no_key_waiting_for_longer_than_its_period",
    ),
    _bug(
        "rate keys: on Redis another size fills the bucket",
        "storage/redis/lua/lib/config/rate_keys.lua",
        "    bucket.level, bucket.is_changed = missing(before, bucket), true\n",
        "    bucket.level, bucket.is_changed = 0, true\n",
        f"{_SUITE}another_size_holds_for_each_key_and_missing_tokens_stay_missing",
        "redis",
    ),
    _bug(
        "rate keys: on Redis a turn beyond the end of the line takes a place",
        _LUA,
        "bucket.last_turn = turn <= latest and turn or last",
        "bucket.last_turn = turn",
        f"{_SUITE}no_turn_is_later_than_asked_for",
        "redis",
    ),
    _bug(
        "tokens ahead: what comes back before their use is given out",
        "storage/sql/config/rate_keys",
        "max(self.level, duration_us(ask.ahead) * self.capacity)",
        "self.level",
        f"{_AHEAD}no_window_sees_more_starts_than_the_limit_allows",
    ),
    _bug(
        "tokens ahead: on PostgreSQL what comes back before their use is given out",
        "storage/sql/postgres/config_store",
        "least(:ahead, period_us) * capacity",
        "0 * :ahead",
        f"{_AHEAD}nothing_comes_back_before_the_tokens_are_used",
        "postgres",
    ),
    _bug(
        "tokens ahead: on Redis what comes back before their use is given out",
        _LUA,
        "math.max(bucket.level, ahead * bucket.leak)",
        "bucket.level",
        f"{_AHEAD}no_window_sees_more_starts_than_the_limit_allows",
        "redis",
    ),
    _bug(
        "tokens ahead: the last half is taken too",
        "storage/sql/config/rate_keys",
        "not is_free or 2 * level >",
        "not is_free or level >",
        f"{_AHEAD}tokens_are_taken_ahead_while_half_of_them_stay",
    ),
    _bug(
        "tokens ahead: one is taken that belongs to a turn",
        "storage/sql/config/rate_keys",
        "if not is_free or 2 *",
        "if 2 *",
        f"{_AHEAD}a_request_ahead_takes_no_place_and_no_token_of_one_that_waits",
    ),
    _bug(
        "tokens ahead: on Redis one is taken that belongs to a turn",
        _LUA,
        "if not is_free or 2 *",
        "if 2 *",
        f"{_AHEAD}a_request_ahead_takes_no_place_and_no_token_of_one_that_waits",
        "redis",
    ),
    _bug(
        "tokens ahead: a job begins late with its token",
        "runtime/shared/rates/ahead",
        "until is not None and until > now",
        "until is not None",
        f"{_PODS}a_token_is_for_one_run_that_begins_in_time",
    ),
    _bug(
        "tokens ahead: their time counts from the answer",
        "runtime/shared/rates/ahead",
        "            if granted:\n                self._until[job_id] = until\n",
        "            if granted:\n"
        "                self._until[job_id] = self._clock.elapsed() + AHEAD.total_seconds()\n",
        f"{_PODS}the_time_of_a_token_counts_from_the_question",
    ),
    _bug(
        "tokens ahead: they are taken for jobs that begin too late, again and again",
        "runtime/shared/rates/ahead",
        "            self._paused_until = now + _PAUSE\n        return until",
        "            pass\n        return until",
        f"{_PODS}after_a_job_that_was_late_no_token_is_taken_ahead_for_a_second",
    ),
    _bug(
        "tokens ahead: a silent store keeps workers waiting",
        "runtime/shared/rates/ahead",
        ".call_later(START_PATIENCE, answered.set)",
        ".call_later(START_PATIENCE, int)",
        f"{_PODS}a_silent_store_keeps_no_job_from_asking_itself",
    ),
]
