"""Hostile texts in every field are text on every surface, and no input makes a 500."""

from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from typing import Any

import httpx
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Job
from forge_jobs.storage.protocols import Storage
from forge_jobs.web import dashboard
from tests.web.conftest import ADA, client_of
from tests.web.hostile import furnish, hostile

pytestmark = pytest.mark.anyio

API = "/api/v1"

COUNTS = pytest.mark.parametrize("count", [40, pytest.param(200, marks=pytest.mark.long)])
"""The texts as they are every day, and 160 mixtures of two by ``make test-all``."""


@COUNTS
async def test_hostile_texts_in_every_parameter(storage: Storage, count: int) -> None:
    async with client_of(dashboard(storage, authorize=lambda _: ADA)) as client:
        for text in hostile(count):
            for path in ("jobs", "queues", "schedules", "limits"):
                answer = await client.get(f"{API}/{path}/{_quoted(text)}")
                assert answer.status_code < 500, (path, text, answer.text)
            for key in ("q", "limit", "cursor", text or "x"):
                answer = await client.get(f"{API}/jobs", params={key: text})
                assert answer.status_code < 500, (key, text, answer.text)
            await _as_json(client, text)


def _quoted(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode("utf-8", "surrogatepass"))[:3_000]


async def _as_json(client: httpx.AsyncClient, text: str) -> None:
    body = {
        "kind": text,
        "queue": text,
        "payload": {text: text},
        "tags": [text],
        "metadata": {text: text},
        "unique_key": text,
        "trace": {text: text},
    }
    stored = {"kind": "a", "payload": {"x": text}, "metadata": {"x": text}}
    for each in (body, stored, *({"kind": "a", name: text} for name in body)):
        answer = await client.post(f"{API}/jobs", json=each)
        assert answer.status_code < 500, (each, answer.text)
    if answer.status_code == 200:
        found = await client.get(f"{API}/jobs/{answer.json()['job_id']}")
        assert found.status_code == 200
        assert found.headers["Content-Type"] == "application/json"
        msgspec.json.decode(found.content)


class _Page(HTMLParser):
    """Tags, attributes and texts of a page as a browser sees them."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.odd: list[str] = []
        self._in = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in = tag
        for name, value in attrs:
            known = (value or "").lstrip().lower()
            leads_to = name in ("href", "src", "action", "formaction", "xlink:href")
            is_script = leads_to and known.startswith("javascript:")
            if name.startswith("on") or name == "style" or is_script:
                self.odd.append(f"<{tag} {name}={value}>")
            is_file = tag in ("script", "link") and name in ("src", "href")
            if is_file and not known.startswith("/static/"):
                self.odd.append(f"<{tag} {name}={value}>")
        if tag in ("img", "iframe", "object", "embed", "base", "style"):
            self.odd.append(f"<{tag}>")

    def handle_data(self, data: str) -> None:
        if self._in == "script" and data.strip():
            self.odd.append(f"<script>{data}")

    def handle_endtag(self, tag: str) -> None:
        self._in = ""


def odd_parts(text: str) -> list[str]:
    """Return what no page of the dashboard has by itself."""
    control = [f"{ord(each):#x}" for each in text if ord(each) < 32 and each not in "\n\t\r"]
    return _Page(text).odd + control


def test_an_injected_part_is_seen() -> None:
    for text in (
        "<p onclick=x>",
        "<script>x</script>",
        '<a href=" javascript:x">',
        "<img>",
        "\x1b",
    ):
        assert odd_parts(f"<html>{text}</html>"), text


@COUNTS
@pytest.mark.any_store
async def test_a_store_full_of_hostile_texts_is_text_on_every_surface(
    storage: Storage, count: int
) -> None:
    texts = hostile(count)
    jobs = await furnish(storage, texts)
    stored = await storage.jobs.get(jobs)
    groups = {job.errors[-1].error_group: job.queue for job in stored.values()}
    names = [each.name for each in await storage.config.queues()]
    schedules = [each.spec.name for each in await storage.cron.schedules()]
    pods = [str(each.pod.host_id) for each in await storage.procs.pods()]
    # Most texts are taken by most fields, so that the pages below are full of them.
    assert len(names) > 0.4 * count
    assert len(schedules) > 0.3 * count
    async with client_of(dashboard(storage, authorize=lambda _: ADA)) as client:
        actions = (await client.get(f"{API}/actions")).json()["actions"]
        pages = [
            "/",
            "/jobs",
            "/errors",
            "/queues",
            "/pods",
            "/cron",
            "/limits",
            "/store",
            "/audit",
            "/jobs/new",
        ]
        pages += [f"/jobs/new?kind=described.{index}" for index in range(0, count, 10)]
        pages += [f"/jobs/{job_id}" for job_id in jobs]
        pages += [f"/jobs/{job_id}/edit" for job_id in jobs[::10]]
        pages += [f"/queues/{_quoted(name)}" for name in names[::5]]
        pages += [f"/cron/{_quoted(name)}" for name in schedules[::5]]
        pages += [f"/errors/{_quoted(queue)}/{group}" for group, queue in groups.items()][::5]
        pages += [f"/pods/{host_id}" for host_id in pods]
        pages += [f"/audit/{each['id']}" for each in actions[::5]]
        pages += [f"/jobs?q={_quoted(text)}" for text in texts[::5]]
        pages += [f"/act/pause_queue?name={_quoted(name)}" for name in names[::20]]
        for path in pages:
            page = await client.get(path, headers={"Accept": "text/html"})
            assert page.status_code in (200, 400), (path, page.status_code)
            assert odd_parts(page.text) == [], path
        await _check_answers(client, stored)
        metrics = await client.get("/metrics")
    _check_metrics(metrics.text, names, count)


async def _check_answers(client: httpx.AsyncClient, stored: Mapping[JobId, Job]) -> None:
    """Documents hold the texts as they are stored."""
    found: dict[str, Any] = {}
    cursor: str | None = None
    while True:
        given = {"limit": 50} | ({"cursor": cursor} if cursor else {})
        page = await client.get(f"{API}/jobs/export", params=given)
        assert page.status_code == 200, page.text
        found |= {job["id"]: job for job in page.json()["jobs"]}
        cursor = page.json()["cursor"]
        if cursor is None:
            break
    for job_id, job in stored.items():
        assert (found[job_id]["kind"], found[job_id]["queue"]) == (job.kind, job.queue)
        assert found[job_id]["payload"] == msgspec.json.decode(job.payload)
        assert found[job_id]["errors"][-1]["message"] == job.errors[-1].message
    for path in (
        "queues",
        "schedules",
        "limits",
        "errors?limit=1000",
        "actions?limit=1000",
        "pods",
    ):
        answer = await client.get(f"{API}/{path}")
        assert answer.status_code == 200, answer.text
        msgspec.json.decode(answer.content)


def _check_metrics(text: str, names: Sequence[str], count: int) -> None:
    """The text is read as Prometheus reads one, and a label is a name of the store."""
    samples = [
        sample for family in text_string_to_metric_families(text) for sample in family.samples
    ]
    found = {sample.labels["queue"] for sample in samples if "queue" in sample.labels}
    assert found <= {*names, "other"}
    assert len(found) > 0.4 * count
