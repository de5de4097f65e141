"""Bugs in corners: tags, edges and places in bulk, overruled ends, levels of cool-downs."""

from tests.meta.bugs import Bug, Edit, _bug, files_of

_EAGER = "tests/runtime/test_eager_tasks.py::test_"
_NEXT_TURN = "            if self._task is None:\n                await next_turn()\n"


def _eager(name: str, module: str, old: str, new: str, test: str) -> Bug:
    edit = Edit(f"forge_jobs/{module}.py", old, new)
    return Bug(f"eager tasks: {name}", (f"{_EAGER}{test}",), (edit,))


EAGER = [
    _eager(
        "runs begin inside one another",
        "runtime/queue/worker",
        "        if self._task is None:\n            await next_turn()\n",
        "",
        "hundreds_of_held_claims_run_one_after_another",
    ),
    _eager(
        "an earlier run stands for the next",
        "runtime/queue/worker",
        "        self._task = None\n",
        "",
        "hundreds_of_held_claims_run_one_after_another",
    ),
    _eager(
        "a lane that has ended is taken for one at work",
        "lanes",
        _NEXT_TURN,
        "",
        "a_lane_whose_call_fails_at_once_takes_what_comes_after",
    ),
    _eager(
        "a shared value is made before it is known",
        "runtime/shared/pod_values",
        "        self._thread_end: ThreadEnd | None = None\n",
        "        self._thread_end: ThreadEnd | None = None\n        self.begin()\n",
        "a_shared_value_that_fails_at_once_is_made_by_the_next_job",
    ),
]

_ALONE = ("tests/backends/redis/test_enqueue_one.py",)


def _alone(name: str, old: str, new: str) -> Bug:
    edit = Edit("forge_jobs/storage/redis/lua/jobs/enqueue/enqueue_one.lua", old, new)
    return Bug(f"redis: a job alone: {name}", _ALONE, (edit,), "redis")


def _in_lua(name: str, tests: str, script: str, old: str, new: str) -> Bug:
    edit = Edit(f"forge_jobs/storage/redis/lua/{script}.lua", old, new)
    return Bug(f"redis: {name}", files_of(tests), (edit,), "redis")


SUCCESSES = [
    _bug(
        "a plain success that cannot be told from a repeat",
        "finalize exchange",
        "hot/finalize",
        "settled_token = job.token,",
        "settled_token = job.settled_token,",
    ),
    _bug(
        "a plain success keeps what is not to be kept",
        "not_kept",
        "hot/finalize",
        "WHEN '' THEN '' ELSE job.payload END",
        "WHEN '' THEN job.payload ELSE job.payload END",
    ),
    _bug(
        "a plain success whose result never goes",
        "not_kept finalize",
        "hot/finalize",
        "result_expires_at = CASE WHEN item.result IS NOT NULL THEN :now + job.result_ttl_us END,",
        "result_expires_at = NULL,",
    ),
    _bug(
        "two ends of one job in one statement",
        "finalize exchange",
        "jobs/endings",
        "return len(ids) == len(finalizations)",
        "return True",
    ),
    _bug(
        "plain successes tell no children",
        "children",
        "jobs/finalize",
        "        tell_children(tx, told)\n",
        "        pass\n",
    ),
]
"""The statement that ends most jobs, on both SQL stores."""

TURNS = [
    _bug(
        "turns: each asks alone",
        "turns",
        "config/rate_limits",
        "        last = turn\n",
        "        pass\n",
    ),
    _bug(
        "turns: the line is not kept",
        "turns",
        "config/rate_limits",
        "if last != row.last_turn_at:",
        "if last < row.last_turn_at:",
    ),
    _bug(
        "turns: a line longer than a caller waits is kept",
        "turns",
        "config/rate_limits",
        "last = min(last_turn_at(row, now), latest)",
        "last = last_turn_at(row, now)",
    ),
    _bug(
        "turns: a line that outlives the size of its bucket",
        "turns",
        "config/rate_limits",
        "            last_turn_at=0,\n",
        "",
    ),
    _bug(
        "hand-backs: each snooze counts as the first",
        "hand_backs",
        "jobs/finalize",
        "transition.count_snooze and not snoozes",
        "transition.count_snooze",
    ),
    _bug(
        "hand-backs: a requeue keeps the time of the first snooze",
        "hand_backs",
        "jobs/requeue",
        "        snoozed_at=None,\n",
        "",
    ),
    _bug(
        "hand-backs: the limit that a job waits for is not kept",
        "hand_backs finalize",
        "jobs/finalize",
        "transition.rate_limit,",
        "None,",
    ),
    _in_lua(
        "turns: a line that outlives a clock set back",
        "turns",
        "config/take_turns",
        "math.min(bucket.last_turn, latest)",
        "bucket.last_turn",
    ),
    _in_lua(
        "turns: a place is taken although none is given",
        "turns",
        "config/take_turns",
        "last = turn <= latest and turn or last",
        "last = turn",
    ),
    _in_lua(
        "hand-backs: each snooze counts as the first",
        "hand_backs",
        "lib/jobs/finalize/outcomes",
        "outcome.snoozes > 0 and job.snoozes == 0",
        "outcome.snoozes > 0",
    ),
    _in_lua(
        "hand-backs: a requeue keeps the time of the first snooze",
        "hand_backs",
        "jobs/requeue/requeue",
        "'snoozed', 'cancel', ",
        "'cancel', ",
    ),
]
"""Jobs that wait for a limit, and those that are handed back."""

ODD_BUGS = [
    *TURNS,
    _bug(
        "an interrupted job goes behind those that are due",
        "place_in_queue",
        "jobs/finalize",
        "return min(row.run_at, now) if isinstance",
        "return now if isinstance",
    ),
    _bug(
        "an interrupted job waits for a clock that went back",
        "place_in_queue",
        "jobs/finalize",
        "return min(row.run_at, now) if isinstance",
        "return row.run_at if isinstance",
    ),
    _bug(
        "a tag found behind a quote in another",
        "bulk",
        "base/job_rows",
        'return f"[{quoted}", f",{quoted}"',
        "return quoted, quoted",
    ),
    _bug(
        "a deleted child that leaves its edges behind",
        "bulk",
        "jobs/operate",
        "    forget_edges(tx, ids)\n",
        "",
    ),
    _bug(
        "a due job sent to the back by run_now",
        "operators",
        "jobs/operate",
        '.where(one_of(jobs.c.id, "ids"), jobs.c.run_at > bindparam("now"))',
        '.where(one_of(jobs.c.id, "ids"))',
    ),
    _bug(
        "of several queues only the first is visited",
        "bulk",
        "jobs/filters",
        "for name in sorted(names)",
        "for name in sorted(names)[:1]",
    ),
    _bug(
        "some held jobs are forgotten when their kind appears",
        "unknown_kinds",
        "fleet/pods",
        "        while freed == FREED_AT_ONCE:\n",
        "        if freed:\n",
    ),
    _bug(
        "a cancel that forgets why the attempt ended",
        "overruled",
        "jobs/finalize",
        "            error=wished.error,\n",
        "",
    ),
    _bug(
        "a cancel that swallows the cool-down",
        "overruled",
        "jobs/finalize",
        "            cooldown=wished.cooldown,\n",
        "",
    ),
    _bug(
        "an attempt handed back that a cancel counts",
        "overruled",
        "jobs/finalize",
        "            hand_back=wished.hand_back,\n",
        "",
    ),
    _bug(
        "a cool-down's level that outlives the quiet time",
        "cooldowns",
        "config/queues",
        "if tx.now < quiet_until:",
        "if tx.now <= quiet_until:",
    ),
    _bug(
        "a cool-down's level forgotten when the pause ends",
        "cooldowns",
        "config/queues",
        "if tx.now < quiet_until:",
        "if tx.now < (row.cooldown_until or 0):",
    ),
    _bug(
        "a beat that renews another pod's claim",
        "heartbeat",
        "jobs/heartbeat",
        'text(CLAIMED), jobs.c.host_id == bindparam("host")',
        'text(CLAIMED), jobs.c.host_id != bindparam("host")',
    ),
    _bug(
        "jobs beyond the whole blocks of a batch not stored",
        "enqueue",
        "sqlite/statements",
        "values[whole:]",
        "values[len(values):]",
    ),
    _bug(
        "a block of jobs stored as its first job again and again",
        "enqueue",
        "sqlite/statements",
        "values[at : at + _BLOCK]",
        "values[at : at + 1] * _BLOCK",
    ),
    _bug(
        "an id that is stored already taken for a new job",
        "enqueue",
        "sqlite/job_store",
        "raise Overtaken from None",
        "return [EnqueueOutcome(request.id) for request in requests]",
    ),
    _bug(
        "jobs that wait for others stored as if they did not",
        "children",
        "sqlite/job_store",
        "all(map(is_plain, requests))",
        "all(each.unique is None for each in requests)",
    ),
    _bug(
        "jobs stored without a look are not counted",
        "enqueue bookkeeping",
        "jobs/enqueue",
        "        tx.count(queue, Cause.ENQUEUED, by=count)\n    _wake",
        "        pass\n    _wake",
    ),
    _bug(
        "jobs stored without a look wake nobody",
        "wake",
        "jobs/enqueue",
        "        tx.count(queue, Cause.ENQUEUED, by=count)\n    _wake(tx, requests)\n",
        "        tx.count(queue, Cause.ENQUEUED, by=count)\n",
    ),
    Bug(
        "others' commits are not looked for",
        ("tests/backends/sqlite/test_wake.py",),
        (
            Edit(
                "forge_jobs/storage/sql/sqlite/waiting.py",
                "                await self._look()\n                self._look_at",
                "                self._look_at",
            ),
        ),
    ),
    Bug(
        "processes on one file do not wake each other",
        ("tests/backends/sqlite/test_wake_sockets.py",),
        (
            Edit(
                "forge_jobs/storage/sql/sqlite/database.py",
                "            self._sender.send(signals)",
                "            pass",
            ),
        ),
    ),
    Bug(
        "a listener is missed that came while the folder was read",
        ("tests/backends/sqlite/test_wake_sockets.py",),
        (
            Edit(
                "forge_jobs/storage/sql/sqlite/wake_sockets.py",
                "self._changed_ns = changed_ns if is_settled else -1",
                "self._changed_ns = changed_ns",
            ),
        ),
    ),
    Bug(
        "others wait for the lock while an answer is made",
        ("tests/backends/sqlite/test_locks.py",),
        (
            Edit(
                "forge_jobs/storage/sql/sqlite/connection.py",
                "result = script(tx)",
                "result = then(script(tx)) if then else script(tx)",
            ),
            Edit(
                "forge_jobs/storage/sql/sqlite/connection.py",
                "return then(result) if then else result",
                "return result",
            ),
        ),
    ),
    _alone("an id that is known stored again", "(queue)) ~= 1 then", "(queue)) == 2 then"),
    _alone("jobs that no list has", "redis.call('ZADD', base .. ':s:pending', 0, id)\n", ""),
    _alone("nobody is rung for", "wake_queue(base)\n", ""),
    Bug(
        "redis: a job with tags is stored as a plain one",
        _ALONE,
        (Edit("forge_jobs/storage/redis/base/job_rows.py", "        or request.tags\n", ""),),
        "redis",
    ),
    *SUCCESSES,
    *EAGER,
]
