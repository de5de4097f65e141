"""A user with the documented rights alone can do everything that a pod does."""

import re
from collections.abc import Iterator
from datetime import timedelta
from importlib.resources import files
from pathlib import Path

import anyio
import pytest

from forge_jobs.errors import StorageError
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.jobs import After, JobStatus
from forge_jobs.model.queues import QueueChange
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.redis.base.rights import ON_KEYS
from forge_jobs.testing.servers import RedisCluster, RedisServer
from tests.support import servers
from tests.support.factories import QUEUE, enqueue_one, new_job, only
from tests.support.redis_databases import with_options
from tests.support.runtimes import a_runtime, ended

pytestmark = pytest.mark.anyio

PAGE = Path(__file__).parents[3] / "docs" / "redis.md"


OF_A_CLUSTER = ("+cluster|slots", "+spublish", "+ssubscribe")
"""Rights that the page adds for a cluster."""


def documented(prefix: str = "forge") -> list[str]:
    """The rules of the page's ACL line, for another prefix."""
    found = re.search(r"```\nACL SETUSER jobs (on .*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert found is not None
    return found[1].replace("forge:", f"{prefix}:").split()


def test_what_is_looked_at_is_what_scripts_and_modules_run() -> None:
    folder = Path(str(files("forge_jobs.storage.redis")))
    scripts = [path.read_text("utf-8") for path in folder.rglob("*.lua")]
    in_scripts = re.findall(r"\(\s*'([A-Z]{3,})'\s*[,)]", "".join(scripts))
    modules = [path.read_text("utf-8") for path in folder.rglob("*.py") if path.stem != "rights"]
    in_modules = re.findall(r"""(?:\(|= )\(\s*"([A-Z]{3,})",""", "".join(modules))
    elsewhere = {"TIME", "PUBLISH", "EVAL", "EVALSHA", "SENTINEL", "CLUSTER", "CONFIG", "WAIT"}
    assert ({*in_scripts, *in_modules} - elsewhere) == ON_KEYS


def test_the_page_names_each_of_them() -> None:
    allowed = {rule[1:].upper() for rule in documented() if rule.startswith("+")}
    beside_keys = ["EVAL", "EVALSHA", "PUBLISH", "SUBSCRIBE", "PING", "TIME", "INFO"]
    assert allowed == ON_KEYS | {*beside_keys, "SELECT", "WAIT"}
    assert f"A cluster needs `{' '.join(OF_A_CLUSTER)}`" in PAGE.read_text("utf-8")


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    with servers.a_redis_cluster() as started:
        yield started


async def everything(url: str) -> None:
    """Use the store: a job's life, a parent and a child, a schedule, lists, edits, wake-ups."""
    handlers = HandlerRegistry()

    @handlers.job("fails", max_attempts=1)
    def fails() -> None:
        raise RuntimeError

    @handlers.cron("* * * * *")
    @handlers.job("works")
    def works() -> int:
        return 7

    async with await open_storage(url) as storage:
        await storage.config.set_queue(QUEUE, QueueChange(max_workers=4))
        runtime = a_runtime(storage, handlers, 4, rate_limits={})
        async with runtime.start() as handle:
            outcome = await handle.enqueue(EnqueueRequest("works", unique_key="k", tags=("t",)))
            child = new_job(kind="works", after=(After(outcome.job_id),))
            await storage.jobs.enqueue([child])
            assert await handle.result(outcome.job_id, timeout=50) == 7
            assert (await ended(storage, child.id)).status is JobStatus.DONE
            failed = await handle.enqueue(EnqueueRequest("fails"))
            assert (await ended(storage, failed.job_id)).status is JobStatus.DEAD
            assert (await storage.jobs.requeue(only(failed.job_id))).changed
            assert (await ended(storage, failed.job_id)).status is JobStatus.DEAD
            assert handle.health().listening
        await _by_hand(storage)


async def _by_hand(storage: Storage) -> None:
    waiting = await enqueue_one(storage, tags=("later",))
    await storage.jobs.run_now(only(waiting))
    assert (await storage.jobs.cancel(only(waiting))).changed
    page = await storage.jobs.list(JobFilter(tag="later"))
    assert [job.id for job in page.jobs] == [waiting]
    assert await storage.jobs.events()
    assert await storage.jobs.counts()
    assert (await storage.jobs.delete(only(waiting))).changed
    await storage.jobs.cleanup(100)
    await storage.jobs.roll_up(100)
    assert await storage.cron.schedules()


async def test_the_documented_rights_are_enough(server: RedisServer) -> None:
    prefix = "shop"
    server.command("ACL LOG", "RESET")
    server.command("ACL", "SETUSER", "jobs", "reset", *documented(prefix))
    url = server.url.replace(f":{server.password}@", "jobs:password@").replace("/0", "/1")
    await everything(with_options(url, prefix=prefix, wait_replicas=0))
    # Only the look at the settings, which the page offers as a choice.
    assert refused_to_users(server) == {"config|get"}
    with pytest.raises(StorageError, match="this prefix"):
        await open_storage(with_options(url, prefix="another"))


async def test_they_are_enough_in_a_cluster(cluster: RedisCluster) -> None:
    prefix = "shop"
    for node in cluster.nodes:
        node.command("ACL", "SETUSER", "jobs", "reset", *documented(prefix), *OF_A_CLUSTER)
        node.command("ACL LOG", "RESET")
    url = cluster.url.replace(f":{cluster.nodes[0].password}@", "jobs:password@")
    await everything(with_options(url, prefix=prefix))
    assert {each for node in cluster.nodes for each in refused_to_users(node)} <= {"config|get"}


def refused_to_users(server: RedisServer) -> set[str]:
    """Return the commands that the server has refused since the log was emptied."""
    return {entry["object"] for entry in server.command("ACL LOG")}


@pytest.mark.parametrize("missing", ["publish", "subscribe", "evalsha"])
async def test_a_missing_right_is_said(server: RedisServer, missing: str) -> None:
    server.command("ACL", "SETUSER", "jobs", "reset", *documented(), f"-{missing}")
    url = server.url.replace(f":{server.password}@", "jobs:password@")
    with anyio.fail_after(30):
        if missing == "subscribe":
            async with await open_storage(url) as storage:
                await storage.jobs.wait_for_work(frozenset(), timedelta(milliseconds=50))
                assert not storage.health().wakes
        else:
            with pytest.raises(
                StorageError, match=f"access rules do not let this user run.*{missing}"
            ):
                async with await open_storage(url) as storage:
                    await enqueue_one(storage)
