"""Bugs around how long history stays, and what is deleted."""

from tests.meta.bugs import Bug, Edit, files_of

_SQL = "forge_jobs/storage/sql/"
_REDIS = "forge_jobs/storage/redis/"


def _bug(name: str, tests: str, file: str, old: str, new: str) -> Bug:
    backend = "redis" if file.startswith(_REDIS) else "sqlite"
    return Bug(name, files_of(tests), (Edit(file, old, new),), backend)


def _steps(name: str, file: str, old: str, new: str) -> Bug:
    """Return a bug of a script of Redis that holds the server up."""
    tests = ("tests/backends/redis/test_script_steps.py",)
    return Bug(f"redis: {name}", tests, (Edit(f"{_REDIS}{file}", old, new),), "redis")


LIFETIME_BUGS = [
    _bug(
        "a batch of any size is sent",
        "batch_bytes",
        f"{_SQL}sqlite/job_store.py",
        "        check_batch(requests)\n",
        "",
    ),
    _bug(
        "redis: a batch of any size is sent",
        "batch_bytes",
        f"{_REDIS}jobs/store.py",
        "        check_batch(requests)\n",
        "",
    ),
    _steps("one script changes any number of jobs", "base/steps.py", "= 60\n", "= 2_000\n"),
    _steps(
        "one script ends any number of claims",
        "jobs/claim.py",
        "len(pairs) > at_once",
        "len(pairs) > 5_000",
    ),
    _steps(
        "each step of a claim brings a job of any size",
        "lua/lib/jobs/claim/found.lua",
        "(demand[DEMAND.goes_on] or #claims > 0) and done.room",
        "#claims > 0 and done.room",
    ),
    _steps(
        "counts of many queues are one script whatever their kinds",
        "lua/jobs/read/counts.lua",
        "  spend(#lines + 15)\n",
        "",
    ),
    _steps(
        "the timelines of many queues are read in one script",
        "lua/jobs/metrics/events.lua",
        "  spend(1 + #events)\n",
        "",
    ),
    _steps(
        "a beat of many claims is one script",
        "jobs/heartbeat.py",
        "max(0, len(indexes) - share)",
        "0",
    ),
    _steps(
        "a list looks at any number of jobs in one script",
        "jobs/filters.py",
        "_STEP = 500",
        "_STEP = 9000",
    ),
    _steps(
        "pods are read in one step, however many",
        "lua/lib/fleet/pods.lua",
        "PODS_AT_ONCE = 40",
        "PODS_AT_ONCE = 9999",
    ),
    _steps(
        "a client enqueues any number of jobs by one script",
        "jobs/store.py",
        "self.enqueue_at_once = 200",
        "self.enqueue_at_once = 10_000",
    ),
    Bug(
        "redis: a client stores the first steps of a call of too many bytes",
        ("tests/conformance/test_batch_bytes.py",),
        (Edit("forge_jobs/clients/calls.py", "if len(jobs) > step:", "if not jobs:"),),
        "redis",
    ),
    Bug(
        "redis: a pod asks for more than one step of a script brings",
        ("tests/backends/redis/test_runtime.py",),
        (
            Edit(
                "forge_jobs/storage/redis/jobs/store.py",
                "self.exchange_at_once = claim.CLAIMS_AT_ONCE",
                "self.exchange_at_once = 1_000",
            ),
        ),
        "redis",
    ),
    Bug(
        "the jobs of a claim run before the next call to the store is on the way",
        ("tests/runtime/test_queue_loops.py",),
        (
            Edit(
                "forge_jobs/runtime/queue/pool.py",
                "services.loop if call_is_next else None",
                "None",
            ),
        ),
    ),
    Bug(
        "redis: a call without unique keys pays for the script of those with",
        ("tests/backends/redis/test_enqueue_one.py",),
        (
            Edit(
                "forge_jobs/storage/redis/jobs/enqueue.py",
                'script == "enqueue" and any(one.unique or one.struck for one in requests)',
                'script == "enqueue"',
            ),
        ),
        "redis",
    ),
    _bug(
        "a queue with jobs is deleted",
        "deleting",
        f"{_SQL}config/queues.py",
        "    if found or served:",
        "    if served:",
    ),
    _bug(
        "a queue that a live pod declares is deleted",
        "deleting",
        f"{_SQL}config/queues.py",
        "    if found or served:",
        "    if found:",
    ),
    _bug(
        "a program that deletes a queue goes on to know it",
        "deleting",
        f"{_SQL}sqlite/connection.py",
        "        self._known_queues -= tx.deleted_queues\n",
        "",
    ),
    _bug(
        "a queue that comes back begins at the version at which it began before",
        "deleting",
        f"{_SQL}config/queues.py",
        "        first = tx.now // 1_000\n",
        "        first = 0\n",
    ),
    _bug(
        "nobody lists a queue again that was deleted beside an enqueue",
        "deleting",
        f"{_SQL}jobs/store.py",
        "        if names:\n",
        "        if not names:\n",
    ),
    _bug(
        "redis: a queue with a job that has ended is deleted",
        "deleting",
        f"{_REDIS}lua/config/delete_queue.lua",
        "'failed', 'done', 'dead', 'cancelled' }",
        "'failed' }",
    ),
    _bug(
        "redis: a pod whose lease has run out keeps a queue",
        "deleting",
        f"{_REDIS}lua/config/delete_queue.lua",
        "is_live(slot) and 1 or 0",
        "slot and 1 or 0",
    ),
    _bug(
        "redis: a deleted queue keeps its pause",
        "deleting",
        f"{_REDIS}lua/config/delete_queue.lua",
        "local KEPT = { version = true,",
        "local KEPT = { paused = true, version = true,",
    ),
    _bug(
        "an hour is folded before all of it is past",
        "hours",
        f"{_SQL}jobs/cleanup/retention.py",
        "hour_of(tx.now - duration_us(kept.minutes_or(MINUTES_KEPT)))",
        "(tx.now - duration_us(kept.minutes_or(MINUTES_KEPT)))",
    ),
    _bug(
        "a minute stays beside its hour",
        "hours",
        f"{_SQL}jobs/metrics.py",
        "    delete_keys(tx, counters, [part.name for part in counters.primary_key], rows)\n",
        "",
    ),
    _bug(
        "a late minute takes the place of its hour",
        "hours",
        f"{_SQL}jobs/metrics.py",
        "        gained.counts.update(names_of(row.queue, row.counts))\n",
        "",
    ),
    _bug(
        "of a pod's hour any measurement stays",
        "hours",
        f"{_SQL}jobs/metrics.py",
        "for row in rows}",
        "for row in reversed(rows)}",
    ),
    _bug(
        "hours stay for ever",
        "hours",
        f"{_SQL}jobs/cleanup/retention.py",
        "    **{table.name: (table, table.c.hour) for table in (hours, pod_hours)},\n",
        "",
    ),
    _bug(
        "redis: an hour is folded before all of it is past",
        "hours",
        f"{_REDIS}lua/lib/base/ages.lua",
        "text(hour_of(now - minutes_kept))",
        "text(now - minutes_kept)",
    ),
    _bug(
        "redis: of a minute that is folded only the first counter is kept",
        "hours",
        f"{_REDIS}lua/jobs/cleanup/fold_hours.lua",
        "for index = 1, #fields, 2 do",
        "for index = 1, math.min(#fields, 2), 2 do",
    ),
    _bug(
        "redis: hours stay until they end by themselves",
        "hours",
        f"{_REDIS}jobs/cleanup.py",
        '    "hours": (":hm:", ":hl:"),\n',
        "",
    ),
]
