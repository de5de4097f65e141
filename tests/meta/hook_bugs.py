"""Bugs of middleware around enqueues, and of hooks behind runs."""

from tests.meta.bugs import Bug, Edit

_ENQUEUES = "tests/unit/test_enqueue_middleware.py::"
_HOOKS = "tests/runtime/test_hooks.py::test_"
_TROUBLE = "tests/runtime/test_hooks_in_trouble.py::test_"
_RUNS = "runtime/queue/injection/hook_runs"


def _bug(name: str, file: str, old: str, new: str, *tests: str) -> Bug:
    return Bug(f"hook: {name}", tests, (Edit(f"forge_jobs/{file}.py", old, new),))


HOOK_BUGS = (
    _bug(
        "another one is called for what a timer that rang early has left",
        _RUNS,
        "            self._until = self._loop.time()\n            task.cancel()\n",
        "            task.cancel()\n",
        f"{_TROUBLE}a_hook_that_hangs_is_cancelled_and_its_job_ends",
    ),
    _bug(
        "the request that a middleware yields is not the one that is stored",
        "clients/around",
        "                wanted[number] = await _begun(",
        "                await _begun(",
        f"{_ENQUEUES}TestOrder::test_the_registrys_is_outermost_and_both_change_the_request",
    ),
    _bug(
        "a client without the registry forgets the middleware of the handler",
        "clients/around",
        "    if request.handler_options is not None or registry is None:\n"
        "        return request.handler_options\n",
        "    if registry is None:\n        return None\n",
        f"{_ENQUEUES}TestOrder::test_the_registrys_is_outermost_and_both_change_the_request",
    ),
    _bug(
        "a registry forgets that a handler has middleware of its own",
        "handlers/registry",
        "        if handler.options.enqueue_middleware:\n",
        "        if False:\n",
        f"{_ENQUEUES}TestOrder::test_a_handlers_own_is_found_where_the_registry_has_none",
    ),
    _bug(
        "a registry forgets that an included handler has middleware of its own",
        "handlers/registry",
        "        if merged.has_enqueue_middleware:\n",
        "        if False:\n",
        f"{_ENQUEUES}TestOrder::test_a_handlers_own_is_found_where_the_registry_has_none",
    ),
    _bug(
        "each enqueue looks for middleware although there is none",
        "clients/around",
        "    if registry is None or not registry.has_enqueue_middleware:\n",
        "    if False:\n",
        "tests/unit/test_cost_of_an_enqueue.py::test_an_enqueue_without_options_makes_few_calls",
    ),
    _bug(
        "an error behind an enqueue is the caller's",
        "clients/around",
        "                if raised is not error:\n",
        "                if raised is not error:\n                    error = raised\n",
        f"{_ENQUEUES}TestErrors::test_behind_the_enqueue_an_error_is_logged_and_the_outcome_stays",
    ),
    _bug(
        "a middleware can swallow an error of the store",
        "clients/around",
        "    except (StopIteration, StopAsyncIteration):\n        return error\n",
        "    except (StopIteration, StopAsyncIteration):\n        return None\n",
        f"{_ENQUEUES}TestErrors::test_an_error_of_the_store_reaches_the_caller_and_cannot_be_swallowed",
    ),
    _bug(
        "of several steps all hear of the one that failed",
        "clients/around",
        "outcomes[number] if number < len(outcomes) else None",
        "outcomes[number] if error is None else None",
        f"{_ENQUEUES}TestMany::test_of_steps_each_hears_whether_its_own_was_stored",
    ),
    _bug(
        "a middleware may change the kind",
        "clients/around",
        "    if changed.kind != request.kind:\n",
        "    if changed.kind == '':\n",
        f"{_ENQUEUES}TestErrors::test_what_is_yielded_must_be_a_request_of_that_kind",
    ),
    _bug(
        "an exception behind an enqueue shows a secret in the log",
        "clients/around",
        "    is_shown = options is None or not options.secrets\n",
        "    is_shown = True\n",
        f"{_ENQUEUES}TestErrors::test_the_log_shows_no_exception_of_a_payload_with_secrets",
    ),
    _bug(
        "steps of a blocking enqueue have contexts of their own",
        "clients/blocking",
        "create_task(task(), context=context)",
        "create_task(task())",
        "tests/unit/test_enqueue_middleware.py::"
        "test_the_blocking_client_runs_plain_middleware_in_the_calling_thread",
    ),
    _bug(
        "within a transaction the blocking client forgets middleware",
        "clients/blocking",
        "        within = self._enqueued_within([request], connection)\n",
        "        within = connection or self._enqueued_within([request], connection)\n"
        "        within = None if connection else within\n",
        "tests/unit/test_enqueue_middleware.py::"
        "test_the_blocking_client_runs_plain_middleware_in_the_calling_thread",
    ),
    _bug(
        "a job that gives up has the hooks of a retry",
        "handlers/around/hooks",
        'return ("on_error", "on_dead")',
        'return ("on_error", "on_retry")',
        f"{_HOOKS}the_hooks_of_an_end_are_called",
    ),
    _bug(
        "the handler's hooks come before the registry's",
        "handlers/around/hooks",
        "(*self._of(event), *other._of(event))",
        "(*other._of(event), *self._of(event))",
        f"{_HOOKS}the_registrys_come_first_and_a_list_is_called_in_order",
    ),
    _bug(
        "what hooks have heard is decided once more",
        "runtime/queue/pool",
        "run.decided or decide(",
        "decide(",
        f"{_HOOKS}a_retry_policy_is_asked_once",
    ),
    _bug(
        "the error of a hook is lost",
        _RUNS,
        "                transition = self._with_failure(transition, hook, failure)\n",
        "",
        f"{_TROUBLE}an_exception_is_kept_on_the_job_and_changes_no_end",
    ),
    _bug(
        "the error of a hook takes the place of the handler's",
        _RUNS,
        "        record = transition.error\n",
        "        record = None\n",
        f"{_TROUBLE}the_error_of_the_handler_stays_the_first",
    ),
    _bug(
        "a hook ends the event loop by SystemExit",
        _RUNS,
        "    except BaseException as raised:  # SystemExit",
        "    except Exception as raised:  # SystemExit",
        f"{_TROUBLE}an_exception_is_kept_on_the_job_and_changes_no_end",
    ),
    _bug(
        "a hook that hangs holds the worker for ever",
        _RUNS,
        "await asyncio.wait(either, timeout=seconds,",
        "await asyncio.wait(either,",
        f"{_TROUBLE}a_hook_that_hangs_is_cancelled_and_its_job_ends",
    ),
    _bug(
        "a hook that swallows the cancellation is waited for",
        _RUNS,
        "await asyncio.wait({task}, timeout=self._seconds * _TO_CLEAN_UP)",
        "await asyncio.wait({task})",
        f"{_TROUBLE}a_hook_that_cannot_be_stopped_is_left_behind",
    ),
    _bug(
        "each hook has the time of all",
        _RUNS,
        "seconds = self._until - self._loop.time()",
        "seconds = self._seconds",
        f"{_TROUBLE}a_hook_that_hangs_is_cancelled_and_its_job_ends",
    ),
    _bug(
        "the event loop has to wait for the thread of a hook that goes on",
        _RUNS,
        "                scope.leave()\n",
        "",
        f"{_TROUBLE}a_hook_that_cannot_be_stopped_is_left_behind",
    ),
    _bug(
        "a stop does not reach hooks",
        "runtime/queue/run",
        "                self.cut_hooks()\n",
        "                pass\n",
        f"{_TROUBLE}a_stop_without_grace_cuts_hooks_short_and_stores_the_end",
    ),
    _bug(
        "a cancel that comes too late cuts hooks short",
        "runtime/queue/run",
        "self.cut_hooks is not None and reason is not StopReason.CANCEL:",
        "self.cut_hooks is not None:",
        f"{_TROUBLE}a_cancel_of_the_job_comes_too_late_for_a_hook",
    ),
    _bug(
        "the error of a hook shows a secret",
        _RUNS,
        "error=redacted(record, self._run.secrets())",
        "error=record",
        f"{_TROUBLE}secrets_of_the_payload_are_hidden_in_the_error_of_a_hook",
    ),
    _bug(
        "hooks have a context of their own, whose lines replace the handler's",
        "runtime/queue/worker",
        "        if run.context is None:\n",
        "        if run.context is None or run.ended:\n",
        f"{_HOOKS}lines_of_the_handler_and_of_hooks_are_kept_in_order",
    ),
    _bug(
        "a drain decides once more than its hooks have heard",
        "testing/kit/draining",
        "run.decided or decide(",
        "decide(",
        "tests/kit/test_drain.py::test_hooks_run_in_a_drain_with_the_end_that_is_stored",
    ),
    _bug(
        "overrides of the test kit do not reach hooks",
        "testing/kit/standing_in",
        "            other.hooks = handler.hooks.standing_in(self._instead)\n",
        "            handler.hooks.standing_in(self._instead)\n",
        "tests/kit/test_stand_ins.py::TestOverrides::test_in_hooks",
    ),
    _bug(
        "the log shows a hook's exception with the secrets of a dead job",
        _RUNS,
        "not self._run.has_secrets",
        "not self._run.handler.options.secrets",
        "tests/runtime/test_letters.py::test_a_hook_that_fails_logs_no_secret_of_the_dead_job",
    ),
)
