"""Bugs of unique keys in each mode, on SQL and on Redis."""

from tests.meta.bugs import Bug, Edit, files_of

_SQL = "forge_jobs/storage/sql/jobs/"
_LUA = "forge_jobs/storage/redis/lua/"
_UNIQUE = "lib/jobs/unique/"


def _sql(name: str, tests: str, old: str, new: str, *, module: str = "unique_keys/keys") -> Bug:
    edit = Edit(f"{_SQL}{module}.py", old, new)
    return Bug(f"key: {name}", files_of(tests), (edit,))


def _lua(name: str, tests: str, script: str, old: str, new: str) -> Bug:
    edit = Edit(f"{_LUA}{script}.lua", old, new)
    return Bug(f"key on redis: {name}", files_of(tests), (edit,), "redis")


_IN_SQL = (
    _sql(
        "replace: a due job goes to the back",
        "unique_modes",
        "    return min(target.run_at, now) if isinstance(target.run_at, int) else now\n",
        "    return now\n",
    ),
    _sql(
        "replace: a running job gets the content",
        "unique_modes",
        "            return one if one.status != _IN_PROGRESS else None\n",
        "            return one\n",
    ),
    _sql(
        "replace: the hold stays",
        "unique_modes",
        "    .values(hold=None, **{",
        "    .values(**{",
    ),
    Bug(
        "key: replace: the tags stay",
        files_of("unique_modes"),
        (
            Edit(
                "forge_jobs/storage/sql/base/job_columns.py",
                '"tags", TEXT, "new replaced claimed"',
                '"tags", TEXT, "new claimed"',
            ),
        ),
    ),
    _sql(
        "replace: a repeat puts old content back",
        "unique_windows",
        "            self._merged = _replacements(tx, [one.id for one, _ in replacing])\n",
        "            self._merged = {}\n",
    ),
    _sql(
        "cooldown: the window ends with the job",
        "unique_windows",
        '            opener = keys.cooling_down(request) if unique.mode == "cooldown" else None\n',
        "            opener = None\n",
        module="enqueue",
    ),
    _sql(
        "cooldown: the window lasts a microsecond longer",
        "unique_windows",
        'unique_windows.c.ends_at > bindparam("now"),\n',
        'unique_windows.c.ends_at >= bindparam("now"),\n',
        module="unique_keys/holders",
    ),
    _sql(
        "cooldown: a window of the future counts",
        "unique_windows",
        "for key, at in opened.items() if at <= now}",
        "for key, at in opened.items()}",
    ),
    _sql(
        "debounce: at_most counts from the request",
        "unique_windows",
        "target.enqueued_at + duration_us(length(request.unique.at_most))",
        "now + duration_us(length(request.unique.at_most))",
    ),
    _sql(
        "keep-last: the first content stays",
        "unique_modes",
        '        row |= {"run_at": due,',
        '        row |= {"payload": jobs.c.payload, "run_at": due,',
    ),
    _sql(
        "keep-last: dropped while the job runs",
        "unique_modes",
        "        if unique.mode in FOLLOWING:\n",
        "        if False:\n",
        module="enqueue",
    ),
    _sql(
        "keep-last: the follow-up waits for a success",
        "unique_modes",
        'after=(After(holder.id, "continue"),)',
        'after=(After(holder.id, "hold"),)',
    ),
    _sql(
        "keep-last: the follow-up of a follow-up takes the same place",
        "unique_modes",
        "key=place_after(holder.place)",
        "key=place_after(key_of(holder.place))",
    ),
    _sql(
        "keep-last: requests do not see the follow-up",
        "unique_modes",
        "for place in places_of(key_of(key))}",
        "for place in [key_of(key)]}",
        module="unique_keys/holders",
    ),
    _sql(
        "replace: of one call a due job goes to the back",
        "unique_windows",
        "with_content(earlier, request, due if is_given else None)",
        "with_content(earlier, request, None)",
    ),
    _sql(
        "replace: of one call a job that is due now moves ahead",
        "unique_windows",
        "request.run_at is not None or due < tx.now",
        "due < tx.now",
    ),
    _sql(
        "replace: the checkpoint of other content stays",
        "checkpoints",
        "            forget_steps(tx, self._begun)\n",
        "",
    ),
    _sql(
        "expired: the holder keeps the key",
        "expired_holders",
        "        keys.leave_expired(request)\n",
        "",
        module="enqueue",
    ),
    _sql(
        "expired: the holder is not ended by a request that is dropped",
        "expired_holders",
        "        if self._expired:\n            end_waiting",
        "        if self._expired and self._stored_anew:\n            end_waiting",
    ),
    _sql(
        "expired: a running holder loses the key",
        "expired_holders",
        "        return waits and self.expires_at is not None",
        "        return self.expires_at is not None",
    ),
)

_ON_REDIS = (
    _lua(
        "replace: a due job goes to the back",
        "unique_modes",
        f"{_UNIQUE}replacing",
        "math.min(job.due, now)",
        "now",
    ),
    _lua(
        "replace: a running job gets the content",
        "unique_modes",
        f"{_UNIQUE}meeting",
        "REPLACES[mode] and CHANGEABLE[last.status]",
        "REPLACES[mode]",
    ),
    _lua(
        "replace: the job stays in the line of the old kind",
        "unique_modes",
        f"{_UNIQUE}replacing",
        "  stop_waiting(base, job)\n",
        "",
    ),
    _lua(
        "replace: listed under the old tags",
        "unique_modes",
        f"{_UNIQUE}replacing",
        "    redis.call('ZREM', list, job.id)\n",
        "",
    ),
    _lua(
        "replace: an expiry that nobody asked for stays",
        "unique_modes",
        f"{_UNIQUE}replacing",
        "'requested', 'expires', 'tags'",
        "'requested', 'tags'",
    ),
    _lua(
        "replace: a repeat puts old content back",
        "unique_windows",
        f"{_UNIQUE}meeting",
        "REPLACES[mode] and merged_into(base, job, call)",
        "false",
    ),
    _lua(
        "replace: known for ever",
        "unique_windows",
        f"{_UNIQUE}holders",
        "tonumber(ends) > now and id",
        "id",
    ),
    _lua(
        "cooldown: the window ends with the job",
        "unique_windows",
        f"{_UNIQUE}meeting",
        "mode == 'cooldown' and (held.opener or cooling_down(base, job.key))",
        "false",
    ),
    _lua(
        "cooldown: the window lasts a microsecond longer",
        "unique_windows",
        f"{_UNIQUE}holders",
        "now < tonumber(ends)",
        "now <= tonumber(ends)",
    ),
    _lua(
        "cooldown: a window of the future counts",
        "unique_windows",
        f"{_UNIQUE}holders",
        "tonumber(opened) <= now and ",
        "",
    ),
    _lua(
        "debounce: at_most counts from the request",
        "unique_windows",
        f"{_UNIQUE}replacing",
        "whole(enqueued, now) + request.at_most",
        "now + request.at_most",
    ),
    _lua(
        "debounce: the follow-up does not wait for quiet",
        "unique_windows",
        "lib/jobs/enqueue/templates",
        "  set('requested', due)\n",
        "",
    ),
    _lua(
        "keep-last: of one call the first content stays",
        "unique_windows",
        f"{_UNIQUE}replacing",
        "    jobs[id], latest[id] = job, request\n",
        "    jobs[id], latest[id] = job, latest[id] or request\n",
    ),
    _lua(
        "keep-last: dropped while the job runs",
        "unique_modes",
        f"{_UNIQUE}meeting",
        "FOLLOWS[mode] and holder.status == 'in_progress'",
        "false",
    ),
    _lua(
        "keep-last: the holder does not know of the follow-up",
        "unique_modes",
        "lib/jobs/enqueue/inserting",
        "  if job.follows then\n",
        "  if false then\n",
    ),
    _lua(
        "keep-last: the follow-up of a follow-up takes the same place",
        "unique_modes",
        f"{_UNIQUE}places",
        "(string.sub(place, -2) == FIRST and SECOND or FIRST)",
        "FIRST",
    ),
    _lua(
        "keep-last: requests do not see the follow-up",
        "unique_modes",
        f"{_UNIQUE}places",
        "return { key, key .. FIRST, key .. SECOND }",
        "return { key }",
    ),
    _lua(
        "keep-last: of two the follow-up counts as the holder",
        "unique_modes",
        f"{_UNIQUE}holders",
        "  if held[2] and held[1].follows then\n",
        "  if false then\n",
    ),
    _lua(
        "replace: the checkpoint of other content stays",
        "checkpoints",
        f"{_UNIQUE}replacing",
        "  redis.call('DEL', base .. ':ckpt:' .. job.id) -- Of the content before.\n",
        "",
    ),
    Bug(
        "key on redis: a requeued follow-up waits for a holder that is not requeued",
        files_of("unique_modes"),
        (
            Edit(
                "forge_jobs/storage/redis/jobs/requeue.py",
                "                key = key_of(link.key)\n",
                "                key = link.key\n",
            ),
        ),
        "redis",
    ),
    _lua(
        "a requeue of a child whose key is taken is tried again and again",
        "unique_modes",
        "lib/jobs/operate/relinking",
        "  if is_key_taken(base, job) then\n    return 'key_taken'\n  end\n",
        "",
    ),
    _lua(
        "expired: the holder keeps the key",
        "expired_holders",
        f"{_UNIQUE}meeting",
        "    leave_expired(base, held, call)\n",
        "",
    ),
    _lua(
        "expired: the holder is not ended",
        "expired_holders",
        "lib/jobs/enqueue/storing",
        "    end_waiting(base, request.plan.expired, 'expired')\n",
        "",
    ),
)

_FOLLOW_UPS = "tests/backends/postgres/test_keys_of_follow_ups.py::test_"
_ON_POSTGRES = (
    Bug(
        "key on postgres: a caller's transaction does not see a former follow-up",
        (f"{_FOLLOW_UPS}a_callers_transaction_sees_it",),
        (
            Edit(
                "forge_jobs/storage/sql/postgres/lent.py",
                '"free": " AND NOT EXISTS (SELECT FROM near)"',
                '"free": ""',
            ),
        ),
        "postgres",
    ),
    Bug(
        "key on postgres: a look of a caller's transaction makes others fail",
        (
            "tests/backends/postgres/test_lent.py"
            "::test_serializable_transactions_that_share_nothing_do_not_conflict",
        ),
        (
            Edit(
                "forge_jobs/storage/sql/postgres/lent.py",
                "        WHERE current_setting('transaction_isolation') <> 'serializable'\n",
                "",
            ),
        ),
        "postgres",
    ),
    Bug(
        "key on postgres: forge_enqueue sees the follow-ups of one place only",
        (f"{_FOLLOW_UPS}the_function_sees_it",),
        (
            Edit(
                "forge_jobs/storage/sql/migrations/0030_lines_of_sql.postgresql.sql",
                " forge_enqueue.unique_key || E'\\x1f1',\n",
                "\n",
            ),
        ),
        "postgres",
    ),
    Bug(
        "key on postgres: who holds a key in one of many queues holds the key in all",
        ("tests/backends/test_costs_of_many_queues.py",),
        (Edit(f"{_SQL}unique_keys/holders.py", "queue = of_queue AND ", ""),),
        "postgres",
    ),
    Bug(
        "key on postgres: expired: a caller's call that only looks drops the request",
        (f"{_FOLLOW_UPS}a_caller_whose_request_is_dropped_ends_the_job_that_has_expired",),
        (
            Edit(
                f"{_SQL}unique_keys/keys.py",
                "bool(self._noted or self._expired)",
                "bool(self._noted)",
            ),
        ),
        "postgres",
    ),
    Bug(
        "key on postgres: forge_enqueue names the follow-up in place of the holder",
        (f"{_FOLLOW_UPS}of_a_holder_and_a_follow_up_the_holder_is_named",),
        (
            Edit(
                "forge_jobs/storage/sql/migrations/0030_lines_of_sql.postgresql.sql",
                "ORDER BY status = 'blocked' AND unique_key <> forge_enqueue.unique_key LIMIT 1",
                "ORDER BY status LIMIT 1",
            ),
        ),
        "postgres",
    ),
)

KEY_BUGS = (*_IN_SQL, *_ON_REDIS, *_ON_POSTGRES)
