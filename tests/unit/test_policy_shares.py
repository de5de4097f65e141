"""Equal shares of one queue and of many."""

from collections import Counter
from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from forge_jobs.model.ids import HostId
from forge_jobs.policy.slots.shares import equal_shares


def pods(count: int) -> list[HostId]:
    return [HostId(f"pod-{n:02}") for n in range(count)]


def of_one(queue: str, max_workers: int, members: Sequence[HostId]) -> Mapping[HostId, int]:
    return equal_shares({queue: (max_workers, members)})[queue]


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
        shares = of_one(queue, max_workers, members)

        assert set(shares) == set(members)
        if members:
            assert sum(shares.values()) == max_workers
            assert max(shares.values()) - min(shares.values()) <= 1

    @given(st.text(), st.integers(0, 50), POD_SETS, st.randoms(use_true_random=False))
    def test_the_order_of_pods_does_not_matter(
        self, queue: str, max_workers: int, members: list[HostId], rng: object
    ) -> None:
        backwards = [*reversed(members), *members[:1]]

        assert of_one(queue, max_workers, members) == of_one(queue, max_workers, backwards)

    def test_ten_over_three_is_four_three_three(self) -> None:
        assert sorted(of_one("gh", 10, pods(3)).values()) == [3, 3, 4]

    def test_the_remainder_goes_to_other_pods_for_other_queues(self) -> None:
        holders: set[HostId] = set()
        for n in range(60):
            shares = of_one(f"queue-{n}", 1, pods(6))
            holders |= {pod for pod, share in shares.items() if share}

        assert holders == set(pods(6))

    @given(st.text(), st.integers(0, 30), POD_SETS.filter(bool))
    def test_a_pod_that_leaves_hands_its_remainder_on_and_moves_no_other(
        self, queue: str, max_workers: int, members: list[HostId]
    ) -> None:
        leaver, *others = members
        # Compared at equal bases: only who holds a remainder may differ.
        remainder = max_workers % len(members)
        before = of_one(queue, remainder, members)
        after = of_one(queue, min(remainder, len(others)), others)
        moved = [pod for pod in others if before[pod] > after[pod]]

        assert not moved or remainder >= len(others)
        assert leaver not in after

    def test_a_maximum_below_zero_counts_as_zero(self) -> None:
        assert set(of_one("gh", -3, pods(2)).values()) == {0}


class TestEqualSharesOfManyQueues:
    def test_fifty_queues_of_one_worker_over_ten_pods_are_five_each(self) -> None:
        fleet = {f"queue-{n}": (1, pods(10)) for n in range(50)}

        assert set(slots_per_pod(equal_shares(fleet)).values()) == {5}

    @given(FLEETS)
    def test_each_queue_is_shared_equally(self, fleet: dict[str, tuple[int, list[HostId]]]) -> None:
        shares = equal_shares(fleet)

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

        remainders = remainders_per_pod(equal_shares(fleet), fleet)

        held = [remainders[pod] for pod in members]
        assert max(held) - min(held) <= 1

    @given(FLEETS, FLEETS)
    def test_the_result_is_its_own_continuation(
        self,
        before: dict[str, tuple[int, list[HostId]]],
        fleet: dict[str, tuple[int, list[HostId]]],
    ) -> None:
        first = equal_shares(fleet, equal_shares(before))

        assert equal_shares(fleet, first) == first

    def test_one_more_pod_takes_its_part_and_moves_no_other(self) -> None:
        before = {f"queue-{n:02}": (1, pods(9)) for n in range(50)}
        after = {name: (1, pods(10)) for name in before}
        first = equal_shares(before)

        second = equal_shares(after, first)

        assert slots_per_pod(second)[pods(10)[-1]] == 5
        assert changed_holders(first, second) == 5

    def test_one_pod_fewer_hands_out_its_part_and_moves_no_other(self) -> None:
        before = {f"queue-{n:02}": (1, pods(10)) for n in range(50)}
        after = {name: (1, pods(9)) for name in before}
        first = equal_shares(before)

        second = equal_shares(after, first)

        assert sorted(slots_per_pod(second).values()) == [5, 5, 5, 5, 6, 6, 6, 6, 6]
        assert changed_holders(first, second) == 5

    def test_one_more_queue_moves_nothing_of_the_others(self) -> None:
        before = {f"queue-{n:02}": (1, pods(10)) for n in range(50)}
        first = equal_shares(before)

        second = equal_shares(before | {"queue-00a": (1, pods(10))}, first)

        assert {name: second[name] for name in before} == first

    def test_the_work_stays_small_for_a_large_fleet(self) -> None:
        fleet = {f"queue-{n}": (7, pods(12)) for n in range(200)}

        assert set(slots_per_pod(equal_shares(fleet)).values()) <= {116, 117}


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
