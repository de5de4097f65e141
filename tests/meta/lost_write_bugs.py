"""Bugs that show where a store lost its last writes, by a failover or a restored copy."""

from tests.meta.bugs import Bug, Edit, files_of

_SQL = "forge_jobs/storage/sql/"
_LUA = "forge_jobs/storage/redis/lua/"


def _tokens(name: str, file: str, old: str, new: str, backend: str) -> Bug:
    prefix = "" if backend == "sqlite" else f"{backend}: "
    return Bug(f"{prefix}{name}", files_of("lost_writes"), (Edit(file, old, new),), backend)


TOKENS = (
    _tokens(
        "a claim gets the number of one that was lost",
        f"{_SQL}hot/claim.py",
        "token = max(job.token + 1, :now),",
        "token = job.token + 1,",
        "sqlite",
    ),
    _tokens(
        "a claim gets the number of one that was lost",
        f"{_SQL}hot/claim.py",
        "token = greatest(job.token + 1, :now),",
        "token = job.token + 1,",
        "postgres",
    ),
    _tokens(
        "a claim gets the number of one that was lost",
        f"{_LUA}lib/jobs/claim/taking.lua",
        "local is_later = token < now",
        "local is_later = false",
        "redis",
    ),
    *(
        _tokens(
            "the pod of a claim is not compared",
            f"{_SQL}jobs/finalize.py",
            "        and row.host_id == claim.host_id\n",
            "",
            backend,
        )
        for backend in ("sqlite", "postgres")
    ),
    _tokens(
        "the pod of a claim is not compared",
        f"{_LUA}lib/jobs/claim/claims.lua",
        " and job.host == host",
        "",
        "redis",
    ),
    *(
        _tokens(
            "the end of another pod's claim taken for a repeat",
            f"{_SQL}jobs/finalize.py",
            "(row.token != claim.token or row.host_id == claim.host_id)",
            "row.settled_token > 0",
            backend,
        )
        for backend in ("sqlite", "postgres")
    ),
    _tokens(
        "the end of another pod's claim taken for a repeat",
        f"{_LUA}lib/jobs/claim/claims.lua",
        " and (job.token ~= token or job.host == host)",
        "",
        "redis",
    ),
    _tokens(
        "the pod of a success is not compared",
        f"{_SQL}hot/finalize.py",
        "AND +job.host_id = :owner ",
        "AND :owner = :owner ",
        "sqlite",
    ),
    _tokens(
        "the pod of a success is not compared",
        f"{_SQL}hot/finalize.py",
        "(given.queue, given.token, :owner, 'in_progress')",
        "(given.queue, given.token, coalesce(host_id, :owner), 'in_progress')",
        "postgres",
    ),
    *(
        _tokens(
            "one pod's name for the ends of all",
            f"{_SQL}jobs/endings.py",
            "if one.claim.host_id != finalizations[0].claim.host_id:",
            "if False:",
            backend,
        )
        for backend in ("sqlite", "postgres")
    ),
    _tokens(
        "one pod's name for the ends of all",
        "forge_jobs/storage/redis/jobs/claim.py",
        "claim.host_id != owner and claim.host_id,",
        "False,",
        "redis",
    ),
)

_REDIS = "forge_jobs/storage/redis/"


def _own(name: str, test: str, file: str, old: str, new: str) -> Bug:
    tests = (f"tests/backends/redis/test_{test}.py",)
    return Bug(f"redis: {name}", tests, (Edit(f"{_REDIS}{file}", old, new),), "redis")


CHILDREN = (
    _own(
        "a parent that another call has stored does not hear of a child",
        "enqueue",
        "lua/lib/jobs/enqueue/storing.lua",
        "  write_links(base, request[ENQUEUE.links])\n",
        "",
    ),
    _own(
        "a parent that has ended says nothing to a child that comes later",
        "enqueue",
        "lua/lib/jobs/enqueue/linking.lua",
        "  elseif status or otherwise ~= 'left' then\n",
        "  elseif not status and otherwise ~= 'left' then\n",
    ),
    _own(
        "a repeat of a call that died leaves its children unlinked",
        "enqueue",
        "jobs/enqueue.py",
        "((True, _TOLD), (False, _LEFT))",
        "((True, _TOLD),)",
    ),
    _own(
        "a number of the outbox is all that tells a repeat",
        "lost_writes",
        "lua/cron/fire_jobs.lua",
        "    if by_id[fields[JOB.id]] then\n",
        "    if packed and fields then\n",
    ),
)

SWEEPS = (
    _own(
        "a sweep that mends what it has just met",
        "lost_writes",
        "jobs/sweep.py",
        "if now - since >= _STOOD_S",
        "if now - since >= 0",
    ),
    _own(
        "a sweep sends news that a child voids",
        "lost_writes",
        "lua/lib/jobs/children/standing.lua",
        "'handover_seq'), 0) < since then",
        "'handover_seq'), 0) < 0 then",
    ),
    _own(
        "a sweep that always begins at the front",
        "lost_writes",
        "jobs/sweep.py",
        "_Place(found.last_blocked, found.status, found.last_id)",
        "_Place()",
    ),
    _own(
        "a lost child is never mended, since each look notes it anew",
        "lost_writes",
        "jobs/sweep.py",
        "one: self._suspects.get(one, now)",
        "one: now",
    ),
)


def _unsynced(name: str, file: str, old: str, new: str) -> Bug:
    tests = ("tests/backends/sqlite/test_power_cuts.py",)
    return Bug(name, tests, (Edit(f"{_SQL}{file}", old, new),))


POWER = (
    _unsynced(
        "an end beside a claim is not synced",
        "jobs/store.py",
        "synced=bool(finalizations)",
        "synced=False",
    ),
    _unsynced(
        "an end is not synced",
        "jobs/store.py",
        "database.write(script, patient=patient)",
        "database.write(script, patient=patient, synced=False)",
    ),
    _unsynced(
        "a new job is not synced",
        "sqlite/job_store.py",
        "partial(_store_new, requests=requests)",
        "partial(_store_new, requests=requests), synced=False",
    ),
    _unsynced(
        "a recorded start is not synced",
        "jobs/store.py",
        "lambda tx: heartbeat.record_start(tx, claims)",
        "lambda tx: heartbeat.record_start(tx, claims), synced=False",
    ),
    _unsynced(
        "the beat that records a start is not synced",
        "sqlite/job_store.py",
        "synced=not running <= self._on_record",
        "synced=False",
    ),
    _unsynced(
        "each beat of a pod at work is synced",
        "sqlite/job_store.py",
        "        self._on_record = running\n",
        "",
    ),
    _unsynced(
        "tokens of a rate limit are not synced",
        "config/store.py",
        "lambda tx: rate_limits.take(tx, scope, count, within)",
        "lambda tx: rate_limits.take(tx, scope, count, within), synced=False",
    ),
    _unsynced(
        "after a commit without a sync none is synced",
        "sqlite/connection.py",
        "if wanted != self._current:",
        "if wanted != self._current and not synced:",
    ),
    _unsynced(
        "a commit without a sync leaves the log to the system at checkpoints too",
        "sqlite/connection.py",
        '{"full": "normal", "extra": "normal"}',
        '{"full": "off", "extra": "off"}',
    ),
    _unsynced(
        "a claim is synced",
        "sqlite/connection.py",
        '{"full": "normal", "extra": "normal"}',
        "{}",
    ),
)

LOST_WRITE_BUGS = (*TOKENS, *CHILDREN, *SWEEPS, *POWER)
