"""Bugs of calls beside a caller's open transaction. Each names the test of its rule."""

from tests.meta.bugs import Bug, Edit

_ROWS = "tests/backends/postgres/test_locked_rows.py::test_"
_CLAIMS = "tests/backends/postgres/test_locked_claims.py::test_"
_NOTICES = "tests/backends/postgres/test_notices.py::test_"
_LENT = "tests/backends/postgres/test_lent.py::test_"
_SQL = "forge_jobs/storage/sql/"
_POWER = "tests/backends/sqlite/test_power_cuts.py::test_power_is_lost["


def _bug(name: str, file: str, old: str, new: str, *tests: str) -> Bug:
    """A bug, and the tests that state the rule."""
    return Bug(f"locks: {name}", tests, (Edit(file, old, new),), "postgres")


_PASSES = ("tests/backends/test_refused_passes.py",)
_VERBS = "tests/backends/postgres/test_open_transaction_verbs.py::test_"

LOCK_BUGS = (
    Bug(
        "a revival that is refused takes its batch along",
        _PASSES,
        (Edit("forge_jobs/runtime/passes/bisecting.py", "if len(part) > 1:", "if False:"),),
    ),
    Bug(
        "retention on SQLite ends at a row that a trigger keeps",
        _PASSES,
        (
            Edit(
                "forge_jobs/storage/sql/sqlite/flavor.py",
                "isinstance(cause, sqlite3.IntegrityError) else None",
                "False else None",
            ),
        ),
    ),
    Bug(
        "news that is refused is sent with every batch",
        _PASSES,
        (Edit("forge_jobs/runtime/passes/bisecting.py", "if each.due_at > now", "if False"),),
    ),
    Bug(
        "retention on SQLite does not count its commits",
        ("tests/backends/sqlite/test_retention_holds.py",),
        (
            Edit(
                f"{_SQL}jobs/cleanup/passes.py",
                "        self._holds.end()\n",
                "",
            ),
        ),
    ),
    Bug(
        "retention on SQLite waits for the disk with the lock",
        (f"{_POWER}a_removal_is_synced_once_the_lock_is_free]",),
        (
            Edit(
                f"{_SQL}jobs/cleanup/passes.py",
                "                self._committed,\n                synced=False,\n            )\n"
                "        except",
                "                self._committed,\n            )\n        except",
            ),
        ),
    ),
    Bug(
        "a removal on SQLite is left to the next synced commit",
        (f"{_POWER}a_removal_is_synced_once_the_lock_is_free]",),
        (Edit(f"{_SQL}sqlite/connection.py", "self._file.sync_log()", "pass"),),
    ),
    Bug(
        "a slow commit makes no batch of retention shorter",
        ("tests/backends/sqlite/test_retention_holds.py",),
        (Edit(f"{_SQL}jobs/cleanup/holds.py", "self.script_s = max(min(", "longer = max(min("),),
    ),
    Bug(
        "retention on SQLite expects the last commit, not the slowest",
        ("tests/backends/sqlite/test_retention_holds.py",),
        (
            Edit(
                f"{_SQL}jobs/cleanup/holds.py",
                "for batch in self._batches)",
                "for batch in [self._batches[-1]])",
            ),
        ),
    ),
    Bug(
        "retention on SQLite aims at all of the longest hold",
        ("tests/backends/sqlite/test_retention_holds.py",),
        (Edit(f"{_SQL}jobs/cleanup/holds.py", "_AIM = 0.6", "_AIM = 1.0"),),
    ),
    _bug(
        "retention waits for an edge in a caller's transaction",
        f"{_SQL}jobs/cleanup/retention.py",
        "kept = children_kept(tx, (row.id for row in rows)) if rows else set[str]()",
        "kept = set[str]()",
        f"{_VERBS}no_verb_waits_for_what_is_in_others_hands",
    ),
    _bug(
        "a delete fails as a whole for one foreign key",
        f"{_SQL}jobs/operate.py",
        "raise Referenced(reason) from None",
        "raise",
        f"{_VERBS}a_delete_leaves_what_a_foreign_key_holds_and_names_it",
    ),
    _bug(
        "ends wait for a caller's transaction",
        f"{_SQL}base/row_locks.py",
        "rows = _found(tx, self._passing, wanted)\n        missing",
        "rows = _found(tx, self._waiting, wanted)\n        missing",
        f"{_ROWS}an_end_whose_job_a_caller_has_made_a_parent_is_set_aside",
    ),
    _bug(
        "an end that is set aside counts as refused",
        f"{_SQL}jobs/finalize.py",
        "if is_current(rows.kept.get(claim.job_id), claim):",
        "if False:",
        f"{_ROWS}a_claim_that_is_given_back_is_set_aside",
    ),
    _bug(
        "a success that is set aside counts as refused",
        f"{_SQL}jobs/finalize.py",
        "return rows, kept if tx.flavor.locks_rows else []",
        "return rows, []",
        f"{_ROWS}an_end_whose_job_a_caller_has_made_a_parent_is_set_aside",
    ),
    _bug(
        "what is locked for a moment is set aside",
        f"{_SQL}base/row_locks.py",
        "            if not kept:\n                break\n            pause(",
        "            break\n            pause(",
        f"{_ROWS}a_moment_of_waiting_is_no_reason_to_set_aside",
    ),
    _bug(
        "a repeat is set aside as if it were news",
        f"{_SQL}jobs/finalize.py",
        "row or rows.kept.get(claim.job_id)",
        "row or None",
        f"{_ROWS}ends_that_mean_nothing_any_more_are_refused_although_their_job_is_locked",
    ),
    _bug(
        "a foreign key of a user's table is in the way",
        f"{_SQL}base/row_locks.py",
        "look.with_for_update(key_share=not removes, skip_locked=True)",
        "look.with_for_update(skip_locked=True)",
        f"{_ROWS}a_row_with_a_foreign_key_to_a_job_is_in_no_ends_way",
    ),
    _bug(
        "a job that a foreign key holds is deleted by waiting",
        f"{_SQL}jobs/operate.py",
        "return _visit(tx, visit, _delete, removes=True)",
        "return _visit(tx, visit, _delete)",
        f"{_ROWS}a_moment_in_which_a_foreign_key_holds_a_job_costs_a_delete_one_call",
    ),
    _bug(
        "locked children hide those behind them",
        "forge_jobs/runtime/passes/cleanup.py",
        "limit = HANDOVER_BATCH + len(tried)",
        "limit = HANDOVER_BATCH",
        f"{_ROWS}news_for_a_locked_child_wait_and_all_others_are_told",
    ),
    _bug(
        "a locked held job keeps a pod from registering",
        f"{_SQL}fleet/pods.py",
        ".with_for_update(key_share=True, skip_locked=True)",
        ".with_for_update(key_share=True)",
        f"{_ROWS}a_pod_registers_beside_a_locked_job_of_its_kind",
    ),
    _bug(
        "jobs that nobody knows are taken off hold",
        f"{_SQL}postgres/procs.py",
        "WHERE lease_until > :now",
        "WHERE :now > 0",
        f"{_ROWS}jobs_of_kinds_that_no_live_pod_knows_stay_on_hold",
    ),
    _bug(
        "locked jobs of a bulk verb are not reported",
        f"{_SQL}jobs/operate.py",
        "changes.refused.update((JobId(each), Refusal.LOCKED) for each in rows.kept)",
        "pass",
        f"{_ROWS}a_bulk_verb_reports_locked_jobs_and_does_the_others",
    ),
    _bug(
        "one key that a caller takes stops a requeue",
        f"{_SQL}jobs/store.py",
        "if len(visit.ids) == 1:\n"
        "                return await self._noted(visit, operate.refused(visit, Refusal.LOCKED))",
        "if visit.ids:\n"
        "                return await self._noted(visit, operate.refused(visit, Refusal.LOCKED))",
        f"{_ROWS}a_requeue_leaves_out_the_job_whose_key_a_caller_is_taking",
    ),
    _bug(
        "one key that a caller takes stops all schedules",
        "forge_jobs/runtime/passes/cron.py",
        "isinstance(error, Locked | StorageRefused)",
        "isinstance(error, StorageRefused)",
        f"{_ROWS}schedules_fire_beside_one_whose_key_a_caller_is_taking",
    ),
    _bug(
        "beats for locked jobs are not noted",
        f"{_SQL}jobs/heartbeat.py",
        "            note(tx, kept)\n",
        "            pass\n",
        f"{_CLAIMS}a_claim_that_was_locked_for_longer_than_the_lease_is_not_stale",
    ),
    _bug(
        "a revival does not look for noted beats",
        f"{_SQL}jobs/finalize.py",
        " and (row.id, row.token) not in noted,",
        ",",
        f"{_CLAIMS}a_claim_that_was_locked_for_longer_than_the_lease_is_not_stale",
    ),
    _bug(
        "a noted beat counts for ever",
        f"{_SQL}fleet/noted_beats.py",
        "        noted_beats.c.beat_at > _NOW - silent_us,\n",
        "",
        f"{_CLAIMS}a_pod_that_dies_while_its_job_is_locked_is_silent_from_its_last_beat_on",
    ),
    _bug(
        "a noted beat counts for the next claim",
        f"{_SQL}fleet/noted_beats.py",
        "        noted_beats.c.token == jobs.c.token,\n",
        "",
        f"{_CLAIMS}a_beat_that_was_noted_for_another_claim_of_the_job_does_not_count",
    ),
    _bug(
        "noted beats dated ahead stay so",
        f"{_SQL}fleet/set_back.py",
        "    bring_back_notes(tx)\n",
        "",
        f"{_CLAIMS}a_noted_beat_that_a_clock_set_back_dated_ahead_counts_from_now",
    ),
    _bug(
        "locked claims hide those behind them",
        "forge_jobs/runtime/passes/reaper.py",
        "limit = REAP_BATCH + len(left)",
        "limit = REAP_BATCH",
        f"{_CLAIMS}the_reaper_goes_on_behind_a_page_of_locked_claims",
    ),
    _bug(
        "what one statement has stored stays beside a refusal",
        f"{_SQL}postgres/lent.py",
        "        if answer.ids or answer.made:\n",
        "        if False:\n",
        f"{_LENT}what_is_in_the_way_of_one_is_told_and_the_others_are_undone",
    ),
    _bug(
        "the limit of waiting stays set in a caller's transaction",
        f"{_SQL}postgres/lent.py",
        "set_config('lock_timeout', '0', true)",
        "before",
        f"{_LENT}the_callers_patience_is_as_it_was",
    ),
    _bug(
        "others are told beside the claim of who waits here",
        f"{_SQL}postgres/announcing.py",
        "now + WOKEN_APART_S if topic in woken_here else now",
        "now",
        f"{_NOTICES}others_are_told_a_moment_after_who_waits_here",
        "tests/backends/postgres/test_pickup_path.py",
    ),
    _bug(
        "others wait for what nobody here asks for",
        "forge_jobs/storage/wakeups.py",
        "topic.removeprefix(QUEUE) in self._queues",
        "True",
        f"{_NOTICES}others_are_told_a_moment_after_who_waits_here",
    ),
    _bug(
        "who waits here is rung a turn of the loop later",
        "forge_jobs/storage/wakeups.py",
        "if loop is _running_loop():",
        "if False:",
        "tests/backends/postgres/test_pickup_path.py",
    ),
    _bug(
        "an enqueue looks before it stores",
        f"{_SQL}postgres/lent.py",
        "        len(ids) == len(requests)\n",
        "        False\n",
        f"{_LENT}an_enqueue_is_one_statement_without_a_savepoint",
        f"{_LENT}serializable_transactions_that_share_nothing_do_not_conflict",
    ),
    _bug(
        "one statement waits for a parent that is locked",
        f"{_SQL}postgres/lent.py",
        "        FOR NO KEY UPDATE SKIP LOCKED\n",
        "        FOR NO KEY UPDATE\n",
        f"{_LENT}a_parent_that_somebody_keeps_locked_is_an_answer",
    ),
    _bug(
        "one statement does not tell a child of a parent that has ended",
        f"{_SQL}postgres/lent.py",
        "FROM link WHERE ended IS NOT NULL",
        "FROM link WHERE false",
        f"{_LENT}a_job_that_comes_after_others_is_one_statement_too",
    ),
    _bug(
        "one statement does not tell a parent of its child",
        f"{_SQL}postgres/lent.py",
        "AND NOT found.has_children",
        "AND false",
        f"{_LENT}a_job_that_comes_after_others_is_one_statement_too",
    ),
    _bug(
        "one statement rings for a job that has to wait",
        f"{_SQL}postgres/lent.py",
        "stored.status = 'pending' AND ",
        "",
        f"{_LENT}a_job_that_wakes_nobody_tells_nobody",
    ),
    _bug(
        "what is refused is looked at in a savepoint",
        f"{_SQL}postgres/lent.py",
        "        with self._flavor.inside(connection):\n",
        "        return None\n        with self._flavor.inside(connection):\n",
        f"{_LENT}a_refused_call_sets_no_savepoint_either",
    ),
    _bug(
        "a refusal leaves our settings in a caller's transaction",
        f"{_SQL}postgres/flavor.py",
        "            connection.execute(_SET, as_before)\n            raise\n",
        "            raise\n",
        f"{_LENT}a_refused_call_sets_no_savepoint_either",
    ),
    Bug(
        "locks: one transaction asks for the time while the others wait",
        (
            "tests/unit/test_time_of_a_call.py::"
            "test_a_call_that_waits_for_the_time_keeps_no_other_thread_waiting",
        ),
        (
            Edit(
                f"{_SQL}base/transaction.py",
                '        now = tx.__dict__["now"] = tx.flavor.now_us(tx.connection)\n',
                "        with self.lock:\n"
                '            now = tx.__dict__["now"] = tx.flavor.now_us(tx.connection)\n',
            ),
            Edit(
                f"{_SQL}base/transaction.py",
                '    def __get__(self, tx: "Tx", owner',
                '    lock = __import__("threading").RLock()\n\n'
                '    def __get__(self, tx: "Tx", owner',
            ),
        ),
    ),
)
