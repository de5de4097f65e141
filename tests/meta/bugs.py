"""Bugs that a store could have, as patches of our own: the suite must catch each of them.

A patch is exact text. One whose text is no longer found once is an error, so a change of the
store also moves the bug along.
"""

from dataclasses import dataclass

_SQL = "forge_jobs/storage/sql/"
_SUITE = "tests/conformance/"


@dataclass(frozen=True)
class Edit:
    """A replacement of exact text in one file."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Bug:
    """A bug, the test files that must notice it, and the backend of the tests."""

    name: str
    tests: tuple[str, ...]
    edits: tuple[Edit, ...]
    backend: str = "sqlite"


def files_of(names: str) -> tuple[str, ...]:
    """Return the files of the conformance suite with these names. ``model`` has a folder of its
    own.
    """
    folders = {"model": "model/"}
    return tuple(f"{_SUITE}{folders.get(each, '')}test_{each}.py" for each in names.split())


def _bug(name: str, tests: str, module: str, old: str, new: str) -> Bug:
    return Bug(name, files_of(tests), (Edit(f"{_SQL}{module}.py", old, new),))


_REPEAT = "_is_repeat(row or rows.kept.get(claim.job_id), claim))\n"

CLAIMS = [
    _bug(
        "a claim under a lease that ran out",
        "claim",
        "jobs/claim",
        "number_or(gate.lease_until, 0) > now",
        "number_or(gate.lease_until, 0) >= now",
    ),
    _bug(
        "a claim under another epoch",
        "claim",
        "jobs/claim",
        "gate.epoch == lease.epoch",
        "gate.epoch",
    ),
    _bug(
        "wrong order with a small limit: id before due time",
        "claim",
        "hot/claim",
        "    {_DUE}\n    ORDER BY run_at, id\n",
        "    {_DUE}\n    ORDER BY id\n",
    ),
    _bug(
        "wrong order: greatest priority first",
        "claim",
        "hot/claim",
        "ORDER BY priority, run_at\n",
        "ORDER BY priority DESC, run_at\n",
    ),
    _bug(
        "due a microsecond late: < for <=",
        "claim",
        "hot/claim",
        "priority = :level AND run_at <= :now",
        "priority = :level AND run_at < :now",
    ),
    _bug(
        "claimed at the instant it expires",
        "claim",
        "hot/claim",
        "        AND (expires_at IS NULL OR expires_at > :now)\n",
        "        AND (expires_at IS NULL OR expires_at >= :now)\n",
    ),
    _bug(
        "hold not applied",
        "unknown_kinds",
        "jobs/unknown_kinds",
        'tx.execute(_PUT_ON_HOLD, {"ids": ids})',
        "pass",
    ),
    _bug(
        "hold applied to kinds that others know",
        "unknown_kinds",
        "jobs/unknown_kinds",
        "for kind in sorted(unknown - published):",
        "for kind in sorted(unknown):",
    ),
    _bug(
        "cool-down a microsecond too long",
        "claim",
        "jobs/claim",
        "number_or(gate.cooldown_until, 0) <= now",
        "number_or(gate.cooldown_until, 0) < now",
    ),
    _bug("a paused queue gives work", "claim", "jobs/claim", "and not gate.paused", ""),
    _bug(
        "a job with a crash is claimed ahead",
        "claim",
        "jobs/claim",
        "if row.crashes and len(part.rows) >= workers:",
        "if row.crashes < 0:",
    ),
    _bug(
        "a token that repeats after an attempt was handed back",
        "claim",
        "hot/claim",
        "token = max(job.token + 1, :now),",
        "token = job.enqueued_at + job.attempt + 1,",
    ),
    _bug(
        "a start that outlives its claim",
        "heartbeat",
        "hot/claim",
        "heartbeat_at = :now, started_at = NULL,",
        "heartbeat_at = :now,",
    ),
    _bug(
        "claims counted per call",
        "claim",
        "jobs/claim",
        "lease.host_id, len(picked))",
        "lease.host_id, 1)",
    ),
]

ENDS = [
    _bug(
        "the fence dropped",
        "finalize",
        "jobs/finalize",
        "and row.token == claim.token",
        "and claim.token > 0",
    ),
    _bug(
        "settled_token not set",
        "finalize",
        "jobs/finalize",
        "row.token if self._mode.by_owner else row.settled_token",
        "row.settled_token",
    ),
    _bug(
        "settled_token set by a revival",
        "revive",
        "jobs/finalize",
        "row.token if self._mode.by_owner else row.settled_token",
        "row.token",
    ),
    _bug(
        "revive without looking again",
        "revive",
        "jobs/finalize",
        "lambda row: _is_silent(row, silent_since) and",
        "lambda row:",
    ),
    _bug(
        "stale a microsecond late",
        "revive",
        "jobs/finalize",
        "jobs.c.heartbeat_at <= _NOW",
        "jobs.c.heartbeat_at < _NOW",
    ),
    _bug(
        "a cool-down applied by a refused finalize",
        "finalize",
        "jobs/finalize",
        _REPEAT,
        _REPEAT + "            if row is not None and transition.cooldown is not None:\n"
        "                start_cooldown(tx, row.queue, transition.cooldown)\n",
    ),
    _bug(
        "a repeat counted twice",
        "finalize",
        "jobs/finalize",
        _REPEAT,
        _REPEAT + "            if outcomes[-1]:\n"
        "                tx.count(claim.queue, transition.cause)\n",
    ),
    _bug(
        "success turned into a cancel",
        "overruled",
        "jobs/finalize",
        "self._mode.cancel_spares_done and",
        "False and",
    ),
    _bug(
        "a revival that disregards the cancel",
        "revive",
        "jobs/finalize",
        "_REVIVE = _Mode(by_owner=False, cancel_spares_done=False)",
        "_REVIVE = _Mode(by_owner=False)",
    ),
    _bug(
        "a retry delayed from the old due time",
        "finalize",
        "jobs/finalize",
        "return now + duration_us(delay)",
        "return row.run_at + duration_us(delay)",
    ),
    _bug(
        "an older result kept",
        "finalize",
        "jobs/finalize",
        "result, expires_at = transition.result, None",
        "result, expires_at = transition.result or row.result, None",
    ),
    _bug(
        "a released claim uses up its attempt",
        "revive",
        "jobs/finalize",
        "cause=Cause.RELEASED, delay=None, hand_back=True",
        "cause=Cause.RELEASED, delay=None",
    ),
    _bug("children not told", "children", "jobs/finalize", "status in ended", "status in ()"),
    _bug(
        "the earlier end of two cool-downs stays",
        "finalize",
        "config/queues",
        "until = max(before, tx.now + duration_us(cooldown.length))",
        "until = tx.now + duration_us(cooldown.length)",
    ),
    _bug(
        "a lease renewed after it ran out",
        "heartbeat",
        "fleet/pods",
        "RENEW = (\n    update(pods)\n    .where(*OF_LEASE, pods.c.lease_until > NOW)",
        "RENEW = (\n    update(pods)\n    .where(*OF_LEASE, pods.c.lease_until >= NOW)",
    ),
    _bug(
        "a lease renewed by the wrong holder",
        "heartbeat",
        "fleet/registering",
        'pods.c.epoch == bindparam("at_epoch"))\nQUEUES_OF',
        '(pods.c.epoch + bindparam("at_epoch")) != "")\nQUEUES_OF',
    ),
    _bug(
        "a start recorded anew by every beat",
        "heartbeat",
        "hot/heartbeat",
        "started_at = coalesce(started_at, :now)\n",
        "started_at = :now\n",
    ),
    _bug(
        "a cancel not told by the beat",
        "heartbeat",
        "jobs/heartbeat",
        "ClaimState.CANCEL_REQUESTED if row.cancel_requested else ClaimState.HELD",
        "ClaimState.HELD",
    ),
]

KEYS = [
    _bug(
        "a key freed while its job waits for a retry",
        "unique_keys",
        "base/tables",
        "ACTIVE = \"status IN ('blocked', 'pending', 'in_progress', 'failed')\"",
        "ACTIVE = \"status IN ('blocked', 'pending', 'in_progress')\"",
    ),
    _bug(
        "the unique key looked at before the id",
        "enqueue",
        "jobs/enqueue",
        "        if self._is_repeat(request):\n",
        "        if request.unique is None and self._is_repeat(request):\n",
    ),
    _bug(
        "a duplicate counted as enqueued",
        "unique_keys",
        "jobs/enqueue",
        "tx.count(request.queue, DEDUPLICATED)",
        "tx.count(request.queue, Cause.ENQUEUED)",
    ),
    _bug(
        "an id used for other content goes through",
        "enqueue",
        "jobs/enqueue",
        "same = content == _content(request)",
        "same = True",
    ),
    _bug(
        "a parent that has already ended is never told",
        "children",
        "jobs/enqueue",
        "    if parent in ended\n        ]\n",
        "    if parent in ()\n        ]\n",
    ),
]

OPERATORS = [
    Bug(
        "a cancel flag that survives a requeue",
        (f"{_SUITE}test_operators.py",),
        (
            Edit(
                f"{_SQL}jobs/finalize.py",
                "        cancel_requested=False,\n        result",
                "        result",
            ),
            Edit(
                f"{_SQL}jobs/requeue.py",
                "        snoozed_at=None,\n        cancel_requested=False,\n",
                "        snoozed_at=None,\n",
            ),
        ),
    ),
    _bug(
        "attempts that survive a requeue",
        "operators",
        "jobs/requeue",
        "        attempt=0,\n",
        "",
    ),
    _bug(
        "a running job deleted",
        "operators",
        "jobs/operate",
        'left = changes.refuse("delete", rows)',
        "left = list(rows)",
    ),
    _bug(
        "two jobs of one key requeued by one call",
        "unique_keys",
        "jobs/operate",
        "                holders.setdefault(_key_of(row), {row.id})\n",
        "                holders.get(_key_of(row))\n",
    ),
    _bug(
        "expired a microsecond late",
        "operators",
        "jobs/operate",
        'jobs.c.expires_at <= bindparam("now")',
        'jobs.c.expires_at < bindparam("now")',
    ),
    _bug(
        "a child freed by the first of its parents",
        "children",
        "jobs/deliveries",
        'waiting = set(tx.execute(_STILL_WAITING, {"ids": ids}).scalars())',
        "waiting = set[str]()",
    ),
    _bug(
        "an edge on hold counts as settled",
        "children",
        "jobs/deliveries",
        "state=EdgeState.HELD.value,",
        "state=EdgeState.SETTLED.value,",
    ),
    _bug(
        "a cancelled job tells no children",
        "children",
        "jobs/endings",
        "{row.id: JobStatus.CANCELLED for row in rows if row.has_children}",
        "{}",
    ),
    _bug(
        "a row that is not kept goes at once",
        "not_kept",
        "jobs/cleanup/retention",
        "KEPT_AT_LEAST = timedelta(minutes=1)",
        "KEPT_AT_LEAST = timedelta(0)",
    ),
    _bug(
        "a page that repeats the last line of the one before",
        "reads",
        "jobs/filters",
        "jobs.c.id < before",
        "jobs.c.id <= before",
    ),
    _bug(
        "a tag found inside another",
        "bulk hostile_input",
        "base/job_rows",
        "    quoted = _encode(tag).decode()\n",
        "    quoted = _encode(tag).decode()[:-1]\n",
    ),
]

FLEET = [
    _bug(
        "released work wakes nobody",
        "wake",
        "jobs/finalize",
        "            tx.wake_queue(row.queue)\n",
        "            pass\n",
    ),
    _bug(
        "counts that a roll-up adds up wrongly",
        "bookkeeping",
        "jobs/metrics",
        "sums[row.queue, row.minute, row.name] += tally(row.amount)",
        "sums[row.queue, row.minute, row.name] = tally(row.amount)",
    ),
    _bug(
        "a result kept a microsecond too long",
        "not_kept",
        "jobs/cleanup/retention",
        'jobs.c.result_expires_at <= bindparam("before"))',
        'jobs.c.result_expires_at < bindparam("before"))',
    ),
    _bug(
        "jobs of kinds nobody knows freed by any pod",
        "unknown_kinds",
        "fleet/pods",
        '        one_of(jobs.c.kind, "kinds"),\n    )\n    .limit',
        "        jobs.c.kind.is_not(None),\n    )\n    .limit",
    ),
    _bug(
        "grants above the queue's maximum",
        "allocations",
        "fleet/allocations",
        "return sum(slots.grant for slots in after.values()) <= max_workers",
        "return True",
    ),
    _bug(
        "an allocation written over a newer one",
        "allocations",
        "fleet/allocations",
        "        and number_or(queue.allocation_version, 0) == change.version\n",
        "",
    ),
    _bug(
        "a grant that sinks under the pod",
        "allocations",
        "fleet/allocations",
        "if any(wish.grant < stored[host].grant for host, wish in wished.items()):",
        "if any(wish.grant < 0 for host, wish in wished.items()):",
    ),
    _bug(
        "an operator's setting lost at the next deploy",
        "config_store",
        "config/store",
        "declared.keys() - before.overridden",
        "declared.keys()",
    ),
    _bug(
        "a cool-down's level that outlives its clearing",
        "config_store",
        "config/store",
        '{"cooldown_until": None, "cooldown_level": 0}',
        '{"cooldown_until": None}',
    ),
    _bug(
        "a bucket that waits for a clock that stepped back",
        "rate_limits",
        "config/rate_limits",
        "    if elapsed < 0:\n        return min(level, full)\n",
        "",
    ),
    _bug(
        "a bucket that gives one token too many",
        "rate_limits",
        "config/rate_limits",
        "wait = max(0, rounded_up(surplus, row.capacity))",
        "wait = max(0, rounded_up(surplus - row.period_us, row.capacity))",
    ),
    _bug(
        "a term that stays when the holder changes",
        "leader",
        "cron/store",
        "term=case((_IS_FREE, leader.c.term + 1)",
        "term=case((_IS_FREE, leader.c.term)",
    ),
    _bug(
        "a leader lease that lasts a microsecond too long",
        "leader",
        "cron/store",
        "(leader.c.lease_until <= _NOW)",
        "(leader.c.lease_until < _NOW)",
    ),
    _bug(
        "a schedule fired on a version that has moved on",
        "cron_store",
        "cron/fire",
        "if self.version != firing.version:",
        "if self.version < firing.version:",
    ),
]

BUGS: tuple[Bug, ...] = (*CLAIMS, *ENDS, *KEYS, *OPERATORS, *FLEET)
