"""Bugs of edges: requeued children and parents, held jobs, parents that are gone."""

from tests.meta.bugs import Bug, Edit

_SQL = "forge_jobs/storage/sql/"
_REDIS = "forge_jobs/storage/redis/"
_TESTS = ("tests/conformance/test_requeued_children.py",)


def _sql(name: str, file: str, old: str, new: str) -> Bug:
    return Bug(name, _TESTS, (Edit(f"{_SQL}{file}.py", old, new),))


def _redis(name: str, file: str, old: str, new: str) -> Bug:
    return Bug(f"redis: {name}", _TESTS, (Edit(f"{_REDIS}{file}", old, new),), "redis")


_DELIVERIES = ("tests/conformance/test_deliveries.py",)
_TALLIES = ("tests/conformance/test_tallies.py",)
_WORKFLOWS = ("tests/runtime/test_workflows.py",)
_ADDED = ("tests/runtime/test_added_steps.py",)
_FURTHER = ("tests/conformance/test_further_parents.py",)
_STORED_AGAIN = ("tests/conformance/test_stored_again.py",)
_STEPS = "forge_jobs/clients/flows/steps.py"
_PLAN = "forge_jobs/clients/flows/workflows.py"

EDGE_BUGS = (
    Bug(
        "a handover behind the one that frees a job counts as applied",
        _DELIVERIES,
        (Edit(f"{_SQL}jobs/deliveries.py", "    if is_freed:\n", "    if not told:\n"),),
    ),
    Bug(
        "a handover behind the one that frees a job keeps the job waiting",
        _DELIVERIES,
        (Edit(f"{_SQL}jobs/deliveries.py", "if one.opens and any(", "if not told and any("),),
    ),
    Bug(
        "redis: handovers of several queues change places",
        _DELIVERIES,
        (
            Edit(
                f"{_REDIS}jobs/children.py",
                "for each in deliveries if each.handover.id in standing]",
                "for listed in of_base.values() for each in listed "
                "if each.handover.id in standing]",
            ),
        ),
        "redis",
    ),
    Bug(
        "a job hears of an end that was for a removed one of the id",
        _STORED_AGAIN,
        (
            Edit(
                f"{_SQL}jobs/children.py",
                '        tx.execute(_FORGET_NEWS, {"ids": ids})\n',
                "        pass\n",
            ),
        ),
    ),
    Bug(
        "redis: a job hears of an end that was for a removed one of the id",
        _STORED_AGAIN,
        (
            Edit(
                f"{_REDIS}lua/lib/jobs/enqueue/admission.lua",
                "'0$', text(now - 1))",
                "'0$', '0')",
            ),
        ),
        "redis",
    ),
    Bug(
        "a requeue forgets how a parent ended that is gone",
        _TALLIES,
        (
            Edit(
                "forge_jobs/model/edges.py",
                "EdgeState.CANCELLED if state.waits else state",
                "EdgeState.SETTLED",
            ),
        ),
    ),
    Bug(
        "a parent that died counts as done",
        _TALLIES,
        (Edit(f"{_SQL}jobs/deliveries.py", '"ended": state.value', '"ended": "settled"'),),
    ),
    Bug(
        "a job waits for a parent whose end was noted",
        _TALLIES,
        (
            Edit(
                f"{_SQL}jobs/deliveries.py",
                "edges.c.state.in_(WAITING)",
                "edges.c.state != EdgeState.SETTLED.value",
            ),
        ),
    ),
    Bug(
        "a noted death is the last that the job hears",
        _TALLIES,
        (
            Edit(
                f"{_SQL}jobs/deliveries.py",
                '.values(state=bindparam("ended"), link=_HEARS_MORE)',
                '.values(state=bindparam("ended"), link=CUT)',
            ),
        ),
    ),
    Bug(
        "a requeued job does not hear of parents that are requeued later",
        _TALLIES,
        (Edit(f"{_SQL}jobs/requeue.py", "elif state.hears:", "elif state.waits:"),),
    ),
    Bug(
        "redis: a noted death is the last that the job hears",
        _TALLIES,
        (
            Edit(
                f"{_REDIS}lua/jobs/children/deliver.lua",
                "not state or state == 'settled'",
                "not state or not WAITS[state]",
            ),
        ),
        "redis",
    ),
    Bug(
        "redis: an edge that is held after all does not keep the job waiting",
        _TALLIES,
        (
            Edit(
                f"{_REDIS}lua/jobs/children/deliver.lua",
                "open - (WAITS[state] and 1 or 0)",
                "WAITS[state] and 0 or open",
            ),
        ),
        "redis",
    ),
    Bug(
        "a resume of a group forgets the callback of a success",
        ("tests/runtime/test_resumed_groups.py",),
        (
            Edit(
                "forge_jobs/clients/flows/plans.py",
                "[gate.id, *behind]",
                "[gate.id]",
            ),
        ),
    ),
    Bug(
        "redis: a parent that died counts as done",
        _TALLIES,
        (Edit(f"{_REDIS}lua/jobs/children/deliver.lua", "dead = 'dead'", "dead = 'settled'"),),
        "redis",
    ),
    Bug(
        "a group settles as done whatever became of its members",
        ("tests/runtime/test_groups.py",),
        (Edit("forge_jobs/clients/grouping.py", "    if state.failed:\n", "    if False:\n"),),
    ),
    Bug(
        "a repeat of a group stores its members again",
        ("tests/runtime/test_groups.py",),
        (
            Edit(
                "forge_jobs/clients/flows/plans.py",
                "part_id(whole, number) if request.id is None",
                "new_job_id() if request.id is None",
            ),
        ),
    ),
    Bug(
        "a step that is tried again adds other jobs",
        _ADDED,
        (Edit(_STEPS, "depths[name], name)", "depths[name], f'{name}{id(self)}')"),),
    ),
    Bug(
        "the whole does not wait for added steps",
        _ADDED,
        (
            Edit(
                "forge_jobs/clients/flows/calls.py",
                "                await self._jobs.await_also(gate.id, edges)\n",
                "                pass\n",
            ),
        ),
    ),
    Bug(
        "a step with the name of another is taken for a repeat",
        _ADDED,
        (
            Edit(
                "forge_jobs/clients/flows/calls.py",
                "                    await self._check_repeats(addition.repeats)\n",
                "                    pass\n",
            ),
        ),
    ),
    Bug(
        "a spoilt graph ends the read",
        _ADDED,
        (Edit(_PLAN, "except (msgspec.DecodeError, UnicodeEncodeError):", "except KeyError:"),),
    ),
    Bug(
        "steps that came too late stay",
        _ADDED,
        (
            Edit(
                "forge_jobs/clients/flows/calls.py",
                "            await self._taken_back(workflow_id, added)\n",
                "",
            ),
        ),
    ),
    Bug(
        "a repeat leaves a whole that does not wait for the steps of a dead caller",
        _ADDED,
        (
            Edit(
                "forge_jobs/clients/flows/calls.py",
                "            edges = [each for each in edges if each.job_id not in known]\n",
                "            edges = []\n",
            ),
        ),
    ),
    Bug(
        "a refused call cancels the steps of another caller",
        _ADDED,
        (
            Edit(
                "forge_jobs/clients/flows/workflows.py",
                " if step not in others]",
                "]",
            ),
        ),
    ),
    Bug(
        "a job that has begun takes further parents",
        _FURTHER,
        (
            Edit(
                f"{_SQL}jobs/one/joining.py",
                "child.status != JobStatus.BLOCKED.value",
                "False",
            ),
        ),
    ),
    Bug(
        "a further parent that has ended is waited for in vain",
        _FURTHER,
        (Edit(f"{_SQL}jobs/one/joining.py", "    if ended:\n", "    if False:\n"),),
    ),
    Bug(
        "redis: further parents are not counted",
        _FURTHER,
        (Edit(f"{_REDIS}lua/jobs/children/await_also.lua", "'waits', new)", "'waits', 0)"),),
        "redis",
    ),
    Bug(
        "redis: further parents do not know of the job",
        _FURTHER,
        (Edit(f"{_REDIS}jobs/one/joining.py", '    await edges.write(db, "told")\n', ""),),
        "redis",
    ),
    Bug(
        "a resume forgets a whole that was cancelled",
        _WORKFLOWS,
        (
            Edit(
                "forge_jobs/clients/flows/wholes.py",
                "gate.status in FAILED else found",
                "False else found",
            ),
        ),
    ),
    Bug(
        "a resume takes dead steps alone",
        _WORKFLOWS,
        (
            Edit(
                "forge_jobs/clients/flows/plans.py",
                "return part.status in FAILED or",
                "return part.status is JobStatus.DEAD or",
            ),
        ),
    ),
    Bug(
        "a dead step does not hold the whole",
        _WORKFLOWS,
        (Edit(_PLAN, 'After(each, "hold")', 'After(each, "note")'),),
    ),
    Bug(
        "the deadline of the whole does not count for steps",
        _WORKFLOWS,
        (Edit(_STEPS, "        expires = deadline\n", "        pass\n"),),
    ),
    Bug(
        "a circle of steps is taken for a graph",
        ("tests/runtime/test_workflow_plans.py",),
        (
            Edit(
                _STEPS,
                "list(TopologicalSorter(steps.after).static_order())",
                "list(steps.after)",
            ),
        ),
    ),
    Bug(
        "a result of a step is read as any type",
        ("tests/unit/test_from_step.py",),
        (Edit("forge_jobs/handlers/injection/from_step.py", ".result(kind)", ".result()"),),
    ),
    Bug(
        "a requeued child waits for nobody",
        _TESTS,
        (Edit("forge_jobs/model/edges.py", "    if parent in ACTIVE:\n", "    if False:\n"),),
    ),
    Bug(
        "a parent that is gone without success is no hindrance",
        _TESTS,
        (
            Edit(
                "forge_jobs/model/edges.py",
                "    if parent is None and",
                "    if parent is None:\n        return EdgeState.SETTLED\n    if False and",
            ),
        ),
    ),
    Bug(
        "redis: a job of many parents is stored and linked in one step",
        ("tests/backends/redis/test_many_parents.py",),
        (
            Edit(
                f"{_REDIS}jobs/children.py",
                "{after.job_id for job in jobs for after in job.after}",
                "set[str]()",
            ),
        ),
        "redis",
    ),
    _sql(
        "parents requeued by the same call count as ended",
        "jobs/requeue",
        "        self._parents |= dict.fromkeys(requeued, JobStatus.PENDING)\n",
        "",
    ),
    _sql(
        "news of a requeued parent stand",
        "jobs/requeue",
        "    withdraw_news(tx, (row.id for row in rows if row.has_children))\n",
        "",
    ),
    _sql(
        "a held job hears of no later end",
        "jobs/deliveries",
        "state=EdgeState.HELD.value, link=_HEARS_MORE",
        "state=EdgeState.HELD.value, link=CUT",
    ),
    _sql(
        "news for a child that has ended are lost",
        "jobs/deliveries",
        '    .where(one_of(jobs.c.id, "ids"))\n    .order_by(jobs.c.id)\n',
        '    .where(one_of(jobs.c.id, "ids"), jobs.c.status == JobStatus.BLOCKED.value)\n'
        "    .order_by(jobs.c.id)\n",
    ),
    _sql(
        "a purged parent tells nobody",
        "jobs/cleanup/retention",
        "        tell_children(tx, parents, removed=True)\n",
        "",
    ),
    _sql(
        "a release settles parents that have not ended",
        "jobs/operate",
        ", edges.c.state == EdgeState.HELD.value)\n    .values(state=EdgeState.SETTLED",
        ")\n    .values(state=EdgeState.SETTLED",
    ),
    _sql(
        "a removed parent is still heard of under its id",
        "jobs/children",
        "LEFT if removed else TOLD",
        "TOLD",
    ),
    _redis(
        "parents requeued by the same call count as ended",
        "jobs/requeue.py",
        "        if parent in coming:\n",
        "        if False:\n",
    ),
    _redis(
        "news of a requeued parent stand",
        "lua/lib/jobs/operate/relinking.lua",
        "    withdraw_handovers(base, job.id)\n",
        "",
    ),
    _redis(
        "a held job hears of no later end",
        "lua/jobs/children/forget_handovers.lua",
        "elseif edge and word == 'wait' and",
        "elseif false and",
    ),
    _redis(
        "a removed parent tells nobody",
        "lua/lib/jobs/finalize/removal.lua",
        "  if job.kids then\n",
        "  if false then\n",
    ),
    _redis(
        "a requeued child is not noted with its parents",
        "lua/jobs/requeue/relink.lua",
        "  if #flat > 0 then\n",
        "  if false then\n",
    ),
    _redis(
        "news of a purged parent are not looked for",
        "jobs/requeue.py",
        "        if gone:\n",
        "        if False:\n",
    ),
    _redis(
        "a removed parent is still heard of under its id",
        "lua/jobs/children/forget_handovers.lua",
        "  return born and tonumber(born) <= ended\n",
        "  return true\n",
    ),
)
