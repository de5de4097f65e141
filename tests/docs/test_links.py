"""Links between pages, and from pages to files, lead somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    str(page.relative_to(ROOT))
    for folder in (
        ROOT,
        ROOT / "docs",
        ROOT / "adr",
        ROOT / "tests",
        ROOT / "examples",
        ROOT / "bench" / "results",
    )
    for page in folder.glob("*.md")
)


@pytest.mark.parametrize("page", PAGES)
def test_relative_links_lead_to_files(page: str) -> None:
    file = ROOT / page
    links = re.findall(r"\]\(([^)\s]+)\)", file.read_text(encoding="utf-8"))
    targets = [link.split("#")[0] for link in links if not re.match(r"\w+:|#", link)]
    assert [target for target in targets if not (file.parent / target).exists()] == []
