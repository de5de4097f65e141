"""``/metrics`` of the dashboard: who may read."""

from functools import partial

import pytest
from starlette.requests import Request

from forge_jobs.storage.protocols import Storage
from forge_jobs.web import Access, dashboard
from tests.support.factories import enqueue_one
from tests.web.conftest import client_of

pytestmark = pytest.mark.anyio


async def test_metrics_need_the_right_to_read_all_queues(sqlite: Storage) -> None:
    await enqueue_one(sqlite, queue="mail")
    answers = {
        None: 403,
        Access(queues=frozenset({"mail"})): 403,
        Access(read=False): 403,
        Access(): 200,
    }
    for access, status in answers.items():
        async with client_of(dashboard(sqlite, authorize=partial(_answer, access))) as client:
            answer = await client.get("/metrics")
            assert answer.status_code == status, access
            assert ("forge_jobs_queue_depth" in answer.text) == (status == 200)
    assert answer.headers["content-type"].startswith("text/plain; version=")


def _answer(access: Access | None, _: Request) -> Access | None:
    return access
