"""Descriptions of kinds by pods: ``publish_kinds`` and ``published_kinds``."""

from datetime import timedelta

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.processes import KINDS_KEPT, PublishedKind
from forge_jobs.storage.protocols import Storage
from tests.support.factories import DAY

pytestmark = pytest.mark.anyio

HOSTILE = "a'b {%s} ü\n "


async def test_documents_come_back_by_kind_whole_and_the_newest_counts(storage: Storage) -> None:
    assert await storage.procs.published_kinds() == []
    await storage.procs.publish_kinds({"b": '{"v":1}', HOSTILE: '{"ü":"%s"}'})
    await storage.procs.publish_kinds({"b": '{"v":2}', "a": "{}"})
    await storage.procs.publish_kinds({})

    found = await storage.procs.published_kinds()

    documents = {each.kind: each.document for each in found}
    assert documents == {"a": "{}", HOSTILE: '{"ü":"%s"}', "b": '{"v":2}'}
    assert [each.kind for each in found] == sorted(documents)
    assert await storage.procs.published_kinds(["b", "none"]) == [found[-1]]
    assert await storage.procs.published_kinds([]) == []


async def test_a_kind_that_no_pod_describes_any_more_is_forgotten_late(
    storage: Storage, clock: ManualClock
) -> None:
    await storage.procs.publish_kinds({"old": "{}", "stays": "{}"})
    clock.advance(KINDS_KEPT - DAY)
    await storage.procs.publish_kinds({"stays": "{}"})
    assert len(await storage.procs.published_kinds()) == 2
    clock.advance(DAY)

    await storage.procs.publish_kinds({"new": "{}"})

    found = await storage.procs.published_kinds()
    now = await storage.cron.now()
    assert found == [
        PublishedKind(kind="new", document="{}", published_at=now),
        PublishedKind(kind="stays", document="{}", published_at=now - DAY),
    ]
    assert now - found[1].published_at < timedelta(days=2)


async def test_thousands_of_kinds_are_asked_for_at_once(storage: Storage) -> None:
    names = [f"kind {number:04}" for number in range(1_500)]
    await storage.procs.publish_kinds(dict.fromkeys(names, "{}"))
    assert len(await storage.procs.published_kinds(names)) == len(names)
