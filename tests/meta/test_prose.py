"""Tests of the counts in tests/meta/prose.py."""

import pytest

from tests.meta import prose


@pytest.mark.parametrize(
    ("source", "banned", "openers", "semicolons", "it"),
    [
        ('"""Return the jobs of these ids."""', 0, 0, 0, 0),
        ('"""What becomes of the jobs; its end."""', 0, 1, 1, 1),
        ('"""The name, for whoever is told."""', 2, 0, 0, 0),
        ("class _Desk:\n    pass", 1, 0, 0, 0),
        ("x = 1; y = 'it; nobody'", 0, 0, 0, 0),
        ("# Wait for nobody; it ends.", 1, 0, 0, 1),
    ],
)
def test_docstrings_and_comments_are_counted_and_code_is_not(
    source: str, banned: int, openers: int, semicolons: int, it: int
) -> None:
    counted = prose.of_python(source)
    assert counted[1:] == (it, banned, openers, semicolons)


def test_markdown_is_counted_without_code_tables_and_addresses() -> None:
    page = """
It ends; [a pod](its;page.md) is told `it;`.

| it | told; |
|---|---|

```python
it; told
```
"""
    assert prose.of_markdown(page)[1:] == (1, 1, 0, 1)


def test_each_folder_of_the_table_exists() -> None:
    assert [folder for folder in prose.BOUNDS if not (prose.ROOT / folder).exists()] == []
