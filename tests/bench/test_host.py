"""The time that other virtual machines took is reported where the kernel counts that time."""

from pathlib import Path

import pytest

from bench.host import StealTime


def test_stolen_time_is_a_share_of_what_has_passed_on_all_processors(tmp_path: Path) -> None:
    source = tmp_path / "stat"
    source.write_text("cpu  100 0 50 800 10 0 5 40 7 0\ncpu0 1 2 3\n")
    stolen = StealTime(source)

    source.write_text("cpu  140 0 60 830 10 0 5 60 9 0\ncpu0 1 2 3\n")

    assert stolen.costs() == {"stolen, %": pytest.approx(20.0)}


def test_a_moment_without_a_tick_says_nothing(tmp_path: Path) -> None:
    source = tmp_path / "stat"
    source.write_text("cpu  100 0 50 800 10 0 5 40 7 0\n")

    assert StealTime(source).costs() == {}


def test_a_kernel_without_these_counters_says_nothing(tmp_path: Path) -> None:
    assert StealTime(tmp_path / "stat").costs() == {}
