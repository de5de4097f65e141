"""Bugs of claims among jobs of other pods' kinds, and of the bytes that a claim brings."""

from tests.meta.bugs import Bug, Edit

_SQL = "forge_jobs/storage/sql/"
_LUA = "forge_jobs/storage/redis/lua/lib/"
_BYTES = ("tests/conformance/test_claim_bytes.py",)
_KINDS = ("tests/backends/redis/test_many_kinds.py",)
_STRANGERS = ("tests/conformance/test_unknown_kinds.py",)


def _of_sqlite(name: str, tests: tuple[str, ...], old: str, new: str) -> Bug:
    return Bug(f"claims: {name}", tests, (Edit(f"{_SQL}jobs/claim.py", old, new),))


def _of_postgres(name: str, tests: tuple[str, ...], file: str, old: str, new: str) -> Bug:
    edit = Edit(f"{_SQL}postgres/{file}.py", old, new)
    return Bug(f"claims on postgres: {name}", tests, (edit,), "postgres")


def _of_redis(name: str, tests: tuple[str, ...], file: str, old: str, new: str) -> Bug:
    return Bug(f"claims on redis: {name}", tests, (Edit(f"{_LUA}{file}.lua", old, new),), "redis")


_LISTS = ("tests/conformance/test_bounded_lists.py",)
_FILTERS = f"{_SQL}jobs/filters.py"
_REDIS_LISTS = "forge_jobs/storage/redis/jobs/filters.py"

CLAIM_BUGS = (
    Bug(
        "claims: a call without an answer is repeated as it was",
        ("tests/unit/test_policy_appetite.py",),
        (
            Edit(
                "forge_jobs/policy/claim_ahead.py",
                "_MOST_HALVINGS)\n        self.max_bytes = CLAIM_BYTES >> self._halvings\n",
                "_MOST_HALVINGS)\n",
            ),
        ),
    ),
    Bug(
        "claims: an empty answer lets the next call ask for more",
        ("tests/unit/test_policy_appetite.py",),
        (
            Edit(
                "forge_jobs/policy/claim_ahead.py",
                "not self._halvings or not _fills(claimed, demand)",
                "not self._halvings",
            ),
        ),
    ),
    Bug(
        "reaper: expired jobs are swept to the last",
        ("tests/runtime/test_reaper.py",),
        (
            Edit(
                "forge_jobs/runtime/passes/reaper.py",
                "settings.reap_interval / 2, clock",
                "BUDGET, clock",
            ),
        ),
    ),
    Bug(
        "lists: a part that ended sooner hides jobs of others",
        _LISTS,
        (Edit(_FILTERS, "if end is None or job_id >= end", "if True"),),
    ),
    Bug(
        "lists: nobody says how far back a call looked",
        _LISTS,
        (Edit(_FILTERS, "last[:1] if len(last) > 1 else []", "[]"),),
    ),
    Bug(
        "lists: a call looks at every job",
        ("tests/backends/sqlite/test_many_jobs.py",),
        (Edit(_FILTERS, "(*others, *texts).limit(most)", "(*others, *texts)"),),
    ),
    Bug(
        "lists on redis: a call looks at every job",
        _LISTS,
        (Edit(_REDIS_LISTS, "if looked_at >= most:", "if False:"),),
        "redis",
    ),
    Bug(
        "lists on redis: a queue that ended sooner hides jobs of others",
        _LISTS,
        (
            Edit(
                _REDIS_LISTS,
                "max(ends) if way.is_descending else min(ends)",
                "min(ends) if way.is_descending else max(ends)",
            ),
        ),
        "redis",
    ),
    _of_sqlite(
        "nothing is too large", _BYTES, "part.size + size > self._demand.max_bytes", "False"
    ),
    _of_sqlite("a large job never comes", _BYTES, "if part.size and part.size", "if part.size"),
    _of_sqlite("nothing says that there is more", _BYTES, "self.is_cut = part.is_cut", "pass"),
    _of_sqlite(
        "kinds in no order",
        (*_BYTES, "tests/backends/sqlite/test_claims_by_kind.py"),
        '_place = attrgetter("run_at", "id")',
        '_place = attrgetter("crashes")',
    ),
    Bug(
        "claims: jobs of others are read one by one",
        ("tests/backends/sqlite/test_claims_by_kind.py",),
        (Edit(f"{_SQL}hot/claim.py", "AND kind = :kind AND", "AND kind || '' = :kind AND"),),
    ),
    Bug(
        "claims: what nobody knows hides behind what others know",
        _STRANGERS,
        (
            Edit(
                f"{_SQL}jobs/unknown_kinds.py",
                "for kind in sorted(unknown - published):",
                "for kind in sorted(unknown - published)[:0]:",
            ),
        ),
    ),
    _of_postgres(
        "nothing is too large",
        _BYTES,
        "../hot/claim",
        "WHERE total <= :max_bytes OR",
        "WHERE total >= 0 OR :max_bytes = 0 OR",
    ),
    _of_postgres(
        "a large job never comes",
        _BYTES,
        "../hot/claim",
        "(:may_exceed AND total = size)",
        "(:may_exceed AND total < 0)",
    ),
    _of_postgres(
        "nothing says that there is more",
        _BYTES,
        "short/exchanges",
        "timedelta(0) if first.is_cut else",
        "",
    ),
    _of_postgres(
        "a claim without a lease puts jobs on hold",
        _STRANGERS,
        "../hot/claim",
        "WHERE queue = :queue AND EXISTS (SELECT FROM open) AND {READY}\n            ORDER BY kind",
        "WHERE queue = :queue AND {READY}\n            ORDER BY kind",
    ),
    _of_postgres(
        "the end of the kinds is a kind that nobody knows",
        _STRANGERS,
        "../hot/exchange",
        "kind IS NOT NULL AND kind <> ALL",
        "kind <> ALL",
    ),
    _of_postgres(
        "every claim meets the jobs of others anew",
        ("tests/backends/postgres/test_claims_by_kind.py",),
        "job_store",
        "self._elsewhere.note(queue, picked.elsewhere)",
        "pass",
    ),
    _of_postgres(
        "kinds in no order",
        ("tests/backends/postgres/test_claims_by_kind.py",),
        "../hot/claim",
        "                {{branches}}\n                ORDER BY run_at, id\n",
        "                {{branches}}\n                ORDER BY id DESC\n",
    ),
    Bug(
        "claims on redis: a look for silent claims reads any number of them in one script",
        ("tests/backends/redis/test_script_steps.py",),
        (
            Edit(
                "forge_jobs/storage/redis/lua/jobs/claim/stale.lua",
                "math.min(limit, at_once - read)",
                "limit",
            ),
        ),
        "redis",
    ),
    _of_redis(
        "of many kinds a later one comes first",
        ("tests/backends/redis/test_costs.py",),
        "jobs/claim/merging",
        "    if other and comes_first(",
        "    if other and not comes_first(",
    ),
    _of_redis(
        "the end of a plain job forgets its result",
        ("tests/conformance/test_finalize.py",),
        "jobs/finalize/plain_ends",
        "  if outcome.result then\n",
        "  if outcome.result == 'none' then\n",
    ),
    _of_redis(
        "a plain job that is not kept keeps its payload",
        ("tests/conformance/test_not_kept.py",),
        "jobs/finalize/plain_ends",
        "  if not keeps(base, outcome.status) then\n",
        "  if false then\n",
    ),
    _of_redis("nothing is too large", _BYTES, "jobs/claim/taking", "#payload > room", "false"),
    _of_redis(
        "a large job never comes",
        _BYTES,
        "jobs/claim/found",
        "(demand[DEMAND.goes_on] or #claims > 0) and done.room",
        "done.room",
    ),
    _of_redis(
        "what does not fit leaves its line",
        _BYTES,
        "jobs/claim/found",
        "is_cut and index - 1 or index",
        "index",
    ),
    _of_redis(
        "kinds in no order",
        ("tests/conformance/test_claim.py",),
        "jobs/claim/merging",
        "if not comes_first(next_job, job) then",
        "if comes_first(next_job, job) then",
    ),
    _of_redis(
        "lines are not read on",
        _STRANGERS,
        "jobs/claim/merging",
        " and not read_on(base, line, demand.size, demand.may_expire) then",
        " then",
    ),
    _of_redis(
        "a bound stays when a job comes before it",
        _KINDS,
        "base/bounds",
        "':lines', 'LT', unpack(scored",
        "':lines', 'NX', unpack(scored",
    ),
    _of_redis(
        "a bound stays when a job comes back before it",
        _KINDS,
        "base/lines",
        "'LT', line_score",
        "'NX', line_score",
    ),
    _of_redis(
        "a job beyond the bound of another line is taken",
        _KINDS,
        "jobs/claim/merging",
        "until job.run_at >= bound or other",
        "until other",
    ),
    _of_redis(
        "bounds are never raised",
        _KINDS,
        "jobs/claim/claiming",
        "if found.are_many and",
        "if not found and",
    ),
    _of_redis(
        "one step reads any number of lines",
        _KINDS,
        "jobs/claim/levels",
        "MOST_READ, MOST_WORK, LAST = 150, 250",
        "MOST_READ, MOST_WORK, LAST = 9000, 9000",
    ),
)
