"""Bugs of injected parameters: the order of clean-ups, caching, and what is closed too early."""

from tests.meta.bugs import Bug, Edit

_PLANS = "tests/unit/test_injection_plans.py::"
_RUNS = "tests/runtime/test_injection.py::test_"
_CLEAN_UPS = "tests/runtime/test_injection_cleanup.py::test_"
_ARGUMENTS = "tests/runtime/test_injected_arguments.py::test_"
_TROUBLE = "tests/runtime/test_injection_in_trouble.py::test_"
_VALUES = "tests/runtime/test_pod_values.py::"


def _bug(name: str, file: str, old: str, new: str, *tests: str) -> Bug:
    return Bug(f"injection: {name}", tests, (Edit(f"forge_jobs/{file}.py", old, new),))


INJECTION_BUGS = (
    _bug(
        "values are cleaned up in the order of their making",
        "handlers/injection/opened",
        "self._entered.pop()",
        "self._entered.pop(0)",
        f"{_RUNS}values_are_made_in_order_and_cleaned_up_in_reverse",
    ),
    _bug(
        "a clean-up that raises ends the others",
        "handlers/injection/opened",
        "                    error = failed(name, raised, error)\n",
        "                    return failed(name, raised, error)\n",
        f"{_CLEAN_UPS}after_a_success_it_fails_the_attempt_because_a_commit_may_be_what_failed",
    ),
    _bug(
        "clean-ups do not learn of the exception",
        "handlers/injection/running",
        "            error = await opened.close(error)\n",
        "            error = await opened.close(None) or error\n",
        f"{_RUNS}an_exception_of_the_handler_reaches_every_clean_up",
    ),
    _bug(
        "each parameter gets a value of its own",
        "handlers/injection/plan",
        "        number = self._known.get(key) if marker.use_cache else None\n",
        "        number = None\n",
        f"{_RUNS}one_factory_gives_all_parameters_of_a_job_one_value",
    ),
    _bug(
        "use_cache=False has no effect",
        "handlers/injection/plan",
        "        number = self._known.get(key) if marker.use_cache else None\n",
        "        number = self._known.get(key)\n",
        f"{_PLANS}TestPlans::test_without_the_cache_each_parameter_has_a_step",
    ),
    _bug(
        "a factory that needs itself is resolved for ever",
        "handlers/injection/plan",
        "        if key in self._open:\n",
        "        if len(self._open) > 90:\n",
        f"{_PLANS}TestRefused::test_factories_that_need_each_other",
    ),
    _bug(
        "a job without an optional argument gives factories the default of none",
        "handlers/injection/running",
        "        return arguments.get(step.field, step.default)\n",
        "        return arguments.get(step.field)\n",
        f"{_ARGUMENTS}a_factory_gets_arguments_of_the_job_by_their_names",
    ),
    _bug(
        "a factory gets an argument of another type",
        "handlers/injection/plan",
        "        if not _fits(brought, wanted):\n",
        "        if False:\n",
        f"{_PLANS}TestRefused::test_an_argument_of_the_job_that_is_of_another_type",
    ),
    _bug(
        "a value of the pod may need an argument of a job",
        "handlers/injection/plan",
        "        if field is not None and not self._of_the_pod:\n",
        "        if field is not None:\n",
        f"{_PLANS}TestRefused::test_a_value_of_the_pod_that_needs_an_argument_of_a_job",
    ),
    _bug(
        "a verdict is replaced by the error of a clean-up",
        "runtime/queue/injection/job_scope",
        "        if isinstance(said, Outcome) and not isinstance(said_by(raised), Outcome):\n",
        "        if False:\n",
        f"{_CLEAN_UPS}a_verdict_of_the_handler_stands_and_the_error_is_beside_it",
    ),
    _bug(
        "a run that was stopped in a thread goes on to the handler",
        "runtime/queue/injection/job_scope",
        "        if self._run.stop_reason is not None:\n            raise asyncio.Cancelled",
        "        if False:\n            raise asyncio.Cancelled",
        f"{_RUNS}a_thread_that_makes_a_value_is_waited_for_and_its_value_cleaned_up",
    ),
    _bug(
        "a run that was cancelled in set-up goes on where a factory swallows the cancellation",
        "handlers/injection/running",
        "    scope.go_on()\n    return value\n",
        "    if not step.factory.is_async:\n        scope.go_on()\n    return value\n",
        f"{_TROUBLE}a_job_that_is_cancelled_in_set_up_never_begins_although_a_factory_goes_on",
    ),
    _bug(
        "jobs that wait for one value add notes to one exception",
        "runtime/shared/pod_values",
        "            raise _copy_of(error).with_traceback(holder.frames)\n",
        "            raise error.with_traceback(holder.frames)\n",
        f"{_TROUBLE}what_one_job_adds_to_a_shared_error_is_not_on_the_other_jobs",
    ),
    _bug(
        "jobs that wait for one value share its notes",
        "runtime/shared/pod_values",
        "        copied.__notes__ = [*error.__notes__]\n",
        "        pass\n",
        f"{_TROUBLE}what_one_job_adds_to_a_shared_error_is_not_on_the_other_jobs",
    ),
    _bug(
        "shared values are closed before the handlers have ended",
        "runtime/pod/stopping",
        "        self._start_nothing_more()\n        if not any(",
        "        self._start_nothing_more()\n"
        "        await self._pod.values.close(self._loop.time)\n"
        "        if not any(",
        f"{_VALUES}test_a_value_is_closed_after_the_last_handler_and_its_clean_up",
    ),
    _bug(
        "two jobs that need a shared value at once get two",
        "runtime/shared/pod_values",
        "            holder = self._holders[plan.key] = _Holder(plan, self)\n",
        "            holder = _Holder(plan, self)\n",
        f"{_VALUES}test_a_thousand_jobs_at_once_share_one_value_until_the_last_has_ended",
    ),
    _bug(
        "shared values are closed in the order of their making",
        "runtime/shared/pod_values",
        "(*reversed(self._made), *self._holders.values())",
        "(*self._made, *self._holders.values())",
        f"{_VALUES}test_values_are_closed_in_the_reverse_order_of_their_making",
    ),
    _bug(
        "a shared value that could not be made stays so",
        "runtime/shared/pod_values",
        "        self._holders.pop(holder.plan.key, None)\n",
        "        pass\n",
        f"{_VALUES}test_a_value_that_could_not_be_made_is_made_by_the_next_job",
    ),
    _bug(
        "a cancellation of all tasks closes what handlers still use",
        "runtime/shared/pod_values",
        "                task.uncancel()\n",
        "                return\n",
        f"{_VALUES}test_a_program_that_cancels_all_its_tasks_still_has_its_values_closed_in_order",
    ),
)
