"""Bugs of restores: cancels that are taken back, and their undo as an action."""

from tests.meta.bugs import Bug, Edit, files_of

_SQL = "forge_jobs/storage/sql/jobs/"
_LUA = "forge_jobs/storage/redis/lua/"
_REDIS = "forge_jobs/storage/redis/jobs/requeue.py"
_TESTS = files_of("restore")
_UNDO = ("tests/operating/test_undo_of_cancels.py",)


def _sql(name: str, file: str, old: str, new: str) -> Bug:
    return Bug(f"restore: {name}", _TESTS, (Edit(f"{_SQL}{file}.py", old, new),))


def _redis(name: str, file: str, old: str, new: str) -> Bug:
    return Bug(f"restore, redis: {name}", _TESTS, (Edit(file, old, new),), "redis")


RESTORE_BUGS = (
    _sql("what has expired is restored", "operate", "row.expires_at <= tx.now", "False"),
    _sql(
        "what a parent has ended is restored",
        "operate",
        "row.is_dropped or row.cause != Cause.CANCELLED.value",
        "row.is_dropped",
    ),
    _sql(
        "children that went on are no hindrance",
        "requeue",
        "and_(edges.c.state.not_in(WAITING), not_(_was_cancelled_too)),",
        "",
    ),
    _sql(
        "children that ended with the job are no hindrance",
        "requeue",
        "            and_(edges.c.state == EdgeState.HELD.value, _was_given_up),\n",
        "",
    ),
    _sql(
        "a child that was cancelled too is one that was told",
        "requeue",
        "edges.c.state.not_in(WAITING), not_(_was_cancelled_too)",
        "edges.c.state.not_in(WAITING)",
    ),
    _redis(
        "what has expired is restored",
        f"{_LUA}lib/jobs/operate/requeueing.lua",
        "job.expires and job.expires <= now and 'expired' or nil",
        "nil",
    ),
    _redis(
        "children that went on are no hindrance",
        f"{_LUA}jobs/requeue/void_ends.lua",
        "    return not (status == 'cancelled' and cause == 'cancelled')\n",
        "    return false\n",
    ),
    _redis(
        "children that ended with the job are no hindrance",
        f"{_LUA}jobs/requeue/void_ends.lua",
        "  return state == 'held' and status == 'cancelled' and cause == 'parent_failed'\n",
        "  return false\n",
    ),
    Bug(
        "restore, redis: an end that is being delivered counts",
        ("tests/backends/redis/test_restores.py",),
        (
            Edit(
                f"{_LUA}jobs/requeue/void_ends.lua",
                "    if bars and state",
                "    if false and state",
            ),
        ),
        "redis",
    ),
    Bug(
        "requeue, redis: an end that is being delivered counts",
        ("tests/backends/redis/test_restores.py",),
        (
            Edit(
                "forge_jobs/storage/redis/jobs/requeue.py",
                "        told = await self._that_told(coming, bars=True)\n",
                "        told = await self._that_told(coming, bars=self._verb.heeds_children)\n",
            ),
        ),
        "redis",
    ),
    Bug(
        "requeue, redis: a child that may be requeued forgets the ends of before",
        ("tests/backends/redis/test_ends_on_their_way.py",),
        (
            Edit(
                f"{_LUA}jobs/requeue/relink.lua",
                "    local child, edge, waits = unpack(noted)\n",
                "    local child, edge, waits = unpack(noted)\n"
                "    for _, record in ipairs(handovers_of(base, parent)) do\n"
                "      redis.call('ZREM', base .. ':handovers', record[2])\n"
                "    end\n",
            ),
        ),
        "redis",
    ),
    Bug(
        "sequences, redis: an end of before counts for an edge that opens later",
        ("tests/backends/redis/test_ends_on_their_way.py",),
        (
            Edit(
                f"{_LUA}lib/jobs/children/inheriting.lua",
                "math.max(newest, tonumber(seq or 0))",
                "tonumber(seq or 0)",
            ),
        ),
        "redis",
    ),
    Bug(
        "requeue, redis: an end that came after the plan releases children",
        ("tests/backends/redis/test_restores.py",),
        (
            Edit(
                f"{_LUA}lib/jobs/children/handing.lua",
                "    if tonumber(record[1]) > seq then\n",
                "    if false then\n",
            ),
        ),
        "redis",
    ),
    Bug(
        "requeue, redis: an end without effect is forgotten",
        ("tests/backends/redis/test_restores.py",),
        (
            Edit(
                f"{_LUA}jobs/children/forget_handovers.lua",
                "      if is_lost(base, parent, child, word) then\n",
                "      if false then\n",
            ),
        ),
        "redis",
    ),
    _redis(
        "children of a parent are not listed",
        f"{_LUA}lib/jobs/children/handing.lua",
        "  pcall(call_many, 'ZADD', base .. ':kin:' .. parent, members)\n",
        "",
    ),
    Bug(
        "restore: a retry is due when the clock is set back",
        files_of("set_back"),
        (Edit(f"{_SQL}requeue.py", "row.run_at > max(tx.now, row.enqueued_at)", "False"),),
    ),
    Bug(
        "restore, redis: a retry is due when the clock is set back",
        files_of("set_back"),
        (Edit(f"{_LUA}jobs/requeue/restore.lua", "  keep_time(key, job)\n", ""),),
        "redis",
    ),
    Bug(
        "undo of a cancel: one step for all",
        _UNDO,
        (Edit("forge_jobs/operating/actions/recording.py", "limit=AT_ONCE + 1", "limit=AT_ONCE"),),
    ),
    Bug(
        "undo of a cancel: twice asked for is done twice",
        _UNDO,
        (
            Edit(
                "forge_jobs/operating/actions/calls.py",
                "if is_undo and later.state is not ActionState.ABORTED",
                "if False",
            ),
        ),
    ),
)

_KIN = files_of("kin")
_WITH_PARENTS = files_of("with_parents")
_KIN_SQL = "forge_jobs/storage/sql/jobs/one/kin.py"
_KIN_REDIS = "forge_jobs/storage/redis/jobs/one/kin.py"
KIN_BUGS = (
    Bug(
        "kin: a removed parent is forgotten",
        _KIN,
        (Edit(_KIN_SQL, "        LEFT JOIN forge_jobs ON", "        JOIN forge_jobs ON"),),
    ),
    Bug(
        "kin: a job without relatives is not there",
        _KIN,
        (Edit(_KIN_SQL, "        LEFT JOIN forge_edges ON", "        JOIN forge_edges ON"),),
    ),
    Bug(
        "kin: more children are not said",
        _KIN,
        (Edit(_KIN_SQL, "len(children) > limit", "len(children) > limit + 1"),),
    ),
    Bug(
        "kin: the edge is that to another child",
        _KIN,
        (
            Edit(
                _KIN_SQL,
                "ON child_id = listed.value AND parent_id = stored.id",
                "ON child_id = listed.value",
            ),
        ),
    ),
    Bug(
        "with_parents: a removed parent is forgotten",
        _WITH_PARENTS,
        (Edit(_KIN_SQL, " LEFT JOIN forge_jobs AS parent", " JOIN forge_jobs AS parent"),),
    ),
    Bug(
        "with_parents: a job that has ended waits",
        _WITH_PARENTS,
        (Edit(_KIN_SQL, "if is_blocked and each.edge.waits", "if each.edge.waits"),),
    ),
    Bug(
        "kin, redis: children that were removed are shown",
        _KIN,
        (
            Edit(
                _KIN_REDIS,
                "            elif state.status and state.edge:\n",
                "            elif state:\n",
            ),
        ),
        "redis",
    ),
    Bug(
        "kin, redis: removed children stand for others",
        _KIN,
        (Edit(_KIN_REDIS, "if not listed or page == _PAGES:", "if True:"),),
        "redis",
    ),
    Bug(
        "kin, redis: a call for each job",
        ("tests/backends/test_kin_costs.py",),
        (Edit(_KIN_REDIS, "max(1, _AT_ONCE // (limit + 1))", "1"),),
        "redis",
    ),
    Bug(
        "kin, redis: a silent relative is left out",
        ("tests/backends/redis/test_silent_part.py",),
        (
            Edit(
                _KIN_REDIS,
                "                self.unknown.add(job)\n            elif",
                "                pass\n            elif",
            ),
        ),
        "redis",
    ),
    Bug(
        "kin: jobs of closed queues are shown",
        ("tests/operating/test_kin.py",),
        (
            Edit(
                "forge_jobs/operating/jobs/calls.py",
                "kin.children if self.actor.sees(each.queue)",
                "kin.children if each",
            ),
        ),
    ),
)

_FAMILY = ("tests/web/test_family.py",)
_DRAWN = "forge_jobs/web/pages/job/family.py"
FAMILY_BUGS = (
    Bug(
        "workflow: one that is stored in part is told as one that never was",
        ("tests/cluster/test_dying_callers.py",),
        (
            Edit(
                "forge_jobs/clients/flows/wholes.py",
                "if found is not None and found.metadata.get(WORKFLOW) == wanted:",
                "if found is not None and found.metadata.get(WORKFLOW) == first:",
            ),
        ),
        "sqlite",
    ),
    Bug(
        "workflow graph: a folded one draws every line",
        ("tests/web/test_workflows_page.py",),
        (
            Edit(
                "forge_jobs/web/pages/job/graphs.py",
                "for a, b in worst[:_LINES]",
                "for a, b in worst",
            ),
        ),
    ),
    Bug(
        "workflow graph: a folded box says the best of its steps",
        ("tests/web/test_workflows_page.py",),
        (
            Edit(
                "forge_jobs/web/pages/job/graphs.py",
                "(_WORST.index(marks[word]), -counts[word])",
                "(-_WORST.index(marks[word]), -counts[word])",
            ),
        ),
    ),
    Bug(
        "family: all children are drawn",
        _FAMILY,
        (Edit(_DRAWN, "        for each in jobs[:DRAWN]\n", "        for each in jobs\n"),),
    ),
    Bug(
        "family: a removed parent is a link",
        _FAMILY,
        (Edit(_DRAWN, 'job_id="" if each.status is None else each.id', "job_id=each.id"),),
    ),
    Bug(
        "family: no page where a relative does not answer",
        _FAMILY,
        (
            Edit(
                "forge_jobs/web/pages/jobs.py",
                "    except Unavailable:\n",
                "    except KeyError:\n",
            ),
        ),
    ),
)
