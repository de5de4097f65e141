"""The file is removed or replaced under an open store."""

import os

import pytest

from forge_jobs.errors import Unavailable
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from tests.support.factories import new_job

pytestmark = pytest.mark.anyio

_ALL = ("", "-wal", "-shm")


async def test_a_file_that_is_put_back_is_used_again(url: str, storage: Storage) -> None:
    path = url.removeprefix("sqlite:///").partition("?")[0]
    for suffix in _ALL:
        os.rename(f"{path}{suffix}", f"{path}.kept{suffix}")
    with pytest.raises(Unavailable, match="removed"):
        await storage.jobs.enqueue([new_job()])
    for suffix in _ALL:
        os.rename(f"{path}.kept{suffix}", f"{path}{suffix}")
    [stored] = await storage.jobs.enqueue([new_job()])
    assert storage.health().problem == ""
    async with await open_storage(url) as other:
        assert [*await other.jobs.get([stored.job_id])] == [stored.job_id]
