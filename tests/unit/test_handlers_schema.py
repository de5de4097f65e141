"""The manifest of kinds."""

import json
from typing import Any

import msgspec
import pydantic

from forge_jobs.handlers.context import JobContext
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.schema import manifest


class Address(pydantic.BaseModel):
    street: str


class Item(msgspec.Struct):
    name: str


def _manifest() -> list[dict[str, Any]]:
    handlers = HandlerRegistry()

    @handlers.job("b.place", aliases=("b.old",), queue="b", timeout=90, tags=("t",), max_attempts=2)
    async def place(items: list[Item], to: Address, ctx: JobContext, gift: bool = False) -> None:
        """Place an order.

        With details that the manifest leaves out.
        """

    @handlers.job("a.tick")
    def tick() -> None: ...

    found: list[dict[str, Any]] = json.loads(msgspec.json.encode(manifest(handlers)))
    return found


def test_kinds_are_listed_once_and_by_name() -> None:
    assert [entry["kind"] for entry in _manifest()] == ["a.tick", "b.place"]


def test_an_entry_tells_the_defaults_and_the_first_line_of_the_docstring() -> None:
    tick, place = _manifest()

    assert place["aliases"] == ["b.old"]
    assert place["description"] == "Place an order."
    assert place["queue"] == "b"
    assert place["timeout"] == "PT90S"
    assert place["tags"] == ["t"]
    assert place["max_attempts"] == 2
    assert place["is_async"]
    assert (tick["description"], tick["queue"], tick["is_async"]) == ("", None, False)


def test_the_schema_describes_the_payload_without_the_context() -> None:
    _, place = _manifest()
    schema = place["payload_schema"]

    assert set(schema["properties"]) == {"items", "to", "gift"}
    assert schema["required"] == ["items", "to"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["gift"] == {"type": "boolean", "default": False}
    assert schema["properties"]["to"]["properties"]["street"]["type"] == "string"
    assert schema["properties"]["items"]["items"] == {"$ref": "#/$defs/Item"}
    assert schema["$defs"]["Item"]["required"] == ["name"]
