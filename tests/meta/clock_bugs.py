"""Bugs of stores and reapers whose clock has been set back, or has stepped."""

from tests.meta.bugs import Bug, Edit, _bug

_LUA = "forge_jobs/storage/redis/lua/"
_SET_BACK = ("tests/conformance/test_set_back.py",)
_REAPER = ("tests/runtime/test_reaper.py",)


def _in_lua(name: str, script: str, old: str, new: str) -> Bug:
    edit = Edit(f"{_LUA}{script}.lua", old, new)
    return Bug(f"redis: set back: {name}", _SET_BACK, (edit,), "redis")


def _in_reaper(name: str, file: str, old: str, new: str) -> Bug:
    return Bug(f"reaper: {name}", _REAPER, (Edit(f"forge_jobs/{file}.py", old, new),))


CLOCK_BUGS: tuple[Bug, ...] = (
    Bug(
        "set back: jobs on hold keep the time of before",
        ("tests/conformance/test_set_back_holds.py",),
        (Edit("forge_jobs/storage/sql/fleet/set_back.py", "in _HELD_AHEAD:", "in ():"),),
    ),
    Bug(
        "set back: turns of keys lose their order",
        ("tests/conformance/test_set_back_holds.py::test_keys_go_on_taking_turns",),
        (
            Edit(
                "forge_jobs/storage/sql/fleet/set_back.py",
                "since=_NOW - (select(func.max",
                "since=openings.c.since - 0 * (select(func.max",
            ),
        ),
    ),
    Bug(
        "redis: set back: turns of keys stay ahead",
        ("tests/conformance/test_set_back_holds.py::test_keys_go_on_taking_turns",),
        (
            Edit(
                f"{_LUA}fleet/set_back/bring_back_jobs.lua",
                "are_turns_left = bring_back_turns(base, tolerance)",
                "are_turns_left = false",
            ),
        ),
        "redis",
    ),
    _bug(
        "set back: a lease ends at once",
        "set_back",
        "fleet/set_back",
        "lease_until=_NOW + (pods.c.lease_until - pods.c.last_beat_at)",
        "lease_until=_NOW",
    ),
    _bug(
        "set back: a beat ahead stays",
        "set_back",
        "fleet/set_back",
        "(_BRING_LEASES, _BRING_CLAIMS, _BRING_LEADER)",
        "(_BRING_LEASES, _BRING_LEADER)",
    ),
    _bug(
        "set back: a leader of the future stays",
        "set_back",
        "fleet/set_back",
        "(_BRING_LEASES, _BRING_CLAIMS, _BRING_LEADER)",
        "(_BRING_LEASES, _BRING_CLAIMS)",
    ),
    _bug(
        "set back: a renewal of the leader has no time",
        "set_back",
        "cron/store",
        "        renewed_at=_NOW,\n",
        "",
    ),
    _bug(
        "set back: jobs that were asked for later are due",
        "set_back",
        "fleet/set_back",
        "        jobs.c.run_at <= jobs.c.enqueued_at,\n",
        "",
    ),
    _bug(
        "set back: jobs lose their order",
        "set_back",
        "fleet/set_back",
        "key=lambda row: (row.run_at, row.id))",
        "key=lambda row: row.id, reverse=True)",
    ),
    _bug(
        "set back: a held job waits for the clock",
        "set_back",
        "fleet/pods",
        "run_at=case((jobs.c.run_at > NOW, NOW), else_=jobs.c.run_at)",
        "run_at=jobs.c.run_at",
    ),
    _bug(
        "set back: a cool-down lasts until the clock comes round",
        "set_back",
        "fleet/set_back",
        "    shorten_cooldowns(tx)\n",
        "",
    ),
    _in_lua(
        "a slot outlives its pod's lease",
        "fleet/set_back/bring_back_leases",
        "      store_slot(base, host, slot)\n",
        "",
    ),
    _in_lua(
        "a renewal of the leader has no time",
        "cron/lead",
        ", 'renewed', now)",
        ")",
    ),
    _in_lua(
        "a batch of jobs ends the search",
        "fleet/set_back/bring_back_jobs",
        "local is_more = bound ~= nil or #found > limit",
        "local is_more = false",
    ),
    _in_reaper(
        "a step of the store's clock is not seen",
        "policy/liveness",
        "has_stepped = has_stepped or moved > self._largest_jump",
        "has_stepped = False",
    ),
    _in_reaper(
        "the guard is not told the store's time",
        "runtime/passes/reaper",
        "        allowed = guard.may_revive(clock, asked_at=asked_at, read_at=stale.read_at)\n",
        "        allowed = guard.may_revive(clock)\n",
    ),
)
