"""Writes of the coordinator: targets, grants that follow, and departures from equal shares."""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forge_jobs.model.ids import HostId
from forge_jobs.model.processes import Allocation, AllocationChange, Pod, Slots
from forge_jobs.policy.slots.plan import plan_allocations, unserved_kinds


def pods(count: int) -> list[HostId]:
    return [HostId(f"pod-{n:02}") for n in range(count)]


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


def plan_one(allocation: Allocation) -> AllocationChange | None:
    return next(iter(plan_allocations([allocation], ())), None)


A, B, C, D = pods(4)


class TestPlanAllocation:
    def test_the_first_pod_gets_everything(self) -> None:
        change = plan_one(an_allocation({A: (0, 0)}, 4))

        assert change is not None
        assert (change.queue, change.version) == ("gh", 7)
        assert change.slots == {A: Slots(4, 4)}

    def test_a_newcomer_gets_no_slot_before_the_others_gave_one_back(self) -> None:
        joined = plan_one(an_allocation({A: (4, 4), B: (0, 0)}, 4))
        lowered = plan_one(an_allocation({A: (2, 3), B: (2, 0)}, 4))

        assert joined is not None
        assert joined.slots == {A: Slots(2, 4), B: Slots(2, 0)}
        assert lowered is not None
        assert lowered.slots == {A: Slots(2, 3), B: Slots(2, 1)}

    def test_every_newcomer_gets_a_first_slot_before_any_gets_its_second(self) -> None:
        change = plan_one(an_allocation({A: (9, 7), B: (0, 0), C: (0, 0)}, 9))

        assert change is not None
        assert change.slots == {A: Slots(3, 7), B: Slots(3, 1), C: Slots(3, 1)}

    def test_a_pod_that_drains_is_to_have_none(self) -> None:
        change = plan_one(an_allocation({A: (2, 2), B: (2, 2)}, 4, frozenset({B})))

        assert change is not None
        assert change.slots == {A: Slots(4, 2), B: Slots(0, 2)}

    def test_lowering_the_maximum_lowers_targets_and_no_grant(self) -> None:
        change = plan_one(an_allocation({A: (4, 4), B: (4, 4)}, 2))

        assert change is not None
        assert change.slots == {A: Slots(1, 4), B: Slots(1, 4)}

    def test_the_steady_state_writes_nothing(self) -> None:
        assert plan_one(an_allocation({A: (2, 2), B: (2, 2)}, 4)) is None
        assert plan_one(an_allocation({}, 4)) is None

    def test_what_must_wait_for_others_is_written_once(self) -> None:
        # B gets slots when A has given them back, in the round after that.
        assert plan_one(an_allocation({A: (2, 4), B: (2, 0)}, 4)) is None

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
    """The allocation of a queue, and pods that give slots back in their own time."""

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
        # A lowered maximum takes no grants back, and nothing is added above the maximum.
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
    change = plan_one(an_allocation({A: (1, 0), B: (0, 0)}, max_workers))

    assert change is not None
    assert sum(slots.grant for slots in change.slots.values()) == max_workers


# -- all queues together -----------------------------------------------------------------------


def a_pod(host_id: HostId, *kinds: str, concurrency: int | None = None) -> Pod:
    return Pod(
        host_id=host_id,
        label="",
        queues=(),
        kinds=kinds,
        version="",
        process_id=1,
        concurrency=concurrency,
    )


def a_queue(name: str, max_workers: int, slots: Mapping[HostId, Slots]) -> Allocation:
    return Allocation(
        queue=name, version=1, max_workers=max_workers, pods=slots, draining=frozenset()
    )


def unshared(name: str, max_workers: int, members: Sequence[HostId]) -> Allocation:
    return a_queue(name, max_workers, dict.fromkeys(members, Slots(0, 0)))


def written(fleet: Sequence[Allocation], changes: Sequence[AllocationChange]) -> list[Allocation]:
    """The allocations after the changes, and after the pods gave back what is too much."""
    by_queue = {change.queue: change.slots for change in changes}
    return [
        a_queue(
            each.queue,
            each.max_workers,
            {
                pod: Slots(slots.target, min(slots.target, slots.grant))
                for pod, slots in by_queue.get(each.queue, each.pods).items()
            },
        )
        for each in fleet
    ]


def settled(
    fleet: Sequence[Allocation],
    members: Sequence[Pod],
    needs: Mapping[str, Mapping[str, int]] | None = None,
) -> list[Allocation]:
    """Return the fleet at rest: grants follow in a few rounds, targets stand after the first."""
    fleet = written(fleet, plan_allocations(fleet, members, needs))
    targets = targets_of(fleet)
    for _ in range(3):
        fleet = written(fleet, plan_allocations(fleet, members, needs))
        assert targets_of(fleet) == targets
    assert plan_allocations(fleet, members, needs) == []
    return list(fleet)


def targets_of(fleet: Sequence[Allocation]) -> dict[str, dict[HostId, int]]:
    return {each.queue: {pod: slots.target for pod, slots in each.pods.items()} for each in fleet}


def grants_of(fleet: Sequence[Allocation]) -> dict[str, dict[HostId, int]]:
    return {each.queue: {pod: slots.grant for pod, slots in each.pods.items()} for each in fleet}


class TestTheWorkOfAPlan:
    @pytest.mark.parametrize("max_workers", [1, 7])
    def test_it_grows_with_the_queues_and_not_with_their_square(self, max_workers: int) -> None:
        few, many = (calls_of_a_plan(queues, max_workers) for queues in (100, 400))

        assert many < 4.4 * few


def calls_of_a_plan(queues: int, max_workers: int) -> int:
    """How many functions are called when a pod joins those that share these queues."""
    fleet = [unshared(f"queue-{n}", max_workers, pods(9)) for n in range(queues)]
    shared = written(fleet, plan_allocations(fleet))
    newcomer = pods(10)[-1]
    joined = [
        a_queue(each.queue, max_workers, {**each.pods, newcomer: Slots(0, 0)}) for each in shared
    ]
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        changes = plan_allocations(joined)
    finally:
        sys.setprofile(None)
    assert len(changes) >= queues // 20
    return calls


class TestPodsThatRunOnlySoMany:
    def test_what_one_cannot_use_goes_to_the_other(self) -> None:
        fleet = [unshared("gh", 10, [A, B])]

        shared = settled(fleet, [a_pod(A, concurrency=2), a_pod(B)])

        assert grants_of(shared) == {"gh": {A: 2, B: 8}}

    def test_what_nobody_can_use_is_not_granted(self) -> None:
        fleet = [unshared("gh", 10, [A, B])]

        shared = settled(fleet, [a_pod(A, concurrency=2), a_pod(B, concurrency=3)])

        assert grants_of(shared) == {"gh": {A: 2, B: 3}}

    def test_the_limit_is_one_for_all_queues(self) -> None:
        fleet = [unshared("a", 4, [A, B]), unshared("b", 4, [A, B])]

        shared = grants_of(settled(fleet, [a_pod(A, concurrency=3), a_pod(B)]))

        assert sorted(shared[queue][A] for queue in "ab") == [1, 2]
        assert [sum(shared[queue].values()) for queue in "ab"] == [4, 4]

    def test_with_fewer_than_its_queues_it_keeps_the_last_slot_of_each(self) -> None:
        fleet = [unshared(name, 3, [A]) for name in "abcde"]

        shared = grants_of(settled(fleet, [a_pod(A, concurrency=2)]))

        assert [shared[queue][A] for queue in "abcde"] == [1, 1, 1, 1, 1]

    def test_a_grant_waits_until_the_pod_has_given_another_one_back(self) -> None:
        # Queue b is new: a slot of a is to become one of b, and A still runs two jobs of a.
        fleet = [a_queue("a", 2, {A: Slots(2, 2)}), unshared("b", 1, [A])]

        changes = plan_allocations(fleet, [a_pod(A, concurrency=2)])

        after = {change.queue: change.slots for change in changes}
        assert after == {"a": {A: Slots(1, 2)}, "b": {A: Slots(1, 0)}}

    @given(
        st.dictionaries(
            st.sampled_from([f"queue-{n}" for n in range(6)]),
            st.tuples(
                st.integers(0, 12), st.lists(st.sampled_from(pods(5)), min_size=1, unique=True)
            ),
            min_size=1,
        ),
        st.dictionaries(st.sampled_from(pods(5)), st.integers(1, 8)),
    )
    def test_no_slot_is_wasted_and_the_plan_is_stable(
        self, queues: dict[str, tuple[int, list[HostId]]], limits: dict[HostId, int]
    ) -> None:
        fleet = [unshared(name, most, members) for name, (most, members) in queues.items()]
        members = [a_pod(pod, concurrency=limits.get(pod)) for pod in pods(5)]

        shared = grants_of(settled(fleet, members))

        total: Counter[HostId] = Counter()
        for each in shared.values():
            total.update(each)
        for name, (most, _) in queues.items():
            granted = shared[name]
            assert sum(granted.values()) <= most
            if sum(granted.values()) < most:
                assert all(total[pod] >= limits.get(pod, 1_000) for pod in granted)
            assert most == 0 or any(granted.values())
        for pod, limit in limits.items():
            if total[pod] > limit:
                # Only this pod can take the slots that are too many.
                for shares in shared.values():
                    assert shares.get(pod, 0) == 0 or sum(shares.values()) == 1


class TestKindsThatOnlyPodsWithoutSlotsKnow:
    def test_a_slot_moves_to_a_pod_that_knows_the_kind(self) -> None:
        fleet = settled([unshared("gh", 2, [A, B])], [])
        fleet = [a_queue("gh", 2, {**fleet[0].pods, C: Slots(0, 0)})]
        members = [a_pod(A, "old"), a_pod(B, "old"), a_pod(C, "old", "new")]

        shared = settled(fleet, members, {"gh": {"new": 1}})

        grants = grants_of(shared)["gh"]
        assert grants[C] == 1
        assert sorted([grants[A], grants[B]]) == [0, 1]

    def test_as_many_move_as_its_jobs_need(self) -> None:
        fleet = [a_queue("gh", 3, {A: Slots(1, 1), B: Slots(1, 1), C: Slots(1, 1), D: Slots(0, 0)})]
        members = [*(a_pod(pod, "old") for pod in (A, B, C)), a_pod(D, "old", "new")]

        assert targets_of(settled(fleet, members, {"gh": {"new": 2}}))["gh"][D] == 2
        assert targets_of(settled(fleet, members, {"gh": {"new": 9}}))["gh"][D] == 3

    def test_no_more_move_than_the_pod_can_use(self) -> None:
        fleet = [unshared("gh", 3, [A, B])]
        members = [a_pod(A, "old"), a_pod(B, "new", concurrency=1)]

        assert grants_of(settled(fleet, members, {"gh": {"new": 3}})) == {"gh": {A: 2, B: 1}}

    def test_a_kind_that_only_the_others_know_keeps_a_slot(self) -> None:
        fleet = [a_queue("gh", 3, {A: Slots(1, 1), B: Slots(1, 1), C: Slots(1, 1), D: Slots(0, 0)})]
        members = [*(a_pod(pod, "old") for pod in (A, B, C)), a_pod(D, "new")]

        shares = targets_of(settled(fleet, members, {"gh": {"new": 9, "old": 1}}))["gh"]

        assert shares[D] == 2

    def test_of_two_kinds_and_one_slot_the_first_gets_it(self) -> None:
        fleet = [a_queue("gh", 1, {A: Slots(1, 1), B: Slots(0, 0)})]
        members = [a_pod(A, "a"), a_pod(B, "b")]

        assert targets_of(settled(fleet, members, {"gh": {"b": 1, "a": 1}}))["gh"] == {A: 0, B: 1}
        assert targets_of(settled(fleet, members, {"gh": {"a": 1, "b": 1}}))["gh"] == {A: 1, B: 0}

    def test_equal_shares_stay_where_every_kind_has_a_slot(self) -> None:
        fleet = settled([unshared("gh", 7, [A, B, C])], [])
        members = [a_pod(A, "old"), a_pod(B, "old"), a_pod(C, "old", "new")]

        assert plan_allocations(fleet, members, {"gh": {"new": 1, "old": 1}}) == []

    def test_a_kind_that_no_pod_knows_moves_nothing(self) -> None:
        fleet = settled([unshared("gh", 1, [A, B])], [])

        assert plan_allocations(fleet, [a_pod(A), a_pod(B)], {"gh": {"new": 5}}) == []

    @given(
        st.integers(1, 6),
        st.lists(st.sampled_from(["", "a", "b", "c", "ab", "bc"]), min_size=1, max_size=6),
        st.dictionaries(st.sampled_from("abc"), st.integers(1, 5)),
        st.dictionaries(st.sampled_from(pods(6)), st.integers(1, 2)),
    )
    def test_every_kind_has_a_slot_as_far_as_there_are_any_and_the_plan_is_stable(
        self,
        max_workers: int,
        known: list[str],
        wants: dict[str, int],
        limits: dict[HostId, int],
    ) -> None:
        hosts = pods(len(known))
        members = [
            a_pod(pod, *kinds, concurrency=limits.get(pod))
            for pod, kinds in zip(hosts, known, strict=True)
        ]
        fleet = [unshared("gh", max_workers, hosts), unshared("other", 2, hosts)]

        [shares, _] = settled(fleet, members, {"gh": wants})

        served = {
            kind
            for kind in wants
            if any(shares.pods[pod.host_id].target for pod in members if kind in pod.kinds)
        }
        possible = [kind for kind in wants if any(kind in kinds for kinds in known)]
        assert sum(slots.target for slots in shares.pods.values()) <= max_workers
        assert served >= set(possible[:max_workers])


def known(**letters: str) -> dict[HostId, frozenset[str]]:
    """Kinds of one letter, per pod."""
    hosts = {"A": A, "B": B, "C": C}
    return {hosts[name]: frozenset(kinds) for name, kinds in letters.items()}


class TestUnservedKinds:
    def test_there_are_none_where_all_pods_know_the_same(self) -> None:
        kinds = known(A="ab", B="ab")

        assert unserved_kinds(a_queue("gh", 1, {A: Slots(1, 1), B: Slots(0, 0)}), kinds) == set()

    def test_they_are_what_only_pods_without_slots_know(self) -> None:
        kinds = known(A="a", B="ab", C="c")
        slots = {A: Slots(1, 1), B: Slots(0, 0), C: Slots(0, 0)}

        assert unserved_kinds(a_queue("gh", 1, slots), kinds) == {"b", "c"}

    def test_a_slot_that_is_about_to_come_or_not_yet_given_back_counts(self) -> None:
        kinds = known(A="a", B="b", C="c")
        slots = {A: Slots(0, 1), B: Slots(1, 0), C: Slots(0, 0)}

        assert unserved_kinds(a_queue("gh", 1, slots), kinds) == {"c"}

    def test_a_queue_that_is_switched_off_needs_none(self) -> None:
        assert unserved_kinds(a_queue("gh", 0, {A: Slots(0, 0)}), known(A="a")) == set()
