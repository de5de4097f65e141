"""The one list of a job's columns, and the functions that fill and read them."""

from datetime import timedelta
from typing import Any

from forge_jobs.model.ids import HostId, JobId
from forge_jobs.model.jobs import ClaimedJob, Job, NewJob
from forge_jobs.storage.redis.base.job_rows import Templates
from forge_jobs.storage.sql.base.job_columns import CLAIMED_WITH, JOB_COLUMNS, NEW, REPLACED_WITH
from forge_jobs.storage.sql.base.job_rows import claimed_job, new_job_values

_REQUEST = NewJob(id=JobId("j"), queue="q", kind="k", payload="{}")
_STORED = {
    **dict.fromkeys(("timeout_us", "snoozed_at", "max_attempts")),
    **dict.fromkeys(("run_at", "enqueued_at", "attempt", "crashes", "snoozes", "priority"), 1),
    **{"tags": "[]", "metadata": "{}"},
}


class _Row:
    """A row that notes which columns are read."""

    def __init__(self) -> None:
        self.read: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.read.add(name)
        return _STORED.get(name, "")


def test_a_request_gives_a_value_for_each_column_of_a_new_job() -> None:
    assert {*new_job_values(_REQUEST, 1, has_children=False)} == {*NEW}


def test_a_claim_reads_the_columns_that_its_record_needs_and_no_others() -> None:
    row = _Row()
    claimed_job(row, HostId("pod"))
    assert row.read == {*CLAIMED_WITH}


def test_a_replacement_gives_what_a_request_gives_except_its_place_and_its_state() -> None:
    stays = {"id", "queue", "status", "cause", "enqueued_at", "token", "unique_key"}
    assert {*NEW} - {*REPLACED_WITH} == stays | {"has_children", "schedule"}


def test_each_option_of_a_request_that_a_record_shows_is_a_column() -> None:
    columns = {column.name.removesuffix("_us") for column in JOB_COLUMNS}
    options = {*NewJob.__struct_fields__} - {"after", "delay", "unique", "sequence", "struck"}
    assert options <= columns
    assert options & {*ClaimedJob.__struct_fields__, *Job.__struct_fields__} <= columns


def test_on_redis_requests_that_differ_in_an_option_share_no_template() -> None:
    templates = Templates()
    changed: dict[str, Any] = {
        "kind": "other",
        "priority": 3,
        "delay": timedelta(1),
        "max_attempts": 9,
        "timeout": timedelta(1),
        "tags": ("a",),
        "metadata": '{"a":"b"}',
        "trace": "t",
        "keep_result": False,
        "result_ttl": timedelta(1),
        "schedule": "s",
    }
    given = {name: getattr(_REQUEST, name) for name in NewJob.__struct_fields__}
    requests = [_REQUEST, *(NewJob(**{**given, name: value}) for name, value in changed.items())]
    numbers = [templates.number_of(request) for request in requests]
    assert numbers == [*range(1, len(requests) + 1)]
    # What each job has alone makes no template.
    assert templates.number_of(NewJob(**{**given, "id": JobId("i"), "payload": "[]"})) == 1
