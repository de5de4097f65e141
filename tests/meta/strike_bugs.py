"""Bugs of strikes, with the test that catches each."""

from tests.meta.bugs import Bug, Edit

_UNIT = "tests/unit/test_policy_strikes.py::test_"
_STORE = "tests/conformance/test_strikes.py::test_"
_POD = "tests/runtime/test_strikes.py::test_"
_HELD = "tests/conformance/test_struck_jobs.py::test_"
_LEADER = "tests/runtime/test_struck_jobs.py::test_"


def _bug(name: str, file: str, old: str, new: str, test: str, backend: str = "sqlite") -> Bug:
    return Bug(f"strike: {name}", (test,), (Edit(f"forge_jobs/{file}", old, new),), backend)


STRIKE_BUGS = [
    _bug(
        "true is the number 1",
        "policy/strikes/__init__.py",
        "    if _sort(one) is not _sort(other):\n        return False\n",
        "",
        f"{_UNIT}another_type_and_a_missing_field_never_raise",
    ),
    _bug(
        "a missing field is unequal",
        "policy/strikes/__init__.py",
        "return test is not None and value is not _MISSING and test(",
        "return test is not None and test(",
        f"{_UNIT}another_type_and_a_missing_field_never_raise",
    ),
    _bug(
        "a range without its ends",
        "policy/strikes/__init__.py",
        "_in_order(low, value) and _in_order(value, high)",
        "low < value < high",
        f"{_UNIT}a_condition_compares_values_of_one_type",
    ),
    _bug(
        "a strike by kind means every kind",
        "policy/strikes/__init__.py",
        "            if strike.rule.kind not in {",
        "            if condition is None and strike.rule.kind in {",
        f"{_UNIT}a_strike_by_kind_needs_no_payload",
    ),
    _bug(
        "a spoilt rule holds jobs",
        "policy/strikes/__init__.py",
        "if not each.unreadable",
        "if True",
        f"{_UNIT}a_stored_strike_is_read_back_and_a_spoilt_one_holds_nothing",
    ),
    _bug(
        "the ciphertext is judged",
        "runtime/queue/turns.py",
        "verdict(job.kind, run.payload)",
        "verdict(job.kind, lambda: job.payload)",
        f"{_POD}an_encrypted_payload_is_judged_by_a_pod_that_has_the_key",
    ),
    _bug(
        "a held job uses its attempt",
        "policy/transitions.py",
        "hand_back=not end.is_final",
        "hand_back=end.is_final",
        f"{_POD}a_struck_kind_is_held_without_an_attempt_and_others_run",
    ),
    _bug(
        "a job runs before the strikes are known",
        "runtime/shared/strikes/__init__.py",
        "        self.are_asked = True\n",
        "        self.are_asked = False\n",
        f"{_POD}while_the_store_does_not_say_its_strikes_nothing_runs_unjudged",
    ),
    _bug(
        "a lifted strike holds jobs of a pod that has not heard of it",
        "runtime/shared/strikes/__init__.py",
        "return (await self.read()).verdict(kind, payload)",
        "return judge.verdict(kind, payload)",
        f"{_POD}a_strike_that_is_lifted_beside_the_pod_holds_nothing",
    ),
    _bug(
        "the leader looks once for jobs that a lift has left",
        "runtime/passes/struck.py",
        "if in_force == self._seen and",
        "if self._seen is not None and",
        f"{_LEADER}the_store_is_asked_after_a_change_and_each_minute",
    ),
    _bug(
        "an edited strike has the mark of before",
        "model/strikes/__init__.py",
        ".join((rule.kind, rule.where, rule.effect.value))",
        ".join((rule.kind, rule.effect.value))",
        f"{_POD}a_strike_that_is_edited_frees_what_it_means_no_more",
    ),
    _bug(
        "a held job stays in its line",
        "storage/sql/jobs/finalize.py",
        '"new_hold": transition.hold and transition.hold.value',
        '"new_hold": None',
        f"{_HELD}a_held_job_is_met_by_no_claim_and_keeps_its_due_time",
    ),
    _bug(
        "what a strike in force holds is released",
        "storage/sql/jobs/struck/__init__.py",
        " if mark not in in_force]",
        "]",
        f"{_HELD}a_held_job_is_met_by_no_claim_and_keeps_its_due_time",
    ),
    _bug(
        "jobs are released in the order of their ids",
        "storage/sql/jobs/struck/__init__.py",
        "jobs.c.queue, jobs.c.priority, jobs.c.run_at, jobs.c.id",
        "jobs.c.id",
        f"{_HELD}a_release_goes_on_in_batches_in_order_and_repeats_do_nothing",
    ),
    _bug(
        "an edited job stays on hold",
        "storage/sql/jobs/one/edit.py",
        "{Hold.LIMIT, Hold.STRUCK}",
        "{Hold.LIMIT}",
        f"{_HELD}an_edit_frees_a_held_job_because_strikes_may_mean_it_no_more",
    ),
    _bug(
        "on redis a held job that ends keeps its place",
        "storage/redis/lua/lib/jobs/finalize/jobs.lua",
        "if job.hold == 'limit' or job.hold == 'struck' then",
        "if job.hold == 'limit' then",
        f"{_HELD}what_ends_while_held_is_held_no_more",
        "redis",
    ),
    _bug(
        "on redis an edited job stays on hold",
        "storage/redis/lua/jobs/one/edit.lua",
        "if before.hold == 'limit' or before.hold == 'struck' then",
        "if before.hold == 'limit' then",
        f"{_HELD}an_edit_frees_a_held_job_because_strikes_may_mean_it_no_more",
        "redis",
    ),
    _bug(
        "on redis a release wakes nobody and readies nothing",
        "storage/redis/lua/jobs/struck/release_struck.lua",
        "        start_waiting(base, job)\n",
        "",
        f"{_HELD}released_jobs_have_their_places_back_among_the_others",
        "redis",
    ),
    _bug(
        "a lift of what is not there is fine",
        "storage/sql/config/strikes.py",
        "        raise no_strike(name)\n",
        "        pass\n",
        f"{_STORE}many_callers_set_and_lift_at_once",
    ),
    _bug(
        "no pod is woken",
        "storage/sql/config/strikes.py",
        "[row])\n    tx.wake_beats()\n",
        "[row])\n",
        f"{_STORE}a_set_wakes_beats",
    ),
    _bug(
        "on redis a strike too many",
        "storage/redis/lua/config/strikes/put_strike.lua",
        ">= most",
        "> most",
        f"{_STORE}there_is_room_for_so_many_strikes",
        "redis",
    ),
    _bug(
        "on redis no pod is woken",
        "storage/redis/lua/config/strikes/put_strike.lua",
        "  wake('beat')\n",
        "",
        f"{_STORE}a_set_wakes_beats",
        "redis",
    ),
]
