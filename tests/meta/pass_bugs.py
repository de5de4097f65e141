"""Bugs of a pod's passes: reaper, coordinator, cron. Each names the test that states its rule."""

from tests.meta.bugs import Bug, Edit
from tests.meta.runtime_bugs import RULES, in_runtime

_REAPER = "reaper.py::test_"
_DOCTOR = "tests/cli/test_doctor_records.py::test_"


def _of_schedules(name: str, old: str, new: str, test: str) -> Bug:
    return Bug(
        name, (f"tests/runtime/test_{test}",), (Edit("forge_jobs/clients/schedules.py", old, new),)
    )


REAPER = [
    in_runtime(
        "reaper: does not ask its guard after reading",
        "passes/reaper",
        "        allowed = guard.may_revive(clock, asked_at=asked_at, read_at=stale.read_at)\n"
        "        # Claims in use stay",
        "        # Claims in use stay",
        f"{_REAPER}a_step_of_the_stores_clock_within_a_pass_is_no_crash_either",
    ),
    in_runtime(
        "reaper: forgets pods that its guard does not judge",
        "passes/reaper",
        "if sweep and allowed:",
        "if sweep:",
        f"{RULES}a_reaper_that_does_not_trust_its_clocks_forgets_no_pod",
    ),
    in_runtime(
        "reaper: expires nothing while its guard distrusts",
        "passes/reaper",
        "    if sweep:\n        swept",
        "    if sweep and allowed:\n        swept",
        f"{_REAPER}expired_jobs_are_cancelled_also_while_nothing_may_be_revived",
    ),
    in_runtime(
        "reaper: rests although claims are silent",
        "passes/reaper",
        "next_in=rest if is_quiet and swept.finished else settings.reap_interval,",
        "next_in=rest,",
        f"{_REAPER}a_reaper_that_rests_finds_a_crash_as_soon_as_one_that_does_not",
    ),
    in_runtime(
        "reaper: rests for longer than a short lease allows",
        "passes/reaper",
        "return rest if has_room else settings.reap_interval",
        "return rest",
        f"{_REAPER}a_reaper_of_a_short_lease_does_not_rest",
    ),
    in_runtime(
        "reaper: the setting beats the handler's own bound of crashes",
        "passes/reaper",
        "return settings.max_crashes if own is None else own",
        "return settings.max_crashes",
        f"{_REAPER}a_handlers_own_bound_of_crashes_wins_over_the_setting",
    ),
    in_runtime(
        "reaper: one batch a pass",
        "passes/reaper",
        "if len(stale) < limit:",
        "if True:",
        f"{_REAPER}a_thousand_claims_are_revived_in_bounded_batches",
    ),
    in_runtime(
        "reaper: what one pass cannot bring back stays dated ahead",
        "passes/reaper",
        "guard.must_look = not report.finished",
        "guard.must_look = False",
        f"{_REAPER}many_jobs_dated_ahead_are_brought_back_over_several_passes",
    ),
]

_COORDINATOR = "coordinator.py::test_"
_KINDS = "starved_kinds.py::test_"

COORDINATOR = [
    in_runtime(
        "coordinator: trust is counted from the answer",
        "passes/coordinator",
        "    leadership = await storage.cron.lead(host_id, lease)\n",
        "    leadership = await storage.cron.lead(host_id, lease)\n"
        "    trusted_until = memory.elapsed() + (lease - _margin(settings)).total_seconds()\n",
        f"{_COORDINATOR}trust_counts_from_before_the_lease_was_asked_for",
    ),
    in_runtime(
        "coordinator: trusts its lease to the very end",
        "passes/coordinator",
        "    return settings.leader_lease / 5\n",
        "    return timedelta(0)\n",
        f"{_COORDINATOR}a_leader_stops_trusting_itself_before_its_lease_is_over",
    ),
    in_runtime(
        "coordinator: writes what it planned before it slept",
        "passes/coordinator",
        "        if not memory.is_leader():\n            return\n        written",
        "        written",
        f"{_COORDINATOR}a_coordinator_that_slept_past_its_term_writes_nothing",
    ),
    in_runtime(
        "coordinator: a refused write is planned no more in its pass",
        "passes/coordinator",
        "_TRIES = 3",
        "_TRIES = 1",
        f"{_COORDINATOR}a_write_whose_record_moved_on_is_refused_and_planned_again",
    ),
    in_runtime(
        "coordinator: reads the slots of a steady fleet each time",
        "passes/coordinator",
        "return overdue or fleet_version != self._fleet_version",
        "return True",
        f"{_COORDINATOR}a_steady_fleet_is_neither_read_nor_written",
    ),
    in_runtime(
        "coordinator: a pod that has resigned leads on",
        "passes/coordinator",
        "    term = memory.term\n    memory.forget()\n",
        "    term = memory.term\n",
        f"{_COORDINATOR}after_a_clean_stop_another_pod_leads_at_once",
    ),
    in_runtime(
        "coordinator: a clean stop keeps the lead until its lease is over",
        "pod/stopping",
        "        await resign(pod.plan.storage.cron, pod.host_id, pod.loops.memory)\n",
        "        pod.loops.memory.forget()\n",
        f"{RULES}a_pod_that_stops_gives_the_lead_up",
    ),
    in_runtime(
        "coordinator: warns of a queue in each pass",
        "passes/coordinator",
        "    return [queue for queue in queues if queue not in known]\n",
        "    return list(queues)\n",
        f"{_COORDINATOR}a_queue_with_jobs_that_no_pod_declares_is_warned_about_once",
    ),
    in_runtime(
        "coordinator: rests as if it were alone",
        "passes/coordinator",
        "    if not memory.is_alone:\n        return settings.coordinate_interval\n",
        "",
        f"{_COORDINATOR}a_leader_that_is_alone_rests_longer_and_not_once_another_pod_is_there",
    ),
    in_runtime(
        "coordinator: a pod that was cut off trusts what it has seen",
        "pod/pod",
        "        self.loops.memory.look_again()\n",
        "",
        "emptied_store.py::test_a_pod_that_registers_again_trusts_nothing_it_has_seen",
    ),
    in_runtime(
        "coordinator: a kind gets slots at its first due job",
        "passes/starvation",
        ">= self._after:",
        ">= 0:",
        f"{_KINDS}a_new_kind_gets_the_only_slot_that_a_pod_without_the_kind_holds",
    ),
    in_runtime(
        "coordinator: the oldest of the kinds that share a slot keeps it",
        "passes/starvation",
        "                    self._needs[queue] = newest | {\n",
        "                    self._needs[queue] = self._needs.get(queue, {}) | newest | {\n",
        f"{_KINDS}kinds_that_share_one_slot_take_turns",
    ),
    in_runtime(
        "coordinator: needs of an earlier lead are served",
        "passes/starvation",
        "        self._needs.clear()\n",
        "",
        f"{_KINDS}a_leader_that_lost_the_lead_starts_anew",
    ),
]

_CRON = "cron.py::test_"

PASSES = [
    in_runtime(
        "hand-over: one batch a pass",
        "passes/cleanup",
        "        deliveries = [delivery(handover) for handover in batch]\n",
        "        deliveries = [delivery(handover) for handover in batch]\n        break\n",
        "handover.py::test_more_children_than_a_batch_are_all_told",
        "handover.py::test_a_dead_parent_cancels_ten_generations_in_one_pass",
    ),
    in_runtime(
        "cron: the id of a job does not derive from its occurrence",
        "passes/cron",
        "            id=occurrence_job_id(name, to_us(occurrence)),\n",
        "",
        f"{_CRON}"
        "an_occurrence_that_fired_before_an_edit_is_passed_over_after_the_clock_stepped_back",
        f"{_CRON}each_occurrence_fires_once_through_a_step_forward_and_back",
    ),
    in_runtime(
        "cron: an outage is the fault of single schedules",
        "passes/cron",
        "if isinstance(error, Unavailable) and not isinstance(error, Locked | StorageRefused):",
        "if False:",
        f"{_CRON}a_store_that_is_down_is_told_as_such",
    ),
    in_runtime(
        "cron: a schedule that could not be fired counts as fired",
        "passes/cron",
        "        this_pass.failures[name] = error\n        return False\n",
        "        return False\n",
        f"{_CRON}an_error_of_enqueue_keeps_the_schedule_enabled_and_is_tried_again",
    ),
    in_runtime(
        "cron: those that fail hide the others",
        "passes/cron",
        "cron.due_schedules(FIRE_BATCH + passed_by)",
        "cron.due_schedules(FIRE_BATCH)",
        "firing.py::test_many_schedules_that_cannot_be_planned_keep_no_other_from_firing",
    ),
    in_runtime(
        "cron: a guilty schedule keeps its neighbours from firing",
        "passes/cron",
        "        if len(planned) == 1:\n            return await",
        "        if planned:\n            return await",
        "firing.py::test_an_id_that_is_taken_keeps_none_of_a_hundred_others_from_firing",
    ),
    in_runtime(
        "cron: a catch-up of many schedules is one call",
        "passes/cron",
        "        if occurrences >= PLANNED_AT_ONCE:\n            break\n",
        "",
        "firing.py::test_catching_up_many_schedules_makes_no_call_without_bounds",
    ),
    _of_schedules(
        "cron: a trigger knows no overlap",
        'unique = Unique(f"cron:{spec.name}") if spec.overlap == "skip" else None',
        "unique = None",
        f"{_CRON}triggering_respects_the_overlap_rule_in_both_directions",
    ),
    _of_schedules(
        "cron: a resumed schedule makes up for its pause",
        "    next_at = first_occurrence(stored.spec, await cron.now())\n",
        "    next_at = stored.next_at\n",
        f"{_CRON}a_resumed_schedule_goes_on_with_its_next_occurrence_from_now",
    ),
    in_runtime(
        "loops: a pass that raises ends its loop",
        "shared/service",
        "        except Exception as error:\n            return self._failed(error)\n",
        "        except Exception:\n            raise\n",
        "loops.py::test_a_loop_survives_whatever_a_pass_raises",
    ),
    in_runtime(
        "loops: a cause is told again and again",
        "shared/service",
        "if self._outage.is_new(cause):",
        "if True:",
        "loops.py::test_a_cause_is_told_once_until_a_pass_succeeds",
    ),
    in_runtime(
        "loops: a pass that takes too long is cancelled",
        "shared/service",
        "                await asyncio.wait({self._pass})\n            pause",
        "                self._pass.cancel()\n                await asyncio.wait({self._pass})\n"
        "            pause",
        "loops.py::test_a_pass_that_takes_too_long_is_told_and_waited_for",
    ),
    in_runtime(
        "roll-up: a pass knows no budget of time",
        "passes/cleanup",
        "        if clock.elapsed() >= until:\n"
        "            return BatchReport(rows, finished=False)\n",
        "",
        "rollup.py::test_a_roll_up_ends_when_its_time_is_used_up",
    ),
    in_runtime(
        "cleanup: the settings of the history are not handed over",
        "pod/loops",
        "Cleanup(plan.storage.jobs, kept=kept)",
        "Cleanup(plan.storage.jobs)",
        "cleanup.py::test_a_pod_removes_the_history_by_its_settings_and_records_no_events_that_go_at_once",
    ),
    in_runtime(
        "events are recorded although none are kept",
        "pod/pod",
        "EVENT_CAPACITY if plan.settings.keep_events else 0",
        "EVENT_CAPACITY",
        "cleanup.py::test_a_pod_removes_the_history_by_its_settings_and_records_no_events_that_go_at_once",
    ),
    in_runtime(
        "cleanup: every batch begins a new pass",
        "passes/cleanup",
        "self._rest = cleaned.rest",
        "self._rest = cleaned.rest and None",
        "cleanup.py::test_a_pass_goes_on_where_the_batch_before_ended",
    ),
    in_runtime(
        "cleanup: what holds a job is told in every pass",
        "passes/cleanup",
        "if self._logged.is_new(reason):",
        "if True:",
        "cleanup.py::test_what_holds_jobs_is_told_once",
    ),
    in_runtime(
        "passes: health does not name revivals that are refused",
        "pod/loops",
        "return self._revivals.refusals + self._deliveries.refusals",
        "return self._deliveries.refusals",
        "set_aside.py::test_health_names_revivals_and_news_that_are_refused",
    ),
    Bug(
        "cleanup: doctor does not hear what keeps jobs",
        (f"{_DOCTOR}jobs_that_the_database_keeps_from_retention",),
        (
            Edit(
                "forge_jobs/runtime/pod/loops.py",
                "self.meter.kept = self._cleanup.in_the_way",
                "self.meter.kept = ()",
            ),
        ),
    ),
    Bug(
        "doctor: a pod that cannot be read is well",
        (f"{_DOCTOR}a_pod_a_schedule_and_a_rate_limit",),
        (
            Edit(
                "forge_jobs/operating/health/examining.py",
                "for pod in pods if pod.unreadable]\n    if spoilt:",
                "for pod in pods if pod.unreadable]\n    if not pods:",
            ),
        ),
    ),
]

PASS_BUGS: tuple[Bug, ...] = (*REAPER, *COORDINATOR, *PASSES)
