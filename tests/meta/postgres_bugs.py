"""The core bugs in the modules that only Postgres has, and those of the shared ones on Postgres."""

from tests.meta.bugs import BUGS, Bug, Edit, files_of

_POSTGRES = "forge_jobs/storage/sql/postgres/"


def _bug(name: str, tests: str, module: str, old: str, new: str) -> Bug:
    edit = Edit(f"{_POSTGRES}{module}.py", old, new)
    return Bug(f"postgres: {name}", files_of(tests), (edit,), "postgres")


_OWN = (
    _bug(
        "a claim under a lease that ran out",
        "claim",
        "claims",
        "pod.lease_until > :now",
        "pod.lease_until >= :now",
    ),
    _bug(
        "a claim under another epoch",
        "claim",
        "claims",
        "AND pod.epoch = :epoch ",
        "AND (pod.epoch = :epoch OR true) ",
    ),
    _bug("a paused queue gives work", "claim", "claims", "AND NOT queue.paused", ""),
    _bug(
        "cool-down a microsecond too long",
        "claim",
        "claims",
        "queue.cooldown_until <= :now",
        "queue.cooldown_until < :now",
    ),
    _bug(
        "due a microsecond late: < for <=",
        "claim",
        "claims",
        "run_at <= :now AND",
        "run_at < :now AND",
    ),
    _bug(
        "claimed at the instant it expires",
        "claim",
        "claims",
        "expires_at > :now",
        "expires_at >= :now",
    ),
    _bug(
        "wrong order: id before due time",
        "claim",
        "claims",
        "            ORDER BY run_at, id\n",
        "            ORDER BY id, run_at\n",
    ),
    _bug(
        "wrong order: what comes back is not in the queue's order",
        "claim",
        "claims",
        "ORDER BY head.priority, head.run_at, head.id",
        "ORDER BY head.id",
    ),
    _bug(
        "a job with a crash is claimed ahead",
        "claim",
        "claims",
        "WHERE place <= cardinality(:workers) OR crashes = 0",
        "WHERE place > 0 OR crashes = 0",
    ),
    _bug(
        "a token that repeats after an attempt was handed back",
        "claim",
        "claims",
        "token = job.token + 1,",
        "token = job.attempt + 1,",
    ),
    _bug("a start that outlives its claim", "heartbeat", "claims", "started_at = NULL,", ""),
    _bug(
        "claims counted per call",
        "claim",
        "claims",
        "lease.host_id, len(found))",
        "lease.host_id, 1)",
    ),
    _bug(
        "hold not applied",
        "unknown_kinds",
        "claims",
        "            aside.hold(level, strange)\n",
        "            pass\n",
    ),
    _bug(
        "kinds that others know stop a claim",
        "claim unknown_kinds",
        "claims",
        "        any_kind = False\n",
        "        break\n",
    ),
    _bug(
        "a claim that a beat takes from its worker",
        "model",
        "renewals",
        "CASE WHEN beat.worker = '' THEN jobs.worker_id ELSE beat.worker END",
        "beat.worker",
    ),
    _bug(
        "a start recorded anew by every beat",
        "heartbeat",
        "renewals",
        "ELSE coalesce(jobs.started_at, :now) END",
        "ELSE :now END",
    ),
)

# One way to say each promise of the core wrongly; the words are the shared modules'.
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
    *(_on_postgres(bug) for name in _CORE for bug in BUGS if bug.name == name),
)
