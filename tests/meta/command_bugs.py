"""Bugs of the built-in handlers. A bug names the test of the rule."""

from tests.meta.bugs import Bug, Edit

_TESTS = "tests/commands/test_"


def _bug(name: str, module: str, old: str, new: str, test: str) -> Bug:
    edit = Edit(f"forge_jobs/{module}.py", old, new)
    return Bug(f"commands: {name}", (f"{_TESTS}{test}",), (edit,))


COMMAND_BUGS = [
    _bug(
        "a program gets the environment of the worker",
        "commands/handlers",
        "                environ=self._program.environ,\n",
        "",
        "commands.py::test_a_command_gets_its_arguments_and_nothing_of_the_worker",
    ),
    _bug(
        "a path behind an option is not looked at",
        "commands/programs",
        '    if argument.startswith("-"):\n',
        '    if argument.startswith("--"):\n',
        "programs.py::test_an_argument_that_names_a_path_outside_is_refused",
    ),
    _bug(
        "symbolic links are not followed",
        "commands/programs",
        "            target = _target(path)\n",
        "            target = None\n",
        "programs.py::test_an_argument_that_names_a_path_outside_is_refused",
    ),
    _bug(
        "a pattern has to match the beginning only",
        "commands/programs",
        "pattern.fullmatch(each)",
        "pattern.match(each)",
        "programs.py::test_arguments_have_to_match_a_pattern_in_full",
    ),
    _bug(
        "another allow-list takes the place of the first",
        "commands/handlers",
        "    cmd_exec.__qualname__ =",
        "    _ =",
        "programs.py::test_another_allow_list_under_the_same_kind_is_a_conflict",
    ),
    _bug(
        "every exit code is retried",
        "commands/handlers",
        "retried is not None and end.exit_code not in retried",
        "retried is not None and end.exit_code in retried",
        "commands.py::test_exit_codes_say_what_becomes_of_the_job",
    ),
    _bug(
        "the end of a long output is not kept",
        "commands/output",
        "{_text(tail)}",
        "",
        "commands.py::test_long_output_keeps_both_ends_and_says_what_is_left_out",
    ),
    _bug(
        "a job may ask for any time",
        "commands/handlers",
        "asyncio.timeout(self._timeout + _LATER_THAN_THE_JOB)",
        "asyncio.timeout(None)",
        "commands.py::test_a_job_may_ask_for_less_time_and_not_for_more",
    ),
    _bug(
        "a cancelled program is killed at once",
        "commands/guarding",
        "    program.terminate()\n",
        "    program.kill()\n",
        "commands.py::test_a_program_that_is_cancelled_may_clean_up",
    ),
    _bug(
        "a stop does not kill at the end of the grace",
        "commands/handlers",
        "        kill_by(ctx, guarded.kill)\n",
        "",
        "orphans.py::test_a_stop_of_the_pod_ends_every_process_and_hands_the_attempt_back",
    ),
    _bug(
        "a program that has left the group is not killed",
        "runtime/executors/guardian",
        "            os.kill(self._pid, signal.SIGKILL)\n",
        "            pass\n",
        "orphans.py::test_a_cancel_ends_what_ignores_sigterm_and_left_the_session",
    ),
    _bug(
        "the pipes of a command stay open",
        "commands/output",
        "            os.close(theirs)\n",
        "            pass\n",
        "leaks.py::test_nothing_is_left",
    ),
    _bug(
        "a program whose call was cancelled is used again",
        "commands/warm_pool",
        "            await stop(speaker.program)\n",
        "",
        "warm_pool.py::test_a_cancelled_call_ends_the_process_and_what_it_left_behind",
    ),
    _bug(
        "an answer to another job is taken",
        "commands/speaking",
        "self._run is None or said.id != self._run[0]",
        "self._run is None",
        "warm_pool.py::test_a_process_that_breaks_the_protocol_is_killed",
    ),
    _bug(
        "a program that has quit is used again",
        "commands/speaking",
        "        ends = self._stdout.closed.done() or self.program.ended.done()\n",
        "        ends = False\n",
        "warm_pool.py::test_a_process_that_quits_after_its_answer_is_replaced",
    ),
    _bug(
        "an error that no try can mend is retried",
        "commands/warm_pool",
        "raise Failed(answer.error) if answer.retry else Dead(answer.error)",
        "raise Failed(answer.error)",
        "warm_pool.py::test_an_error_is_a_failure_and_the_process_stays",
    ),
    _bug(
        "the work of a check has no bound",
        "commands/programs",
        "        if self.count > MAX_LOOKS:\n",
        "        if False:\n",
        "programs.py::test_the_work_of_a_check_is_bounded",
    ),
    _bug(
        "a link is not followed from its folder",
        "commands/programs",
        'path = "/" if target.startswith("/") else os.path.dirname(path)',
        'path = "/" if target.startswith("/") else self._cwd',
        "programs.py::test_paths_are_resolved_as_the_system_does",
    ),
    _bug(
        "programs of a pool get the environment of the worker",
        "commands/speaking",
        "                    environ=self._environ,\n",
        "",
        "warm_pool.py::test_no_process_of_a_pool_has_the_environment_of_the_worker",
    ),
]
