"""Files of others are the ones that the list names, with their licences beside."""

import pytest

from tests.browser.assets import ROOT, Kept, digest, kept


@pytest.mark.parametrize("each", kept(), ids=lambda each: each.package)
def test_a_kept_file_is_the_listed_one(each: Kept) -> None:
    target = ROOT / each.target
    assert digest(target.read_bytes()) == each.sha256
    assert target.with_name(f"{target.name.partition('.')[0]}.LICENSE").stat().st_size > 0
