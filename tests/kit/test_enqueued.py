"""``assert_enqueued``: which jobs fit, and what is said where none does."""

from typing import Any
from unittest.mock import ANY

import pytest

from forge_jobs import InvalidInput
from forge_jobs.testing import Kit
from tests.kit import shop

pytestmark = pytest.mark.anyio


@pytest.fixture
async def kit(forge_kit: Kit) -> Kit:
    """A kit with two receipts and an order."""
    await forge_kit.enqueue(shop.send_receipt.request(7), priority=3, metadata={"by": "web"})
    await forge_kit.enqueue(shop.send_receipt.request(8), delay=3600)
    await forge_kit.enqueue(shop.pack.request(shop.Order(9, "gift")))
    return forge_kit


@pytest.mark.parametrize(
    ("kind", "expected", "count"),
    [
        (shop.send_receipt, {}, 2),
        ("mail.receipt", {"payload": {"order": 7}}, 1),
        (None, {}, 3),
        (shop.send_receipt, {"payload": {"order": 9}}, 0),
        (shop.pack, {"payload": {"order": {"note": "gift"}}}, 1),
        (shop.pack, {"payload": {"order": shop.Order(9, "gift")}}, 1),
        (shop.pack, {"payload": {"order": ANY}}, 1),
        (shop.send_receipt, {"queue": "mail", "tags": ("mail",)}, 2),
        (shop.send_receipt, {"priority": 3, "metadata": {"by": "web"}}, 1),
        (shop.send_receipt, {"due_in": 3600}, 1),
        (shop.send_receipt, {"status": "done"}, 0),
    ],
)
async def test_what_fits(kit: Kit, kind: Any, expected: dict[str, Any], count: int) -> None:
    assert len(await kit.assert_enqueued(kind, count=count, **expected)) == count


async def message_of(kit: Kit, *what: Any, **expected: Any) -> str:
    """Return the text of the failed assertion."""
    with pytest.raises(AssertionError) as raised:
        await kit.assert_enqueued(*what, **expected)
    return str(raised.value)


async def test_jobs_of_the_kind_come_with_the_difference(kit: Kit) -> None:
    said = await message_of(kit, shop.send_receipt, payload={"order": 9}, queue="post")
    assert said.splitlines() == [
        "expected a job with kind 'mail.receipt', payload {'order': 9}, queue 'post'; found none.",
        "Of kind 'mail.receipt', but different:",
        "  mail.receipt {'order': 7} in queue mail: pending"
        " (queue is 'mail', not 'post'; payload['order'] is 7, not 9)",
        "  mail.receipt {'order': 8} in queue mail: pending, due in 1h"
        " (queue is 'mail', not 'post'; payload['order'] is 8, not 9)",
        "Of other kinds:",
        "  shop.pack {'order': {'number': 9, 'note': 'gift'}} in queue default: pending",
    ]


async def test_another_number_of_jobs(kit: Kit) -> None:
    said = await message_of(kit, shop.send_receipt, count=1)
    assert said.startswith("expected 1 job with kind 'mail.receipt'; found 2.\nThese fit:\n")
    said = await message_of(kit, shop.send_receipt, payload={"order": 7}, count=0)
    assert said.splitlines() == [
        "expected no job with kind 'mail.receipt', payload {'order': 7}; found 1.",
        "These fit:",
        "  mail.receipt {'order': 7} in queue mail: pending",
    ]


async def test_a_missing_argument_is_named(kit: Kit) -> None:
    said = await message_of(kit, shop.pack, payload={"order": {"colour": "red"}, "at": 1})
    assert "(payload['order'] has no 'colour'; payload has no 'at')" in said


async def test_an_empty_store_is_said_to_be_empty(forge_kit: Kit) -> None:
    said = await message_of(forge_kit, "mail.receipt")
    assert said.endswith(
        "No job is stored at all. Does the program enqueue into the store of the fixture?"
    )


async def test_a_long_list_is_cut(forge_kit: Kit) -> None:
    for number in range(25):
        await forge_kit.enqueue(shop.send_receipt.request(number))
    said = await message_of(forge_kit, "shop.pack")
    assert len(said.splitlines()) == 23
    assert said.endswith("  and 5 more")


@pytest.mark.parametrize(
    ("expected", "field"),
    [
        ({"colour": "red"}, "colour"),
        ({"payload": 7}, "payload"),
        ({"status": "gone"}, "status"),
    ],
)
async def test_a_misspelt_expectation_is_refused(
    forge_kit: Kit, expected: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidInput, match=f"^{field}"):
        await forge_kit.assert_enqueued("mail.receipt", **expected)


async def test_what_is_no_kind_is_refused(forge_kit: Kit) -> None:
    with pytest.raises(InvalidInput, match=r"^kind"):
        await forge_kit.assert_enqueued(7)  # type: ignore[arg-type]
