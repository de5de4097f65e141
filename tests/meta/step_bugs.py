"""Bugs of checkpoints and of steps, with the test that catches each."""

from tests.meta.bugs import Bug, Edit

_SUITE = "tests/conformance/test_checkpoints.py::test_"
_ONCE = "tests/backends/test_once.py::test_"
_ORPHANS = "tests/backends/test_orphaned_notes.py::test_"
_STEPS = "storage/sql/progress/steps"


def _bug(name: str, module: str, old: str, new: str, test: str) -> Bug:
    return Bug(name, (test,), (Edit(f"forge_jobs/{module}.py", old, new),))


STEP_BUGS = [
    _bug(
        "checkpoint: any token saves",
        _STEPS,
        "        claim.token,\n        claim.host_id,\n    )",
        "        owner.token,\n        claim.host_id,\n    )",
        f"{_SUITE}only_the_current_claim_saves",
    ),
    _bug(
        "checkpoint: an ended claim saves",
        _STEPS,
        "        JobStatus.IN_PROGRESS.value,\n",
        "        owner.status,\n",
        f"{_SUITE}only_the_current_claim_saves",
    ),
    _bug(
        "checkpoint: the next job with the id finds it",
        "storage/sql/progress/notes",
        '        tx.execute(_FORGET_STEPS, {"ids": portion})\n',
        "        pass\n",
        f"{_SUITE}a_checkpoint_goes_with_the_job",
    ),
    _bug(
        "once: every time is the first",
        _STEPS,
        "    return bool(tx.execute(insert, [_row(tx, claim, step, None)]).scalars().all())",
        "    tx.execute(insert, [_row(tx, claim, step, None)])\n    return True",
        f"{_ONCE}a_step_is_done_exactly_once_over_all_attempts",
    ),
    _bug(
        "once: a lost claim is not looked at",
        _STEPS,
        "    if owner is None or not _is_current(owner, claim):\n        raise Conflict",
        "    if owner is None:\n        raise Conflict",
        f"{_ONCE}a_worker_that_lost_its_claim_does_nothing",
    ),
    _bug(
        "notes: what an older program leaves of deleted jobs stays",
        "storage/sql/jobs/store",
        "range(0, len(gone), ORPHANS_AT_ONCE)",
        "range(0)",
        f"{_ORPHANS}a_sweep_removes_what_is_left_of_deleted_jobs",
    ),
    _bug(
        "notes: a job that is there loses them to a sweep",
        "storage/sql/progress/notes",
        "gone.update(row.job_id for row in rows if not row.kept)",
        "gone.update(row.job_id for row in rows)",
        f"{_ORPHANS}a_sweep_removes_what_is_left_of_deleted_jobs",
    ),
    _bug(
        "notes: each sweep looks at the first rows only",
        "storage/sql/progress/notes",
        'rows[-1].job_id if len(rows) == limit else ""',
        '""',
        f"{_ORPHANS}a_sweep_looks_at_a_bounded_number_of_rows_and_goes_on",
    ),
]
