"""The metrics for Prometheus: names, figures, and how many calls a scrape takes."""

import json
import re
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from msgspec import structs
from prometheus_client.parser import text_string_to_metric_families
from promql_parser import Expr, VectorSelector, parse, walk

from forge_jobs.clock import ManualClock
from forge_jobs.model.metrics import Histogram
from forge_jobs.model.queues import QueueChange, QueueSettings
from forge_jobs.model.series import FlowSample
from forge_jobs.model.strikes import StrikeRule, struck_by
from forge_jobs.operating.metrics.exposition import exposition
from forge_jobs.operating.metrics.reading import Scraper
from forge_jobs.operating.snapshots.shared import Reader
from forge_jobs.policy.judgement.problems.problem import Code, Problem, Severity
from forge_jobs.policy.percentiles import bucket_of
from forge_jobs.storage.protocols import Storage
from tests.support.backends import BACKENDS
from tests.support.factories import QUEUE, deaf_gauges, enqueue_one, new_job, register
from tests.support.faulty import Faults, faulty

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
HOSTILE = 'a"b\\c {x="1"}\u2028 \u00e9 # HELP'

Figures = dict[tuple[str, tuple[tuple[str, str], ...]], float]


async def scraped(storage: Storage) -> Figures:
    """Return what a Prometheus client understands of a scrape."""
    text = exposition(await Scraper(Reader(storage)).read()).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def a_kind(storage: Storage, queue: str, kind: str) -> None:
    """Tell of three runs, one of which took a second and two took an hour."""
    await storage.config.ensure_queue(queue, QueueSettings(max_workers=7))
    lengths = Histogram({bucket_of(1.0): 1, bucket_of(3600.0): 2})
    minute = (await storage.cron.now()).replace(second=0, microsecond=0)
    flow = FlowSample(
        queue=queue,
        kind=kind,
        minute=minute,
        counts={"succeeded": 3},
        delay=lengths,
        processing=lengths,
        total=lengths,
    )
    assert await storage.jobs.add_flows([flow]) == []


async def test_a_scrape_tells_what_the_store_holds(storage: Storage) -> None:
    await enqueue_one(storage, queue="mail")
    await a_kind(storage, "mail", "mail.send")
    found = await scraped(storage)
    assert found["forge_jobs_queue_depth", (("queue", "mail"), ("state", "due"))] == 1
    assert found["forge_jobs_worker_slots", (("queue", "mail"), ("state", "maximum"))] == 7
    assert found["forge_jobs_worker_slots", (("queue", "mail"), ("state", "granted"))] == 0
    assert found["forge_jobs_oldest_available_age_seconds", (("queue", "mail"),)] >= 0
    of_kind = (("kind", "mail.send"), ("queue", "mail"))
    runs = (("kind", "mail.send"), ("outcome", "succeeded"), ("queue", "mail"))
    assert found["forge_jobs_runs_total", runs] == 3
    for name in ("queue_wait_seconds", "processing_duration_seconds"):
        assert found[f"forge_jobs_{name}_count", of_kind] == 3
        assert found[f"forge_jobs_{name}_sum", of_kind] == pytest.approx(7201, rel=0.05)
        buckets = {
            float(dict(labels)["le"]): value
            for (metric, labels), value in found.items()
            if metric == f"forge_jobs_{name}_bucket"
        }
        assert [buckets[edge] for edge in sorted(buckets) if edge < 1] == [0] * 7
        assert [buckets[edge] for edge in sorted(buckets) if 1 < edge < 3000] == [1] * 8
        assert buckets[float("inf")] == 3


async def test_problems_are_counted_by_code_and_severity(sqlite_storage: Storage) -> None:
    problem = Problem(
        about="mail",
        since=datetime(2026, 1, 1, tzinfo=UTC),
        evidence="",
        why="",
        action="",
        page="/",
        code=Code.PAUSED_WITH_WORK,
        severity=Severity.NOTICE,
    )
    scrape = await Scraper(Reader(sqlite_storage)).read()
    text = exposition(structs.replace(scrape, problems=(problem, problem))).decode()
    assert 'forge_jobs_problems{code="paused_with_work",severity="notice"} 2.0' in text


async def test_jobs_that_strikes_hold_are_counted_by_strike(storage: Storage) -> None:
    await storage.config.put_strike("no mail", StrikeRule(kind="mail"), "ada")
    [strike] = await storage.config.strikes()
    await storage.jobs.enqueue([new_job(struck=struck_by(strike)) for _ in range(3)])
    found = await scraped(storage)
    assert found["forge_jobs_struck_jobs", (("queue", QUEUE), ("strike", "no mail"))] == 3


async def test_hostile_names_are_text(storage: Storage) -> None:
    queue = HOSTILE.replace("\u2028", "")
    await a_kind(storage, queue, f"kind {HOSTILE}")
    found = await scraped(storage)
    labels = (("kind", f"kind {HOSTILE}"), ("outcome", "succeeded"), ("queue", queue))
    assert found["forge_jobs_runs_total", labels] == 3
    assert not [name for name, _ in found if not name.startswith("forge_jobs_")]


async def test_what_is_gone_leaves_no_series(storage: Storage) -> None:
    await a_kind(storage, "mail", "mail.send")
    await storage.config.delete_queue("mail")
    assert not [labels for _, labels in await scraped(storage) if ("queue", "mail") in labels]


async def test_a_scrape_tells_how_queues_stand_to_their_objectives(storage: Storage) -> None:
    await storage.config.set_queue("none", QueueChange(max_workers=2))
    await storage.config.set_queue("mail", QueueChange(objective="90% within 1d"))
    at = (await storage.cron.now()).replace(second=0, microsecond=0)
    starts = Histogram({bucket_of(1.0): 3, bucket_of(2e5): 1})
    flow = FlowSample(
        queue="mail",
        kind="mail.send",
        minute=at,
        counts={"succeeded": 4},
        delay=starts,
        processing=starts,
        total=starts,
    )
    assert await storage.jobs.add_flows([flow]) == []
    found = await scraped(storage)
    of = ("queue", "mail")
    for window in ("1h", "24h", "30d"):
        assert found["forge_jobs_objective_met", (of, ("window", window))] == 0.75
    assert found["forge_jobs_objective_budget_left", (of,)] == pytest.approx(-1.5)
    assert found["forge_jobs_objective_burn", (of, ("window", "5m"))] == pytest.approx(2.5)
    without = ("queue", "none")
    assert not [name for name, labels in found if "objective" in name and without in labels]


async def test_a_scrape_takes_five_calls_and_reads_a_third_of_the_problems_in_turn(
    tmp_path: Path,
) -> None:
    clock, faults = ManualClock(), Faults()
    async with BACKENDS["sqlite"](tmp_path, clock) as storage:
        for queue in ("a", "b", "c"):
            await a_kind(storage, queue, "kind")
            await enqueue_one(storage, queue=queue)
        await storage.config.set_queue("a", QueueChange(objective="95% within 30s"))
        lease = await register(storage, queues=("a", "b", "c"), kinds=("kind",))
        await storage.procs.record_gauges(lease, clock.now(), deaf_gauges())
        scraper = Scraper(Reader(faulty(storage, faults), clock.elapsed))
        assert len((await scraper.read()).objectives) == 1
        assert faults.calls["gauges"] == 1
        assert faults.calls.total() <= 10
        await storage.config.set_paused("b", True)
        asked = Counter[str]()
        for _ in range(6):
            clock.advance(15.0)
            faults.calls.clear()
            last = await scraper.read()
            assert faults.calls.total() <= 5, faults.calls
            asked += faults.calls
        assert asked["error_groups"] == asked["report"] == 2
        assert asked["flow_totals"] == asked["counts"] == 6
        assert Code.PAUSED_WITH_WORK in {each.code for each in last.problems}

        faults.calls.clear()
        clock.advance(1.5)
        await scraper.read()
        assert faults.calls == {"look": 1, "counts": 1, "flow_totals": 1}


def parts_of(expression: str) -> list[Expr]:
    """Return the parts of a PromQL expression, parsed as Prometheus does."""
    found: list[Expr] = []
    walk(parse(expression), found.append)
    return found


def test_what_is_no_expression_is_no_expression() -> None:
    with pytest.raises(ValueError, match="unclosed left parenthesis"):
        parts_of("sum by (queue (rate(forge_jobs_enqueued_total[5m]))")


async def test_the_dashboard_and_the_alerts_name_what_there_is(sqlite_storage: Storage) -> None:
    await a_kind(sqlite_storage, "mail", "mail.send")
    text = exposition(await Scraper(Reader(sqlite_storage)).read()).decode()
    # Families are named whether they have samples or not.
    there = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    folder = ROOT / "examples" / "prometheus"
    board = json.loads((folder / "grafana.json").read_text("utf-8"))
    rules = yaml.safe_load((folder / "alerts.yml").read_text("utf-8"))
    expressions = [t["expr"] for panel in board["panels"] for t in panel["targets"]]
    expressions += [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    # What is no PromQL is a ValueError.
    parts = [part for each in expressions for part in parts_of(each)]
    named = {
        re.sub("_(bucket|sum|count)$", "", str(part.name))
        for part in parts
        if isinstance(part, VectorSelector)
    }
    assert len(expressions) >= 10
    assert named <= there
    page = (ROOT / "docs" / "metrics.md").read_text("utf-8")
    assert {name for name in there if f"`{name}`" not in page} == set()
