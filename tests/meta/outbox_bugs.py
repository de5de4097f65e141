"""Bugs of an outbox: of its records, and of the relay."""

from tests.meta.bugs import Bug, Edit

_LATER = "forge_jobs/clients/outbox/later.py"
_TESTS = "tests/runtime/test_outbox.py::test_"
_PAIR = "[sqlite-to-redis]"


def _bug(name: str, test: str, edit: Edit) -> Bug:
    backend = "sqlite-to-redis" if test.endswith(_PAIR) else "sqlite"
    return Bug(name, (f"{_TESTS}{test}",), (edit,), backend)


def _of_records(name: str, old: str, new: str, test: str) -> Bug:
    edit = Edit("forge_jobs/storage/sql/letters/outbox.py", old, new)
    return _bug(f"outbox: {name}", test, edit)


def _of_relay(name: str, old: str, new: str, test: str) -> Bug:
    edit = Edit("forge_jobs/clients/outbox/relay.py", old, new)
    return _bug(f"outbox relay: {name}", test, edit)


def _of_dropped(name: str, old: str, new: str, test: str) -> Bug:
    edit = Edit("forge_jobs/clients/outbox/relay.py", old, new)
    tests = (f"tests/runtime/test_outbox_order.py::test_{test}",)
    return Bug(f"outbox relay: {name}", tests, (edit,), "sqlite-to-redis")


def _of_later(name: str, old: str, new: str, test: str) -> Bug:
    return _bug(f"outbox relay: {name}", test, Edit(_LATER, old, new))


def _of_order(name: str, old: str, new: str, test: str) -> Bug:
    tests = (f"tests/runtime/test_outbox_order.py::test_{test}",)
    backend = "sqlite-to-redis" if test.endswith(_PAIR) else "sqlite"
    return Bug(f"outbox relay: {name}", tests, (Edit(_LATER, old, new),), backend)


def _of_loop(name: str, old: str, new: str, test: str) -> Bug:
    edit = Edit("forge_jobs/runtime/passes/outbox.py", old, new)
    backend = "sqlite-to-redis" if test.endswith(_PAIR) else "sqlite"
    tests = (f"tests/runtime/test_outbox_loop.py::test_{test}",)
    return Bug(f"outbox loop: {name}", tests, (edit,), backend)


_COMMITS = f"what_commits_is_stored_once_in_order_and_what_rolls_back_never{_PAIR}"
_AWAY = "a_destination_that_is_away_delays_only_its_own"
_REFUSES = f"a_destination_that_refuses_everything_sets_nothing_aside{_PAIR}"
_CONFLICT = f"a_conflict_is_set_aside_then_retried_or_discarded{_PAIR}"

OUTBOX_BUGS = (
    _of_records(
        "a destination gets the jobs of another",
        "        _OF_DESTINATION,\n        _WAITS,\n        outbox.c.id >",
        "        _WAITS,\n        outbox.c.id >",
        _AWAY,
    ),
    _of_records(
        "what was set aside is read again",
        "        _OF_DESTINATION,\n        _WAITS,\n        outbox.c.id >",
        "        _OF_DESTINATION,\n        outbox.c.id >",
        _CONFLICT,
    ),
    _of_records(
        "a retry of one retries all",
        "chosen = [row for row in rows if job_ids is None or row.job_id in job_ids]",
        "chosen = rows",
        _CONFLICT,
    ),
    _of_relay(
        "records go before their jobs are stored",
        "            try:\n                await self._look_for_dropped(part)\n",
        "            await self._records.forget([each.number for each in part])\n"
        "            try:\n                await self._look_for_dropped(part)\n",
        _REFUSES,
    ),
    _of_dropped(
        "what was dropped is forgotten",
        "                self._stands_for[job.id] = outcome.job_id\n",
        "                pass\n",
        f"a_job_after_a_dropped_one_comes_after_the_holder_of_the_key_in_any_batch{_PAIR[:-1]}-1]",
    ),
    _of_dropped(
        "a dropped job is not looked for",
        "                await self._look_for_dropped(part)\n",
        "",
        f"a_dropped_job_that_another_relay_stores_after_all_is_waited_for{_PAIR}",
    ),
    _of_relay(
        "records stay",
        "        await self._records.forget(numbers)\n",
        "",
        _COMMITS,
    ),
    _of_relay(
        "a refusal of an unknown reason sets aside",
        "        if not isinstance(error, CONCERNS_ALL):\n",
        "        if True:\n",
        _REFUSES,
    ),
    _of_relay(
        "everything refused goes on one by one",
        "if self._in_a_row >= (_REFUSED_ALONE if is_refused else _LOCKED_ALONE):",
        "if self._in_a_row >= 1_000:",
        _REFUSES,
    ),
    _of_relay(
        "a job after one that is put off is set aside",
        "if later.has_parent_of(record):",
        "if False:",
        f"jobs_after_one_that_is_put_off_are_put_off_with_it{_PAIR}",
    ),
    Bug(
        "outbox relay: a job after one that is not committed yet is set aside",
        (f"{_TESTS}a_job_after_one_that_is_not_committed_yet_waits_for_the_commit",),
        (
            Edit(
                "forge_jobs/clients/outbox/relay.py",
                "            if later.is_early(record):\n",
                "            if False:\n",
            ),
        ),
        "sqlite",
    ),
    _of_later(
        "a job after one that never comes is sent again for good",
        "if record.age >= _EARLY:",
        "if record.age >= 1_000 * _EARLY:",
        f"a_job_after_one_that_never_comes_is_set_aside_in_a_minute{_PAIR}",
    ),
    _of_later(
        "a clock that was set back lengthens the minute",
        "return self._clock.elapsed() - kept.since < _EARLY.total_seconds()",
        "return True",
        f"a_clock_that_was_set_back_lengthens_that_minute_by_nothing{_PAIR}",
    ),
    Bug(
        "outbox relay: records of one locked key delay all others",
        (f"{_TESTS}a_key_that_a_caller_has_locked_delays_no_other_job",),
        (
            Edit("forge_jobs/clients/outbox/relay.py", "_LOCKED_ALONE = 20", "_LOCKED_ALONE = 2"),
            Edit(_LATER, "keys += _unique_key_of(record)", "pass"),
        ),
        "sqlite",
    ),
    _of_order(
        "jobs of a locked sequence change places",
        "keys = _line_of(record)\n        if isinstance(error, Locked)",
        "keys: list[Key] = []\n        if isinstance(error, Locked)",
        "a_sequence_that_a_caller_has_locked_delays_no_other_and_keeps_its_order",
    ),
    _of_order(
        "a job overtakes one of its sequence that waits for a unique key",
        "self._keep(each, until, 0, _line_of(each))",
        "self._keep(each, until, 0, ())",
        f"a_sequence_waits_for_its_job_that_waits_for_a_unique_key{_PAIR}",
    ),
    Bug(
        "outbox relay: a silent part of a cluster stops all",
        ("tests/backends/redis/test_silent_outbox.py",),
        (
            Edit(
                "forge_jobs/clients/outbox/relay.py",
                "if not self._there.is_parted or not isinstance(error, Unavailable):",
                "if True:",
            ),
        ),
        "redis",
    ),
    Bug(
        "outbox relay: strikes that cannot be read stop the healthy queues",
        ("tests/backends/redis/test_silent_outbox.py",),
        (
            Edit(
                "forge_jobs/clients/outbox/judging.py",
                "if is_away and not (self._there.is_parted and isinstance(error, Unavailable)):",
                "if is_away:",
            ),
        ),
        "redis",
    ),
    _of_relay(
        "halves change places",
        "parts += [part[half:], part[:half]]",
        "parts += [part[:half], part[half:]]",
        f"one_refused_job_leaves_the_order_of_the_others{_PAIR}",
    ),
    _of_relay(
        "a delay begins again",
        "left = job.delay - record.age",
        "left = job.delay",
        f"the_age_counts_toward_a_delay_and_texts_stay_encrypted{_PAIR}",
    ),
    Bug(
        "outbox relay: a time without a zone stops all",
        (f"{_TESTS}values_that_no_store_can_take_stop_no_other_record",),
        (
            Edit(
                "forge_jobs/clients/outbox/relay.py",
                "_OF_A_RECORD = (TypeError, ValueError, ArithmeticError)",
                "_OF_A_RECORD = (ZeroDivisionError,)",
            ),
        ),
        "sqlite-to-redis",
    ),
    Bug(
        "outbox relay: a stop waits for the whole pass",
        (
            "tests/runtime/test_outbox_loop.py::test_a_stop_ends_a_pass_between_two_calls_of_the_destination",
        ),
        (
            Edit(
                "forge_jobs/clients/outbox/relay.py",
                "if not found or is_stopping():",
                "if not found:",
            ),
            Edit(
                "forge_jobs/clients/outbox/relay.py",
                "while parts and not is_stopping():",
                "while parts:",
            ),
        ),
        "sqlite",
    ),
    _of_loop(
        "a commit wakes nothing",
        "                if await self._outbox.wait(LOOK_EVERY):\n"
        "                    self.wakeup.wake()",
        "                await self._outbox.wait(LOOK_EVERY)",
        f"a_commit_wakes_the_relay_of_a_pod_and_a_roll_back_brings_nothing{_PAIR}",
    ),
    _of_loop(
        "a closed database ends the pod",
        "except StorageClosed as error:",
        "except ZeroDivisionError as error:",
        "a_closed_database_of_an_outbox_leaves_the_pod_at_work",
    ),
    _of_loop(
        "a pass that failed counts as one that went well",
        "            report = await self._outbox.relay_once(",
        "            self._relayed = self._clock.elapsed()\n"
        "            report = await self._outbox.relay_once(",
        "when_a_pass_went_well_for_the_last_time_is_measured",
    ),
    Bug(
        "outbox page: a discard without a job takes all",
        ("tests/web/test_outbox_page.py",),
        (
            Edit(
                "forge_jobs/web/pages/forms/same.py",
                'if not ids and meant.deed.operation == "discard_outbox":',
                "if False:",
            ),
        ),
    ),
    Bug(
        "outbox: an explanation quotes values to who may not read them",
        ("tests/operating/test_explained_outbox.py",),
        (
            Edit(
                "forge_jobs/operating/settings/outbox.py",
                "    if not access.payloads:\n        record =",
                "    if not access:\n        record =",
            ),
        ),
    ),
)
