"""Bugs of a pod's heartbeat, handlers, stop, parts and reports. Each names the test of its rule."""

from tests.meta.bugs import Bug, Edit
from tests.meta.runtime_bugs import RULES, in_runtime


def _other(name: str, file: str, old: str, new: str, *tests: str) -> Bug:
    """Return a bug of a module beside the runtime, with tests as pytest names them."""
    return Bug(
        name, tuple(f"tests/{test}" for test in tests), (Edit(f"forge_jobs/{file}.py", old, new),)
    )


_ALONE = "rules_without_a_store.py::test_"
_LOGS = "bad_log_handlers.py::test_"
_TROUBLE = "stopping_in_trouble.py::test_"
_PARTS = "parts.py::test_"
_REPORTS = "unit/test_reports.py::test_"

HEARTBEAT = [
    in_runtime(
        "heartbeat: the fence counts from the answer",
        "heartbeat/thread",
        "            self._fence.renewed(sent_at, beat.silent)\n",
        "            self._fence.renewed(self._clock.elapsed())\n",
        f"{RULES}the_fence_counts_from_the_sending_of_a_beat_and_not_from_its_answer",
    ),
    in_runtime(
        "heartbeat: the fence counts from the answer to a registration",
        "heartbeat/thread",
        "        self._fence.renewed(asked_at, self.silent)\n",
        "        self._fence.renewed(self._clock.elapsed())\n",
        f"{RULES}the_fence_counts_from_before_a_lease_was_asked_for_again",
    ),
    in_runtime(
        "heartbeat: nobody is told that the fence has fallen",
        "heartbeat/thread",
        "            self._settings.lease - self._settings.fence_margin,\n        )\n"
        "        self._call_home(self._listener.fenced)\n",
        "            self._settings.lease - self._settings.fence_margin,\n        )\n",
        "outages.py::test_a_pod_cut_off_stops_its_handlers_in_time_and_goes_on_later",
    ),
    in_runtime(
        "heartbeat: a watch that fails is not repeated",
        "heartbeat/thread",
        "            except Exception:  # without this the handlers would never be fenced\n"
        "                logger.exception("
        '"heartbeat: the watch over the event loop failed, and goes on")\n',
        "            except Exception:\n                return\n",
        f"{_PARTS}handlers_are_fenced_though_the_watch_fails",
    ),
    in_runtime(
        "heartbeat: only one call says that the pod drains",
        "heartbeat/thread",
        "        elif self.draining and not self._stopping:\n",
        "        elif False:\n",
        f"{_TROUBLE}every_beat_says_that_the_pod_drains",
    ),
    in_runtime(
        "heartbeat: a pod that drains declares again what a later deploy has changed",
        "heartbeat/thread",
        "        if not self.draining:\n            await self._declaration.declare(storage)\n",
        "        await self._declaration.declare(storage)\n",
        "emptied_store.py::test_a_pod_that_drains_leaves_the_word_to_others",
    ),
    in_runtime(
        "heartbeat: a lease that ran out is not asked for again",
        "heartbeat/thread",
        "            await self._register_again(storage)\n        elif",
        "            pass\n        elif",
        "outages.py::test_a_pod_whose_lease_ran_out_registers_again",
    ),
    in_runtime(
        "heartbeat: a pod that is given up keeps its slots",
        "heartbeat/thread",
        "                await storage.procs.unregister(self.lease)\n",
        "                pass\n",
        f"{_PARTS}slots_are_given_up_when_the_event_loop_was_closed",
    ),
    in_runtime(
        "watchdog: a machine that slept has blocked its loop",
        "heartbeat/watchdog",
        "step = min(elapsed - self._last_check, self._longest_step)",
        "step = elapsed - self._last_check",
        f"{_ALONE}a_machine_that_slept_has_not_blocked_its_loop",
    ),
    in_runtime(
        "watchdog: a loop is reported blocked at each look",
        "heartbeat/watchdog",
        "        self._reported = True\n        self.blocked_count += 1\n",
        "        self.blocked_count += 1\n",
        f"{_ALONE}a_loop_that_answers_nothing_is_blocked_and_later_hung",
    ),
    in_runtime(
        "wake-ups: one that was lost is no hint",
        "pod/pod",
        "                wake = Wake(queues=queues, handover=True, beat=True, fleet=True, "
        "letters=True)\n",
        "",
        f"{RULES}a_wake_up_that_was_lost_is_made_up_for",
    ),
    in_runtime(
        "wake-ups: a ring before the wait is lost",
        "shared/service",
        "        if not self._is_awake and (at_most is None or at_most > timedelta(0)):",
        "        self._is_awake = False\n"
        "        if not self._is_awake and (at_most is None or at_most > timedelta(0)):",
        f"{_ALONE}a_ring_before_the_wait_is_not_lost_and_counts_once",
    ),
    in_runtime(
        "wake-ups: a ring counts for ever",
        "shared/service",
        "woken, self._is_awake = self._is_awake, False",
        "woken = self._is_awake",
        f"{_ALONE}a_ring_before_the_wait_is_not_lost_and_counts_once",
    ),
    _other(
        "store time: a slow answer widens what is known",
        "clock",
        "                least, greatest = narrowed\n",
        "                pass\n",
        "runtime/test_store_time.py::TestStoreTime::test_a_slow_answer_spoils_nothing",
    ),
    _other(
        "store time: a step is not followed",
        "clock",
        "            if narrowed[0] <= narrowed[1]:\n                least, greatest = narrowed\n",
        "            least, greatest = narrowed\n",
        "runtime/test_store_time.py::TestStoreTime::test_it_follows_a_step",
    ),
]

_OUTAGES = "outages.py::test_"
_STOPPING = "stopping_a_handler.py::test_"
_RAISES = "handlers_that_raise.py::test_"

HANDLERS = [
    in_runtime(
        "worker: a job with a crash starts without a record",
        "queue/worker",
        "if run.job.crashes and not await self._record_start(run):",
        "if False:",
        f"{_OUTAGES}a_start_is_recorded_before_a_job_with_a_crash_runs",
    ),
    in_runtime(
        "worker: a store that refuses a start fails the job",
        "queue/worker",
        "            except StorageError as error:\n                failures += 1\n",
        "            except ZeroDivisionError as error:\n                failures += 1\n",
        f"{_OUTAGES}a_start_that_the_store_refuses_is_no_failure_of_its_job",
    ),
    in_runtime(
        "worker: a job given out before the process stood still starts",
        "queue/worker",
        "            self._stop_when_fenced(run, now)\n",
        "",
        "lapsed_lease.py::test_a_job_given_out_before_the_process_stood_still_does_not_start",
    ),
    in_runtime(
        "worker: the variables of one job reach the next",
        "queue/worker",
        "context=services.context.copy())",
        "context=services.context)",
        f"{_RAISES}context_variables_of_one_job_are_not_seen_by_the_next",
    ),
    in_runtime(
        "worker: an overrun leaves no trace",
        "queue/worker",
        "            end = self._past_its_time(run, end)\n",
        "            pass\n",
        "overruns.py::test_one_that_ends_before_anybody_could_warn_leaves_the_same_trace",
    ),
    in_runtime(
        "worker: a job without a turn is due at once",
        "queue/turns",
        "turn = _WITHOUT_ANSWER * services.rng.uniform(0.2, 1.0)",
        "turn = timedelta(0)",
        "rate_limited.py::test_a_store_that_gives_no_turn_costs_neither_the_job_nor_the_slot",
    ),
    in_runtime(
        "run: each reason to stop is a cancellation",
        "queue/run",
        "        if known is None:\n            self._cancel()\n        elif",
        "        if True:\n            self._cancel()\n        elif",
        f"{RULES}a_handler_is_cancelled_once_and_again_after_its_patience",
    ),
    in_runtime(
        "run: a lost claim is no reason beside another",
        "queue/run",
        "if known is None or reason is StopReason.LOST:",
        "if known is None:",
        f"{RULES}a_lost_claim_beats_every_other_reason_to_stop",
    ),
    in_runtime(
        "run: more time does not move the timeout",
        "queue/run",
        "self._deadline = self._loop.call_at(when, self._time_is_up)",
        "self._deadline = self._loop.call_at(when - seconds, self._time_is_up)",
        f"{_STOPPING}the_handler_can_extend_its_time",
    ),
    in_runtime(
        "run: a handler that swallows its cancellation is cancelled once",
        "queue/run",
        "        self._repeat = self._loop.call_later(pauses.after(self._repeats + 1), "
        "self._cancel_again)\n",
        "",
        f"{RULES}a_handler_is_cancelled_once_and_again_after_its_patience",
    ),
    in_runtime(
        "execution: a success after a cancel is cancelled",
        "queue/execution",
        "    if error is None:\n        return _succeeded",
        "    if error is None and run.stop_reason is None:\n        return _succeeded",
        f"{_STOPPING}a_success_after_the_cancel_stands",
    ),
    in_runtime(
        "execution: the end of a lost claim is stored",
        "queue/execution",
        "    if run.stop_reason is StopReason.LOST:\n        return None\n    if error is None and",
        "    if error is None and",
        f"{RULES}the_end_of_a_lost_claim_is_not_even_sent",
    ),
    in_runtime(
        "execution: a result that is no JSON undoes the success",
        "queue/execution",
        "        record = _record(run, host_id, raised, Cause.SUCCEEDED)\n"
        "        return AttemptEnd(cause=Cause.SUCCEEDED, error=record)\n",
        "        return _failed(run, host_id, raised, Cause.FAILED)\n",
        f"{_RAISES}a_result_that_json_cannot_carry_does_not_undo_the_success",
    ),
    in_runtime(
        "execution: a call that was never awaited is tried again",
        "queue/execution",
        "error=record, retryable=False, exception=forgotten)",
        "error=record, exception=forgotten)",
        "forgotten_awaits.py::"
        "test_a_coroutine_function_that_awaits_nothing_is_dead_at_once_with_that_reason",
    ),
    in_runtime(
        "execution: what a program has written into an outcome is taken as it is",
        "queue/execution",
        'delay = check_duration("delay", outcome.delay)',
        "delay = outcome.delay",
        "odd_outcomes.py::test_a_delay_changed_to_a_number_counts_as_seconds",
    ),
    in_runtime(
        "ends: the queue's policy beats the handler's own",
        "queue/ends",
        "    if handler is not None and handler.options.retry is not None:\n",
        "    if state is None and handler is not None and handler.options.retry is not None:\n",
        "retry_of_a_queue.py::test_a_queues_policy_holds_for_handlers_without_one",
    ),
    in_runtime(
        "ends: a decision that raises takes the worker with it",
        "queue/ends",
        "    except BaseException as error:  # the claim needs an end in any case\n",
        "    except KeyError as error:\n",
        "odd_outcomes.py::test_a_decision_that_raises_ends_the_job_as_failed",
    ),
    in_runtime(
        "threads: a pod without threads claims on",
        "queue/services",
        "        return not handler.needs_thread or self._has_threads\n",
        "        return True\n",
        "no_threads_left.py::test_threads_are_tried_again_with_growing_pauses_and_no_claim_between",
    ),
    in_runtime(
        "threads: the pauses do not grow",
        "shared/threads",
        "        self._refusals += 1\n",
        "",
        "no_threads_left.py::test_threads_are_tried_again_with_growing_pauses_and_no_claim_between",
    ),
]

_TWICE = "stopping_twice.py::test_"

STOPS = [
    in_runtime(
        "stop: handlers are cancelled when the grace is over",
        "pod/stopping",
        'return float("-inf") if self._hurried else self._grace_until - patience',
        'return float("-inf") if self._hurried else self._grace_until',
        f"{_TWICE}handlers_are_cancelled_before_the_grace_ends",
    ),
    in_runtime(
        "stop: a second hurry changes nothing",
        "pod/stopping",
        "allowed = patience if self._hurried == 1 else _TO_END",
        "allowed = patience",
        f"{_TWICE}a_second_hurry_ends_the_patience",
    ),
    in_runtime(
        "stop: a cancelled caller leaves it",
        "shared/uncancellable",
        "            cancelled = error\n            hurry()\n",
        "            cancelled = error\n            hurry()\n            break\n",
        f"{_TWICE}a_cancelled_call_of_stop_hurries_it_and_waits",
    ),
    in_runtime(
        "stop: a job is given away while its thread goes on",
        "pod/stopping",
        "            self._deferred_ends.begin(queue.outbox for queue in pod.queues.values())\n",
        "            pass\n",
        "stopping_with_threads.py::test_the_claim_of_what_goes_on_is_released_by_the_last_call",
    ),
    in_runtime(
        "stop: threads that wait for work hold it back",
        "pod/leftovers",
        "        and not _is_waiting_for_work(frames[thread.ident])\n",
        "",
        "stopping_with_threads.py::test_idle_threads_of_pools_hold_nothing_back",
    ),
    in_runtime(
        "stop: the lanes are not waited for",
        "pod/stopping",
        "        await self._queues_end()\n",
        "",
        f"{RULES}a_stop_tells_the_store_of_an_end_before_the_pod_leaves",
    ),
    in_runtime(
        "stop: exits with 0 although ends are left",
        "pod/stop_report",
        "return self.left and not self.unstored",
        "return self.left or not self.unstored",
        f"{_ALONE}a_stop_is_clean_when_the_pod_has_left_and_no_end_is_left",
    ),
    in_runtime(
        "parts: one that fails is not started again",
        "pod/tasks",
        "        self._loop.call_later(pause, self._begin_again, pod_task)\n",
        "        self._finish(pod_task, pod_task.problem)\n",
        f"{_PARTS}a_lane_that_fails_is_started_again",
    ),
    in_runtime(
        "parts: one that was cancelled from outside is not missed",
        "pod/tasks",
        '        self.lose(f"the program has cancelled {pod_task.name}")\n',
        "",
        f"{_PARTS}a_part_that_is_cancelled_ends_the_pod_in_good_order",
    ),
    in_runtime(
        "parts: the cancellation of all tasks is not noticed",
        "pod/tasks",
        "            self._cancelled_from_outside()\n",
        "            pass\n",
        f"{_PARTS}a_pod_stops_in_good_order_at_the_end_of_asyncio_run",
        f"{_PARTS}a_pod_whose_tasks_are_all_cancelled_stops_in_good_order",
    ),
    in_runtime(
        "parts: a closed storage is a failure as any other",
        "pod/tasks",
        "        elif isinstance(error, StorageClosed):\n",
        "        elif isinstance(error, ZeroDivisionError):\n",
        f"{_PARTS}a_pod_whose_storage_is_closed_gives_its_slots_up",
    ),
    in_runtime(
        "parts: one that waits for its next start is well",
        "pod/tasks",
        "            if pod_task.problem:\n",
        "            if False:\n",
        f"{_PARTS}a_part_that_waits_for_its_next_start_is_named",
    ),
]

_LIMITS = "rate_limits.py::test_"
_EVENTS = "events.py::test_"

LIMITS = [
    in_runtime(
        "limits: a wait that cannot be enough is waited",
        "shared/rates/limiter",
        "if left <= _ZERO or grant.retry_in > left:",
        "if left <= _ZERO:",
        f"{_LIMITS}a_wait_that_cannot_be_enough_ends_at_once",
    ),
    in_runtime(
        "limits: a long wait asks once",
        "shared/rates/limiter",
        "min(max(grant.retry_in, SHORTEST_PAUSE), LONGEST_PAUSE, left)",
        "min(max(grant.retry_in, SHORTEST_PAUSE), left)",
        f"{_LIMITS}a_long_wait_asks_again_from_time_to_time",
    ),
    in_runtime(
        "limits: who asks for as much as was denied asks again",
        "shared/rates/limiter",
        "denied.setdefault(request, answer.grant)",
        "pass",
        f"{_LIMITS}a_hundred_callers_that_are_denied_share_a_few_round_trips",
    ),
    in_runtime(
        "limits: jobs beyond a long line ask again together",
        "shared/rates/limiter",
        "return LONGEST_TURN * self._rng.uniform(0.5, 1.0)",
        "return LONGEST_TURN",
        f"{_LIMITS}jobs_beyond_a_long_line_ask_again_at_random_in_its_second_half",
    ),
    in_runtime(
        "events: what an outage puts back is in another order",
        "shared/events",
        "self._events.extendleft(reversed(batch))",
        "self._events.extend(batch)",
        f"{_ALONE}events_put_back_come_before_those_made_meanwhile",
    ),
    in_runtime(
        "events: what is put back knows no bound",
        "shared/events",
        "            self._events.extendleft(reversed(batch))\n"
        "            full = self._make_room()\n",
        "            self._events.extendleft(reversed(batch))\n            full = False\n",
        f"{_EVENTS}what_comes_back_from_a_failed_flush_respects_the_bound",
    ),
    in_runtime(
        "events: a refused batch holds up all later ones",
        "shared/events",
        "            self.dropped += len(batch)\n            raise\n",
        "            self._put_back(batch)\n            raise\n",
        f"{_EVENTS}a_batch_the_store_refuses_for_good_does_not_hold_up_later_ones",
    ),
    _other(
        "results: each caller looks by itself",
        "clients/results",
        "return [wait for wait in self._waits if wait.at <= now + wait.pause / 2]",
        "return [wait for wait in self._waits if wait.at <= now][:1]",
        "unit/test_client_results.py::TestManyWaiters::test_they_share_their_looks",
    ),
    _other(
        "results: an outage reaches the callers at once",
        "clients/results",
        "patient = now - self._failing_since < self._repeat_for",
        "patient = False",
        "unit/test_client_results.py::TestManyWaiters::test_an_outage_is_waited_out",
    ),
    _other(
        "results: a job that is gone counts as late",
        "clients/results",
        "wait.future.set_exception(NotFound(text))",
        "wait.future.set_exception(ResultTimeout(text))",
        "unit/test_client_results.py::TestFailures::test_a_missing_job_is_known_at_once",
    ),
    _other(
        "routes: what pods publish is asked at each request",
        "clients/routes",
        "return age < (KNOWN_FOR_S if kind in self._queues else UNKNOWN_FOR_S)",
        "return False",
        "unit/test_client_routes.py::test_asking_what_pods_publish_is_bounded",
    ),
    _other(
        "routes: what was published is forgotten with the fleet",
        "clients/routes",
        "self._queues.update(await self._read())",
        "self._queues = dict(await self._read())",
        "unit/test_client_routes.py::test_what_was_published_counts_while_the_fleet_is_down",
    ),
    _other(
        "reports: too many wait without end",
        "reports",
        "if self.waiting >= WAITING_MOST:",
        "if False:",
        f"{_REPORTS}reports_wait_while_the_log_blocks_and_too_many_are_counted",
    ),
    _other(
        "reports: what raises ends the thread",
        "reports",
        "            except BaseException:  # a handler of the log is the program's code\n"
        "                self.failed += 1\n            finally:",
        "            except ZeroDivisionError:\n"
        "                self.failed += 1\n            finally:",
        f"{_REPORTS}a_handler_that_raises_is_counted_and_ends_nothing",
    ),
    _other(
        "reports: later ones do not wait behind those of the heartbeat",
        "reports",
        "if _queue.waiting or _is_deferring():",
        "if _is_deferring():",
        f"{_REPORTS}other_threads_do_not_wait_behind_a_report_that_blocks",
    ),
    _other(
        "reports: the heartbeat waits for the log",
        "reports",
        "if _queue.waiting or _is_deferring():",
        "if False:",
        f"runtime/test_{_LOGS}a_loop_blocked_in_a_log_call_keeps_its_claims",
        f"{_REPORTS}a_report_says_where_and_when_it_was_made",
    ),
    _other(
        "threads: one of the engine that fails is not started again",
        "engine_threads",
        "            while not self.is_over:\n                began",
        "            for _ in range(1):\n                began",
        f"runtime/test_{_PARTS}a_heartbeat_that_fails_is_started_again_and_keeps_the_claims",
    ),
]

POD_BUGS: tuple[Bug, ...] = (*HEARTBEAT, *HANDLERS, *STOPS, *LIMITS)
