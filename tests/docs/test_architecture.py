"""The tour of the code: figures are those of today, and places exist."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = ROOT / "forge_jobs"
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
# A place of a table is named from one of these on.
ROOMS = (CODE, CODE / "storage" / "sql", CODE / "storage" / "redis")


def steps() -> list[str]:
    """The steps of the tour."""
    tour = PAGE[PAGE.index("\n1. `forge_jobs/") : PAGE.index("An import only ever")]
    return re.split(r"\n(?=\d\. )", tour.strip())


def named(step: str) -> Iterator[Path | str]:
    """Yield the modules that a step names, or the name of one that is nowhere."""
    folders = [ROOT / each for each in re.findall(r"`(forge_jobs/[\w/]+)/`", step)]
    below = [folder / each for folder in folders for each in re.findall(r"`(\w[\w/]*)/`", step)]
    for name in re.findall(r"`([\w/]+\.py)`", step):
        found = [each / name for each in (*folders, *below, CODE) if (each / name).exists()]
        yield found[0] if found else name


def stated(pattern: str) -> int:
    """The number that the first sentence states."""
    found = re.search(pattern, PAGE)
    assert found, pattern
    return int(found[1].replace(",", ""))


def test_the_tour_takes_as_long_as_the_page_says() -> None:
    modules = {each for step in steps() for each in named(step)}
    assert [each for each in modules if isinstance(each, str)] == []
    paths = [each for each in modules if isinstance(each, Path)]
    assert stated(r"in the (\d+) modules") == len(paths)
    contract = sorted((CODE / "storage" / "protocols").glob("*.py"))
    assert stated(r"order: ([\d,]+) words") == pytest.approx(len(PAGE.split()), rel=0.1)
    assert stated(r"here, ([\d,]+) lines") == pytest.approx(lines(paths), rel=0.1)
    assert stated(r"and ([\d,]+) lines of the contract") == pytest.approx(lines(contract), rel=0.1)


def lines(paths: list[Path]) -> int:
    return sum(len(path.read_text("utf-8").splitlines()) for path in paths)


def rows() -> list[str]:
    changes = PAGE.partition("## Changes, and where they are made")[2].partition("\n## ")[0]
    return [line for line in changes.splitlines() if line.startswith("| ")][1:]


@pytest.mark.parametrize("row", rows(), ids=lambda row: str(row).split("|")[1].strip())
def test_every_place_of_a_change_exists(row: str) -> None:
    for cell in row.split("|")[2:]:
        before = Path()
        for name in re.findall(r"`([\w/.]+)`", cell):
            # A bare name lies beside the place before.
            places = [room / each for room in ROOMS for each in (name, before / name)]
            assert any(place.exists() for place in places), name
            before = Path(name).parent


@pytest.mark.parametrize("row", rows(), ids=lambda row: str(row).split("|")[1].strip())
def test_a_change_is_in_at_most_two_rooms_of_a_store(row: str) -> None:
    for cell in row.split("|")[3:5]:
        # A bare name lies in the room before.
        rooms = {name.partition("/")[0] for name in re.findall(r"`([\w/.]+)`", cell) if "/" in name}
        assert len(rooms) <= 2


def test_there_are_at_least_ten_changes() -> None:
    assert len(rows()) >= 10
