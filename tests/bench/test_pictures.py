"""The pictures of docs/pictures show the figures that bench/results holds."""

import hashlib
import json
import re
from pathlib import Path

import pytest

from bench.pictures.__main__ import draw

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench" / "results"
PICTURES = ROOT / "docs" / "pictures"


def test_a_result_says_how_it_was_made() -> None:
    for path in RESULTS.glob("*.json"):
        made = json.loads(path.read_text())["made"]
        assert set(made) == {"command", "at", "commit"}
        assert str(path.relative_to(ROOT)) in made["command"]


def test_no_picture_is_older_than_its_figures() -> None:
    kept = {f"{path.name} {_digest(path)}" for path in RESULTS.glob("*.json")}
    drawn = {_source(path) for path in PICTURES.glob("*.svg")}

    assert kept
    assert drawn == kept


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _source(picture: Path) -> str:
    [source] = re.findall(r"<dc:source>(.+)</dc:source>", picture.read_text())
    return str(source)


@pytest.mark.long
def test_the_pictures_are_drawn_again_as_they_are(tmp_path: Path) -> None:
    draw(RESULTS, tmp_path)

    drawn = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert drawn == {path.name: path.read_text() for path in PICTURES.glob("*.svg")}
