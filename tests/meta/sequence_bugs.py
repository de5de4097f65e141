"""Bugs of sequences: jobs that overtake, or wait for ever."""

from tests.meta.bugs import Bug, Edit

_TESTS = (
    "tests/conformance/test_sequences.py",
    "tests/conformance/test_deleted_in_line.py",
    "tests/conformance/test_requeued_sequences.py",
    "tests/conformance/test_noted_sequences.py",
    "tests/conformance/test_far_sequences.py",
    "tests/conformance/test_stopped_sequences.py",
    "tests/conformance/test_mixed_sequences.py",
    "tests/conformance/test_lines_that_come_back.py",
    "tests/conformance/test_sequence_walks.py",
)
_SQL = "forge_jobs/storage/sql/jobs/"
_LUA = "forge_jobs/storage/redis/lua/"


def _sql(name: str, file: str, old: str, new: str) -> Bug:
    return Bug(f"sequences: {name}", _TESTS, (Edit(f"{_SQL}{file}.py", old, new),))


def _redis(name: str, file: str, old: str, new: str) -> Bug:
    edit = Edit(f"{_LUA}{file}.lua", old, new)
    return Bug(f"sequences on redis: {name}", _TESTS, (edit,), "redis")


def _by_sql(name: str, old: str, new: str) -> Bug:
    edit = Edit("forge_jobs/storage/sql/migrations/0030_lines_of_sql.postgresql.sql", old, new)
    tests = ("tests/backends/postgres/test_sql_sequences.py",)
    return Bug(f"sequences: {name}", tests, (edit,), "postgres")


SEQUENCE_BUGS: tuple[Bug, ...] = (
    _sql(
        "a named parent further ahead counts for nothing in line",
        "sequences/lines",
        "if line_of.get(each) == line}",
        "if line_of.get(each) == line == last.get(line)}",
    ),
    _sql(
        "a parent named later counts for nothing in line",
        "one/joining",
        "        if line and line_of",
        "        if False and line_of",
    ),
    _redis(
        "a named parent further ahead counts for nothing in line",
        "lib/jobs/enqueue/sequences",
        "if string.match(of, '^%S+ (.*)$') == key then",
        "if parent == before then",
    ),
    _redis(
        "a parent named later counts for nothing in line",
        "jobs/children/await_also",
        "if sequence and string",
        "if false and string",
    ),
    _sql(
        "a requeued job runs at its old place",
        "sequences/returning",
        "            if next_one or last == job_id:\n",
        "            if True:\n",
    ),
    _sql(
        "a requeued job always comes last",
        "sequences/returning",
        "            if next_one or last == job_id:\n",
        "            if last == job_id:\n",
    ),
    _sql(
        "of two that come back at once one is passed over",
        "sequences/returning",
        "        self._status[job_id] = JobStatus.PENDING.value\n",
        "",
    ),
    _sql(
        "one that keeps its place runs beside one that had passed it",
        "sequences/returning",
        "self._parents.get(next_one or job_id, set())",
        "self._parents.get(job_id, set())",
    ),
    _sql(
        "a job of another sequence gives a place",
        "sequences/returning",
        "                return True\n            return self._has_ended(each)\n",
        "            return self._has_ended(each)\n",
    ),
    _sql(
        "the next one is released beside a requeued head",
        "sequences/returning",
        '            tx.execute(_NOT_HELD, {"ids": ids})\n',
        "            pass\n",
    ),
    _sql(
        "one that waits by way of another sequence is not put behind the requeued one",
        "sequences/returning",
        "                self._keep_behind(job_id, next_ones, found)\n",
        "",
    ),
    _sql(
        "a note of an earlier end does not open again",
        "sequences/lines",
        "        edges.c.state.not_in(WAITING),\n    )\n    .values(state",
        '        edges.c.state == "settled",\n    )\n    .values(state',
    ),
    _sql(
        "a requeued job waits only for the last",
        "sequences/returning",
        "found = self._active({last}) - {job_id}",
        "found = {last} - {job_id}",
    ),
    Bug(
        "sequences: a requeued job waits again for one that came behind",
        _TESTS,
        (
            Edit(
                "forge_jobs/model/edges.py",
                "    is_passed_in_line = on_failure in OF_SEQUENCES and not state.waits\n",
                "    is_passed_in_line = False\n",
            ),
        ),
    ),
    Bug(
        "sequences on redis: of two that come back at once each waits for the other",
        _TESTS,
        (
            Edit(
                "forge_jobs/storage/redis/jobs/requeue.py",
                "            status = JobStatus.PENDING\n",
                "            return EdgeState.OPEN\n",
            ),
        ),
        "redis",
    ),
    _redis(
        "a requeued job runs at its old place",
        "lib/jobs/children/returning",
        "before_in_line(base, next_one or id) or { last }",
        "before_in_line(base, next_one or id) or {}",
    ),
    _redis(
        "a requeued job always comes last",
        "lib/jobs/children/returning",
        "local stays = last == id or next_one",
        "local stays = last == id",
    ),
    _redis(
        "one that keeps its place runs beside one that had passed it",
        "lib/jobs/children/returning",
        "before_in_line(base, next_one or id)",
        "before_in_line(base, id)",
    ),
    _redis(
        "a job of another sequence gives a place",
        "lib/jobs/children/passing",
        "local is_other = key and",
        "local is_other = false and",
    ),
    _redis(
        "one that waits by way of another sequence is not put behind the requeued one",
        "lib/jobs/children/returning",
        "  keep_behind(base, id, nexts, parents)\n",
        "",
    ),
    _redis(
        "a later end leaves places to one that has gone on",
        "jobs/children/deliver",
        "  if open == 1 then\n",
        "  if true then\n",
    ),
    _sql(
        "a job that is held inherits what holds the one before",
        "sequences/lines",
        "(one.edge.waits and state",
        "(False and state",
    ),
    _sql(
        "an end is noted at an edge that the same call opens again",
        "deliveries",
        "_put_back(tx, taken, opened) if opened else taken",
        "taken",
    ),
    _redis(
        "a job that is held inherits what holds the one before",
        "lib/jobs/children/inheriting",
        "if not (holds and",
        "if not (false and",
    ),
    _sql(
        "the next one waits for each job that came back before",
        "sequences/returning",
        "            self._put_behind.remove((child, parent))\n",
        "",
    ),
    _redis(
        "the next one waits for each job that came back before",
        "lib/jobs/children/keeping",
        "      put_back(base, parent, child)\n",
        "",
    ),
    Bug(
        "sequences on redis: named jobs come back in any order",
        _TESTS,
        (
            Edit(
                "forge_jobs/storage/redis/jobs/operate.py",
                "sorted(ids) for base",
                "list(ids) for base",
            ),
        ),
        "redis",
    ),
    Bug(
        "sequences: a way that was looked at is looked at again",
        ("tests/backends/test_requeue_costs.py",),
        (
            Edit(
                f"{_SQL}sequences/reaching.py",
                "                elif each in self._beyond:\n",
                "                elif False:\n",
            ),
        ),
    ),
    Bug(
        "sequences: a way that was found stays",
        ("tests/backends/test_requeue_costs.py",),
        (
            Edit(
                f"{_SQL}sequences/reaching.py",
                "        ahead = [job_id]\n",
                "        ahead = list[str]()\n",
            ),
        ),
    ),
    Bug(
        "sequences: a long way is read step by step",
        ("tests/backends/test_requeue_costs.py",),
        (
            Edit(
                f"{_SQL}sequences/returning.py",
                "if new and level > 1 else new",
                "if False else new",
            ),
        ),
    ),
    Bug(
        "sequences on redis: who is in front is looked for again",
        ("tests/backends/redis/test_requeue_costs.py",),
        (
            Edit(
                f"{_LUA}lib/jobs/children/returning.lua",
                "known.in_front[next_one] = id",
                "known.in_front[next_one] = nil",
            ),
        ),
        "redis",
    ),
    _sql(
        "what had been passed before the end of a job counts for those behind",
        "sequences/waited",
        "or not self._was_before(parent, job_id)",
        "or True",
    ),
    _redis(
        "what had been passed before the end of a job counts for those behind",
        "lib/jobs/children/waited",
        "or not was_before(at, ended_at)",
        "or true",
    ),
    _sql(
        "of two ends at one moment one has passed the other",
        "sequences/waited",
        "self.at < other.at",
        "self.at <= other.at",
    ),
    _redis(
        "of two ends at one moment one has passed the other",
        "lib/jobs/children/waited",
        "at < ended_at",
        "at <= ended_at",
    ),
    _sql(
        "a job that ended before a dead one passes that one",
        "deliveries",
        "    told = _keep_places(tx, told, children)\n",
        "",
    ),
    _redis(
        "a job that ended before a dead one passes that one",
        "jobs/children/deliver",
        "has_no_word(base, job, parent, policy) and 'held' or NOTED",
        "NOTED",
    ),
    _sql(
        "a job that had ended passes who held the one before",
        "sequences/lines",
        "kept = state if (told.child_id, told.parent_id) in late else EdgeState.OPEN",
        "kept = EdgeState.OPEN",
    ),
    _sql(
        "a job that had ended passes who held the one that is removed",
        "sequences/leaving",
        "EdgeState.HELD if keeps else",
        "EdgeState.HELD if False else",
    ),
    _redis(
        "a job that had ended passes who held the one before",
        "lib/jobs/children/inheriting",
        "is_late and place[2]",
        "false and place[2]",
    ),
    _redis(
        "the next one is released beside a requeued head",
        "lib/jobs/children/returning",
        "  no_longer_held(base, id)\n",
        "",
    ),
    _sql(
        "a cancelled job lets the next overtake",
        "deliveries",
        "inherit(tx, [one for one in taken if one.handover.child_id in children])\n",
        "set[tuple[str, str]]()\n",
    ),
    Bug(
        "sequences: a removed job inherits edges",
        _TESTS,
        (
            Edit(
                f"{_SQL}deliveries.py",
                "inherit(tx, [one for one in taken if one.handover.child_id in children])",
                "inherit(tx, taken)",
            ),
            Edit(
                f"{_SQL}sequences/lines.py",
                " if (each[0].handover.child_id, each[0].handover.parent_id) in waiting",
                "",
            ),
            # As of a program that left the hand-overs to jobs that it removed.
            Edit(
                f"{_SQL}children.py",
                '        tx.execute(_FORGET_NEWS, {"ids": ids})\n',
                "        pass\n",
            ),
        ),
    ),
    _sql(
        "an inherited edge that has settled stays so",
        "sequences/lines",
        "    if not is_open and found",
        "    if False and found",
    ),
    _sql(
        "an inherited edge to a job that has ended stays settled",
        "sequences/lines",
        "found is not None and status is not JobStatus.DONE:",
        "found is not None and status not in TERMINAL:",
    ),
    _redis(
        "an inherited edge that has settled stays so",
        "lib/jobs/children/inheriting",
        "(not state or status and status ~= 'done')",
        "not state",
    ),
    _redis(
        "an inherited edge to a job that has ended stays settled",
        "lib/jobs/children/inheriting",
        "status ~= 'done')",
        "not ENDED[status])",
    ),
    _sql(
        "jobs of a call do not wait for each other",
        "sequences/lines",
        "    last[line] = request.id\n",
        "    last.setdefault(line, request.id)\n",
    ),
    _sql(
        "the last job stays the first one",
        "sequences/lines",
        "line: last[line] for line in sorted",
        'line: "" for line in sorted',
    ),
    _sql(
        "keys of all queues are one sequence",
        "sequences/lines",
        'f"{request.queue}\\n{key}"',
        "key",
    ),
    _sql(
        "a deleted job lets the next overtake",
        "sequences/leaving",
        "told = [edge for edge in told if edge.child_id not in before]",
        "told = told[:0]",
    ),
    _sql(
        "the last of several is the one with the highest id",
        "sequences/leaving",
        "    return max(_not_ahead(tx, behind or set(places)))\n",
        "    return max(behind or places)\n",
    ),
    _sql(
        "a job that has ended and left its place may be the last",
        "sequences/leaving",
        "        behind &= _behind(tx, newest)\n",
        "        pass\n",
    ),
    _redis(
        "a job that has ended and left its place may be the last",
        "lib/jobs/children/leaving",
        "latest(base, behind_active(base, parents))",
        "latest(base, parents)",
    ),
    _redis(
        "the last of several is the one with the highest id",
        "lib/jobs/children/ordering",
        "comes_after(base, id, { [last] = true })",
        "id > last",
    ),
    _sql(
        "a deleted last job is forgotten with all before",
        "sequences/leaving",
        "        kept = [row for row in last if before[row.job_id]]\n",
        "        kept = last[:0]\n",
    ),
    _redis(
        "a cancelled job lets the next overtake",
        "jobs/children/deliver",
        "  inherit(base, job, parent, policy, WAITS[state])\n",
        "",
    ),
    _redis(
        "an inherited parent is not counted",
        "lib/jobs/children/inheriting",
        "'waits', 1)",
        "'waits', 0)",
    ),
    _redis(
        "a parent named twice is counted twice",
        "lib/jobs/enqueue/sequences",
        " and not is_named",
        "",
    ),
    _redis(
        "jobs of a call do not wait for each other",
        "lib/jobs/enqueue/sequences",
        "last[key] = job.id",
        "last[key] = last[key] or job.id",
    ),
    _redis(
        "the last job of a sequence is known when it is gone",
        "lib/jobs/children/leaving",
        "    redis.call('HDEL', base .. ':sequences', key)\n",
        "",
    ),
    _redis(
        "a deleted job lets the next overtake",
        "lib/jobs/children/leaving",
        "        come_after(base, child, places, job.finished or now)\n",
        "",
    ),
    _redis(
        "a deleted last job is forgotten with all before",
        "lib/jobs/children/leaving",
        "    if parents[1] then\n      redis",
        "    if false then\n      redis",
    ),
    Bug(
        "sequences: a dead head is passed",
        _TESTS,
        (
            Edit(
                "forge_jobs/model/edges.py",
                '(on_failure == "wait" and status is JobStatus.CANCELLED)',
                'on_failure == "wait"',
            ),
        ),
    ),
    Bug(
        "sequences: what a schedule fires overtakes",
        ("tests/runtime/test_scheduled_sequences.py",),
        (
            Edit(
                "forge_jobs/clients/schedules.py",
                "        sequence=spec.sequence,\n",
                "",
            ),
        ),
    ),
    Bug(
        "sequences: an edit of a schedule takes it out of line",
        ("tests/web/test_schedule_kinds.py",),
        (
            Edit(
                "forge_jobs/operating/settings/specs.py",
                'if not is_moved and ("payload" not in given or known is UNKNOWN):',
                "if False:",
            ),
        ),
    ),
    _by_sql(
        "a job of forge_enqueue overtakes",
        "WHERE id = last_id AND status <> 'done'",
        "WHERE id = last_id AND status = 'dead'",
    ),
    _by_sql(
        "forge_enqueue does not know the sequences of kinds",
        "forge_enqueue.sequence_key <> '', declared.in_line IS NOT NULL)",
        "forge_enqueue.sequence_key <> '', false)",
    ),
    _by_sql(
        "forge_enqueue makes keys that are hashes elsewhere",
        "IF is_private OR template",
        "IF template",
    ),
    Bug(
        "sequences: a named parent counts for nothing in line",
        _TESTS,
        (
            Edit(
                f"{_SQL}enqueue.py",
                "named_in_line(rules[parent]) if is_named else word",
                "rules[parent] if is_named else word",
            ),
        ),
    ),
    _sql(
        "a named parent says how those before are passed",
        "sequences/waited",
        "child, word in words.items() if word in LINE_RULES}",
        "child, word in words.items()}",
    ),
    _redis(
        "a named parent counts for nothing in line",
        "lib/jobs/enqueue/sequences",
        "'%1_in_line'",
        "'%1'",
    ),
    _redis(
        "a job that names the one before leaves no place",
        "lib/jobs/children/edges",
        "continue_in_line = true, ",
        "",
    ),
)
