"""Bugs of sequences: jobs that overtake, or wait for ever."""

from tests.meta.bugs import Bug, Edit

_TESTS = ("tests/conformance/test_sequences.py",)
_SQL = "forge_jobs/storage/sql/jobs/"
_LUA = "forge_jobs/storage/redis/lua/"


def _sql(name: str, file: str, old: str, new: str) -> Bug:
    return Bug(f"sequences: {name}", _TESTS, (Edit(f"{_SQL}{file}.py", old, new),))


def _redis(name: str, file: str, old: str, new: str) -> Bug:
    edit = Edit(f"{_LUA}{file}.lua", old, new)
    return Bug(f"sequences on redis: {name}", _TESTS, (edit,), "redis")


SEQUENCE_BUGS: tuple[Bug, ...] = (
    _sql("a cancelled job lets the next overtake", "deliveries", "    inherit(tx, taken)\n", ""),
    _sql(
        "jobs of a call do not wait for each other",
        "sequences/lines",
        "before, last[line] = last.get(line), request.id",
        "before = last.get(line)",
    ),
    _sql(
        "the last job stays the first one",
        "sequences/lines",
        '"last": last[line]}',
        '"last": ""}',
    ),
    _sql(
        "keys of all queues are one sequence",
        "sequences/lines",
        'f"{request.queue}\\n{key}"',
        "key",
    ),
    _sql(
        "a deleted job lets the next overtake",
        "sequences/lines",
        "            if edge.child_id not in before:\n",
        "            if False:\n",
    ),
    _sql(
        "a deleted last job is forgotten with all before",
        "sequences/lines",
        "        if moved:\n",
        "        if False:\n",
    ),
    _redis(
        "a cancelled job lets the next overtake",
        "jobs/children/deliver",
        "  inherit(base, job, parent, policy)\n",
        "",
    ),
    _redis(
        "an inherited parent is not counted",
        "lib/jobs/children/inheriting",
        "'waits', 1)",
        "'waits', 0)",
    ),
    _redis(
        "a parent named twice is counted twice",
        "lib/jobs/enqueue/sequences",
        " and not is_named",
        "",
    ),
    _redis(
        "jobs of a call do not wait for each other",
        "lib/jobs/enqueue/sequences",
        "last[key] = key, job.id",
        "last[key] = key, last[key] or job.id",
    ),
    _redis(
        "the last job of a sequence is known when it is gone",
        "lib/jobs/children/inheriting",
        "    redis.call('HDEL', base .. ':sequences', job.sequence)\n",
        "",
    ),
    _redis(
        "a deleted job lets the next overtake",
        "lib/jobs/children/inheriting",
        "        come_after(base, child, parents, policy)\n",
        "",
    ),
    _redis(
        "a deleted last job is forgotten with all before",
        "lib/jobs/children/inheriting",
        "    if parents[1] then\n      redis",
        "    if false then\n      redis",
    ),
    Bug(
        "sequences: a dead head is passed",
        _TESTS,
        (
            Edit(
                "forge_jobs/policy/dependencies.py",
                '"hold" if status is JobStatus.DEAD else "settle"',
                '"settle"',
            ),
        ),
    ),
)
