"""Bugs around records that cannot be read, and around the file of SQLite."""

from tests.meta.bugs import Bug, Edit

_JOBS = ("tests/backends/test_unreadable_jobs.py",)
_FILE = ("tests/backends/sqlite/test_replaced_file.py",)
_SQL = "forge_jobs/storage/sql/"
_REDIS = "forge_jobs/storage/redis/"


def _bug(name: str, file: str, old: str, new: str, backend: str = "sqlite") -> Bug:
    return Bug(name, _JOBS, (Edit(file, old, new),), backend)


RECORD_BUGS = [
    _bug(
        "an unreadable job takes along what was claimed with it",
        f"{_SQL}job_rows.py",
        "claimed.append(claimed_job(row, host_id))\n        except UNREADABLE as error",
        "claimed.append(claimed_job(row, host_id))\n        except ZeroDivisionError as error",
    ),
    _bug(
        "a value of another type goes to a worker",
        f"{_SQL}claims.py",
        "if not _SHAPES.fits(row):",
        "if False:",
    ),
    _bug(
        "an unreadable job is never tried again",
        f"{_SQL}procs.py",
        "(Hold.UNKNOWN_KIND.value, Hold.UNREADABLE.value)",
        "(Hold.UNKNOWN_KIND.value,)",
    ),
    _bug(
        "an unreadable job cannot be requeued",
        f"{_SQL}operators.py",
        "if row.hold == Hold.UNREADABLE.value]",
        "if row.hold == Hold.UNKNOWN_KIND.value]",
    ),
    _bug(
        "an unreadable job uses up its attempt",
        f"{_SQL}unreadable.py",
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
        f"{_REDIS}ownership.py",
        "host_id, one))\n        except UNREADABLE as error",
        "host_id, one))\n        except ZeroDivisionError as error",
        "redis",
    ),
    _bug(
        "redis: a job without its record stops its queue",
        f"{_REDIS}lua/lib/claiming.lua",
        "  if not (payload and doc and enqueued and token and ",
        "  if false and not (payload and doc and enqueued and token and ",
        "redis",
    ),
    _bug(
        "redis: a claim of a job without its record stays for ever",
        f"{_REDIS}lua/lib/settling.lua",
        "    forget_claim(base, id, mode == 'revive' and not jobs[id])\n",
        "",
        "redis",
    ),
    Bug(
        "a file that was replaced is written on",
        _FILE,
        (Edit(f"{_SQL}sqlite/database.py", "            self._file.check()\n", ""),),
    ),
]
