"""The core bugs in the modules that only Postgres has, and those of the shared ones on Postgres."""

from tests.meta.bugs import BUGS, Bug, Edit, files_of
from tests.meta.odd_bugs import SUCCESSES

_POSTGRES = "forge_jobs/storage/sql/postgres/"


def _bug(name: str, tests: str, module: str, old: str, new: str) -> Bug:
    edit = Edit(f"{_POSTGRES}{module}.py", old, new)
    return Bug(f"postgres: {name}", files_of(tests), (edit,), "postgres")


_OWN = (
    Bug(
        "postgres: a row that a foreign key holds stops retention",
        ("tests/backends/postgres/test_held_jobs.py",),
        (Edit(f"{_POSTGRES}driver/errors.py", 'if code[:2] not in ("23", "P0"):', "if code:"),),
        "postgres",
    ),
    _bug(
        "a look for overdue jobs ends at the first queue",
        "retention",
        "../jobs/cleanup/overdue",
        "len(some) if len(rows) < size else rows[-1].place - 1",
        "len(some)",
    ),
    _bug(
        "a claim under a lease that ran out",
        "claim",
        "../hot/claim",
        "pod.lease_until > :now",
        "pod.lease_until >= :now",
    ),
    _bug(
        "a claim under another epoch",
        "claim",
        "../hot/claim",
        "AND pod.epoch = :epoch ",
        "AND (pod.epoch = :epoch OR true) ",
    ),
    _bug("a paused queue gives work", "claim", "../hot/claim", "AND NOT queue.paused", ""),
    _bug(
        "cool-down a microsecond too long",
        "claim",
        "../hot/claim",
        "queue.cooldown_until <= :now",
        "queue.cooldown_until < :now",
    ),
    _bug(
        "due a microsecond late: < for <=",
        "claim",
        "../hot/claim",
        "priority = levels.priority AND run_at <= :now AND {READY}\n                AND",
        "priority = levels.priority AND run_at < :now AND {READY}\n                AND",
    ),
    _bug(
        "claimed at the instant it expires",
        "claim",
        "../hot/claim",
        "expires_at > :now) AND (:any_risk",
        "expires_at >= :now) AND (:any_risk",
    ),
    _bug(
        "wrong order: id before due time",
        "claim",
        "../hot/claim",
        "            ORDER BY run_at, id\n            LIMIT :count\n            FOR",
        "            ORDER BY id, run_at\n            LIMIT :count\n            FOR",
    ),
    _bug(
        "wrong order: what comes back is not in the queue's order",
        "claim",
        "../hot/claim",
        "ORDER BY head.priority, head.run_at, head.id",
        "ORDER BY head.id",
    ),
    _bug(
        "a job with a crash is claimed ahead",
        "claim",
        "../hot/claim",
        "WHERE place <= cardinality(:workers) OR crashes = 0",
        "WHERE place > 0 OR crashes = 0",
    ),
    _bug(
        "a token that repeats after an attempt was handed back",
        "claim",
        "../hot/claim",
        "token = greatest(job.token + 1, :now),",
        "token = job.enqueued_at + job.attempt + 1,",
    ),
    _bug(
        "a start that outlives its claim", "heartbeat", "../hot/claim", "  started_at = NULL,", ""
    ),
    _bug(
        "claims counted per call",
        "claim",
        "short/claims",
        "lease.host_id, len(found))",
        "lease.host_id, 1)",
    ),
    _bug(
        "hold not applied",
        "unknown_kinds",
        "short/claims",
        "        if is_unknown:\n",
        "        if False:\n",
    ),
    _bug(
        "kinds that others know stop a claim",
        "claim unknown_kinds",
        "short/claims",
        "        by_kind = by_kind or is_unknown\n",
        "        if is_unknown:\n            break\n",
    ),
    _bug(
        "what stands behind kinds that nobody knows is not put aside",
        "unknown_kinds",
        "job_store",
        "(answer.is_whole and saw_all) or is_new",
        "(answer.is_whole and saw_all)",
    ),
    _bug(
        "a claim that a beat takes from its worker",
        "model",
        "../hot/heartbeat",
        "CASE WHEN beat.worker = '' THEN jobs.worker_id ELSE beat.worker END",
        "beat.worker",
    ),
    _bug(
        "a start recorded anew by every beat",
        "heartbeat",
        "../hot/heartbeat",
        "ELSE coalesce(jobs.started_at, :now) END",
        "ELSE :now END",
    ),
)


def _short(name: str, tests: str, module: str, old: str, new: str) -> Bug:
    """Return a bug of calls that are one statement.

    :param tests: files of the conformance suite, after a slash those of Postgres alone
    """
    shared, _, own = tests.partition("/")
    edit = Edit(f"{_POSTGRES}{module}.py", old, new)
    here = (f"tests/backends/postgres/test_{each}.py" for each in own.split())
    return Bug(f"postgres: {name}", (*files_of(shared), *here), (edit,), "postgres")


_RENEWED = """\
    renewed = await database.ask(_RENEW, {**mine, "lease_us": duration_us(lease_for)})
    if not renewed or renewed[0].owns:
        return None
"""
_ONLY_THEN = """\
    # Only after the renewal is committed: a transaction that found the lease lapsed has removed the
    # slots before.
"""
_FOUND = """\
    found = await database.ask(_QUEUE_BEATS, mine)
"""
_SHORT = (
    _bug(
        "a token too many, taken by one statement",
        "rate_limits",
        "config_store",
        "<= {full} - :count * period_us",
        "<= {full} - (:count - 1) * period_us",
    ),
    _bug(
        "what has leaked from a bucket leaks again",
        "rate_limits",
        "config_store",
        " :count * period_us, updated_at = now",
        " :count * period_us",
    ),
    _short(
        "a success that is not fenced",
        "finalize exchange",
        "../hot/finalize",
        "(given.queue, given.token, :owner, 'in_progress')",
        "(given.queue, token, :owner, 'in_progress')",
    ),
    _short(
        "a success of what is not claimed any more",
        "finalize exchange",
        "../hot/finalize",
        "(given.queue, given.token, :owner, 'in_progress')",
        "(given.queue, given.token, :owner, status)",
    ),
    _short(
        "claims beside an end that may fail",
        "/short_way",
        "../hot/exchange",
        "(SELECT count(*) FROM item) = cardinality(:ids)",
        "(SELECT count(*) FROM item) >= 0",
    ),
    _short(
        "children not told by an exchange",
        "children/short_way",
        "../hot/exchange",
        'only="NOT has_children AND limit_name IS NULL"',
        'only="limit_name IS NULL"',
    ),
    _short(
        "an exchange stops at jobs that it may not take",
        "/short_way",
        "short/exchanges",
        "is_whole=len(claimed) == first.met",
        "is_whole=True",
    ),
    _short(
        "the claims of an exchange in any order",
        "/short_way",
        "short/exchanges",
        "key=lambda row: (row.priority, row.run_at, row.id)",
        "key=lambda row: (row.id,)",
    ),
    _short(
        "a front that is never looked behind",
        "/old_snapshot",
        "short/claim_cursors",
        "return start == EVERYTHING",
        "return True",
    ),
    _short(
        "every claim passes the dead rows",
        "/old_snapshot",
        "short/claim_cursors",
        "walked - asked > MANY",
        "walked - asked > 1000 * MANY",
    ),
    _short(
        "ends that an exchange counts as claims",
        "exchange",
        "../hot/exchange",
        "'succeeded' AS name FROM ended",
        "'claimed' AS name FROM ended",
    ),
    _short(
        "counters overwritten by a statement alone",
        "exchange enqueue bookkeeping",
        "../hot/parts",
        "count = forge_counters.count + excluded.count",
        "count = excluded.count",
    ),
    _short(
        "a known id passed over in silence",
        "enqueue",
        "../hot/enqueue",
        "= :size THEN 1 ELSE 0 END",
        "= :size THEN 1 ELSE 1 END",
    ),
    _short(
        "a plain enqueue wakes nobody",
        "wake",
        "../hot/enqueue",
        "WHERE stored.run_at <= moment.now",
        "WHERE stored.run_at < moment.now",
    ),
    _short(
        "transactions that hold notices",
        "/notices",
        "flavor",
        "if self.wakes and tx.is_callers:",
        "if self.wakes:",
    ),
    _short(
        "notices where everybody polls",
        "/notices",
        "store",
        "if self._options.wakes:",
        "if True:",
    ),
    _short(
        "a close that forgets what is due",
        "/notices",
        "announcing",
        "        if self._waiting:\n            topics",
        "        if not self._waiting:\n            topics",
    ),
    _short(
        "a notice for each enqueue",
        "/notices",
        "announcing",
        "self._next[topic] = at + self._apart",
        "self._next[topic] = at",
    ),
    _short(
        "a notice whose failure nobody catches",
        "/notices",
        "announcing",
        "except _FAILURES as error:",
        "except KeyError as error:",
    ),
    _short(
        "the switch of callers' notices without effect",
        "/notices",
        "flavor",
        "IS DISTINCT FROM 'off'",
        "IS DISTINCT FROM 'never'",
    ),
    _short(
        "a store that is another one after a restore",
        "/moved_store",
        "flavor",
        "select(func.current_database(), there)",
        "select(func.concat(text(\"'forge_jobs'::regclass::oid\")), there)",
    ),
    _short(
        "a delay counted from the epoch",
        "/short_way",
        "../hot/enqueue",
        'f"given.run_at + {_FROM_NOW}"',
        '"given.run_at"',
    ),
    _short(
        "rows that are copied wake nobody",
        "/bulk",
        "short/bulk",
        "if due_at(one, now) <= now:",
        "if due_at(one, now) < now:",
    ),
    _short(
        "rows that are copied all taken for the first of them",
        "/short_way",
        "short/bulk",
        "alike.get(asked)",
        "next(iter(alike.values()), None)",
    ),
    _short(
        "rows that are copied counted per call",
        "/bulk",
        "short/bulk",
        "Cause.ENQUEUED, by=count)",
        "Cause.ENQUEUED)",
    ),
    _short(
        "a known id taken for one that another call is storing",
        "/bulk",
        "short/bulk",
        "raise NotCopied from None",
        "raise",
    ),
    _short(
        "a call whose reply was lost made again by itself",
        "/faults",
        "database",
        "may_help = repeatable",
        "may_help = True",
    ),
    _short(
        "scripts planned like statements",
        "/sessions",
        "driver/connections",
        "elif plans_once is not False:",
        "elif plans_once is None:",
    ),
    _short(
        "statements planned like scripts",
        "/sessions",
        "driver/connections",
        "if self.plans_once is not once:",
        "if self.plans_once is None:",
    ),
    _short(
        "settings believed that a rollback has taken back",
        "/sessions",
        "driver/connections",
        "self.plans_once, plans_once = None, False",
        "self.plans_once = plans_once = False",
    ),
    _short(
        "the patience of a call set back with its session",
        "/sessions",
        "driver/connections",
        'f"{_AS_BEGUN}; {begin}"',
        'f"{begin}; {_AS_BEGUN}"',
    ),
    _short(
        "sessions set up anew when the two take turns",
        "/sessions",
        "driver/connections",
        "if plans_once and self._was_once:",
        "if plans_once is None and self._was_once:",
    ),
    _short(
        "claims that an idle beat does not look for",
        "heartbeat",
        "idle",
        "if not renewed or renewed[0].owns:",
        "if not renewed:",
    ),
    _short(
        "slots that an idle beat has read before its lease is renewed",
        "/races",
        "idle",
        f"{_RENEWED}{_ONLY_THEN}{_FOUND}",
        f"{_FOUND}{_RENEWED}{_ONLY_THEN}",
    ),
    _short(
        "one that does not lead told how the fleet stands",
        "leader",
        "idle",
        "store.answer_to(host_id, store.leadership_of(standing[0]))",
        "store.leadership_of(standing[0])",
    ),
    _short(
        "a connection to a standby kept",
        "/failover",
        "driver/errors",
        "return code == _READ_ONLY or",
        "return",
    ),
    _short(
        "silent connections found one by one",
        "/failover",
        "database",
        "await self._connections.forget_idle()\n        return Unavailable(",
        "return Unavailable(",
    ),
    _short(
        "connections used however long they lay idle",
        "/failover",
        "driver/connections",
        "        await self._close_old()\n",
        "",
    ),
    _short(
        "a silent host asked first again",
        "/hosts",
        "driver/hosts",
        "for address in asked.values():",
        "for address in ():",
    ),
    _short(
        "a silent host waited for alone",
        "/hosts",
        "driver/hosts",
        "HEAD_START_S if left else None",
        "None",
    ),
    _short(
        "several hosts taken as they come",
        "/hosts",
        "driver/address",
        "READ_WRITE if several else ANY)",
        "ANY)",
    ),
    _short(
        "plans that depend on what the tables held",
        "/plans",
        "driver/sessions",
        '    "enable_seqscan": "off",\n    "enable_hashjoin": "off",\n',
        "",
    ),
)

# A way to break each promise of the core. The texts are those of the shared modules.
_CORE = (
    "the fence dropped",
    "settled_token not set",
    "settled_token set by a revival",
    "revive without looking again",
    "a cool-down applied by a refused finalize",
    "a repeat counted twice",
    "success turned into a cancel",
    "a revival that disregards the cancel",
    "a released claim uses up its attempt",
    "children not told",
    "a lease renewed after it ran out",
    "a cancel not told by the beat",
    "a key freed while its job waits for a retry",
    "the unique key looked at before the id",
    "a cancel flag that survives a requeue",
    "a running job deleted",
    "two jobs of one key requeued by one call",
    "a child freed by the first of its parents",
    "a row that is not kept goes at once",
    "grants above the queue's maximum",
    "an allocation written over a newer one",
    "a bucket that gives one token too many",
    "a term that stays when the holder changes",
    "a schedule fired on a version that has moved on",
)


def _on_postgres(bug: Bug) -> Bug:
    return Bug(f"postgres: {bug.name}", bug.tests, bug.edits, "postgres")


POSTGRES_BUGS: tuple[Bug, ...] = (
    *_OWN,
    *_SHORT,
    *(_on_postgres(bug) for bug in SUCCESSES),
    *(_on_postgres(bug) for name in _CORE for bug in BUGS if bug.name == name),
)
