"""More bugs of sequences: places in line of jobs that end, and of those that come back."""

from tests.meta.bugs import Bug, Edit
from tests.meta.sequence_edits import SQL, TESTS, by_sql, redis, sql

LINE_BUGS: tuple[Bug, ...] = (
    redis(
        "the next one is released beside a requeued head",
        "lib/jobs/children/returning",
        "  no_longer_held(base, id)\n",
        "",
    ),
    sql(
        "a cancelled job lets the next overtake",
        "deliveries",
        "inherit(tx, [one for one in taken if one.handover.child_id in children])\n",
        "set[tuple[str, str]]()\n",
    ),
    Bug(
        "sequences: a removed job inherits edges",
        TESTS,
        (
            Edit(
                f"{SQL}deliveries.py",
                "inherit(tx, [one for one in taken if one.handover.child_id in children])",
                "inherit(tx, taken)",
            ),
            Edit(
                f"{SQL}sequences/lines.py",
                " if (each[0].handover.child_id, each[0].handover.parent_id) in waiting",
                "",
            ),
            # As of a program that left the hand-overs to jobs that it removed.
            Edit(
                f"{SQL}children.py",
                '        tx.execute(_FORGET_NEWS, {"ids": ids})\n',
                "        pass\n",
            ),
        ),
    ),
    sql(
        "an inherited edge that has settled stays so",
        "sequences/lines",
        "    if not is_open and found",
        "    if False and found",
    ),
    sql(
        "an inherited edge to a job that has ended stays settled",
        "sequences/lines",
        "found is not None and status is not JobStatus.DONE:",
        "found is not None and status not in TERMINAL:",
    ),
    redis(
        "an inherited edge that has settled stays so",
        "lib/jobs/children/inheriting",
        "(not state or status and status ~= 'done')",
        "not state",
    ),
    redis(
        "an inherited edge to a job that has ended stays settled",
        "lib/jobs/children/inheriting",
        "status ~= 'done')",
        "not ENDED[status])",
    ),
    sql(
        "jobs of a call do not wait for each other",
        "sequences/lines",
        "    last[line] = request.id\n",
        "    last.setdefault(line, request.id)\n",
    ),
    sql(
        "the last job stays the first one",
        "sequences/lines",
        "line: last[line] for line in sorted",
        'line: "" for line in sorted',
    ),
    sql(
        "keys of all queues are one sequence",
        "sequences/lines",
        'f"{request.queue}\\n{key}"',
        "key",
    ),
    sql(
        "a deleted job lets the next overtake",
        "sequences/leaving",
        "told = [edge for edge in told if edge.child_id not in before]",
        "told = told[:0]",
    ),
    sql(
        "the last of several is the one with the highest id",
        "sequences/leaving",
        "    return max(_not_ahead(tx, behind or set(places)))\n",
        "    return max(behind or places)\n",
    ),
    sql(
        "a job that has ended and left its place may be the last",
        "sequences/leaving",
        "        behind &= _behind(tx, newest)\n",
        "        pass\n",
    ),
    redis(
        "a job that has ended and left its place may be the last",
        "lib/jobs/children/leaving",
        "latest(base, behind_active(base, parents))",
        "latest(base, parents)",
    ),
    redis(
        "the last of several is the one with the highest id",
        "lib/jobs/children/ordering",
        "comes_after(base, id, { [last] = true })",
        "id > last",
    ),
    sql(
        "a deleted last job is forgotten with all before",
        "sequences/leaving",
        "        kept = [row for row in last if before[row.job_id]]\n",
        "        kept = last[:0]\n",
    ),
    redis(
        "a cancelled job lets the next overtake",
        "jobs/children/deliver",
        "  inherit(base, job, parent, policy, WAITS[state])\n",
        "",
    ),
    redis(
        "an inherited parent is not counted",
        "lib/jobs/children/inheriting",
        "'waits', 1)",
        "'waits', 0)",
    ),
    redis(
        "a parent named twice is counted twice",
        "lib/jobs/enqueue/sequences",
        " and not is_named",
        "",
    ),
    redis(
        "jobs of a call do not wait for each other",
        "lib/jobs/enqueue/sequences",
        "last[key] = job.id",
        "last[key] = last[key] or job.id",
    ),
    redis(
        "the last job of a sequence is known when it is gone",
        "lib/jobs/children/leaving",
        "    redis.call('HDEL', base .. ':sequences', key)\n",
        "",
    ),
    redis(
        "a deleted job lets the next overtake",
        "lib/jobs/children/leaving",
        "        come_after(base, child, places, job.finished or now)\n",
        "",
    ),
    redis(
        "a deleted last job is forgotten with all before",
        "lib/jobs/children/leaving",
        "    if parents[1] then\n      redis",
        "    if false then\n      redis",
    ),
    Bug(
        "sequences: a dead head is passed",
        TESTS,
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
    by_sql(
        "a job of forge_enqueue overtakes",
        "WHERE id = last_id AND status <> 'done'",
        "WHERE id = last_id AND status = 'dead'",
    ),
    by_sql(
        "forge_enqueue does not know the sequences of kinds",
        "forge_enqueue.sequence_key <> '', declared.in_line IS NOT NULL)",
        "forge_enqueue.sequence_key <> '', false)",
    ),
    by_sql(
        "forge_enqueue makes keys that are hashes elsewhere",
        "IF is_private OR template",
        "IF template",
    ),
    Bug(
        "sequences: a named parent counts for nothing in line",
        TESTS,
        (
            Edit(
                f"{SQL}enqueue.py",
                "named_in_line(rules[parent]) if is_named else word",
                "rules[parent] if is_named else word",
            ),
        ),
    ),
    sql(
        "a named parent says how those before are passed",
        "sequences/waited",
        "child, word in words.items() if word in LINE_RULES}",
        "child, word in words.items()}",
    ),
    redis(
        "a named parent counts for nothing in line",
        "lib/jobs/enqueue/sequences",
        "'%1_in_line'",
        "'%1'",
    ),
    redis(
        "a job that names the one before leaves no place",
        "lib/jobs/children/edges",
        "continue_in_line = true, ",
        "",
    ),
)
