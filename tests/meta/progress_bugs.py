"""Bugs of progress, log lines and watches, with the test that catches each."""

from tests.meta.bugs import Bug, Edit

_STORES = "tests/conformance/test_progress.py::test_"
_RUNTIME = "tests/runtime/test_progress.py::test_"
_WATCH = "tests/unit/test_client_watch.py::test_"
_PARTS = "tests/unit/test_watches_of_parts.py::test_"
_FOLLOW = "tests/unit/test_client_follow_log.py::test_"
_REQUEUED = "tests/unit/test_client_watch.py::TestJobsThatAreRequeued::test_"


def _bug(name: str, path: str, old: str, new: str, test: str) -> Bug:
    backend = "redis" if "/redis/" in path else "sqlite"
    return Bug(name, (test,), (Edit(f"forge_jobs/{path}", old, new),), backend)


PROGRESS_BUGS = [
    _bug(
        "progress: a lost claim is heard on SQL",
        "storage/sql/progress/notes.py",
        "        and (row.status == JobStatus.IN_PROGRESS.value"
        " or row.settled_token == claim.token)\n",
        "",
        f"{_STORES}a_lost_claim_tells_nothing",
    ),
    _bug(
        "progress: the pod of a claim does not count on Redis",
        "storage/redis/lua/lib/progress/noting.lua",
        "v[4] == host and ",
        "",
        f"{_STORES}every_part_of_the_claim_counts",
    ),
    _bug(
        "progress: no bound of bytes on SQL",
        "storage/sql/progress/notes.py",
        "after.bytes - BYTES_KEPT",
        "0",
        f"{_STORES}the_bytes_of_an_attempt_are_bounded",
    ),
    _bug(
        "progress: no bound of lines on Redis",
        "storage/redis/lua/lib/progress/noting.lua",
        "    redis.call('LTRIM', key, -most_lines, -1)\n",
        "",
        f"{_STORES}the_newest_lines_stay",
    ),
    _bug(
        "progress: lines of all attempts come together on SQL",
        "storage/sql/progress/read.py",
        '        log_lines.c.attempt == bindparam("at_attempt"),\n',
        '        log_lines.c.attempt >= 0 * bindparam("at_attempt"),\n',
        f"{_STORES}each_attempt_has_lines_of_its_own",
    ),
    _bug(
        "progress: a timer that rings early loses a call",
        "runtime/progress/sender.py",
        "            self._wake_later()\n            return\n",
        "            return\n",
        f"{_RUNTIME}a_timer_that_rings_early_loses_no_call",
    ),
    _bug(
        "progress: the last words of a run come after the end",
        "runtime/queue/loop.py",
        "        if ends and progress.waiting:\n",
        "        if False:\n",
        f"{_RUNTIME}what_a_run_tells_last_is_there_when_its_end_is_seen",
    ),
    _bug(
        "watch: the state that is not read stays, and the last is lost",
        "clients/watching.py",
        "        self._waiting[state.id] = state\n",
        "        self._waiting.setdefault(state.id, state)\n",
        f"{_WATCH}what_comes_between_two_reads_is_merged_and_the_last_is_there",
    ),
    *(
        _bug(f"watch: {name}", "clients/watching.py", old, new, f"{_REQUEUED}{test}")
        for name, old, new, test in (
            (
                "a job that has ended is left out for good",
                "if end is None or self._known.get(job_id) != end",
                "if job_id not in self._known",
                "the_job_waits_again",
            ),
            (
                "a second end is taken for the first",
                "if end is None or self._known.get(job_id) != end",
                "if end is None or job_id not in self._known",
                "the_job_ends_again_between_two_looks",
            ),
            (
                "an end is known before the state was read",
                "        self._listed = {line.id: _end_of(line) for line in lines}\n",
                "        self._listed = {line.id: _end_of(line) for line in lines}\n"
                "        known, self._known = self._known, dict(self._listed)\n"
                "        return [each for each, end in self._listed.items()"
                " if known.get(each) != end]\n",
                "the_store_does_not_answer_the_look_that_would_see_the_end",
            ),
            (
                "an end is told twice",
                "        return is_same\n",
                "        return False\n",
                "the_job_ends_between_the_list_and_the_states",
            ),
        )
    ),
    *(
        _bug(f"watch: {name}", "clients/watching.py", old, new, f"{_PARTS}{test}")
        for name, old, new, test in (
            (
                "a silent queue ends the look of all",
                "                if not self._is_parted:\n",
                "                if True:\n",
                "a_silent_queue_is_left_out_and_the_others_are_seen",
            ),
            (
                "the part that came of a silent queue counts as the whole",
                "            if queue in page.silent:\n",
                "            if False:\n",
                "a_silent_queue_is_left_out_and_the_others_are_seen",
            ),
            (
                "each queue waits for a store of one part",
                "                if not self._is_parted:\n",
                "                if False:\n",
                "a_store_of_one_part_that_is_silent_is_asked_once",
            ),
        )
    ),
    *(
        _bug(f"follow: {name}", "clients/following.py", old, new, f"{_FOLLOW}{test}")
        for name, old, new, test in (
            (
                "of the attempts between two looks only the last is read",
                "page.attempts[0] if has_looked else page.attempt\n",
                "page.attempt\n",
                "attempts_follow_each_other_from_the_first_that_begins_after",
            ),
            (
                "the job ends before the lines are read",
                "        while not (self._found or self._is_over):\n",
                "        while not self._is_over:\n"
                "            if self._found:\n"
                "                break\n"
                "            if (await self._state()).is_final:\n                return None\n",
                "lines_come_while_the_job_runs_and_end_with_the_job",
            ),
            (
                "an attempt that is over is followed for ever",
                "        has_gone_on = self._wanted is not None",
                "        has_gone_on = False",
                "one_attempt_is_followed_until_the_next_one_runs",
            ),
            (
                "an outage ends it",
                "            except Unavailable as error:\n                if self._outage",
                "            except ZeroDivisionError as error:\n                if self._outage",
                "what_was_logged_during_an_outage_is_there_after_it",
            ),
        )
    ),
]
