"""Bugs of queues that a pod begins and ends to serve while it runs."""

from tests.meta.bugs import Bug, Edit, files_of
from tests.meta.runtime_bugs import in_runtime

_SUITE = files_of("pod_queues")
_LATER = "queues_added_later.py::test_"


def _in_store(name: str, file: str, old: str, new: str, backend: str = "sqlite") -> Bug:
    edit = Edit(f"forge_jobs/storage/{file}", old, new)
    return Bug(f"served: {name}", _SUITE, (edit,), backend)


SERVED_BUGS: tuple[Bug, ...] = (
    _in_store(
        "a lease that ran out changes the queues",
        "sql/fleet/registering.py",
        "    if tx.execute(_LIVES, values).first() is None:\n        return False\n",
        "    tx.execute(_LIVES, values)\n",
    ),
    _in_store(
        "slots of queues that go stay",
        "sql/fleet/registering.py",
        "    for queue in gone:\n",
        "    for queue in gone[:0]:\n",
    ),
    _in_store(
        "the version of a queue stands still",
        "sql/fleet/registering.py",
        "    allocations.move_versions(tx, [*added, *gone])\n    tx.wake_fleet()\n    return True",
        "    tx.wake_fleet()\n    return True",
    ),
    _in_store(
        "redis: beats go by what the pod said first",
        "redis/jobs/heartbeat.py",
        "self._declared[1] == doc)",
        "self._declared[1] != '')",
        "redis",
    ),
    _in_store(
        "redis: slots that stay are made anew",
        "redis/fleet/registering.py",
        "    added = [name for name in declared if name not in known]\n",
        "    added = list(declared)\n",
        "redis",
    ),
    _in_store(
        "redis: a queue that is added does not know that the pod drains",
        "redis/fleet/registering.py",
        "        drains=drains,\n",
        "        drains=False,\n",
        "redis",
    ),
    _in_store(
        "redis: the epoch is not asked for",
        "redis/lua/fleet/registering/pod_change.lua",
        "  if found ~= epoch or whole",
        "  if whole",
        "redis",
    ),
    in_runtime(
        "served: slots are given up beside running handlers",
        "pod/served",
        "        while any(True for _ in loop.pool.runs()):\n",
        "        while False:\n",
        f"{_LATER}a_queue_that_is_removed_lets_its_jobs_end_and_starts_no_other",
    ),
    in_runtime(
        "served: the store is told once",
        "heartbeat/declaration",
        "        pod = self.pod\n",
        "        pod, self._queues = self.pod, frozenset(beat.queues)\n",
        f"{_LATER}calls_that_fail_delay_a_queue_and_lose_none",
    ),
    in_runtime(
        "served: pods keep each other at empty queues",
        "passes/patterns",
        "        if appeared := await self._with_jobs(others):\n",
        "        if appeared := others:\n",
        f"{_LATER}pods_that_serve_by_a_pattern_do_not_keep_each_other_at_an_empty_queue",
    ),
    in_runtime(
        "served: a pattern leaves what the program has named",
        "pod/served",
        "is_busy or name in self._named or name",
        "is_busy or name",
        f"{_LATER}a_queue_that_the_program_adds_is_not_left_by_a_pattern",
    ),
    in_runtime(
        "served: the record of the pod stays as registered",
        "heartbeat/declaration",
        "        self.pod = replace(self.pod, queues=queues)\n",
        "",
        f"{_LATER}a_queue_that_is_added_runs_its_jobs",
    ),
    in_runtime(
        "served: a queue that the store refuses keeps the others waiting",
        "pod/served",
        "                    if answer is None:\n",
        "                    if answer is None and not refusals:\n",
        "many_queues_by_pattern.py::test_a_queue_that_the_store_refuses_keeps_no_other_waiting",
    ),
    in_runtime(
        "heartbeat: an old pod that was away takes the word back",
        "pod/startup",
        "await declare(plan, storage, known=known)",
        "await declare(plan, storage)",
        "emptied_store.py::test_an_old_pod_that_was_away_leaves_the_word_to_a_younger_one",
    ),
    in_runtime(
        "start: any declaration of a queue counts as this one",
        "pod/startup",
        "of_code.get(each.name) == declared.get(each.name)",
        "each.name in of_code",
        "many_queues_declared.py::test_a_pod_of_many_queues_declares_what_is_missing_or_different",
    ),
    in_runtime(
        "start: any limit of the name counts as declared",
        "pod/startup",
        "if not each.unreadable\n        and",
        "if True or",
        "many_queues_declared.py::test_a_pod_of_many_queues_declares_a_new_number",
    ),
)
