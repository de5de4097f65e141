"""Verdicts of a comparison."""

from bench.peers.catalog import BEST, PEERS, TARGETS
from bench.peers.table import Row, best, compare, lines, verdicts


def _row(side: str, *runs: float | None, after: bool = True, error: str = "") -> Row:
    return Row(
        store="redis",
        workload="drain-10",
        side=side,
        unit="jobs/s",
        acknowledges_after=after,
        runs=list(runs),
        costs={},
        error=error,
    )


def test_ours_is_compared_round_by_round() -> None:
    rows = [_row("ours", 10.0, 40.0), _row("theirs", 5.0, 10.0)]

    compare(rows, "ours")

    assert rows[0].versus == ()
    assert rows[1].versus == (2.0, 4.0)


def test_the_best_peer_is_the_fastest_that_acknowledges_after_the_run() -> None:
    rows = [
        _row("ours", 9.0),
        _row("careless", 8.0, after=False),
        _row("slow", 1.0),
        _row("fast", 3.0),
    ]
    compare(rows, "ours")

    assert (peer := best(rows)) is not None
    assert peer.side == "fast"


def test_a_target_is_reached_or_missed_by_the_median_ratio() -> None:
    rows = [_row("ours", 10.0, 10.0, 10.0), _row("theirs", 5.0, 5.0, 100.0)]
    compare(rows, "ours")

    assert "reached" in verdicts(rows, {BEST: 2.0})[0]
    assert "MISSED" in verdicts(rows, {"theirs": 2.1})[0]


def test_a_target_without_a_figure_to_compare_with_says_so() -> None:
    rows = [_row("ours", 10.0), _row("theirs", None, error="it fell over")]
    compare(rows, "ours")

    assert "no figure to compare with" in verdicts(rows, {BEST: 2.0})[0]
    assert any("it fell over" in line for line in lines(rows))


def test_the_fastest_side_stands_first_below_the_heading() -> None:
    rows = [_row("slow", 1.0), _row("fast", 3.0), _row("none", None, error="gone")]

    assert [line.split()[0] for line in lines(rows)[1:]] == ["fast", "slow", "none"]


def test_every_target_names_a_peer_of_its_store() -> None:
    for store, workloads in TARGETS.items():
        names = {side.name for side in PEERS[store]} | {BEST}
        for targets in workloads.values():
            assert set(targets) <= names


def test_every_peer_says_where_its_settings_come_from() -> None:
    for store, sides in PEERS.items():
        for side in sides:
            assert side.store == store
            assert side.settings, side.name
            assert all(side.settings.values()), side.name
