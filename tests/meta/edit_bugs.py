"""Bugs of edits of one job, on SQL and on Redis."""

from tests.meta.bugs import Bug, Edit, files_of

_MODEL = "forge_jobs/model/edits/__init__.py"
_SQL = "forge_jobs/storage/sql/jobs/one/edit.py"
_REDIS = "forge_jobs/storage/redis/jobs/one/edit.py"
_LUA = "forge_jobs/storage/redis/lua/jobs/one/edit.lua"
_TESTS = files_of("editing")


def _bug(name: str, file: str, old: str, new: str, backend: str = "sqlite") -> Bug:
    return Bug(f"edit: {name}", _TESTS, (Edit(file, old, new),), backend)


_LIVES = "tests/unit/test_policy_timelines.py"
_TIMELINES = "forge_jobs/policy/timelines.py"


def _life(name: str, old: str, new: str, tests: str = _LIVES, file: str = _TIMELINES) -> Bug:
    return Bug(f"timeline: {name}", (tests,), (Edit(file, old, new),))


TIMELINE_BUGS = [
    _life(
        "attempts that end within a moment are one", "        if not run.is_noted and", "        if"
    ),
    _life(
        "a hand-back is a retry",
        '"retrying" if run.cause in _FAILED else',
        '"retrying" if True else',
    ),
    _life("a requeue is forgotten", "    if again:", "    if False:"),
    _life("the state of the next instant", "if span.at <= at)", "if span.at < at)"),
    _life("the length of an attempt is ignored", "at - error.ran_for", "None"),
    _life(
        "a blocked time is a scheduled one",
        '"blocked" if job.cause is',
        '"scheduled" if job.cause is',
    ),
    _life(
        "the pod keeps no length of an attempt",
        "    if transition.error is None:\n        return transition\n    error = structs",
        "    if True:\n        return transition\n    error = structs",
        "tests/runtime/test_attempt_times.py",
        "forge_jobs/runtime/queue/ends.py",
    ),
    _life(
        "deeds of other jobs",
        "        return job.id in await self.storage.jobs.action_jobs",
        "        return True or await self.storage.jobs.action_jobs",
        "tests/operating/test_timeline.py",
        "forge_jobs/operating/jobs/calls.py",
    ),
]

_CALLS = "forge_jobs/operating/actions/editing.py"
_OPERATOR = "tests/operating/test_editing.py::test_"


def _called(name: str, old: str, new: str, test: str, file: str = _CALLS) -> Bug:
    return Bug(f"edit: {name}", (f"{_OPERATOR}{test}",), (Edit(file, old, new),))


EDIT_BUGS = [
    _called(
        "a record shows secrets",
        "readable(content.payload, metadata)",
        "content.payload",
        "secrets_stay_hidden_and_stay_as_they_are",
    ),
    _called(
        "a secret that is shown hidden is written as shown",
        "return stored if value == HIDDEN else value",
        "return value",
        "secrets_stay_hidden_and_stay_as_they_are",
        "forge_jobs/privacy/secrets.py",
    ),
    _called(
        "an undo overwrites a later edit",
        "if not _has(job, new, action.after, self.redaction):",
        "if False:",
        "an_undo_is_refused_when_the_value_was_changed_since",
    ),
    _called(
        "the version is not compared",
        "edit.version != version_of(job)",
        "edit.version == version_of(job) + 'x'",
        "an_edit_is_refused_once_the_job_has_run",
    ),
    _called(
        "the content behind a unique key changes",
        "        if derived_key(job.kind",
        "        if False and derived_key(job.kind",
        "a_payload_that_makes_the_unique_key_changes_only_beside_the_key",
    ),
    _called(
        "an encrypted payload is overwritten",
        "            if is_encrypted(job.payload):",
        "            if False:",
        "an_encrypted_payload_is_not_edited_and_other_values_are",
    ),
    _called(
        "payloads are edited without the right to them",
        "            self.actor.need(Right.PAYLOADS)",
        "            pass",
        "rights_of_an_edit",
    ),
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
        "  place(base, before, remove_ready, 'ZREM')\n",
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
