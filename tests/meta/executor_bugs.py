"""Bugs of handlers in processes. Each names the test that states the rule."""

from tests.meta.bugs import Bug, Edit

_ROOM = "forge_jobs/runtime/executors"
_TESTS = "tests/executors/test_"


def _bug(name: str, module: str, old: str, new: str, test: str) -> Bug:
    return Bug(name, (f"{_TESTS}{test}",), (Edit(f"{_ROOM}/{module}.py", old, new),))


EXECUTOR_BUGS = [
    _bug(
        "process: a write to a guardian that is gone hides how the program ended",
        "guarded",
        "        self.data_received(unread(self._socket))\n",
        "",
        "last_words.py::test_a_command_to_a_guardian_that_is_gone_hides_no_end",
    ),
    _bug(
        "process: a refusal is raised before the guardian is gone",
        "guarded",
        "            await asyncio.shield(self.ended)\n            raise NoProcess(",
        "            raise NoProcess(",
        "last_words.py::test_a_program_that_is_refused_leaves_no_guardian",
    ),
    _bug(
        "process: a write to a child that is gone hides the outcome",
        "supply",
        "        self.data_received(unread(self._socket))\n",
        "",
        "last_words.py::test_an_answer_to_a_child_that_is_gone_hides_no_outcome",
    ),
    _bug(
        "process: a child that is gone is given a job",
        "supply",
        " or is_hung_up(self._socket)",
        "",
        "last_words.py::test_a_child_that_is_gone_takes_no_job_even_before_the_event_loop_knows",
    ),
    _bug(
        "process: a clean-up is interrupted by the stop that the run has heard of",
        "child",
        "        if run.handler.run is not None and run.stop_reason is not None:\n",
        "        if False:\n",
        "injection.py::test_a_stop_reaches_the_code_wherever_it_is_and_cleans_up_once",
    ),
    _bug(
        "process: a stop does not interrupt a plain factory",
        "child",
        "            self._main.ask(reason)\n            self._loop",
        "            self._loop",
        "injection.py::test_a_stop_reaches_the_code_wherever_it_is_and_cleans_up_once",
    ),
    _bug(
        "process: a stop does not cancel a factory on the event loop",
        "child",
        "            self._main.ask(reason)\n"
        "            self._loop.call_soon_threadsafe(run.stop, reason)\n",
        "            self._main.ask(reason)\n",
        "injection.py::test_a_stop_reaches_the_code_wherever_it_is_and_cleans_up_once",
    ),
    _bug(
        "process: a stop that comes before the run is lost",
        "child",
        "            if self._stopped is not None:\n",
        "            if False:\n",
        "early_ends.py::test_a_stop_right_behind_a_start_ends_the_run",
    ),
    _bug(
        "process: a start that was cancelled at once never counts as ended",
        "supply",
        "                self.program.give_up()\n",
        "",
        "early_ends.py::test_children_close_after_a_start_that_was_cancelled",
    ),
    _bug(
        "process: a child is killed in a later job for the patience of an earlier one",
        "runner",
        "                killed.cancel()\n",
        "                pass\n",
        "early_ends.py::test_a_child_that_ends_in_time_outlives_the_patience_of_a_cancelled_task",
    ),
    _bug(
        "process: each job makes shared values anew",
        "child",
        "                    self._values,\n",
        "                    PodValues(None),\n",
        "injection.py::test_values_are_made_and_cleaned_up_in_the_child",
    ),
    _bug(
        "process: shared values are left open",
        "child",
        "        self._loop.run_until_complete(self._values.close(lambda: until))\n",
        "",
        "injection.py::test_values_are_made_and_cleaned_up_in_the_child",
    ),
    _bug(
        "process: a plain factory cannot use the blocking side of its context",
        "child",
        "        return self._on_loop.is_here() and not self._main.is_calling\n",
        "        return self._on_loop.is_here()\n",
        "injection.py::test_values_are_made_and_cleaned_up_in_the_child",
    ),
    _bug(
        "process: a handler gets a client that its process does not have",
        "../../handlers/injection/plan",
        "        self.needs_client = any(map(_needs_client, steps))\n",
        "        self.needs_client = False\n",
        "injection.py::test_a_client_is_refused_because_a_process_has_none",
    ),
    _bug(
        "process: what came from the child is not killed",
        "guardian",
        "            left = self._reap_orphans()\n            if",
        "            left = []\n            if",
        "processes.py::test_a_child_that_dies_takes_every_process_along",
    ),
    _bug(
        "process: the number of runs is ignored",
        "warm",
        "lent.runs >= max_runs",
        "lent.runs >= 10 * max_runs",
        "limits.py::test_a_child_is_replaced_after_its_runs",
    ),
    _bug(
        "process: a crash counts as a failure",
        "runner",
        "            cause=Cause.CRASHED, error=self._record(run, Cause.CRASHED",
        "            cause=Cause.FAILED, error=self._record(run, Cause.FAILED",
        "processes.py::test_a_job_that_kills_its_process_as_often_as_allowed_is_dead",
    ),
    _bug(
        "process: a guardian goes on without the pod",
        "guardian",
        "            self._pod_is_gone = True\n            self._kill()\n",
        "            self._pod_is_gone = True\n",
        "children.py::test_a_guardian_without_a_pod_kills_its_program",
    ),
    _bug(
        "process: a message is sent by the thread that may be interrupted",
        "sending",
        "        self._frames.put((frame, sent))\n        sent.wait()\n",
        "        self._socket.send(frame)\n",
        "whole_frames.py::test_a_sender_that_is_interrupted_leaves_no_half_message",
    ),
    _bug(
        "process: a fork that comes back goes on in code that is not its own",
        "child",
        "        if os.getpid() != self._process_id:\n",
        "        if False:\n",
        "forks.py::test_values_are_cleaned_up_in_the_process_of_the_handler_alone",
    ),
    _bug(
        "process: a fork of a coroutine ends the run",
        "child",
        "        if self._connection.is_elsewhere:\n",
        "        if False:\n",
        "forks.py::test_only_the_process_of_the_handler_speaks_to_the_pod",
    ),
    _bug(
        "process: a fork ignores SIGTERM",
        "forks",
        "                signal.signal(signum, signal.SIG_DFL)\n",
        "                pass\n",
        "forks.py::test_a_stop_ends_a_forked_process_which_ignores_no_signal",
    ),
    _bug(
        "process: a signal right behind a fork is lost",
        "forks",
        "signal.pthread_sigmask(signal.SIG_BLOCK, signals)",
        "signal.pthread_sigmask(signal.SIG_BLOCK, [])",
        "forks.py::test_a_stop_ends_a_forked_process_which_ignores_no_signal",
    ),
    _bug(
        "process: a file in the place of the connection is written to",
        "sending",
        "        self._check()\n        self._connection.sendall(data)\n",
        "        os.write(self._connection.fileno(), data)\n",
        "forks.py::test_a_handler_that_closes_its_descriptors_crashes_and_its_files_are_untouched",
    ),
    _bug(
        "process: a child that is cut off goes on",
        "supply",
        "            self.kill()\n\n    def connection_lost",
        "            pass\n\n    def connection_lost",
        "forks.py::test_a_handler_that_writes_to_the_connection_is_killed",
    ),
    _bug(
        "process: a plain handler cannot run an event loop",
        "child",
        "        events._set_running_loop(None)\n",
        "",
        "unruly_handlers.py::test_a_plain_handler_may_run_an_event_loop",
    ),
    _bug(
        "process: signal handlers of a job stay for the next",
        "child",
        "        self._take_signals()\n        home",
        "        home",
        "unruly_handlers.py::test_signal_handlers_that_a_job_leaves_behind_do_not_reach_the_next",
    ),
]
