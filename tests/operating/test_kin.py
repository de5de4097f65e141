"""Relatives of a job as people see them: within the queues of the actor."""

import pytest

from forge_jobs.errors import NotFound
from forge_jobs.model.ids import new_job_id
from forge_jobs.model.jobs import After
from forge_jobs.operating.access import ALL, Access, Actor
from forge_jobs.operating.operator import Operator
from forge_jobs.storage.protocols import Storage
from tests.support.factories import enqueue_one, only

pytestmark = pytest.mark.anyio

MINE, CLOSED = "default", "closed"


async def test_relatives_in_closed_queues_do_not_exist(storage: Storage) -> None:
    closed = await enqueue_one(storage, queue=CLOSED)
    gone = await enqueue_one(storage)
    mine = await enqueue_one(storage, after=(After(closed), After(gone, "hold")))
    child = await enqueue_one(storage, after=(After(mine),))
    other = await enqueue_one(storage, queue=CLOSED, after=(After(mine),))
    await storage.jobs.delete(only(gone))
    everything = Operator(storage, Actor(name="ada", access=ALL))
    limited = Operator(storage, Actor(name="eve", access=Access(queues=frozenset({MINE}))))
    async with everything as ada, limited as eve:
        found = await ada.job_kin(mine)
        assert [each.id for each in found.parents] == [closed, gone]
        assert [each.id for each in found.children] == [child, other]
        found = await eve.job_kin(mine)
        assert found.parents == ()
        assert [each.id for each in found.children] == [child]
        assert (await ada.job_kin(mine, limit=1)).more_children
        for job_id in (closed, new_job_id()):
            with pytest.raises(NotFound):
                await eve.job_kin(job_id)
