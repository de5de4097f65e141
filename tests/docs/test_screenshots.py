"""The pictures of the dashboard in the manual: all of them, small, and no others."""

from pathlib import Path

from tests.browser.pictures import MOST_BYTES, NAMES

FOLDER = Path(__file__).parents[2] / "docs" / "pictures" / "dashboard"


def test_there_is_a_picture_of_each_page_and_all_are_small() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == NAMES
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= MOST_BYTES


def test_the_pictures_are_png() -> None:
    for path in FOLDER.iterdir():
        assert path.read_bytes().startswith(b"\x89PNG"), path.name
