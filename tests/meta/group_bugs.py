"""Bugs of groups: callbacks, progress, and a cancel of the whole."""

from tests.meta.bugs import Bug, Edit

_TESTS = ("tests/runtime/test_groups.py",)
_PLANS = "forge_jobs/clients/flows/plans.py"
_CALLS = "forge_jobs/clients/flows/calls.py"
_ENDS = "forge_jobs/clients/grouping.py"


def _bug(name: str, file: str, old: str, new: str) -> Bug:
    return Bug(f"groups: {name}", _TESTS, (Edit(file, old, new),))


GROUP_BUGS: tuple[Bug, ...] = (
    _bug(
        "a repeat stores the callbacks twice",
        _PLANS,
        "= _named(request, self.id, number).options(after=after)",
        "= request.options(after=after)",
    ),
    _bug(
        "callbacks run once the first member has ended",
        _PLANS,
        "after = [*request.after, After(self.id, policy)]",
        "after = [*request.after, After(JobId(str(self._members[0].id)), policy)]",
    ),
    _bug(
        "the group does not wait for the last member",
        _PLANS,
        'After(JobId(str(each.id)), "note") for each in self._members]',
        'After(JobId(str(each.id)), "note") for each in self._members[:-1]]',
    ),
    _bug(
        "the callback of a failure runs after a success too",
        _ENDS,
        "    if on_failure is not None:\n",
        "    if False:\n",
    ),
    _bug(
        "the callback of a success runs after a failure too",
        _PLANS,
        '"on_success": (group.on_success, "cancel"),',
        '"on_success": (group.on_success, "continue"),',
    ),
    _bug(
        "members that wait are not counted",
        _PLANS,
        "        waiting=tally.open + tally.held,\n",
        "        waiting=tally.held,\n",
    ),
    _bug(
        "members that were cancelled count as done",
        _PLANS,
        "        done=tally.settled,\n",
        "        done=tally.settled + tally.cancelled,\n",
    ),
    _bug(
        "a cancel leaves a member",
        _CALLS,
        "return await self._changed(self._jobs.cancel, members)",
        "return await self._changed(self._jobs.cancel, members[1:])",
    ),
)
