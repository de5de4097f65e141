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
        "math.max(tonumber(token) + 1, now),",
        "tonumber(token) + 1,",
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
        "AND job.host_id = :owner ",
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

LOST_WRITE_BUGS = TOKENS
