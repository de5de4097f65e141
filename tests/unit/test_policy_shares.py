"""Slots: how they are shared out, and that the sum of grants never breaks the maximum."""

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forge_jobs.model.ids import HostId
from forge_jobs.model.processes import Allocation, Slots
from forge_jobs.policy.shares import (
    equal_shares,
    equal_shares_for,
    plan_allocation,
    plan_allocations,
)


def pods(count: int) -> list[HostId]:
    return [HostId(f"pod-{n:02}") for n in range(count)]


POD_SETS = st.lists(st.sampled_from(pods(12)), unique=True)
FLEETS = st.dictionaries(
    st.sampled_from([f"queue-{n}" for n in range(15)]),
    st.tuples(st.integers(0, 40), POD_SETS),
)


class TestEqualShares:
    @given(st.text(), st.integers(0, 100_000), POD_SETS)
    def test_they_add_up_and_differ_by_at_most_one(
        self, queue: str, max_workers: int, members: list[HostId]
    ) -> None:
        shares = equal_shares(queue, max_workers, members)

        assert set(shares) == set(members)
        if members:
            assert sum(shares.values()) == max_workers
            assert max(shares.values()) - min(shares.values()) <= 1

    @given(st.text(), st.integers(0, 50), POD_SETS, st.randoms(use_true_random=False))
    def test_the_order_of_pods_does_not_matter(
        self, queue: str, max_workers: int, members: list[HostId], rng: object
    ) -> None:
        backwards = [*reversed(members), *members[:1]]

        assert equal_shares(queue, max_workers, members) == equal_shares(
            queue, max_workers, backwards
        )

    def test_ten_over_three_is_four_three_three(self) -> None:
        assert sorted(equal_shares("gh", 10, pods(3)).values()) == [3, 3, 4]

    def test_the_remainder_goes_to_other_pods_for_other_queues(self) -> None:
        holders: set[HostId] = set()
        for n in range(60):
            shares = equal_shares(f"queue-{n}", 1, pods(6))
            holders |= {pod for pod, share in shares.items() if share}

        assert holders == set(pods(6))

    @given(st.text(), st.integers(0, 30), POD_SETS.filter(bool))
    def test_a_pod_that_leaves_hands_its_remainder_on_and_moves_no_other(
        self, queue: str, max_workers: int, members: list[HostId]
    ) -> None:
        leaver, *others = members
        # Compared at equal bases: only who holds a remainder may differ.
        remainder = max_workers % len(members)
        before = equal_shares(queue, remainder, members)
        after = equal_shares(queue, min(remainder, len(others)), others)
        moved = [pod for pod in others if before[pod] > after[pod]]

        assert not moved or remainder >= len(others)
        assert leaver not in after

    def test_a_maximum_below_zero_counts_as_zero(self) -> None:
        assert set(equal_shares("gh", -3, pods(2)).values()) == {0}


class TestEqualSharesOfManyQueues:
    def test_fifty_queues_of_one_worker_over_ten_pods_are_five_each(self) -> None:
        fleet = {f"queue-{n}": (1, pods(10)) for n in range(50)}

        assert set(slots_per_pod(equal_shares_for(fleet)).values()) == {5}

    @given(FLEETS)
    def test_each_queue_is_shared_equally(self, fleet: dict[str, tuple[int, list[HostId]]]) -> None:
        shares = equal_shares_for(fleet)

        assert set(shares) == set(fleet)
        for name, (max_workers, members) in fleet.items():
            assert set(shares[name]) == set(members)
            if members:
                assert sum(shares[name].values()) == max_workers
                assert max(shares[name].values()) - min(shares[name].values()) <= 1

    @given(
        st.dictionaries(st.text(max_size=5), st.integers(0, 40), max_size=30),
        POD_SETS.filter(bool),
    )
    def test_where_all_pods_declare_all_queues_remainders_are_even(
        self, maximums: dict[str, int], members: list[HostId]
    ) -> None:
        fleet = {name: (maximum, members) for name, maximum in maximums.items()}

        remainders = remainders_per_pod(equal_shares_for(fleet), fleet)

        held = [remainders[pod] for pod in members]
        assert max(held) - min(held) <= 1

    @given(FLEETS, FLEETS)
    def test_the_result_is_its_own_continuation(
        self,
        before: dict[str, tuple[int, list[HostId]]],
        fleet: dict[str, tuple[int, list[HostId]]],
    ) -> None:
        first = equal_shares_for(fleet, equal_shares_for(before))

        assert equal_shares_for(fleet, first) == first

    def test_one_more_pod_takes_its_part_and_moves_no_other(self) -> None:
        before = {f"queue-{n:02}": (1, pods(9)) for n in range(50)}
        after = {name: (1, pods(10)) for name in before}
        first = equal_shares_for(before)

        second = equal_shares_for(after, first)

        assert slots_per_pod(second)[pods(10)[-1]] == 5
        assert changed_holders(first, second) == 5

    def test_one_pod_fewer_hands_out_its_part_and_moves_no_other(self) -> None:
        before = {f"queue-{n:02}": (1, pods(10)) for n in range(50)}
        after = {name: (1, pods(9)) for name in before}
        first = equal_shares_for(before)

        second = equal_shares_for(after, first)

        assert sorted(slots_per_pod(second).values()) == [5, 5, 5, 5, 6, 6, 6, 6, 6]
        assert changed_holders(first, second) == 5

    def test_one_more_queue_moves_nothing_of_the_others(self) -> None:
        before = {f"queue-{n:02}": (1, pods(10)) for n in range(50)}
        first = equal_shares_for(before)

        second = equal_shares_for(before | {"queue-00a": (1, pods(10))}, first)

        assert {name: second[name] for name in before} == first

    def test_the_work_stays_small_for_a_large_fleet(self) -> None:
        fleet = {f"queue-{n}": (7, pods(12)) for n in range(200)}

        assert set(slots_per_pod(equal_shares_for(fleet)).values()) <= {116, 117}


def slots_per_pod(shares: Mapping[str, Mapping[HostId, int]]) -> Counter[HostId]:
    total: Counter[HostId] = Counter()
    for each in shares.values():
        total.update(each)
    return total


def remainders_per_pod(
    shares: Mapping[str, Mapping[HostId, int]], fleet: Mapping[str, tuple[int, Sequence[HostId]]]
) -> Counter[HostId]:
    held: Counter[HostId] = Counter()
    for name, (max_workers, members) in fleet.items():
        base = max_workers // len(members)
        held.update({pod: share - base for pod, share in shares[name].items()})
    return held


def changed_holders(
    first: Mapping[str, Mapping[HostId, int]], second: Mapping[str, Mapping[HostId, int]]
) -> int:
    return sum(
        {pod for pod, share in first[name].items() if share}
        != {pod for pod, share in second[name].items() if share}
        for name in first
    )


def an_allocation(
    slots: Mapping[HostId, tuple[int, int]],
    max_workers: int,
    draining: frozenset[HostId] = frozenset(),
) -> Allocation:
    return Allocation(
        queue="gh",
        version=7,
        max_workers=max_workers,
        pods={pod: Slots(target, grant) for pod, (target, grant) in slots.items()},
        draining=draining,
    )


A, B, C = pods(3)


class TestPlanAllocation:
    def test_the_first_pod_gets_everything(self) -> None:
        change = plan_allocation(an_allocation({A: (0, 0)}, 4))

        assert change is not None
        assert (change.queue, change.version) == ("gh", 7)
        assert change.slots == {A: Slots(4, 4)}

    def test_a_newcomer_gets_no_slot_before_the_others_gave_one_back(self) -> None:
        joined = plan_allocation(an_allocation({A: (4, 4), B: (0, 0)}, 4))
        lowered = plan_allocation(an_allocation({A: (2, 3), B: (2, 0)}, 4))

        assert joined is not None
        assert joined.slots == {A: Slots(2, 4), B: Slots(2, 0)}
        assert lowered is not None
        assert lowered.slots == {A: Slots(2, 3), B: Slots(2, 1)}

    def test_every_newcomer_gets_a_first_slot_before_any_gets_its_second(self) -> None:
        change = plan_allocation(an_allocation({A: (9, 7), B: (0, 0), C: (0, 0)}, 9))

        assert change is not None
        assert change.slots == {A: Slots(3, 7), B: Slots(3, 1), C: Slots(3, 1)}

    def test_a_pod_that_drains_is_to_have_none(self) -> None:
        change = plan_allocation(an_allocation({A: (2, 2), B: (2, 2)}, 4, frozenset({B})))

        assert change is not None
        assert change.slots == {A: Slots(4, 2), B: Slots(0, 2)}

    def test_a_pod_that_drains_gets_none_by_targets_from_elsewhere(self) -> None:
        change = plan_allocation(
            an_allocation({A: (0, 0), B: (0, 0)}, 4, frozenset({B})), {A: 2, B: 2}
        )

        assert change is not None
        assert change.slots == {A: Slots(2, 2), B: Slots(0, 0)}

    def test_lowering_the_maximum_lowers_targets_and_no_grant(self) -> None:
        change = plan_allocation(an_allocation({A: (4, 4), B: (4, 4)}, 2))

        assert change is not None
        assert change.slots == {A: Slots(1, 4), B: Slots(1, 4)}

    def test_the_steady_state_writes_nothing(self) -> None:
        assert plan_allocation(an_allocation({A: (2, 2), B: (2, 2)}, 4)) is None
        assert plan_allocation(an_allocation({}, 4)) is None

    def test_all_queues_are_planned_together_and_only_changes_come_out(self) -> None:
        fleet = [
            Allocation(
                queue=f"queue-{n}",
                version=n,
                max_workers=1,
                pods={pod: Slots(0, 0) for pod in pods(10)},
                draining=frozenset(),
            )
            for n in range(50)
        ]

        changes = plan_allocations(fleet)

        granted: Counter[HostId] = Counter()
        for change in changes:
            granted.update({pod: slots.grant for pod, slots in change.slots.items()})
        assert set(granted.values()) == {5}
        settled = [
            Allocation(
                queue=change.queue,
                version=change.version + 1,
                max_workers=1,
                pods=change.slots,
                draining=frozenset(),
            )
            for change in changes
        ]
        assert plan_allocations(settled) == []


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("join"), st.sampled_from(pods(6))),
        st.tuples(st.just("leave"), st.sampled_from(pods(6))),
        st.tuples(st.just("drain"), st.sampled_from(pods(6))),
        st.tuples(st.just("lower"), st.sampled_from(pods(6))),
        st.tuples(st.just("resize"), st.integers(0, 20)),
        st.tuples(st.just("coordinate"), st.none()),
    ),
    max_size=60,
)


class _Fleet:
    """One queue's allocation, and pods that give slots back in their own time."""

    def __init__(self, max_workers: int) -> None:
        self.max_workers = max_workers
        self.slots: dict[HostId, Slots] = {}
        self.draining: set[HostId] = set()

    def apply(self, event: str, value: object) -> None:
        if event == "resize":
            assert isinstance(value, int)
            self.max_workers = value
        elif event == "coordinate":
            self.coordinate()
        else:
            self._pod_event(event, HostId(str(value)))

    def _pod_event(self, event: str, pod: HostId) -> None:
        if event == "join":
            self.slots.setdefault(pod, Slots(0, 0))
        elif event == "leave":
            self.slots.pop(pod, None)
            self.draining.discard(pod)
        elif event == "drain" and pod in self.slots:
            self.draining.add(pod)
        elif event == "lower" and pod in self.slots:
            slots = self.slots[pod]
            self.slots[pod] = Slots(slots.target, min(slots.grant, slots.target))

    def allocation(self) -> Allocation:
        return Allocation(
            queue="gh",
            version=1,
            max_workers=self.max_workers,
            pods=dict(self.slots),
            draining=frozenset(self.draining),
        )

    def coordinate(self) -> bool:
        before = self.slots
        changes = plan_allocations([self.allocation()])
        if not changes:
            return False
        after = dict(changes[0].slots)
        assert set(after) == set(before)
        granted = sum(slots.grant for slots in after.values())
        was = sum(slots.grant for slots in before.values())
        assert granted <= max(self.max_workers, was)
        for pod, slots in after.items():
            assert slots.grant >= before[pod].grant
        self.slots = after
        return True


@given(st.integers(0, 20), EVENTS)
def test_grants_never_break_the_maximum_and_reach_their_targets(
    max_workers: int, events: list[tuple[str, object]]
) -> None:
    fleet = _Fleet(max_workers)
    most = max_workers
    for event, value in events:
        fleet.apply(event, value)
        granted = sum(slots.grant for slots in fleet.slots.values())
        # A lowered maximum does not take back what was granted, and nothing is added above it.
        most = max(fleet.max_workers, min(most, granted))
        assert granted <= most

    fleet.coordinate()
    for pod in list(fleet.slots):
        fleet.apply("lower", pod)
    fleet.coordinate()

    takers = [pod for pod in fleet.slots if pod not in fleet.draining]
    for pod, slots in fleet.slots.items():
        assert slots.grant == slots.target
        assert slots.target == 0 or pod in takers
    assert sum(slots.grant for slots in fleet.slots.values()) == (
        fleet.max_workers if takers else 0
    )
    assert not fleet.coordinate()


@pytest.mark.parametrize("max_workers", [0, 1, 100_000])
def test_extreme_maximums_are_planned(max_workers: int) -> None:
    change = plan_allocation(an_allocation({A: (1, 0), B: (0, 0)}, max_workers))

    assert change is not None
    assert sum(slots.grant for slots in change.slots.values()) == max_workers
