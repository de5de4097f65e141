"""Bugs of the commands that stay, and of what else is for terminals."""

from tests.meta.bugs import Bug, Edit

_TERMINAL = "forge_jobs/cli/commands/terminal/"


def _bug(name: str, module: str, old: str, new: str, *tests: str) -> Bug:
    edit = Edit(f"{_TERMINAL}{module}.py", old, new)
    return Bug(name, tuple(f"tests/cli/terminal/test_{test}" for test in tests), (edit,))


WATCH = (
    _bug(
        "watch: a dead job is a success",
        "watch",
        "JobStatus.DEAD: 3",
        "JobStatus.DEAD: 0",
        "watch.py::test_the_exit_code_is_the_outcome",
    ),
    _bug(
        "watch: a signal is the end of the job",
        "signals",
        "code = _OF_A_SHELL + number",
        "code = 0",
        "watch.py::test_a_signal_ends_the_watch_and_leaves_the_job_alone",
    ),
    _bug(
        "watch: a stop leaves the shell without a cursor",
        "watch",
        "            away = self._telling.away\n",
        "            away = None\n",
        "watch.py::test_a_stop_gives_the_shell_the_cursor_and_the_watch_goes_on_behind_fg",
    ),
    _bug(
        "watch: log lines reach the terminal as they are",
        "telling",
        "        click.echo(printable(text))\n",
        "        click.echo(text)\n",
        "watch.py::test_the_exit_code_is_the_outcome",
    ),
    _bug(
        "watch: messages of a progress are markup",
        "telling",
        ", markup=False",
        "",
        "watch.py::test_what_goes_on_is_shown_while_it_goes_on",
    ),
    _bug(
        "watch: the end is told before the last lines",
        "watch",
        "group.start_soon(self._follow, operator)",
        "group.start_soon(self._follow, operator); group.cancel_scope.deadline = 0",
        "watch.py::test_the_exit_code_is_the_outcome",
    ),
)

_VIEW = "tests/unit/test_top_view.py::test_"


def _of_view(name: str, module: str, old: str, new: str, test: str) -> Bug:
    return Bug(f"top: {name}", (_VIEW + test,), (Edit(f"{_TERMINAL}screen/{module}.py", old, new),))


TOP = (
    _of_view(
        "a capital acts at once",
        "view",
        "            self._ask(key)\n",
        "            self._ask(key)\n            return self.asked\n",
        "a_capital_acts_only_after_a_yes",
    ),
    _of_view(
        "any key is a yes",
        "view",
        'return asked if key == "y" else None',
        "return asked",
        "a_capital_acts_only_after_a_yes",
    ),
    _of_view(
        "another line is chosen when lines come",
        "view",
        "return name if name in names else",
        "return name if name in names[:1] else",
        "a_line_stays_chosen_while_others_come_and_go",
    ),
    _of_view(
        "a paused queue is paused",
        "view",
        "Verb.PAUSE if running else Verb.RESUME",
        "Verb.PAUSE",
        "a_paused_queue_is_resumed_and_dead_jobs_are_counted",
    ),
    _of_view(
        "a capital acts on one of the selected lines",
        "view",
        "return found or [",
        "return [",
        "capitals_act_on_all_that_is_selected",
    ),
    _of_view(
        "letters of a filter act",
        "view",
        '        if self.mode == "filter":\n',
        '        if self.mode == "filter" and key not in _CAPITALS:\n',
        "letters_of_a_filter_are_no_keys",
    ),
    _of_view(
        "cells are drawn as they are",
        "drawing",
        "Text(printable(cell)) for cell",
        "Text(cell) for cell",
        "whatever_is_pressed_the_screen_is_drawn_and_fits",
    ),
    _bug(
        "top: the terminal stays as the keys needed it",
        "screen/keys",
        "        keyboard.show()\n",
        "        pass\n",
        "top.py::test_a_signal_puts_the_terminal_back_in_order",
    ),
    _bug(
        "top: a new size is seen at the next read",
        "screen/program",
        "                    self._keyboard.hide()\n                self._draw()\n",
        "                    self._keyboard.hide()\n                self._every = 3_600\n",
        "top.py::test_the_screen_follows_the_size_of_the_terminal",
    ),
    _bug(
        "top: keys stay as the shell has left them",
        "screen/program",
        "                    self._keyboard.hide()\n",
        "                    pass\n",
        "top.py::test_keys_work_again_behind_a_stop_by_the_shell",
    ),
    _bug(
        "top: a stop leaves the screen up in the shell",
        "screen/program",
        "at_once=self._live.stop, away=self._away)",
        "at_once=self._live.stop)",
        "top.py::test_a_stop_leaves_the_screen_to_the_shell_and_fg_brings_the_screen_back",
    ),
    _bug(
        "top: an outage ends the screen",
        "screen/program",
        "                self._view.away = str(error)\n",
        "                raise\n",
        "top.py::test_while_the_store_is_away_the_screen_says_so_and_goes_on",
    ),
)

_ONLY_FAILURES = "only_failures_are_errors_and_no_message_is_recorded"


def _of_traces(name: str, old: str, new: str, test: str) -> Bug:
    edit = Edit("forge_jobs/tracing.py", old, new)
    return Bug(f"traces: {name}", (f"tests/runtime/test_tracing.py::test_{test}",), (edit,))


TRACES = (
    _of_traces(
        "a snooze is an error",
        "isinstance(said, Outcome) and not isinstance(said, Failed | Dead)",
        "False",
        _ONLY_FAILURES,
    ),
    _of_traces("an outcome in a group is an error", "said_by(error)", "error", _ONLY_FAILURES),
    _of_traces(
        "messages of errors are recorded",
        "record_exception=False, set_status_on_exception=False",
        "set_status_on_exception=False",
        _ONLY_FAILURES,
    ),
    _of_traces(
        "a cancel is an error",
        '"forge_jobs.outcome", "cancelled"',
        '"error.type", "CancelledError"',
        "a_cancel_is_no_error",
    ),
    _of_traces(
        "the context does not travel",
        "yield request.options(trace=headers)",
        "yield request",
        "a_run_is_linked_to_its_enqueue_and_a_root_of_its_own",
    ),
    _of_traces(
        "a run goes on in the trace of the enqueue",
        "context=Context(),",
        "context=propagate.extract(ctx.trace),",
        "a_run_is_linked_to_its_enqueue_and_a_root_of_its_own",
    ),
)

_EXPORT = "forge_jobs/cli/commands/operating/export.py"
_NAMES = "forge_jobs/cli/commands/terminal/names.py"


def _of_export(name: str, file: str, old: str, new: str, test: str) -> Bug:
    where = (f"tests/cli/terminal/test_export.py::test_{test}",)
    return Bug(f"export: {name}", where, (Edit(file, old, new),))


EXPORT = (
    _of_export(
        "an export that is not whole has the name of one that is",
        _EXPORT,
        "            if not code:\n                sheet.finish()\n",
        "            sheet.finish()\n",
        "an_export_that_breaks_off_goes_on_where_it_was",
    ),
    _of_export(
        "what was there before the break is lost",
        _EXPORT,
        "(os.O_APPEND if appends else os.O_TRUNC)",
        "os.O_TRUNC",
        "an_export_that_breaks_off_goes_on_where_it_was",
    ),
    _of_export(
        "only the first page is written",
        _EXPORT,
        "if page.cursor is None:",
        "if True:",
        "every_job_is_a_line_with_the_numbers_as_stored",
    ),
    _of_export(
        "payloads need no right",
        "forge_jobs/operating/jobs/exporting.py",
        "self._readable(found[job_id])",
        "found[job_id]",
        "payloads_need_the_right_and_closed_queues_are_not_there",
    ),
    Bug(
        "names: a prompt shows the words of an error",
        (
            "tests/cli/terminal/test_export.py::"
            "test_without_a_store_nothing_is_offered_and_nothing_is_said",
        ),
        (
            Edit(_NAMES, "with contextlib.suppress(BaseException):", "if True:"),
            Edit(
                _NAMES,
                "    with _without_stderr():\n        thread",
                "    if True:\n        thread",
            ),
        ),
    ),
)

_DEMO = "tests/cli/test_demo_web.py::"
_VISIT = f"{_DEMO}test_a_visitor_ends_three_problems_and_a_signal_ends_the_demo"

DEMO = (
    Bug(
        "demo: the card service stays away after the pause",
        (_VISIT,),
        (Edit("forge_jobs/demo/drills.py", "troubled.CARDS_ARE_BACK).touch()", '"x").exists()'),),
    ),
    Bug(
        "demo: the dashboard waits for its viewers at the end",
        (f"{_DEMO}test_ctrl_c_in_the_middle_is_an_end_like_any_other",),
        (
            Edit(
                "forge_jobs/web/alone/server.py",
                "            server.handle_exit(signal.SIGTERM, None)\n            await serving",
                "            await serving",
            ),
        ),
    ),
)

_BENCH = "forge_jobs/bench/measuring.py"


def _of_bench(name: str, old: str, new: str, test: str) -> Bug:
    return Bug(f"bench: {name}", (f"tests/cli/test_bench.py::{test}",), (Edit(_BENCH, old, new),))


BENCH = (
    _of_bench(
        "jobs of others in the queue are removed",
        "    if serving or jobs:\n",
        "    if serving:\n",
        "test_a_queue_in_use_is_left_alone",
    ),
    _of_bench(
        "a queue with a pod is used",
        "    if serving or jobs:\n",
        "    if jobs:\n",
        "test_a_queue_that_a_pod_serves_is_left_alone",
    ),
    _of_bench(
        "schedules of others fire",
        "        if waiting:\n",
        "        if False:\n",
        "test_schedules_of_others_are_not_fired",
    ),
    _of_bench(
        "a signal leaves the jobs",
        "        with anyio.CancelScope(shield=True):\n",
        "        with anyio.CancelScope():\n",
        "test_a_signal_ends_the_bench_and_removes_the_jobs",
    ),
    _of_bench(
        "the queue stays",
        "        await storage.config.delete_queue(queue)\n",
        "        pass\n",
        "test_each_part_has_figures_and_nothing_is_left_behind",
    ),
)

TERMINAL_BUGS = (*WATCH, *TOP, *TRACES, *EXPORT, *DEMO, *BENCH)
