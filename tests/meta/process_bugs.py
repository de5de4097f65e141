"""Bugs of worker processes and their parent. A bug names the test of the rule."""

from tests.meta.bugs import Bug, Edit


def _process(name: str, module: str, old: str, new: str, test: str) -> Bug:
    edit = Edit(f"forge_jobs/cli/processes/{module}.py", old, new)
    return Bug(f"processes: {name}", (f"tests/cli/test_processes.py::test_{test}",), (edit,))


def _reload(name: str, module: str, old: str, new: str, test: str) -> Bug:
    edit = Edit(f"forge_jobs/cli/{module}.py", old, new)
    return Bug(f"reload: {name}", (f"tests/cli/test_reload.py::test_{test}",), (edit,))


RELOAD_BUGS = [
    _reload(
        "a stop counts twice for a process of the code before",
        "processes/reloading",
        "        self._asked.add(old)\n",
        "",
        "a_stop_is_no_second_stop_for_a_process_of_the_code_before",
    ),
    _reload(
        "the process of the code before is killed",
        "processes/reloading",
        "        old.say(STOP)\n",
        "        old.kill()\n",
        "jobs_run_with_the_new_code_and_running_ones_have_the_grace",
    ),
    _reload(
        "where the code is wrong is not shown",
        "commands/worker",
        '        arguments.insert(0, "--traceback")\n',
        "",
        "code_that_does_not_load_is_shown_and_the_next_change_helps",
    ),
    _reload(
        "a worker whose code does not load ends",
        "processes/reloading",
        "        while not (self._change.done() or self._stopping):\n"
        "            await self._pause.wait()\n",
        "        return None\n",
        "a_worker_that_starts_with_code_that_does_not_load_waits_and_can_be_stopped",
    ),
    _reload(
        "installed packages count",
        "processes/changes",
        'each[0] != "." and each not in _NOT_OURS',
        "each not in _NOT_OURS",
        "only_python_files_of_the_named_folders_count",
    ),
]

PROCESS_BUGS = [
    _process(
        "a signal and the word of the parent count as two stops",
        "link",
        "        return max(self._signals, self._asked)\n",
        "        return self._signals + self._asked\n",
        "a_stop_that_comes_by_a_signal_and_by_the_parent_is_one_stop",
    ),
    _process(
        "a second request of the parent does not hurry",
        "link",
        "        self._asked += 1\n",
        "        self._asked = 1\n",
        "a_second_signal_to_the_parent_hurries_the_processes",
    ),
    _process(
        "a process that is replaced has no more than the grace",
        "recycling",
        "self._handle.drain(MAX_DURATION)",
        "self._handle.drain()",
        "a_replaced_process_finishes_its_jobs_however_long_while_probes_are_answered",
    ),
    _process(
        "a process that is replaced goes on answering probes",
        "recycling",
        "            self._retired()\n",
        "            pass\n",
        "a_replaced_process_finishes_its_jobs_however_long_while_probes_are_answered",
    ),
    _process(
        "a process that does not start ends the parent",
        "slot",
        "            except (OSError, RuntimeError) as error:\n",
        "            except ZeroDivisionError as error:\n",
        "a_process_that_the_system_does_not_start_is_tried_again",
    ),
    _process(
        "the end of the link stops no process",
        "link",
        "        if not asked:\n",
        "        if asked:\n",
        "no_worker_outlives_a_killed_parent",
    ),
    *RELOAD_BUGS,
]
