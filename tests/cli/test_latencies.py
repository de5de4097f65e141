"""Durations of jobs, as the commands show them, and the timeline of one job."""

import random
from datetime import datetime, timedelta

import anyio

from forge_jobs.clock import to_us
from forge_jobs.model.ids import new_host_id
from forge_jobs.model.metrics import Histogram, LatencySample
from forge_jobs.policy.percentiles import bucket_of
from forge_jobs.runtime.shared.latencies import minute_start
from forge_jobs.storage.opening import open_storage
from tests.cli.conftest import CommandLine
from tests.support.factories import KIND, QUEUE, claim_one, done, enqueue_one, finish, register

MINUTE = timedelta(minutes=1)


async def _measure(url: str) -> None:
    """A hundred runs of 10 ms to 1 s, each with a total ten times as long, and one long ago."""
    runs = [0.01 * number for number in range(1, 101)]
    random.Random(0).shuffle(runs)
    async with await open_storage(url) as store:
        now = await store.cron.now()
        lease = await register(store)
        await enqueue_one(store)
        await finish(store, await claim_one(store, lease), done())
        samples = [_sample(now - MINUTE, run) for run in runs[:50]]
        samples += [_sample(now, run) for run in runs[50:]]
        samples.append(_sample(now - timedelta(hours=3), 3600.0))
        for host_id in (new_host_id(), new_host_id()):
            await store.jobs.add_latencies(host_id, samples)


def _sample(at: datetime, run: float) -> LatencySample:
    return LatencySample(
        queue=QUEUE,
        minute=minute_start(to_us(at)),
        processing=Histogram({bucket_of(run): 1}),
        total=Histogram({bucket_of(10 * run): 1}),
    )


def _within_five_percent(shown: dict[str, float], expected: list[float]) -> bool:
    return all(
        abs(shown[name] - value) <= 0.05 * value
        for name, value in zip(("p50", "p95", "p99"), expected, strict=True)
    )


def test_queues_and_stats_show_percentiles_of_the_last_hour(forge: CommandLine) -> None:
    anyio.run(_measure, forge.url)

    [queue] = forge.json("queues", "list")["queues"]
    [stats] = forge.json("jobs", "stats")["queues"]
    [longer] = forge.json("jobs", "stats", "--queue", QUEUE, "--over", "4h")["queues"]

    for each in (queue, stats):
        assert _within_five_percent(each["run"], [0.5, 0.95, 0.99])
        assert _within_five_percent(each["total"], [5.0, 9.5, 9.9])
    assert stats["counts"] == {"enqueued": 1, "claimed": 1, "succeeded": 1}
    assert _within_five_percent(longer["run"], [0.51, 0.96, 1.0])
    text = forge("jobs", "stats").stdout
    assert "RUN P95" in text
    assert "TOTAL P99" in text
    assert "RUN P95" in forge("queues", "list").stdout


def test_a_queue_without_a_run_has_no_percentiles(forge: CommandLine) -> None:
    forge("enqueue", KIND, "--queue", QUEUE)

    [stats] = forge.json("jobs", "stats")["queues"]

    assert stats["counts"] == {"enqueued": 1}
    assert set(stats["run"].values()) == {None}
    assert "-" in forge("jobs", "stats").stdout.splitlines()[1]


def test_a_timeline_begins_with_the_enqueue(forge: CommandLine) -> None:
    job_id = forge("enqueue", KIND, "--queue", QUEUE).stdout.strip()
    forge("jobs", "cancel", job_id)
    forge("jobs", "requeue", job_id)

    job = forge.json("jobs", "show", job_id)

    assert [event["kind"] for event in job["events"]] == ["requeued", "enqueued"]
    assert job["events"][-1]["at"] == job["enqueued_at"]
    assert "enqueued" in forge("jobs", "show", job_id).stdout.splitlines()[-1]
