"""Bugs of sequences: jobs that overtake, or wait for ever."""

from tests.meta.bugs import Bug, Edit
from tests.meta.sequence_edits import LUA, SQL, TESTS, redis, sql

SEQUENCE_BUGS: tuple[Bug, ...] = (
    sql(
        "a named parent further ahead counts for nothing in line",
        "sequences/lines",
        "if line_of.get(each) == line}",
        "if line_of.get(each) == line == last.get(line)}",
    ),
    sql(
        "a parent named later counts for nothing in line",
        "one/joining",
        "        if line and line_of",
        "        if False and line_of",
    ),
    redis(
        "a named parent further ahead counts for nothing in line",
        "lib/jobs/enqueue/sequences",
        "if string.match(of, '^%S+ (.*)$') == key then",
        "if parent == before then",
    ),
    redis(
        "a parent named later counts for nothing in line",
        "jobs/children/await_also",
        "if sequence and string",
        "if false and string",
    ),
    sql(
        "a requeued job runs at its old place",
        "sequences/returning",
        "            if next_one or last == job_id:\n",
        "            if True:\n",
    ),
    sql(
        "a requeued job always comes last",
        "sequences/returning",
        "            if next_one or last == job_id:\n",
        "            if last == job_id:\n",
    ),
    sql(
        "of two that come back at once one is passed over",
        "sequences/returning",
        "        self._status[job_id] = JobStatus.PENDING.value\n",
        "",
    ),
    sql(
        "one that keeps its place runs beside one that had passed it",
        "sequences/returning",
        "self._parents.get(next_one or job_id, set())",
        "self._parents.get(job_id, set())",
    ),
    sql(
        "a job of another sequence gives a place",
        "sequences/returning",
        "                return True\n            return self._has_ended(each)\n",
        "            return self._has_ended(each)\n",
    ),
    sql(
        "the next one is released beside a requeued head",
        "sequences/returning",
        '            tx.execute(_NOT_HELD, {"ids": ids})\n',
        "            pass\n",
    ),
    sql(
        "one that waits by way of another sequence is not put behind the requeued one",
        "sequences/returning",
        "                self._keep_behind(job_id, next_ones, found)\n",
        "",
    ),
    sql(
        "a note of an earlier end does not open again",
        "sequences/lines",
        "        edges.c.state.not_in(WAITING),\n    )\n    .values(state",
        '        edges.c.state == "settled",\n    )\n    .values(state',
    ),
    sql(
        "a requeued job waits only for the last",
        "sequences/returning",
        "found = self._active({last}) - {job_id}",
        "found = {last} - {job_id}",
    ),
    Bug(
        "sequences: a requeued job waits again for one that came behind",
        TESTS,
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
        TESTS,
        (
            Edit(
                "forge_jobs/storage/redis/jobs/requeue.py",
                "            status = JobStatus.PENDING\n",
                "            return EdgeState.OPEN\n",
            ),
        ),
        "redis",
    ),
    redis(
        "a requeued job runs at its old place",
        "lib/jobs/children/returning",
        "before_in_line(base, next_one or id) or { last }",
        "before_in_line(base, next_one or id) or {}",
    ),
    redis(
        "a requeued job always comes last",
        "lib/jobs/children/returning",
        "local stays = last == id or next_one",
        "local stays = last == id",
    ),
    redis(
        "one that keeps its place runs beside one that had passed it",
        "lib/jobs/children/returning",
        "before_in_line(base, next_one or id)",
        "before_in_line(base, id)",
    ),
    redis(
        "a job of another sequence gives a place",
        "lib/jobs/children/passing",
        "local is_other = key and",
        "local is_other = false and",
    ),
    redis(
        "one that waits by way of another sequence is not put behind the requeued one",
        "lib/jobs/children/returning",
        "  keep_behind(base, id, nexts, parents)\n",
        "",
    ),
    redis(
        "a later end leaves places to one that has gone on",
        "jobs/children/deliver",
        "  if open == 1 then\n",
        "  if true then\n",
    ),
    sql(
        "a job that is held inherits what holds the one before",
        "sequences/lines",
        "(one.edge.waits and state",
        "(False and state",
    ),
    sql(
        "an end is noted at an edge that the same call opens again",
        "deliveries",
        "_put_back(tx, taken, opened) if opened else taken",
        "taken",
    ),
    redis(
        "a job that is held inherits what holds the one before",
        "lib/jobs/children/inheriting",
        "if not (holds and",
        "if not (false and",
    ),
    sql(
        "the next one waits for each job that came back before",
        "sequences/returning",
        "            self._put_behind.remove((child, parent))\n",
        "",
    ),
    redis(
        "the next one waits for each job that came back before",
        "lib/jobs/children/keeping",
        "      put_back(base, parent, child)\n",
        "",
    ),
    Bug(
        "sequences on redis: named jobs come back in any order",
        TESTS,
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
                f"{SQL}sequences/reaching.py",
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
                f"{SQL}sequences/reaching.py",
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
                f"{SQL}sequences/returning.py",
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
                f"{LUA}lib/jobs/children/returning.lua",
                "known.in_front[next_one] = id",
                "known.in_front[next_one] = nil",
            ),
        ),
        "redis",
    ),
    sql(
        "what had been passed before the end of a job counts for those behind",
        "sequences/waited",
        "or not self._was_before(parent, job_id)",
        "or True",
    ),
    redis(
        "what had been passed before the end of a job counts for those behind",
        "lib/jobs/children/waited",
        "or not was_before(at, ended_at)",
        "or true",
    ),
    sql(
        "of two ends at one moment one has passed the other",
        "sequences/waited",
        "self.at < other.at",
        "self.at <= other.at",
    ),
    redis(
        "of two ends at one moment one has passed the other",
        "lib/jobs/children/waited",
        "at < ended_at",
        "at <= ended_at",
    ),
    sql(
        "a job that ended before a dead one passes that one",
        "deliveries",
        "    told = _keep_places(tx, told, children)\n",
        "",
    ),
    redis(
        "a job that ended before a dead one passes that one",
        "jobs/children/deliver",
        "has_no_word(base, job, parent, policy) and 'held' or NOTED",
        "NOTED",
    ),
    sql(
        "a job that had ended passes who held the one before",
        "sequences/lines",
        "kept = state if (told.child_id, told.parent_id) in late else EdgeState.OPEN",
        "kept = EdgeState.OPEN",
    ),
    sql(
        "a job that had ended passes who held the one that is removed",
        "sequences/leaving",
        "EdgeState.HELD if keeps else",
        "EdgeState.HELD if False else",
    ),
    redis(
        "a job that had ended passes who held the one before",
        "lib/jobs/children/inheriting",
        "is_late and place[2]",
        "false and place[2]",
    ),
)
