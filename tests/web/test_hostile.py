"""Hostile texts in every field are text in the API, and no input makes a 500."""

import random

import httpx
import msgspec
import pytest

from forge_jobs.storage.protocols import Storage
from forge_jobs.web import dashboard
from tests.web.conftest import ADA, client_of

pytestmark = pytest.mark.anyio

API = "/api/v1"

_SEEDS = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'; drop table jobs; --",
    "{{7*7}}",
    "{% raw %}",
    "${jndi:ldap://x}",
    "\x1b[31mred\x1b[0m",
    "\x00",
    "\r\nSet-Cookie: a=b",
    "../../../../etc/passwd",
    "%00%0d%0a",
    "\u202eevil",
    "\ufeff",
    "\ud7ff\ue000",
    "javascript:alert(1)",
    "&lt;b&gt;",
    "]]>",
    "-->",
    "a" * 5_000,
    "💥" * 50,
    "null",
    "-1",
    "9" * 400,
    "1e999",
    "NaN",
    "[[[[",
    '{"a":',
    "=cmd|' /C calc'!A0",
    "\\u0000",
    "",
    " ",
    ".",
    "..",
    "/",
    "*",
]


def hostile(count: int = 200) -> list[str]:
    """Return the seeds and mixtures of them, always the same."""
    source = random.Random(15)
    mixed = ("".join(source.sample(_SEEDS, 2))[:3_000] for _ in range(count - len(_SEEDS)))
    return [*_SEEDS, *mixed]


async def test_200_hostile_texts_in_every_parameter(storage: Storage) -> None:
    async with client_of(dashboard(storage, authorize=lambda _: ADA)) as client:
        for text in hostile():
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
