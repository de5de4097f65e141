"""Queue settings, pauses and cool-downs: the first half of ``ConfigStore``."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.errors import InvalidInput, NotFound
from forge_jobs.model.processes import PodLease
from forge_jobs.model.queues import (
    CooldownPolicy,
    LimitHolders,
    QueueChange,
    QueueSettings,
    QueueState,
    RateLimit,
    Retention,
)
from forge_jobs.model.strikes import StrikeRule
from forge_jobs.model.transitions import Cooldown
from forge_jobs.storage.protocols import ConfigStore, Storage
from tests.support.factories import (
    DAY,
    LEASE,
    MICROSECOND,
    QUEUE,
    SECOND,
    claim,
    enqueue_one,
    failed,
    register,
    run_one,
)

pytestmark = pytest.mark.anyio

COOLDOWN = CooldownPolicy(
    mode="exponential",
    base=timedelta(milliseconds=1, microseconds=7),
    cap=timedelta(days=3),
    quiet=timedelta(seconds=5),
)
RETENTION = Retention(
    done=timedelta(0),
    dead=timedelta(days=400, microseconds=1),
    cancelled=timedelta(hours=1),
    max_done=0,
    max_dead=7,
    max_cancelled=None,
)
SETTINGS = QueueSettings(max_workers=12, cooldown=COOLDOWN, retention=RETENTION)


async def state_of(storage: Storage, name: str = QUEUE) -> QueueState:
    return {state.name: state for state in await storage.config.queues()}[name]


async def cool_down(storage: Storage, lease: PodLease, length: timedelta, level: int = 1) -> None:
    await enqueue_one(storage)
    await run_one(storage, lease, failed(DAY, cooldown=Cooldown(length, level)))


# -- settings ----------------------------------------------------------------------------------


async def test_declared_settings_come_back_whole(storage: Storage) -> None:
    state = await storage.config.ensure_queue("a'b {%s} ü", SETTINGS)
    assert state == QueueState(
        name="a'b {%s} ü",
        settings=SETTINGS,
        overridden=frozenset(),
        paused=False,
        cooldown_remaining=timedelta(0),
        cooldown_level=0,
        cooldown_ended_for=None,
    )
    assert await storage.config.queues() == [state]


async def test_code_may_change_what_no_operator_has_set(storage: Storage) -> None:
    await storage.config.ensure_queue(QUEUE, QueueSettings(max_workers=3))
    state = await storage.config.ensure_queue(QUEUE, SETTINGS)
    assert state.settings == SETTINGS
    assert (await state_of(storage)).settings == SETTINGS


async def test_an_operators_settings_stay_over_later_declarations_field_by_field(
    storage: Storage,
) -> None:
    await storage.config.ensure_queue(QUEUE, QueueSettings(max_workers=3))
    state = await storage.config.set_queue(QUEUE, QueueChange(max_workers=50))
    assert state.settings == QueueSettings(max_workers=50)
    assert state.overridden == {"max_workers"}
    state = await storage.config.ensure_queue(QUEUE, SETTINGS)
    assert state.settings == QueueSettings(max_workers=50, cooldown=COOLDOWN, retention=RETENTION)
    state = await storage.config.set_queue(QUEUE, QueueChange(retention=Retention()))
    assert state.overridden == {"max_workers", "retention"}
    state = await storage.config.ensure_queue(QUEUE, QueueSettings(max_workers=9))
    assert state.settings == QueueSettings(max_workers=50)
    assert state.overridden == {"max_workers", "retention"}


async def test_a_setting_set_to_what_code_says_is_overridden_all_the_same(
    storage: Storage,
) -> None:
    await storage.config.ensure_queue(QUEUE, QueueSettings(max_workers=3))
    await storage.config.set_queue(QUEUE, QueueChange(max_workers=3))
    await storage.config.ensure_queue(QUEUE, QueueSettings(max_workers=8))
    assert (await state_of(storage)).settings.max_workers == 3


async def test_zero_workers_can_be_set(storage: Storage) -> None:
    state = await storage.config.set_queue(QUEUE, QueueChange(max_workers=0))
    assert state.settings.max_workers == 0
    assert state.overridden == {"max_workers"}


async def test_an_edit_creates_the_queue_with_default_settings(storage: Storage) -> None:
    state = await storage.config.set_queue("new", QueueChange(cooldown=COOLDOWN))
    assert state.settings == QueueSettings(cooldown=COOLDOWN)
    assert state.overridden == {"cooldown"}


async def test_an_edit_of_nothing_overrides_nothing(storage: Storage) -> None:
    await storage.config.ensure_queue(QUEUE, SETTINGS)
    state = await storage.config.set_queue(QUEUE, QueueChange())
    assert (state.settings, state.overridden) == (SETTINGS, frozenset())


async def test_an_edit_wakes_beats_and_the_coordinator(storage: Storage) -> None:
    await storage.jobs.wait_for_work(frozenset(), timedelta(0))
    await storage.config.set_queue(QUEUE, QueueChange(max_workers=2))
    wake = await storage.jobs.wait_for_work(frozenset(), timedelta(seconds=20))
    assert wake.beat
    assert wake.fleet


async def test_queues_are_listed_by_name(storage: Storage) -> None:
    for name in ("b", "Z", "a", "é", "a.b"):
        await storage.config.ensure_queue(name, QueueSettings())
    assert [state.name for state in await storage.config.queues()] == sorted(
        ["b", "Z", "a", "é", "a.b"]
    )


async def test_a_queue_that_was_only_enqueued_to_is_known_with_default_settings(
    storage: Storage,
) -> None:
    await enqueue_one(storage, queue="implicit")
    assert (await state_of(storage, "implicit")).settings == QueueSettings()


async def test_settings_reach_the_pods_by_their_beat(storage: Storage, lease: PodLease) -> None:
    await storage.config.set_queue(QUEUE, QueueChange(max_workers=4, cooldown=COOLDOWN))
    beat = await storage.jobs.heartbeat(lease, [], LEASE)
    assert beat.queues[QUEUE].state == await state_of(storage)


async def test_concurrent_edits_of_different_fields_all_stay(storage: Storage) -> None:
    await asyncio.gather(
        storage.config.set_queue(QUEUE, QueueChange(max_workers=4)),
        storage.config.set_queue(QUEUE, QueueChange(cooldown=COOLDOWN)),
        storage.config.set_queue(QUEUE, QueueChange(retention=RETENTION)),
        *(storage.config.ensure_queue(QUEUE, QueueSettings()) for _ in range(5)),
    )
    state = await state_of(storage)
    assert state.overridden == {"max_workers", "cooldown", "retention"}
    assert state.settings == QueueSettings(max_workers=4, cooldown=COOLDOWN, retention=RETENTION)


# -- pauses ------------------------------------------------------------------------------------


async def test_a_paused_queue_gives_no_claims_until_it_is_resumed(
    storage: Storage, lease: PodLease
) -> None:
    await enqueue_one(storage)
    assert (await storage.config.set_paused(QUEUE, True)).paused
    assert (await state_of(storage)).paused
    assert await claim(storage, lease) == []
    assert not (await storage.config.set_paused(QUEUE, False)).paused
    assert len(await claim(storage, lease)) == 1


async def test_a_queue_says_since_when_it_is_paused(storage: Storage, clock: ManualClock) -> None:
    assert (await storage.config.ensure_queue(QUEUE, QueueSettings())).paused_since is None
    began = clock.now()
    assert (await storage.config.set_paused(QUEUE, True)).paused_since == began
    clock.advance(timedelta(hours=1))
    assert (await storage.config.set_paused(QUEUE, True)).paused_since == began, "paused already"
    assert (await state_of(storage)).paused_since == began
    assert (await storage.config.set_paused(QUEUE, False)).paused_since is None
    assert (await storage.config.set_paused(QUEUE, True)).paused_since == clock.now()


async def test_a_pause_survives_a_declaration(storage: Storage) -> None:
    await storage.config.ensure_queue(QUEUE, QueueSettings())
    await storage.config.set_paused(QUEUE, True)
    assert (await storage.config.ensure_queue(QUEUE, SETTINGS)).paused
    assert (await storage.config.set_queue(QUEUE, QueueChange(max_workers=2))).paused


async def test_pausing_wakes_beats_and_concerns_one_queue(storage: Storage) -> None:
    for name in ("a", "b"):
        await storage.config.ensure_queue(name, QueueSettings())
    await storage.jobs.wait_for_work(frozenset(), timedelta(0))
    await storage.config.set_paused("a", True)
    assert (await storage.jobs.wait_for_work(frozenset(), timedelta(seconds=20))).beat
    assert not (await state_of(storage, "b")).paused


async def test_pausing_an_unknown_queue_is_an_error_that_names_it(storage: Storage) -> None:
    with pytest.raises(NotFound, match="nowhere"):
        await storage.config.set_paused("nowhere", True)
    assert await storage.config.queues() == []


# -- cool-downs --------------------------------------------------------------------------------


async def test_a_cooldown_lasts_to_its_last_microsecond(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await cool_down(storage, lease, 10 * SECOND, level=3)
    await enqueue_one(storage)
    state = await state_of(storage)
    assert (state.cooldown_remaining, state.cooldown_level) == (10 * SECOND, 3)
    assert state.cooldown_ended_for == timedelta(0)
    clock.advance(10 * SECOND - MICROSECOND)
    assert (await state_of(storage)).cooldown_remaining == MICROSECOND
    assert await claim(storage, lease) == []
    clock.advance(MICROSECOND)
    state = await state_of(storage)
    assert state.cooldown_remaining == timedelta(0)
    assert state.cooldown_ended_for == timedelta(0)
    assert len(await claim(storage, lease)) == 1
    clock.advance(7 * SECOND)
    state = await state_of(storage)
    assert (state.cooldown_ended_for, state.cooldown_level) == (7 * SECOND, 3)


async def test_clearing_a_cooldown_ends_it_and_forgets_its_level(
    storage: Storage, lease: PodLease
) -> None:
    await cool_down(storage, lease, 3600 * SECOND, level=5)
    await enqueue_one(storage)
    state = await storage.config.clear_cooldown(QUEUE)
    assert (state.cooldown_remaining, state.cooldown_level) == (timedelta(0), 0)
    assert state == await state_of(storage)
    assert len(await claim(storage, lease)) == 1


async def test_clearing_where_nothing_cools_down_changes_nothing(storage: Storage) -> None:
    before = await storage.config.ensure_queue(QUEUE, SETTINGS)
    assert await storage.config.clear_cooldown(QUEUE) == before


async def test_clearing_the_cooldown_of_an_unknown_queue_is_an_error(storage: Storage) -> None:
    with pytest.raises(NotFound, match="nowhere"):
        await storage.config.clear_cooldown("nowhere")


async def test_a_cooldown_survives_declarations_and_edits(
    storage: Storage, lease: PodLease
) -> None:
    await cool_down(storage, lease, 60 * SECOND, level=2)
    await storage.config.ensure_queue(QUEUE, SETTINGS)
    state = await storage.config.set_queue(QUEUE, QueueChange(max_workers=3))
    assert (state.cooldown_remaining, state.cooldown_level) == (60 * SECOND, 2)
    await register(storage)
    assert (await state_of(storage)).cooldown_level == 2


async def test_an_objective_is_declared_by_code_and_overruled_by_operators(
    storage: Storage,
) -> None:
    aim = "99.95% within 2m"
    state = await storage.config.ensure_queue(QUEUE, QueueSettings(objective=aim))
    assert (state.settings.objective, state.overridden) == (aim, frozenset())
    state = await storage.config.ensure_queue(QUEUE, QueueSettings(objective="9% within 1d"))
    assert state.settings.objective == "9% within 1d"
    state = await storage.config.set_queue(QUEUE, QueueChange(objective=""))
    assert (state.settings.objective, state.overridden) == ("", frozenset({"objective"}))
    state = await storage.config.ensure_queue(QUEUE, QueueSettings(objective=aim, max_workers=3))
    assert (state.settings.objective, state.settings.max_workers) == ("", 3)
    await storage.config.set_queue(QUEUE, QueueChange(objective=aim))
    await storage.config.set_queue(QUEUE, QueueChange(max_workers=4))
    assert (await state_of(storage)).settings.objective == aim


# -- what code declares, beside what operators set ----------------------------------------------


async def test_what_code_declares_is_kept_beside_what_an_operator_has_set(
    storage: Storage,
) -> None:
    config = storage.config
    await config.set_queue("of an operator", QueueChange(max_workers=9))
    assert await config.settings_of_code() == {}

    await config.ensure_queue(QUEUE, QueueSettings(max_workers=3))
    await config.set_queue(QUEUE, QueueChange(max_workers=7))
    await config.ensure_queue(QUEUE, SETTINGS)

    assert await config.settings_of_code() == {QUEUE: SETTINGS}
    assert (await state_of(storage)).settings.max_workers == 7
    await config.delete_queue(QUEUE)
    await config.set_queue(QUEUE, QueueChange(max_workers=1))
    assert await config.settings_of_code() == {}


async def test_a_setting_goes_back_to_what_code_declares_and_follows_code_again(
    storage: Storage,
) -> None:
    config = storage.config
    await config.ensure_queue(QUEUE, SETTINGS)
    others = Retention(done=DAY)
    await config.set_queue(QUEUE, QueueChange(max_workers=7, retention=others, objective=""))

    change = QueueChange(back=frozenset({"retention", "cooldown"}), max_workers=8)
    state = await config.set_queue(QUEUE, change)

    assert state.overridden == frozenset({"max_workers", "objective"})
    assert state.settings.retention == RETENTION
    assert (state.settings.cooldown, state.settings.max_workers) == (COOLDOWN, 8)
    state = await config.ensure_queue(QUEUE, QueueSettings(retention=others, max_workers=2))
    assert (state.settings.retention, state.settings.max_workers) == (others, 8)
    assert await state_of(storage) == state


async def test_what_no_code_declares_goes_back_to_the_default(storage: Storage) -> None:
    await storage.config.set_queue(QUEUE, QueueChange(max_workers=7, dead_letter="mail"))
    everything = frozenset(QueueSettings.__struct_fields__)
    state = await storage.config.set_queue(QUEUE, QueueChange(back=everything))
    assert (state.settings, state.overridden) == (QueueSettings(), frozenset())


async def test_fewer_slots_by_the_way_back_reach_the_coordinator(
    storage: Storage, lease: PodLease
) -> None:
    await storage.config.ensure_queue(QUEUE, QueueSettings(max_workers=2))
    await storage.config.set_queue(QUEUE, QueueChange(max_workers=5))
    [before] = await storage.procs.allocations()
    await storage.config.set_queue(QUEUE, QueueChange(back=frozenset({"max_workers"})))
    [after] = await storage.procs.allocations()
    assert (before.max_workers, after.max_workers) == (5, 2)
    assert after.version != before.version


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"back": frozenset({"workers"})}, "'workers', which is no setting"),
        ({"back": frozenset({"max_workers"}), "max_workers": 3}, "has a new value too"),
    ],
)
def test_a_way_back_names_settings_that_get_no_other_value(
    change: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidInput, match=problem):
        QueueChange(**change)


ONE = RateLimit(1)
RULE = StrikeRule(kind="mail")
NAMING: dict[str, tuple[str, Callable[[ConfigStore, str], Awaitable[object]]]] = {
    "ensure_queue": ("name", lambda config, name: config.ensure_queue(name, QueueSettings())),
    "set_queue": ("name", lambda config, name: config.set_queue(name, QueueChange(max_workers=2))),
    "ensure_rate_limit": ("scope", lambda config, name: config.ensure_rate_limit(name, ONE)),
    "set_rate_limit": ("scope", lambda config, name: config.set_rate_limit(name, ONE)),
    "put_strike": ("name", lambda config, name: config.put_strike(name, RULE, "ada")),
    "ensure_limits": ("limit", lambda config, name: config.ensure_limits(QUEUE, {name: 1})),
    "ensure_limits of": ("queue", lambda config, name: config.ensure_limits(name, {"hosts": 1})),
    "ensure_limits of none": ("queue", lambda config, name: config.ensure_limits(name, {})),
    "set_limit": ("limit", lambda config, name: config.set_limit(QUEUE, name, 1)),
    "set_limit of": ("queue", lambda config, name: config.set_limit(name, "hosts", 1)),
}
"""By call: what the error calls the name."""


NO_NAMES = {"": "is empty", "a,b": "contains a comma", "a\nb": "contains a control character"}


@pytest.mark.parametrize("call", NAMING)
async def test_nothing_is_made_under_a_text_that_is_no_name(storage: Storage, call: str) -> None:
    field, make = NAMING[call]
    for name, problem in NO_NAMES.items():
        with pytest.raises(InvalidInput, match=f"^{field}: {problem}.*; give 1 to 200") as refused:
            await make(storage.config, name)
        assert refused.value.field == field
    config = storage.config
    made = (await config.queues(), await config.rate_limits(), await config.limits())
    assert (*made, await config.strikes()) == ([], [], [], [])


async def test_nothing_is_deleted_under_a_text_that_is_no_name(storage: Storage) -> None:
    await storage.config.ensure_limits(QUEUE, {"hosts": 1})
    for queue, name in (("", "hosts"), (QUEUE, "")):
        with pytest.raises(NotFound, match=f"queue '{queue}' has no limit '{name}'"):
            await storage.config.delete_limit(queue, name)
    for call in (
        storage.config.delete_queue,
        storage.config.clear_cooldown,
        lambda name: storage.config.set_paused(name, True),
    ):
        with pytest.raises(NotFound, match="no queue ''"):
            await call("")
    assert await storage.config.limit_keys("", "hosts") == []
    assert await storage.config.limit_holders("", "hosts", "a") == LimitHolders()
    [left] = await storage.config.limits()
    assert (left.queue, left.name) == (QUEUE, "hosts")
