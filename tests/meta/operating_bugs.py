"""Bugs of the operator: rights, what is hidden, and what an action on many does."""

from tests.meta.bugs import Bug, Edit

_ACCESS = "forge_jobs/operating/access.py"
_CHANGING = "forge_jobs/clients/records/changing.py"
_BEYOND = "rights.py::test_no_operation_goes_beyond_the_access"
_ONE_QUEUE = "rights.py::test_an_actor_of_one_queue_works_there"
_AUDIT = "rights.py::test_an_actor_of_one_queue_sees_and_undoes_what_was_done_there"
_NAMES = "rights.py::test_a_refusal_names_the_right"


def _bug(name: str, module: str, old: str, new: str, *tests: str) -> Bug:
    edit = Edit(f"forge_jobs/operating/{module}.py", old, new)
    return Bug(name, tuple(f"tests/operating/test_{test}" for test in tests), (edit,))


RIGHTS = (
    _bug(
        "operator: a large action takes all of the time",
        "actions/recording",
        "await anyio.sleep(pace.rest(took))",
        "pace.rest(took)",
        "pace.py::test_an_action_of_many_steps_rests_between_them",
    ),
    Bug(
        "operator: actions need no right to read",
        (f"tests/operating/test_{_BEYOND}",),
        (
            Edit(_ACCESS, "        if not self.access.read:\n", "        if False:\n"),
            Edit(_ACCESS, 'return self.read and ("*" in', 'return ("*" in'),
        ),
    ),
    _bug(
        "operator: an access without queues has all of them",
        "base",
        "        if not queues:\n            return JobFilter(ids=())\n",
        "",
        _BEYOND,
    ),
    _bug(
        "operator: a filter of another queue is not narrowed",
        "base",
        "mine.intersection(which.queues) if which.queues else mine",
        "which.queues or mine",
        "rights.py::test_a_filter_of_a_closed_queue_means_no_job",
    ),
    _bug(
        "audit: a record is seen by who may see one of its queues",
        "actions/calls",
        "bool(queues) and all(self.actor.sees",
        "bool(queues) and any(self.actor.sees",
        _AUDIT,
    ),
    _bug(
        "audit: a record of no queue is seen by all",
        "actions/calls",
        "return bool(queues) and all(",
        "return all(",
        _AUDIT,
        _BEYOND,
    ),
    _bug(
        "audit: an edited schedule names the queue after alone",
        "settings/schedules",
        "                stored.spec.queue,\n",
        "",
        _AUDIT,
    ),
    _bug(
        "operator: a job of a closed queue is shown by id",
        "base",
        "if job is None or not self.actor.sees(job.queue):",
        "if job is None:",
        _BEYOND,
    ),
    _bug(
        "operator: an id of a closed queue is known by the silence about it",
        "jobs/calls",
        "for job_id in set(which.ids or ()) - found)",
        "for job_id in ())",
        _ONE_QUEUE,
    ),
    _bug(
        "operator: messages of errors are shown without the right to payloads",
        "hiding",
        'structs.replace(error, message=HIDDEN, traceback="")',
        "error",
        _BEYOND,
    ),
    _bug(
        "operator: limits are changed by who has one queue",
        "settings/limits",
        "        self.actor.act(action)\n        self.actor.need(Right.QUEUES)\n",
        "        self.actor.act(action)\n",
        _NAMES,
    ),
)

_KEY = "tests/web/test_conditions.py::test_one_key_is_one_action_over_several_dashboards"

KEYS = tuple(
    Bug(f"key of an action: {name}", (_KEY,), (Edit(module, old, new),))
    for name, module, old, new in (
        (
            "each token is an action of its own",
            "forge_jobs/operating/actions/calls.py",
            "action_id=first.action.target",
            "action_id=ticket.action_id",
        ),
        (
            "another verb is answered by the first action",
            "forge_jobs/operating/actions/calls.py",
            "action.verb != ticket.verb or ",
            "",
        ),
        (
            "the instant of the preview is a part of what is asked for",
            "forge_jobs/operating/actions/previews.py",
            "enqueued_before=None, enqueued_after=None",
            "enqueued_after=None",
        ),
    )
)

LIMITS = (
    _bug(
        "operator: names of limits are shown to who has one queue",
        "settings/limits",
        "        self.actor.need(Right.READ)\n        self.actor.need(Right.QUEUES)\n",
        "        self.actor.need(Right.READ)\n",
        _BEYOND,
    ),
)

_GROUPS = "errors.py::test_an_actor_of_some_queues_pages_through_their_groups"

ERRORS = (
    _bug(
        "errors: a page of an actor of some queues ends at the page of the store",
        "errors/calls",
        "if mine is None or queue is not None:",
        "if True:",
        _GROUPS,
    ),
    _bug(
        "errors: the next page of an actor of some queues begins anew",
        "errors/calls",
        "if after is None or _place(each) < after",
        "if True",
        _GROUPS,
    ),
    _bug(
        "errors: a group is read by an actor to whom the queue is closed",
        "errors/calls",
        '        self._may_see(check_name("queue", queue))\n        check_name("group", group)\n',
        "",
        _GROUPS,
    ),
    _bug(
        "errors: the newest failure is shown to who may not read payloads",
        "errors/calls",
        "_newest(group, map(self._readable, stored.values()))",
        "_newest(group, stored.values())",
        "errors.py::test_without_the_right_to_payloads_a_group_has_no_texts",
    ),
    _bug(
        "errors: the newest failure of the job is one of another group",
        "errors/calls",
        "if group.id in {error.error_group, OTHER}",
        "if group.id == OTHER",
        "errors.py::test_a_group_shows_the_newest_whole_and_what_became_of_the_jobs",
    ),
)

SHOWN = tuple(
    Bug(
        f"page: {name}",
        ("tests/web/test_elsewhere.py::test_what_an_action_shows_does_what_the_page_does",),
        (Edit("forge_jobs/web/pages/forms/same.py", old, new),),
    )
    for name, old, new in (
        (
            "the command of an action is of all jobs",
            '["--where", meant.value("q"), "--all-matching"]',
            '("--all",)',
        ),
        ("the request of a preview is another one", '"apply_action" if token else', ""),
        ("the line of Python leaves the change out", "if said else", "if not said else"),
    )
)

COMMANDS = (
    Bug(
        "command: a change by filter is not asked again when more match",
        ("tests/cli/test_jobs.py::test_a_match_that_grew_is_asked_again",),
        (
            Edit(
                "forge_jobs/cli/commands/jobs.py",
                "            if yes:\n                raise",
                "            raise",
            ),
        ),
    ),
    Bug(
        "command: the reason of a change by filter is lost",
        ("tests/cli/test_jobs.py::test_a_change_by_filter_is_an_action_with_a_reason",),
        (
            Edit(
                "forge_jobs/cli/commands/jobs.py",
                "token=found.token, reason=reason",
                "token=found.token",
            ),
        ),
    ),
    Bug(
        "totals: a deleted queue gets a total that the next of the name has",
        ("tests/conformance/test_flow_totals.py",),
        (
            Edit(
                "forge_jobs/storage/sql/history/series.py",
                "if place.length == length and (place.at != FOREVER or place.queue in known)",
                "if place.length == length",
            ),
        ),
    ),
    Bug(
        "totals on Redis: a deleted queue gets a total that the next of the name has",
        ("tests/conformance/test_flow_totals.py",),
        (
            Edit(
                "forge_jobs/storage/redis/lua/lib/history/series.lua",
                "  if has_queue(base) then\n    add_record(base .. ':flow_totals'",
                "  if true then\n    add_record(base .. ':flow_totals'",
            ),
        ),
        "redis",
    ),
)

SETTLED = (
    Bug(
        "record: a change is recorded as made before it is",
        ("tests/operating/test_continuing.py",),
        (Edit(_CHANGING, "structs.replace(action, settled=ActionState.RUNNING)", "action"),),
    ),
    _bug(
        "record: an edit without an answer counts as not made",
        "actions/continuing",
        "elif action.verb == EDIT_JOB and",
        "elif False and",
        "continuing.py::test_an_edit_without_an_answer_is_settled_by_what_the_job_has",
    ),
    _bug(
        "record: an edit is made before there is a record",
        "actions/editing",
        "        _, settled = await self._change_one(action, change)\n",
        "        await change()\n        settled = await jobs.put_action(action)\n",
        "continuing.py",
    ),
    _bug(
        "timeline: what was refused was done to the job",
        "jobs/calls",
        "            if action.settled is ActionState.ABORTED:\n",
        "            if False:\n",
        "continuing.py::test_an_edit_without_an_answer_is_settled_by_what_the_job_has",
    ),
    Bug(
        "record: a change without an answer counts as refused",
        (
            "tests/operating/test_continuing.py"
            "::test_a_change_without_an_answer_is_settled_by_what_is_there",
        ),
        (
            Edit(
                _CHANGING,
                "except Unavailable:\n        # Perhaps",
                "except ZeroDivisionError:\n        # Perhaps",
            ),
        ),
    ),
    _bug(
        "record: an action that moves is taken from its driver",
        "actions/continuing",
        "if self._seen.get(name) == each]",
        "if name in self._seen]",
        "continuing.py::test_an_action_that_moves_is_left_to_its_driver",
    ),
    Bug(
        "record: a settled record is settled again",
        ("tests/conformance/test_actions.py",),
        (
            Edit(
                "forge_jobs/storage/sql/actions/records.py",
                "if row is not None and action_of(action.id, row.document).settled "
                "is ActionState.RUNNING:",
                "if row is not None:",
            ),
        ),
    ),
    Bug(
        "record: no pod goes on with what has stood still",
        ("tests/cluster/test_actions.py",),
        (
            Edit(
                "forge_jobs/runtime/pod/loops.py",
                "            await self._actions.go_on_once()\n",
                "            pass\n",
            ),
        ),
    ),
)

_STEPS = ("tests/conformance/test_actions.py",)

ACTIONS = (
    Bug(
        "action: a step is taken whatever the cursor says",
        _STEPS,
        (
            Edit(
                "forge_jobs/storage/sql/actions/steps.py",
                "ActionState.RUNNING.value or row.cursor != step.cursor:",
                "ActionState.RUNNING.value:",
            ),
        ),
    ),
    Bug(
        "action: a half does not advance the cursor",
        ("tests/backends/postgres/test_actions_by_halves.py",),
        (
            Edit(
                "forge_jobs/storage/sql/jobs/operate.py",
                "replace(self, ids=self.ids[:middle], cursor=edge),",
                "replace(self, ids=self.ids[:middle]),",
            ),
        ),
        "postgres",
    ),
    Bug(
        "action on Redis: a step is taken whatever the cursor says",
        _STEPS,
        (
            Edit(
                "forge_jobs/storage/redis/lua/lib/jobs/operate/stepping.lua",
                "return state == 'running' and cursor == step[ACTION.cursor]",
                "return state == 'running'",
            ),
        ),
        "redis",
    ),
    Bug(
        "action on Redis: an abort is not heard",
        _STEPS,
        (
            Edit(
                "forge_jobs/storage/redis/lua/lib/jobs/operate/stepping.lua",
                "return state == 'running' and cursor == step[ACTION.cursor]",
                "return cursor == step[ACTION.cursor]",
            ),
        ),
        "redis",
    ),
    _bug(
        "action: jobs that came after the preview are changed too",
        "actions/previews",
        "return structs.replace(which, enqueued_before=until)",
        "return which",
        "actions.py::test_apply_changes_the_jobs_of_the_preview_and_no_later_ones",
    ),
    _bug(
        "action: a match that grew is not asked again",
        "actions/calls",
        "if found.count * 10 > ticket.count * 11:",
        "if found.count > ticket.count * 11:",
        "actions.py::test_a_match_that_grew_by_a_tenth_is_asked_again",
    ),
    _bug(
        "undo: what was changed since is overwritten",
        "actions/calls",
        "if not value.is_same(now, action.after):",
        "if not now:",
        "actions.py::test_an_undo_refuses_what_somebody_has_changed_since",
    ),
)

PAGES = (
    Bug(
        "page: files of the host application run in the pages",
        ("tests/web/test_guard.py::test_files_come_from_the_own_folder_below_any_prefix",),
        (Edit("forge_jobs/web/guard.py", "{quote(root)}{STATIC}/", "/"),),
    ),
    Bug(
        "page: the preview of an undo asks for no right",
        ("tests/web/test_audit.py::test_an_action_on_a_record_needs_the_right_of_the_action",),
        (Edit("forge_jobs/web/pages/acting.py", "        visit.actor.act(action.verb)\n", ""),),
    ),
    Bug(
        "page: an action that has ended can be aborted",
        ("tests/web/test_audit.py::test_an_action_on_many_has_a_page",),
        (
            Edit(
                "forge_jobs/web/pages/audit.py",
                "if action.state is ActionState.RUNNING:\n        return",
                "if action.parts:\n        return",
            ),
        ),
    ),
    Bug(
        "page: many jobs are changed without the typed number",
        ("tests/web/test_many.py::test_a_change_of_many_jobs_is_typed",),
        (
            Edit(
                "forge_jobs/web/pages/acting.py",
                "if ticket.count > TYPED_ABOVE and typed",
                "if typed and typed",
            ),
        ),
    ),
    Bug(
        "page: a token is applied by the page of another action",
        ("tests/web/test_many.py::test_a_token_is_for_its_own_action_and_actor",),
        (Edit("forge_jobs/web/pages/acting.py", "if ticket.verb != deed.operation:", "if False:"),),
    ),
)

OPERATING_BUGS: tuple[Bug, ...] = (
    *RIGHTS,
    *KEYS,
    *LIMITS,
    *ERRORS,
    *ACTIONS,
    *PAGES,
    *SHOWN,
    *COMMANDS,
    *SETTLED,
)
