"""Bugs around records that cannot be read, and around the file of SQLite."""

from tests.meta.bugs import Bug, Edit

_JOBS = ("tests/backends/test_unreadable_jobs.py",)
_FILE = ("tests/backends/sqlite/test_replaced_file.py",)
_SQL = "forge_jobs/storage/sql/"
_REDIS = "forge_jobs/storage/redis/"


def _bug(name: str, file: str, old: str, new: str, backend: str = "sqlite") -> Bug:
    return Bug(name, _JOBS, (Edit(file, old, new),), backend)


_RECORDS = ("tests/backends/test_unreadable_records.py",)


_PLAIN_ENDS = f"{_REDIS}lua/lib/jobs/finalize/plain_ends.lua"
_LISTED = "      call_many('ZADD', base .. ':ended:' .. outcome.status, outcome.dated)\n"
_COUNTED_LATE = "count(outcome.cause, '', #outcome.dated / 2)"


def _of_a_record(name: str, file: str, old: str, new: str, backend: str = "sqlite") -> Bug:
    return Bug(name, _RECORDS, (Edit(file, old, new),), backend)


def _of_a_key(name: str, file: str, old: str, new: str) -> Bug:
    tests = ("tests/backends/redis/test_spoilt_keys.py",)
    return Bug(f"redis: {name}", tests, (Edit(f"{_REDIS}{file}", old, new),), "redis")


_SPOILT_KEYS = [
    _of_a_key(
        "a key of another type stops every queue of its call",
        "lua/lib/base/run.lua",
        "elseif not is_wrong_type(answer) then",
        "else",
    ),
    _of_a_key(
        "a claim that a key of another type has ended is told nobody and not put back",
        "lua/lib/jobs/claim/claiming.lua",
        "      put_back(base, host, round)\n",
        "",
    ),
    _of_a_key(
        "a job is written before it is listed",
        "lua/lib/jobs/enqueue/inserting.lua",
        "  flush_writes()\n  for _, job in ipairs(jobs) do\n    write(base, job)\n  end\n",
        "  for _, job in ipairs(jobs) do\n    write(base, job)\n  end\n",
    ),
    _of_a_key(
        "a claim is taken off its list before its end is listed",
        "lua/lib/jobs/finalize/settling.lua",
        "  flush_writes()\n  remove_claims(base, ended)\n",
        "  remove_claims(base, ended)\n",
    ),
    _of_a_key(
        "a job whose end was not listed stays so",
        "lua/lib/jobs/finalize/settling.lua",
        "      relist(base, job)\n",
        "",
    ),
    _of_a_key(
        "a job that was released and is in no line stays so",
        "lua/lib/jobs/finalize/settling.lua",
        "    start_waiting(base, job)\n",
        "",
    ),
    _of_a_key(
        "a unique key that was not freed stays with the job that has ended",
        "lua/lib/jobs/finalize/settling.lua",
        "    free_key(base, job)\n",
        "",
    ),
    Bug(
        "redis: ends are counted once they are listed",
        ("tests/backends/redis/test_spoilt_keys.py",),
        (
            Edit(_PLAIN_ENDS, "  count(outcome.cause, job.host)\n", ""),
            Edit(_PLAIN_ENDS, _LISTED, f"{_LISTED}      {_COUNTED_LATE}\n"),
        ),
        "redis",
    ),
    _of_a_key(
        "news of one parent that cannot be read keep all others from being told",
        "lua/jobs/children/handovers.lua",
        "read_record('HSCAN'",
        "redis.call('HSCAN'",
    ),
    _of_a_key(
        "children that their parent cannot name are told by nobody",
        "lua/lib/jobs/children/standing.lua",
        "if read_record('HEXISTS'",
        "if redis.call('HEXISTS'",
    ),
    _of_a_key(
        "a job whose parents cannot be read is requeued without them",
        "lua/lib/jobs/operate/relinking.lua",
        "return read_record('HLEN', waits) and 'again' or 'silent'",
        "return false, {}",
    ),
    _of_a_key(
        "a job whose errors cannot be read hides its queue from lists",
        "lua/jobs/read/lines.lua",
        "read_record('LINDEX'",
        "redis.call('LINDEX'",
    ),
    _of_a_key(
        "a queue that cannot be worked is asked on and on",
        "base/spoilt.py",
        "            if any(key.is_needed for key in keys):",
        "            if not keys:",
    ),
    _of_a_key(
        "a queue whose keys were mended stays away",
        "base/spoilt.py",
        "                if not keys:\n",
        "                if False:\n",
    ),
]

_SPOILT_RECORDS = [
    _of_a_record(
        "a queue that cannot be read ends the beat of its pods",
        f"{_SQL}config/queues.py",
        "with suppress(*UNREADABLE):",
        "with suppress(ZeroDivisionError):",
    ),
    _of_a_record(
        "postgres: ends are refused for the retention of a queue",
        f"{_SQL}hot/finalize.py",
        """substring(retention FROM '"done" *: *"([^"]*)"')""",
        "retention::json ->> 'done'",
        "postgres",
    ),
    _of_a_record(
        "code sets nothing anew that cannot be read",
        f"{_SQL}config/store.py",
        "if before.unreadable or getattr",
        "if getattr",
        "postgres",
    ),
    _of_a_record(
        "nobody leads after a leader's lease that never ends",
        f"{_SQL}cron/store.py",
        "_IS_FREE = (leader.c.lease_until <= _NOW) | (",
        "_IS_FREE = (leader.c.lease_until <= _NOW) & (",
    ),
    _of_a_record(
        "a schedule that cannot be read is disabled",
        "forge_jobs/runtime/passes/cron.py",
        "    if schedule.unreadable:\n",
        "    if False:\n",
    ),
    _of_a_record(
        "redis: bytes that are no character refuse a whole answer",
        f"{_REDIS}base/answers.py",
        "except (UnicodeDecodeError, msgspec.DecodeError):",
        "except ZeroDivisionError:",
        "redis",
    ),
    _of_a_record(
        "redis: a slot that cannot be read stops its queue",
        f"{_REDIS}lua/lib/fleet/slots.lua",
        "unpacked(packed, SLOT) or VOID",
        "cmsgpack.unpack(packed)",
        "redis",
    ),
    _of_a_record(
        "redis: a counter that cannot be read stops its queue for a minute",
        f"{_REDIS}lua/lib/base/tallies.lua",
        "local sum = redis.pcall('HINCRBY'",
        "local sum = redis.call('HINCRBY'",
        "redis",
    ),
    _of_a_record(
        "a record that cannot be read is logged with each beat",
        "forge_jobs/storage/salvage.py",
        "    _logged.add(record)\n",
        "",
    ),
]

_RULES = ("tests/backends/test_unreadable_rules.py",)
_LINKS = ("tests/backends/test_unreadable_links.py",)
_DEEDS = ("tests/backends/test_unreadable_deeds.py",)

_OF_OTHERS = [
    Bug(
        "the time of one strike hides all strikes",
        _RULES,
        (
            Edit(
                f"{_SQL}config/strikes.py",
                'instant_or_none("at")',
                'instant_or_none("at" if row.at + 0 else "")',
            ),
        ),
    ),
    Bug(
        "redis: a limit below zero is none",
        _RULES,
        (Edit(f"{_REDIS}lua/lib/base/permits.lua", "'^(%-?%d*)/?(%d*)'", "'^(%d*)/?(%d*)'"),),
        "redis",
    ),
    Bug(
        "a hand-over that cannot be read stops all",
        _LINKS,
        (Edit(f"{_SQL}jobs/children.py", "except KeyError:", "except TypeError:"),),
    ),
    Bug(
        "redis: a hand-over that cannot be read frees its child",
        _LINKS,
        (Edit(f"{_REDIS}lua/jobs/children/handovers.lua", "status = 'dead'", "status = 'done'"),),
        "redis",
    ),
    Bug(
        "an action that cannot be read hides all actions",
        _DEEDS,
        (
            Edit(
                "forge_jobs/storage/actions/__init__.py",
                'found = read.read("document", _decode_action, blank)',
                "found = _decode_action(document)",
            ),
        ),
    ),
    Bug(
        "a request that cannot be read keeps a pod from hearing others",
        _DEEDS,
        (
            Edit(
                "forge_jobs/storage/pod_requests/__init__.py", "except UNREADABLE", "except IOError"
            ),
        ),
    ),
    Bug(
        "a window that cannot be read stays in the way",
        _DEEDS,
        (
            Edit(
                f"{_SQL}jobs/unique_keys/keys.py",
                "        unique_windows.c.opened_at > _NEVER,\n",
                "",
            ),
        ),
    ),
]

RECORD_BUGS = [
    *_OF_OTHERS,
    *_SPOILT_RECORDS,
    *_SPOILT_KEYS,
    _bug(
        "an unreadable job takes along what was claimed with it",
        f"{_SQL}base/job_rows.py",
        "claimed.append(claimed_job(row, host_id))\n        except UNREADABLE as error",
        "claimed.append(claimed_job(row, host_id))\n        except ZeroDivisionError as error",
    ),
    _bug(
        "a value of another type goes to a worker",
        f"{_SQL}jobs/claim.py",
        "if not _SHAPES.fits(row):",
        "if False:",
    ),
    _bug(
        "an unreadable job is never tried again",
        f"{_SQL}fleet/pods.py",
        "        text(SET_ASIDE),\n",
        "        text(SET_ASIDE), jobs.c.hold == 'unknown_kind',\n",
    ),
    _bug(
        "an unreadable job cannot be requeued",
        "forge_jobs/model/filters.py",
        "unless=Hold.UNREADABLE",
        "unless=Hold.UNKNOWN_KIND",
    ),
    _bug(
        "an unreadable job uses up its attempt",
        f"{_SQL}base/unreadable.py",
        "attempt=jobs.c.attempt - 1",
        "attempt=jobs.c.attempt",
    ),
    _bug(
        "postgres: what stands behind unreadable jobs waits",
        f"{_SQL}postgres/job_store.py",
        "tuple(claimed), timedelta(0))",
        "tuple(claimed), answer.next_due_in)",
        "postgres",
    ),
    _bug(
        "redis: an unreadable job takes along what was claimed with it",
        f"{_REDIS}jobs/claim.py",
        "host_id, one))\n        except UNREADABLE as error",
        "host_id, one))\n        except ZeroDivisionError as error",
        "redis",
    ),
    _bug(
        "redis: a job without its record stops its queue",
        f"{_REDIS}lua/lib/jobs/claim/taking.lua",
        "  if not (payload and doc and enqueued and token and ",
        "  if false and not (payload and doc and enqueued and token and ",
        "redis",
    ),
    _bug(
        "redis: a claim of a job without its record stays for ever",
        f"{_REDIS}lua/lib/jobs/finalize/settling.lua",
        "    if mode == 'revive' and not (job and job.status == 'in_progress') then\n",
        "    if false then\n",
        "redis",
    ),
    Bug(
        "a file that was replaced is written on",
        _FILE,
        (Edit(f"{_SQL}sqlite/connection.py", "                    self._file.check()\n", ""),),
    ),
]
