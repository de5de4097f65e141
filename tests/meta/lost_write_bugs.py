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
        f"{_SQL}claims.py",
        "token = max(job.token + 1, :now),",
        "token = job.token + 1,",
        "sqlite",
    ),
    _tokens(
        "a claim gets the number of one that was lost",
        f"{_SQL}postgres/claims.py",
        "token = greatest(job.token + 1, :now),",
        "token = job.token + 1,",
        "postgres",
    ),
    _tokens(
        "a claim gets the number of one that was lost",
        f"{_LUA}lib/claiming.lua",
        "token, attempt = math.max(token + 1, now),",
        "token, attempt = token + 1,",
        "redis",
    ),
    *(
        _tokens(
            "the pod of a claim is not compared",
            f"{_SQL}settle.py",
            "        and row.host_id == claim.host_id\n",
            "",
            backend,
        )
        for backend in ("sqlite", "postgres")
    ),
    _tokens(
        "the pod of a claim is not compared",
        f"{_LUA}lib/claims.lua",
        " and job.host == host",
        "",
        "redis",
    ),
    *(
        _tokens(
            "the end of another pod's claim taken for a repeat",
            f"{_SQL}settle.py",
            "(row.token != claim.token or row.host_id == claim.host_id)",
            "row.settled_token > 0",
            backend,
        )
        for backend in ("sqlite", "postgres")
    ),
    _tokens(
        "the end of another pod's claim taken for a repeat",
        f"{_LUA}lib/claims.lua",
        " and (job.token ~= token or job.host == host)",
        "",
        "redis",
    ),
    _tokens(
        "the pod of a success is not compared",
        f"{_SQL}sqlite/successes.py",
        "AND +job.host_id = :owner ",
        "AND :owner = :owner ",
        "sqlite",
    ),
    _tokens(
        "the pod of a success is not compared",
        f"{_SQL}postgres/successes.py",
        "(given.queue, given.token, :owner, 'in_progress')",
        "(given.queue, given.token, coalesce(host_id, :owner), 'in_progress')",
        "postgres",
    ),
    *(
        _tokens(
            "one pod's name for the ends of all",
            f"{_SQL}successes.py",
            " and len(owners) <= 1",
            "",
            backend,
        )
        for backend in ("sqlite", "postgres")
    ),
    _tokens(
        "one pod's name for the ends of all",
        "forge_jobs/storage/redis/ownership.py",
        "() if claim.host_id == owner else (claim.host_id,)",
        "",
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
        "lua/lib/storing.lua",
        "  write_links(base, request[9])\n",
        "",
    ),
    _own(
        "a parent that has ended says nothing to a child that comes later",
        "enqueue",
        "lua/lib/linking.lua",
        "  elseif status or otherwise ~= 'left' then\n",
        "  elseif not status and otherwise ~= 'left' then\n",
    ),
    _own(
        "a repeat of a call that died leaves its children unlinked",
        "enqueue",
        "enqueue.py",
        "((True, _TOLD), (False, _LEFT))",
        "((True, _TOLD),)",
    ),
    _own(
        "a number of the outbox is all that tells a repeat",
        "lost_writes",
        "lua/fire_jobs.lua",
        "    if by_id[fields[1]] then\n",
        "    if packed and fields then\n",
    ),
)

SWEEPS = (
    _own(
        "a sweep that mends what it has just met",
        "lost_writes",
        "sweeping.py",
        "if now - since >= _STOOD_S",
        "if now - since >= 0",
    ),
    _own(
        "a sweep sends news that a child voids",
        "lost_writes",
        "lua/tell_lost.lua",
        "if last < since then",
        "if last < 0 then",
    ),
    _own(
        "a sweep that always begins at the front",
        "lost_writes",
        "sweeping.py",
        "_Place(found.last_blocked, found.status, found.last_id)",
        "_Place()",
    ),
    _own(
        "a lost child is never mended, since each look notes it anew",
        "lost_writes",
        "sweeping.py",
        "one: self._suspects.get(one, now)",
        "one: now",
    ),
)

LOST_WRITE_BUGS = (*TOKENS, *CHILDREN, *SWEEPS)
