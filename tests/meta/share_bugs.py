"""Bugs of fair shares between the keys of a limit."""

from tests.meta.bugs import Bug, Edit

_TESTS = ("tests/conformance/test_shares.py", "tests/admission/test_admission.py")
_FILES = {
    "sqlite": "forge_jobs/storage/sql/hot/turns.py",
    "sqlite, merging": "forge_jobs/storage/sql/jobs/claim.py",
    "postgres": "forge_jobs/storage/sql/migrations/0033_openings_by_key.postgresql.sql",
    "postgres, job by job": "forge_jobs/storage/sql/migrations/0034_turns_left_out.postgresql.sql",
    "postgres, answers": "forge_jobs/storage/sql/postgres/short/exchanges.py",
    "redis": "forge_jobs/storage/redis/lua/lib/jobs/turns/placing.lua",
    "redis, turning": "forge_jobs/storage/redis/lua/lib/jobs/turns/turning.lua",
    "redis, choosing": "forge_jobs/storage/redis/lua/lib/jobs/turns/choosing.lua",
    "redis, merging": "forge_jobs/storage/redis/lua/lib/jobs/turns/served.lua",
}


_CRASHES = ("tests/conformance/test_crashes_within_limits.py",)


def _bug(backend: str, name: str, old: str, new: str, tests: tuple[str, ...] = _TESTS) -> Bug:
    edit = Edit(_FILES[backend], old, new)
    store, _, _ = backend.partition(",")
    return Bug(f"shares on {store}: {name}", tests, (edit,), store)


SHARE_BUGS: tuple[Bug, ...] = (
    _bug(
        "sqlite",
        "a key keeps its turn after a claim",
        "added[key] = self._tx.now if taken[key] else since",
        "added[key] = since",
    ),
    _bug(
        "sqlite",
        "jobs in progress do not count",
        "weight = (self._used[key] + place) / ",
        "weight = place / ",
    ),
    _bug("sqlite", "all shares are alike", " / self._shares[key[1]]", " / 1"),
    _bug("sqlite", "the bound is passed", "mine[: max(room, 0)]", "mine"),
    _bug(
        "sqlite",
        "a claim leaves no turn",
        "if is_open and (taken[key] or key in self._new):",
        "if is_open and key in self._new:",
    ),
    _bug(
        "sqlite",
        "a new key wakes no pod",
        "if added.keys() & self._new.keys():",
        "if False:",
    ),
    _bug(
        "postgres",
        "jobs in progress do not count",
        "(used + place - 1)::double precision / share",
        "(place - 1)::double precision / share",
    ),
    _bug(
        "postgres",
        "all shares are alike",
        "(used + place - 1)::double precision / share",
        "(used + place - 1)::double precision",
    ),
    _bug(
        "postgres, job by job",
        "a key keeps its turn after a claim",
        "SELECT of_queue, served.limit_name, served.limit_key, at_time\n",
        "SELECT of_queue, served.limit_name, served.limit_key, 0\n",
    ),
    _bug(
        "postgres",
        "of a key with a more urgent job one is read",
        "WHEN room.level < bar.level THEN most",
        "WHEN room.level < bar.level THEN 1",
    ),
    _bug(
        "postgres",
        "of a key with fewer jobs in progress one is read",
        "ELSE greatest(1, floor(bar.weight * room.share) - room.used + 2)",
        "ELSE 1",
    ),
    _bug(
        "postgres",
        "a claim says nothing of the keys that it has not looked at",
        " OR are_many AND cardinality(ids || closed::text[]) > 0;",
        ";",
    ),
    _bug(
        "sqlite",
        "a claim says nothing of the keys that it has not looked at",
        "self.is_cut |= self._are_more_keys and changes",
        "pass",
    ),
    _bug(
        "postgres",
        "the bound is passed",
        "greatest(0, room.at_most - room.used), (",
        "most, (",
    ),
    _bug(
        "postgres",
        "a new key wakes no pod",
        "wakes := wakes OR opened > 0;",
        "",
    ),
    _bug(
        "redis",
        "jobs in progress do not count",
        "weight = (turn.used + from + number - 1) / turn.share",
        "weight = (from + number - 1) / turn.share",
    ),
    _bug(
        "redis",
        "all shares are alike",
        "weight = (turn.used + from + number - 1) / turn.share",
        "weight = turn.used + from + number - 1",
    ),
    _bug("redis", "the bound is passed", "math.min(each, turn.room)", "each"),
    _bug(
        "redis",
        "of a key with fewer jobs in progress one is read",
        "math.floor(bar.turn.used * turn.share / bar.turn.share) - turn.used + 1)",
        "1)",
    ),
    _bug(
        "redis",
        "of a key with a more urgent job one is read",
        "if bar and head.priority == bar.priority then",
        "if bar then",
    ),
    _bug(
        "redis, choosing",
        "behind jobs that cannot be taken none is",
        "if has_bar and #chosen < limit then",
        "if false then",
    ),
    _bug(
        "sqlite",
        "of a key with a more urgent job one is read",
        "before = most if level < bar_level else 1",
        "before = 1",
    ),
    _bug(
        "sqlite",
        "of a key with fewer jobs in progress one is read",
        "if behind and most > 2:",
        "if False:",
    ),
    _bug(
        "sqlite",
        "behind jobs that cannot be taken none is",
        "if not crashes and kind in",
        "if kind in",
    ),
    _bug(
        "redis, turning",
        "a new key wakes no pod",
        "== 1 then\n      wake_queue(base)",
        "== 2 then\n      wake_queue(base)",
    ),
    _bug(
        "sqlite, merging",
        "a job that may kill the process is held ahead",
        "if row.crashes and len(found) >= len(demand.worker_ids):\n            (waiting",
        "if False:\n            (waiting",
        _CRASHES,
    ),
    _bug(
        "sqlite, merging",
        "a job behind one that is passed over has no turn",
        "        turns.note(permits.turned)\n",
        "",
        _CRASHES,
    ),
    _bug(
        "postgres, job by job",
        "turns behind one that was left out are met twice",
        "WHERE id <> ALL (CASE WHEN is_free THEN turn_taken ELSE turn_taken || head END);",
        "WHERE place > 0;",
        _CRASHES,
    ),
    _bug(
        "postgres, job by job",
        "a job that may kill the process leaves a worker idle behind a full key",
        " AND NOT (passed_risk AND is_free);",
        ";",
        _CRASHES,
    ),
    _bug(
        "redis, merging",
        "a job that may kill the process is held ahead",
        "if #merged < workers or not entry.line.is_crashed then",
        "if true then",
        _CRASHES,
    ),
    _bug(
        "postgres, answers",
        "claims start in the order of the queue",
        "if first.walked is not None:",
        "if True:",
    ),
)
