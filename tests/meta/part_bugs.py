"""Bugs in what goes on while a part of a store is silent."""

from tests.meta.bugs import Bug, Edit

_REDIS = "forge_jobs/storage/redis/"
_TESTS = ("tests/backends/redis/test_silent_part.py",)


def _bug(name: str, file: str, old: str, new: str) -> Bug:
    return Bug(f"shard: {name}", _TESTS, (Edit(file, old, new),), "redis")


def _bug_of_queues(name: str, file: str, old: str, new: str) -> Bug:
    tests = ("tests/backends/redis/test_silent_queues.py",)
    return Bug(f"shard: {name}", tests, (Edit(file, old, new),), "redis")


def _bug_of_moves(name: str, file: str, old: str, new: str) -> Bug:
    tests = ("tests/backends/redis/test_moving_locators.py",)
    return Bug(f"shard: {name}", tests, (Edit(file, old, new),), "redis")


def _bug_of_locators(name: str, old: str, new: str) -> Bug:
    tests = ("tests/backends/redis/test_silent_locators.py",)
    return Bug(f"shard: {name}", tests, (Edit(f"{_REDIS}locators/asking.py", old, new),), "redis")


PART_BUGS: tuple[Bug, ...] = (
    _bug_of_locators(
        "a job whose locator is silent is looked for nowhere",
        "        found = await _ask(db, unknown)\n",
        "        found: dict[JobId, str] = {}\n",
    ),
    _bug_of_locators(
        "a job that no queue which answers has is missing",
        "        unknown -= found.keys()\n",
        "        unknown = set()\n",
    ),
    _bug_of_locators(
        "the queue of a job that was found is believed for ever",
        "    found = await _look(db, before)\n",
        "    found = {one: queue for queue, ids in before.items() for one in ids}\n",
    ),
    Bug(
        "shard: consent is asked for what a silent server would refuse",
        ("tests/backends/redis/test_silent_commands.py",),
        (
            Edit(
                "forge_jobs/cli/commands/jobs.py",
                "    if silent:\n",
                "    if False:\n",
            ),
        ),
        "redis",
    ),
    _bug_of_queues(
        "a pod that misses a queue beats no sooner",
        "forge_jobs/runtime/pod/pod.py",
        "now < self._heard_all_at + _AWAITED_FOR and bool(beat.silent)",
        "False",
    ),
    _bug(
        "a pass fails with one of its queues",
        f"{_REDIS}base/database.py",
        "if silent is not None and self.is_cluster:",
        "if silent is None and self.is_cluster:",
    ),
    _bug(
        "an id of the caller's goes without its locator",
        f"{_REDIS}locators/locating.py",
        "            if not mine.items() >= left[base].items():\n                raise error\n",
        "            del error\n",
    ),
    _bug(
        "a locator left for later is forgotten",
        f"{_REDIS}jobs/store.py",
        "late=self._late_locators.add",
        "late=None",
    ),
    _bug(
        "the sweep writes no locators that were left",
        f"{_REDIS}jobs/sweep.py",
        "            await late.mend(self._db, queues)\n",
        "            pass\n",
    ),
    _bug(
        "queues of one client share a call",
        "forge_jobs/clients/calls.py",
        "if self.storage.is_parted:",
        "if False:",
    ),
    _bug(
        "claims are revived to which nobody could beat",
        "forge_jobs/policy/liveness.py",
        "self._heard_since.get(queue, self._undisturbed_since)",
        "self._undisturbed_since",
    ),
    _bug_of_queues(
        "a lease that ran out with the fleet alone is lost",
        f"{_REDIS}jobs/heartbeat.py",
        "if lives and pod and not held:",
        "if False:",
    ),
    _bug_of_queues(
        "a queue that was away never gets its pod back",
        f"{_REDIS}jobs/heartbeat.py",
        "admitted = await self._admit_again(pod, beat, lapsed)",
        "admitted = frozenset()",
    ),
    _bug_of_queues(
        "a silent queue is not fenced",
        "forge_jobs/policy/liveness.py",
        "renewed_at = behind.get(queue, self._renewed_at) if behind else self._renewed_at",
        "renewed_at = self._renewed_at",
    ),
    _bug(
        "ends are told of none while one cannot be asked for",
        "forge_jobs/clients/results.py",
        "except PartlyUnavailable as error:",
        "except ZeroDivisionError as error:",
    ),
    _bug(
        "silence is not named",
        f"{_REDIS}base/database.py",
        "        self.silence.note(found, mute)\n",
        "",
    ),
    _bug(
        "a job whose parent is silent is taken for one whose parent was removed",
        f"{_REDIS}jobs/requeue.py",
        "child for parent in unknown for child",
        "child for parent in () for child",
    ),
    _bug(
        "a store opened without the fleet's records is never checked",
        f"{_REDIS}locators/late_check.py",
        "                self._db.known.problem = str(error)\n",
        "",
    ),
    _bug(
        "a newer store is opened while the fleet's records are silent",
        f"{_REDIS}locators/late_check.py",
        "        check_noted(max(noted.values()))\n",
        "",
    ),
    _bug_of_moves(
        "a newer layout is not noted beside the locators",
        f"{_REDIS}base/schema.py",
        """        await database.run("move_end", bases, bool)\n""",
        "",
    ),
    _bug_of_moves(
        "an older program lowers what stands beside the locators",
        f"{_REDIS}lua/locators/move_end.lua",
        "math.max(works_from, noted or 0)",
        "works_from",
    ),
    _bug_of_moves(
        "bundles for other loops go on with a store that is refused",
        f"{_REDIS}opening.py",
        "_database(self._url, self._clock, self._known))",
        "_database(self._url, self._clock))",
    ),
    _bug_of_moves(
        "a move whose end was not noted stays so",
        f"{_REDIS}locators/moving.py",
        "if db.places.is_said or not",
        "if db.places.are_spread or not",
    ),
    _bug_of_moves(
        "a move that begins on its own",
        f"{_REDIS}locators/moving.py",
        "        return noted is not None and not isinstance(noted, Unavailable)",
        "        return True",
    ),
    _bug_of_moves(
        "programs of before are not held off from a hash that is moved",
        f"{_REDIS}lua/locators/move_begin.lua",
        "    redis.call('SET', ids, size > 0 and 'moving' or 'moved')\n",
        "",
    ),
    _bug_of_moves(
        "readers pass over what is still to be moved",
        f"{_REDIS}base/places.py",
        '            return f"{self._keys.old_locators(old_hash(job_id))}:from"\n',
        '            return ""\n',
    ),
    _bug_of_moves(
        "a look that was begun before a hash was moved counts",
        f"{_REDIS}locators/locators.py",
        "            if db.places.states != seen:\n                continue\n",
        "",
    ),
    _bug_of_moves(
        "copies are taken for kept at once",
        f"{_REDIS}locators/moving.py",
        "self._must_stand = _STOOD_US if db.is_cluster else 0",
        "self._must_stand = 0",
    ),
    _bug_of_moves(
        "locators of removed jobs stay where they are copied from",
        f"{_REDIS}locators/dangling.py",
        '"forget", missing, list[list[int]], source=True)',
        '"forget", {}, list[list[int]], source=True)',
    ),
)
