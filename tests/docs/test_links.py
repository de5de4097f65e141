"""Links between pages, and from pages to files, lead somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("folder", [".", "docs", "adr", "tests", "examples", "bench/results"])
def test_relative_links_lead_to_files(folder: str) -> None:
    pages = sorted((ROOT / folder).glob("*.md"))
    assert pages
    dead = {page.name: _dead_links(page) for page in pages}
    assert {page: links for page, links in dead.items() if links} == {}


def _dead_links(page: Path) -> list[str]:
    """Return the targets of the page's relative links that are not there."""
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    targets = [link.split("#")[0] for link in links if not re.match(r"\w+:|#", link)]
    return [target for target in targets if not (page.parent / target).exists()]
