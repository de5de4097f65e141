"""Arguments of the bench commands."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.peers import environments
from bench.peers.arq import Arq
from bench.peers.environments import name_of, requirements_of
from bench.peers.huey import Huey, HueyUnsafe
from bench.stores import Used, kind_of
from bench.suite import chosen

NAMES = ["drain-10", "drain-100", "pickup", "idle"]


def test_nothing_chosen_is_everything() -> None:
    assert chosen((), NAMES) == NAMES


def test_a_choice_is_what_begins_so_in_its_own_order() -> None:
    assert chosen(("pick", "drain-1"), NAMES) == ["drain-10", "drain-100", "pickup"]


def test_a_choice_that_matches_nothing_is_refused_with_what_there_is() -> None:
    with pytest.raises(ValueError, match=r"'rain' is none of drain-10, drain-100, pickup, idle"):
        chosen(("rain",), NAMES)


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("postgresql://host/name", "postgres"),
        ("postgres", "postgres"),
        ("rediss://host", "redis"),
        ("redis+cluster://host", "redis"),
        ("sqlite:///file.db", "sqlite"),
    ],
)
def test_the_kind_of_a_store_follows_from_its_url(url: str, kind: str) -> None:
    assert kind_of(url) == kind


def test_an_unknown_store_is_refused() -> None:
    with pytest.raises(ValueError, match="mysql"):
        kind_of("mysql://host")


def test_what_was_used_is_the_difference_of_what_both_readings_tell() -> None:
    later, earlier = Used(cpu=3.0, statements=70), Used(cpu=1.0, wal=5)

    assert later.since(earlier) == Used(cpu=2.0)


def test_peers_share_an_environment_only_when_they_need_the_same() -> None:
    names = {name_of(requirements_of(side), side.python) for side in (Arq, Huey, HueyUnsafe)}

    assert len(names) == 2
    assert name_of(("huey==3.5.4",), "") != name_of(("huey==3.5.4",), "3.12")


def test_an_environment_is_named_after_its_first_requirement() -> None:
    assert name_of(("saq[redis,hiredis]==0.26.4", "uvloop"), "").startswith("saq-")


@pytest.mark.long
def test_an_environment_that_several_miss_at_once_is_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    make = environments._make

    def counted(folder: Path, requirements: tuple[str, ...], version: str) -> None:
        made.append(folder)
        make(folder, requirements, version)

    monkeypatch.setattr(environments, "ROOT", tmp_path)
    monkeypatch.setattr(environments, "FOLDER", tmp_path / "environments")
    monkeypatch.setattr(environments, "_make", counted)
    # Every new environment brings pip along.
    wanted = ("pip",)
    with ThreadPoolExecutor(3) as threads:
        found = set(threads.map(environments.installed, [wanted] * 3))

    [python] = found
    assert python.exists()
    assert len(made) == 1
