"""Scripts of Redis name the fields of requests, and the places come from one list."""

import pytest

from forge_jobs.storage.redis.base.requests import EnqueueRequest, with_places


def test_a_name_becomes_the_place_of_the_field() -> None:
    lua = "local id, jobs = fields[JOB.id], request[ENQUEUE.jobs]"
    place = EnqueueRequest.__struct_fields__.index("jobs") + 1
    assert with_places(lua) == f"local id, jobs = fields[1], request[{place}]"


@pytest.mark.parametrize("lua", ["MY_JOB.x", "JOBS.id", "job.JOB", "END"])
def test_other_names_stay(lua: str) -> None:
    assert with_places(lua) == lua


def test_an_unknown_field_is_refused_when_the_script_is_put_together() -> None:
    with pytest.raises(KeyError, match=r"JOB\.idd"):
        with_places("fields[JOB.idd]")
