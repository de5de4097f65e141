"""Bugs of the test kit: a test that passes although production would not do so."""

from tests.meta.bugs import Bug, Edit

_ADVANCE = "tests/kit/test_advance.py::test_"
_DRAIN = "tests/kit/test_drain.py::test_"
_ENQUEUED = "tests/kit/test_enqueued.py::test_"
_FAKES = "tests/kit/test_stand_ins.py::TestFakes::test_"
_OVERRIDES = "tests/kit/test_stand_ins.py::TestOverrides::test_"
_INLINE = "tests/kit/test_inline.py::test_"
_SERVERS = "tests/kit/test_server_stores.py::test_"
_STORE = "tests/kit/test_private_store.py::test_"


def _bug(name: str, file: str, old: str, new: str, *tests: str, backend: str = "sqlite") -> Bug:
    edit = Edit(f"forge_jobs/testing/kit/{file}.py", old, new)
    return Bug(f"kit: {name}", tests, (edit,), backend)


KIT_BUGS = (
    _bug(
        "a schedule that nothing has declared begins after the time that passes",
        "passing",
        "    await declare(storage.cron, handlers)\n    clock.advance(by)\n",
        "    clock.advance(by)\n    await declare(storage.cron, handlers)\n",
        f"{_ADVANCE}schedules_fire_by_their_catch_up_rule",
    ),
    _bug(
        "what has expired stays",
        "passing",
        "    await in_batches(storage.jobs.expire, _EXPIRED_AT_ONCE, BUDGET, None)\n",
        "",
        f"{_ADVANCE}what_expires_and_what_waits_for_that",
    ),
    _bug(
        "children of what has expired go on waiting",
        "passing",
        "    await hand_over_once(storage.jobs)\n",
        "",
        f"{_ADVANCE}what_expires_and_what_waits_for_that",
    ),
    _bug(
        "retention has no effect",
        "passing",
        "    while (await cleanup.go_on()).next_in is not None:\n",
        "    while False:\n",
        f"{_ADVANCE}retention_removes_what_has_ended",
    ),
    _bug(
        "another clock than the store's is moved",
        "passing",
        "    if abs(now - clock.now()) > _UNLIKE:\n",
        "    if False:\n",
        f"{_ADVANCE}a_store_with_another_clock_is_refused",
    ),
    _bug(
        "the next test begins in the future",
        "stores/private",
        "        self.clock.reset()\n",
        "",
        f"{_ADVANCE}without_a_loop_and_from_test_to_test",
    ),
    _bug(
        "a drain has no end",
        "draining",
        "            if len(runs) >= at_most:\n",
        "            if len(runs) >= at_most * 20:\n",
        f"{_DRAIN}more_than_allowed_is_an_error_that_names_the_jobs",
    ),
    _bug(
        "a retry may be due within the same drain",
        "draining",
        "            rng=_Longest(),\n",
        "",
        f"{_DRAIN}a_retry_has_the_longest_pause_so_that_no_drain_runs_a_failure_again",
    ),
    _bug(
        "what a job enqueues waits for the next drain",
        "draining",
        "                if len(runs) == before:\n",
        "                if True:\n",
        f"{_DRAIN}it_runs_what_is_due_and_what_that_enqueues",
    ),
    _bug(
        "a failure is reported and never stored",
        "draining",
        "            ends = [] if transition is None else [Finalization(job.claim, transition)]\n",
        "            ends = []\n",
        f"{_DRAIN}failures_are_reported_and_stored",
    ),
    _bug(
        "an argument that must be there may be missing",
        "matching",
        "            if key not in found:\n",
        "            if key not in found and len(found) == 0:\n",
        f"{_ENQUEUED}a_missing_argument_is_named",
    ),
    _bug(
        "a returned outcome is a result",
        "inline",
        "        if isinstance(self._value, Outcome):\n",
        "        if False:\n",
        f"{_INLINE}it_raises_what_the_handler_says",
    ),
    _bug(
        "an attempt that was too long is a success",
        "inline",
        "            raise TimeoutError(message) from self._error\n",
        "            return None\n",
        f"{_INLINE}the_timeout_holds",
    ),
    _bug(
        "the rows of a test are there in the next",
        "stores/private",
        "        if not self._is_fresh:\n",
        "        if False:\n",
        f"{_STORE}the_next_test_finds_nothing",
    ),
    _bug(
        "a store that a test has left goes on serving",
        "stores/private",
        "        self._closed = True\n        self._watcher.close()\n",
        "        self._watcher.close()\n",
        f"{_STORE}what_a_test_leaves_running_finds_the_store_closed",
    ),
    _bug(
        "the keys of a test are there in the next",
        "stores/server",
        "            await self._place.empty()\n",
        "            pass\n",
        f"{_SERVERS}tests_find_an_empty_store_and_the_time_of_the_machine",
        backend="redis",
    ),
    _bug(
        "two processes have one place",
        "stores/places",
        "    return secrets.token_hex(5)\n",
        '    return "mine" + secrets.token_hex(0)\n',
        f"{_SERVERS}two_at_once_are_two_stores",
    ),
    _bug(
        "a schema is left on the server",
        "stores/places",
        'f"DROP SCHEMA IF EXISTS {self._schema} CASCADE"',
        '"SELECT 1"',
        f"{_SERVERS}nothing_is_left_of_a_place",
        backend="postgres",
    ),
    _bug(
        "keys are left on the server",
        "stores/places",
        '                        await pool.converse([("UNLINK", key) for key in keys])\n',
        "                        pass\n",
        f"{_SERVERS}nothing_is_left_of_a_place",
        backend="redis",
    ),
    _bug(
        "a place that something holds ends the next test",
        "stores/pool",
        "            except StorageError:\n",
        "            except ZeroDivisionError:\n",
        f"{_SERVERS}a_place_that_a_test_has_locked_is_given_up",
    ),
    _bug(
        "calls stay on the loop of the caller",
        "stores/any_loop",
        "    if asyncio.get_running_loop() is home.loop:\n",
        "    if True:\n",
        f"{_SERVERS}any_loop_may_use_the_store",
        backend="redis",
    ),
    _bug(
        "a fake keeps no arguments",
        "standing_in",
        "            self.calls.append(arguments)\n",
        "",
        f"{_FAKES}a_fake_runs_in_place_of_the_handler_and_keeps_the_arguments",
    ),
    _bug(
        "inline the handler runs and not the fake",
        "kit",
        "            what = self._stand_ins.of(what)\n",
        "            pass\n",
        f"{_FAKES}inline_too_by_handler_and_by_request",
    ),
    _bug(
        "values are injected into a fake",
        "standing_in",
        "fake.in_process, fake.run = True, False, None\n",
        "fake.in_process, fake.run = True, False, handler.run\n",
        f"{_FAKES}nothing_is_injected_into_a_fake",
    ),
    _bug(
        "a fake changes the program",
        "standing_in",
        "        fake = copy.copy(handler)\n",
        "        fake = handler\n",
        f"{_FAKES}the_program_itself_stays_as_it_was",
    ),
    _bug(
        "lifespans are given what an override replaces",
        "standing_in",
        "            lifespan_plan(plan.key, self._instead) if callable(plan.key) else plan\n",
        "            plan\n",
        f"{_OVERRIDES}wherever_the_factory_is_needed",
    ),
    _bug(
        "an override of nothing is accepted",
        "standing_in",
        "        if key not in self._instead.met:\n",
        "        if False:\n",
        f"{_OVERRIDES}what_nothing_needs_is_refused",
    ),
    Bug(
        "kit: what the pod shares is not replaced",
        (f"{_OVERRIDES}what_a_shared_value_needs",),
        (
            Edit(
                "forge_jobs/handlers/injection/plan.py",
                "of_the_pod=True, instead=self._instead)",
                "of_the_pod=True, instead={})",
            ),
        ),
    ),
    _bug(
        "payloads of included handlers stay encrypted",
        "kit",
        "registry.encryption if handler is None else handler.options.encryption",
        "registry.encryption",
        "tests/kit/test_encrypted.py::test_payloads_and_results_are_read",
    ),
    _bug(
        "a drain reports encrypted results",
        "draining",
        "decrypted(keys, result, job_id=job_id, kind=job.kind, part=Part.RESULT)",
        "result",
        "tests/kit/test_encrypted.py::test_payloads_and_results_are_read",
    ),
    _bug(
        "a drain cannot run handlers of other processes",
        "draining",
        "        self._handlers = in_this_process(handlers)\n",
        "        self._handlers = handlers\n",
        "tests/kit/test_stand_ins.py::test_a_handler_of_other_processes_runs_here",
    ),
    _bug(
        "the schema of a living process is removed",
        "stores/places",
        "if found and not _lives(int(found[1]))]",
        "if found]",
        f"{_SERVERS}the_schema_of_a_killed_process_is_removed_by_the_next_one",
    ),
    _bug(
        "the schema of a killed process stays",
        "stores/server",
        "            await self._place.sweep()\n",
        "            pass\n",
        f"{_SERVERS}the_schema_of_a_killed_process_is_removed_by_the_next_one",
    ),
    _bug(
        "a fake context takes progress that a run refuses",
        "context",
        "        checked(current, total, message)\n",
        "",
        "tests/kit/test_context.py::test_progress_that_a_run_would_refuse_is_refused",
    ),
)
