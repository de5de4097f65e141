"""Bugs of declared rates, with the test that catches each."""

from tests.meta.bugs import Bug, Edit

_SUITE = "tests/conformance/test_rate_keys.py::test_"
_RUNTIME = "tests/runtime/test_declared_rates.py::test_"
_UNIT = "tests/unit/test_handlers_rates.py::test_"
_LUA = "storage/redis/lua/config/take_or_turn.lua"


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
        "runtime/shared/rate_limits",
        "            await self._config.ensure_rate_limit(ask.scope, limit)\n",
        "",
        f"{_RUNTIME}an_operators_size_holds_and_a_deleted_limit_is_declared_again",
    ),
    _bug(
        "rate: a secret names its bucket",
        "handlers/limits/rates",
        "_hashed(key) if is_private or not _is_name(key)",
        "_hashed(key) if not _is_name(key)",
        f"{_UNIT}a_secret_is_never_the_name_of_a_bucket",
    ),
    _bug(
        "rate keys: a turn beyond the end of the line takes a place",
        "storage/sql/config/rate_keys",
        "self.last_turn_at = turn if turn <= latest else last",
        "self.last_turn_at = turn",
        f"{_SUITE}no_turn_is_later_than_asked_for",
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
]
