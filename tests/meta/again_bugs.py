"""Bugs of spread windows and of jobs that begin again, with the test that catches each."""

from tests.meta.bugs import Bug, Edit

_SPREAD = "tests/unit/test_spreading.py::"
_SUITE = "tests/conformance/test_again.py::"
_RUNTIME = "tests/runtime/test_again.py::"
_SEEDS = "tests/runtime/test_seeds.py::"
_LUA = "storage/redis/lua/lib/jobs/"


def _bug(name: str, module: str, old: str, new: str, test: str, backend: str = "sqlite") -> Bug:
    suffix = "" if "." in module else ".py"
    return Bug(name, (test,), (Edit(f"forge_jobs/{module}{suffix}", old, new),), backend)


def _named(file: str, test: str) -> str:
    if test.startswith("an_occurrence_that_was_due"):
        file = "tests/conformance/test_set_back.py::"
    return f"{file}{test}" if test.startswith("Test") else f"{file}test_{test}"


AGAIN_BUGS = [
    _bug(
        "spread: the window is part of the fingerprint",
        "handlers/preparing",
        "    job = _unencrypted(request, handler, defaults, router, elsewhere)\n    if judge",
        "    job = _unencrypted(request, handler, defaults, router, elsewhere)\n"
        "    if request.spread is not UNSET and request.spread is not None:\n"
        "        job = spread_out(job, request.spread)\n"
        "    if judge",
        f"{_SPREAD}TestOne::test_a_repeat_with_another_window_is_the_same_request",
    ),
    _bug(
        "spread: all jobs of a call at one moment of their steps",
        "handlers/spreading",
        "digest_size=8).digest())",
        "digest_size=8).digest()) * 0",
        f"{_SPREAD}TestMany::test_each_job_has_a_step_of_its_own",
    ),
    _bug(
        "spread: the moment is not that of the id",
        "handlers/spreading",
        "hashlib.blake2b(job_id.encode(), digest_size=8).digest()",
        "__import__('os').urandom(8)",
        f"{_SPREAD}TestOne::test_one_id_has_one_moment",
    ),
    _bug(
        "spread: in place of the delay",
        "handlers/spreading",
        "delay=(job.delay or _ZERO) + later",
        "delay=later",
        f"{_SPREAD}TestOne::test_the_part_comes_on_top_of_delay_and_run_at",
    ),
    _bug(
        "spread: requests alike share the moment of the first",
        "handlers/preparing",
        "        jobs.append(job if spread is None else spread_out(job, spread))\n",
        "        jobs.append(job if spread is None else spread_out(job, spread))\n"
        "        like = jobs[-1]\n",
        f"{_SPREAD}TestMany::test_without_a_window_each_request_has_its_own",
    ),
    *(
        _bug(f"again, {name}", module, old, new, _named(_SUITE, test), backend)
        for name, module, old, new, test, backend in (
            (
                "SQL: the payload stays",
                "storage/sql/jobs/endings",
                '        payload=bindparam("new_payload"),\n        metadata=',
                "        metadata=",
                "the_job_waits_with_the_new_payload_and_its_whole_budget",
                "sqlite",
            ),
            (
                "SQL: attempts are used up over occurrences",
                "storage/sql/jobs/endings",
                "        attempt=0,\n        crashes=0,\n        snoozes=0,\n",
                "",
                "the_job_waits_with_the_new_payload_and_its_whole_budget",
                "postgres",
            ),
            (
                "SQL: a repeat of the request is compared with the new payload",
                "storage/sql/jobs/endings",
                'case((jobs.c.fingerprint == "", REPLACED), else_=jobs.c.fingerprint)',
                "jobs.c.fingerprint",
                "TestRepeatedRequests",
                "sqlite",
            ),
            (
                "SQL: the checkpoint stays",
                "storage/sql/jobs/endings",
                "    forget_steps(tx, (job_id for job_id, *_ in begun))\n",
                "",
                "the_checkpoint_goes_with_the_occurrence",
                "sqlite",
            ),
            (
                "SQL: also where a cancel overrules",
                "storage/sql/jobs/finalize",
                "        if transition.again is not None:\n"
                "            self._begun.append((row.id, transition.again, ",
                "        if wished.again is not None:\n"
                "            self._begun.append((row.id, wished.again, ",
                "a_job_that_was_asked_to_cancel_begins_nothing",
                "sqlite",
            ),
            (
                "SQL: one that is due at once waits for a clock set back",
                "storage/sql/jobs/finalize",
                "run_at if transition.delay else None",
                "run_at",
                "an_occurrence_that_was_due_at_once_does_not_wait_and_others_do",
                "sqlite",
            ),
            (
                "Redis: one that is due at once waits for a clock set back",
                f"{_LUA}finalize/outcomes.lua",
                "outcome.delay == 0 and '0' or requested",
                "requested",
                "an_occurrence_that_was_due_at_once_does_not_wait_and_others_do",
                "redis",
            ),
            (
                "Redis: crashes add up",
                f"{_LUA}finalize/outcomes.lua",
                "'attempt', 0, 'crashes', 0, 'snoozes', 0,",
                "'attempt', 0, 'snoozes', 0,",
                "crashes_do_not_add_up_over_occurrences",
                "redis",
            ),
            (
                "Redis: the job stands in the line of jobs with crashes",
                f"{_LUA}finalize/outcomes.lua",
                "job.attempt, job.crashes, job.snoozes = 0, 0, 0",
                "job.attempt, job.snoozes = 0, 0",
                "crashes_do_not_add_up_over_occurrences",
                "redis",
            ),
            (
                "Redis: also where a cancel overrules",
                f"{_LUA}finalize/applying.lua",
                "  local changes = {}\n",
                "  local changes = {}\n"
                "  if outcome.again then begin_again(base, job, outcome, changes) end\n",
                "a_job_that_was_asked_to_cancel_begins_nothing",
                "redis",
            ),
            (
                "Redis: the checkpoint stays",
                f"{_LUA}finalize/outcomes.lua",
                "'fingerprint', '=')\n  redis.call('DEL', base .. ':ckpt:' .. job.id)\n",
                "'fingerprint', '=')\n",
                "the_checkpoint_goes_with_the_occurrence",
                "redis",
            ),
            (
                "Redis: a repeat of the request is compared with the new payload",
                f"{_LUA}enqueue/admission.lua",
                "stored.fingerprint == REPLACED",
                "stored.fingerprint == '=='",
                "TestRepeatedRequests",
                "redis",
            ),
        )
    ),
    *(
        _bug(f"again, {name}", module, old, new, _named(_RUNTIME, test))
        for name, module, old, new, test in (
            (
                "an occurrence has the number of the last",
                "runtime/queue/run",
                "str(occurrence_of(metadata) + 1)",
                "str(occurrence_of(metadata))",
                "a_chain_is_one_job_whose_result_is_that_of_the_last",
            ),
            (
                "arguments are not checked",
                "runtime/queue/run",
                "signature.encode((), payload)",
                'encode_json("payload", payload)',
                "arguments_that_do_not_fit_are_a_final_failure_that_names_the_field",
            ),
            (
                "finished work is retried for its arguments",
                "runtime/queue/execution",
                "cause=Cause.FAILED, error=record, retryable=False, exception=raised)\n"
                "    return AttemptEnd(cause=Cause.SUCCEEDED, delay=after, again=again)",
                "cause=Cause.FAILED, error=record, exception=raised)\n"
                "    return AttemptEnd(cause=Cause.SUCCEEDED, delay=after, again=again)",
                "arguments_that_do_not_fit_are_a_final_failure_that_names_the_field",
            ),
            (
                "an old key stays in use",
                "runtime/queue/run",
                "payload=self._encrypted(text, Part.PAYLOAD)",
                "payload=text if payload is None else self._encrypted(text, Part.PAYLOAD)",
                "a_new_payload_is_encrypted_and_an_old_one_gets_the_newest_key",
            ),
            (
                "a shutdown beats it",
                "runtime/queue/execution",
                "    if isinstance(error, Again):\n        return _begins_again",
                "    if isinstance(error, Again) and run.stop_reason is None:\n"
                "        return _begins_again",
                "TestStops",
            ),
        )
    ),
    *(
        _bug(f"seed, {name}", module, old, new, _named(_SEEDS, test), backend)
        for name, module, old, new, test, backend in (
            (
                "each pod has an id of its own",
                "model/ids",
                '    return JobId(str(ULID((1).to_bytes(6, "big") + randomness)))',
                '    return JobId(str(ULID((1).to_bytes(6, "big") + os.urandom(10))))',
                "sixteen_pods_at_once_make_one_job",
                "sqlite",
            ),
            (
                "a job that was cancelled is brought back",
                "policy/seeds",
                "status is JobStatus.DEAD and",
                "status is not JobStatus.DONE and",
                "which_jobs_are_lost",
                "sqlite",
            ),
            (
                "a job that kills processes is brought back",
                "policy/seeds",
                "frozenset({Cause.REJECTED, Cause.CRASHED})",
                "frozenset({Cause.REJECTED})",
                "a_job_that_has_stopped_stays_so_beyond_its_retention",
                "sqlite",
            ),
            (
                "a dead job is brought back at once",
                "policy/seeds",
                " and ended_for >= REVIVED_AFTER",
                "",
                "a_dead_job_goes_on_after_a_while_where_it_was",
                "sqlite",
            ),
            (
                "SQL: the record of a stopped chain is cleaned up",
                "storage/sql/jobs/cleanup/retention",
                " and not is_seed_id(row.id)",
                "",
                "a_job_that_has_stopped_stays_so_beyond_its_retention",
                "postgres",
            ),
            (
                "Redis: the record of a stopped chain is cleaned up",
                "storage/redis/lua/jobs/cleanup/overdue.lua",
                " and not string.find(page[index], SEEDED)",
                "",
                "a_job_that_has_stopped_stays_so_beyond_its_retention",
                "redis",
            ),
            (
                "Redis: a record that stays hides those behind",
                "storage/redis/lua/jobs/cleanup/overdue.lua",
                "    start = last + 1\n",
                "    start = overdue\n",
                "a_job_that_has_stopped_stays_so_beyond_its_retention",
                "redis",
            ),
            (
                "a unique key may stand in the way",
                "handlers/option_checks",
                "        if handler.options.unique is not None:\n",
                "        if False:\n",
                "a_seed_with_a_unique_key_is_refused_at_registration",
                "sqlite",
            ),
            (
                "a middleware may lead it elsewhere",
                "clients/around",
                "    if request.id is not None and is_seed_id(request.id):\n",
                "    if False:\n",
                "what_makes_a_seed_the_one_that_pods_look_for_is_no_middlewares_to_change",
                "sqlite",
            ),
            (
                "one that is refused keeps the others waiting",
                "runtime/passes/seeds",
                "        if isinstance(error, StorageError) and not is_checked:\n",
                "        if True:\n",
                "a_middleware_that_refuses_a_seed_keeps_no_other_seed_waiting",
                "sqlite",
            ),
            (
                "other options of a later release are an error",
                "runtime/passes/seeds",
                "    except Conflict:\n",
                "    except ZeroDivisionError:\n",
                "other_arguments_and_options_change_nothing_while_the_job_is_there",
                "sqlite",
            ),
        )
    ),
]
