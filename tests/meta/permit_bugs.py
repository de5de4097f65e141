"""Bugs of limits by key in the scripts of Redis."""

from tests.meta.bugs import Bug, Edit

_LUA = "forge_jobs/storage/redis/lua/"
_ALL = ("tests/conformance/test_limits_by_key.py",)
_OWN = ("tests/backends/redis/test_limits_by_key.py",)


def _bug(name: str, file: str, old: str, new: str, tests: tuple[str, ...] = _ALL) -> Bug:
    edit = Edit(f"{_LUA}{file}.lua", old, new)
    return Bug(f"limits on redis: {name}", tests, (edit,), "redis")


PERMIT_BUGS: tuple[Bug, ...] = (
    _bug(
        "one job more than may run",
        "lib/base/permits",
        "return limit[1] - used, limit",
        "return limit[1] - used + 1, limit",
    ),
    _bug(
        "claims of the same step do not count",
        "lib/jobs/claim/taking",
        "(rooms[permit] or 1) - 1",
        "rooms[permit]",
    ),
    _bug(
        "the claim of a job does not count",
        "lib/jobs/claim/taking",
        "    redis.pcall('ZADD', base .. ':using:' .. permit, now_text, entry.id)\n",
        "",
    ),
    _bug(
        "the end of a claim makes no room",
        "lib/jobs/claim/claims",
        "    free_permit(base, job.permit, id)\n",
        "",
    ),
    _bug(
        "a ready job that goes lets no other come",
        "lib/jobs/finalize/jobs",
        "    free_permit(base, job.permit)\n",
        "",
    ),
    _bug(
        "an edit of a ready job lets no other come",
        "jobs/one/edit",
        "    free_permit(base, before.permit)\n",
        "",
    ),
    _bug(
        "an expired job takes the place of another",
        "lib/base/openings",
        "number = number + (whole(expires, math.huge) > now and 1 or 0)",
        "number = number + 1",
    ),
    _bug(
        "jobs of a key in the order of their ids",
        "lib/base/permits",
        "LAST_DUE = '%010.0f%016.0f%s'",
        "LAST_DUE = '%.0s%.0s00000000000000000000000000%s'",
    ),
    _bug(
        "one that is on hold stays there after its cancel",
        "lib/jobs/finalize/jobs",
        "    leave_parked(base, job)\n",
        "    job.hold = nil\n",
    ),
    _bug(
        "a claim does not go on behind jobs of full keys",
        "lib/jobs/claim/claiming",
        "goes_on = round.parked[1] and",
        "goes_on = false and",
    ),
    _bug(
        "the exchange that ends a job leaves the next one",
        "jobs/claim/exchange",
        "  open_freed(base, true)\n",
        "",
    ),
    _bug(
        "no pod is woken for the next job",
        "lib/base/openings",
        "    wake_queue(base)\n",
        "",
        _OWN,
    ),
    _bug(
        "a job of an unknown kind keeps its place",
        "jobs/claim/hold",
        "      free_permit(base, job.permit)\n",
        "",
        _OWN,
    ),
    _bug(
        "the sweep believes what no claim uses",
        "jobs/sweep/mend_permits",
        "status ~= 'in_progress' or of ~= permit",
        "false",
        _OWN,
    ),
    _bug(
        "a raised limit opens one step of a key",
        "config/limits/open_parked",
        "      next_one = permit\n      break\n    end\n  end",
        "      break\n    end\n  end",
        _OWN,
    ),
    _bug(
        "a key of another type holds nothing back",
        "lib/base/permits",
        "    return 0\n",
        "    return 1\n",
        _OWN,
    ),
)
