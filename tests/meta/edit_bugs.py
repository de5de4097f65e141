"""Bugs of edits of one job, on SQL and on Redis."""

from tests.meta.bugs import Bug, Edit, files_of

_MODEL = "forge_jobs/model/edits/__init__.py"
_SQL = "forge_jobs/storage/sql/jobs/one/edit.py"
_REDIS = "forge_jobs/storage/redis/jobs/one/edit.py"
_LUA = "forge_jobs/storage/redis/lua/jobs/one/edit.lua"
_TESTS = files_of("editing")


def _bug(name: str, file: str, old: str, new: str, backend: str = "sqlite") -> Bug:
    return Bug(f"edit: {name}", _TESTS, (Edit(file, old, new),), backend)


EDIT_BUGS = [
    _bug("a job that runs is edited", _MODEL, " or job.status is JobStatus.IN_PROGRESS:", ":"),
    _bug("the token is not compared", _MODEL, "    if job.token != token:", "    if False:"),
    _bug("the content is not compared", _MODEL, "    if others:", "    if False:"),
    _bug(
        "the checkpoint of the payload before stays",
        _SQL,
        "        forget_steps(tx, [job_id])",
        "        pass",
    ),
    _bug(
        "a repeat is taken for another request",
        _SQL,
        '{"payload": after.payload, "fingerprint": _STAYS_A_REPEAT}',
        '{"payload": after.payload}',
    ),
    _bug(
        "the fingerprint of the request is lost",
        _SQL,
        "else_=jobs.c.fingerprint)",
        "else_=REPLACED)",
    ),
    _bug(
        "a clock that was set back makes an edited job due",
        _SQL,
        '            values["cause"] = Cause.ENQUEUED.value',
        "            pass",
    ),
    _bug("no event", _SQL, "    append_events(tx, [event])", "    pass"),
    _bug(
        "redis: the job stays in the line of the old priority",
        _LUA,
        "  index(base, before, remove_ready, 'ZREM')\n",
        "",
        "redis",
    ),
    _bug(
        "redis: the old expiry counts",
        _LUA,
        "    redis.call('ZREM', base .. ':expiring', id)",
        "    redis.call('EXISTS', key)",
        "redis",
    ),
    _bug(
        "redis: the new expiry does not count",
        _LUA,
        "    redis.call('ZADD', base .. ':expiring', job.expires, id)",
        "    redis.call('EXISTS', key)",
        "redis",
    ),
    _bug(
        "redis: a job on hold is put into the line",
        _LUA,
        "  if job.status ~= 'blocked' and not job.hold then\n    command",
        "  if job.status ~= 'blocked' then\n    command",
        "redis",
    ),
    Bug(
        "edit: redis: an edit between reading and writing is lost",
        ("tests/backends/redis/test_edit_steps.py",),
        (Edit(_LUA, "    if redis.call('HGET', key, name) ~= value then", "    if false then"),),
        "redis",
    ),
    _bug(
        "redis: what is not plain is claimed as if it were",
        _LUA,
        "redis.call('HSET', key, 'more', '1', unpack(written))",
        "redis.call('HSET', key, unpack(written))",
        "redis",
    ),
]
