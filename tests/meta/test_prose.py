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


@pytest.mark.parametrize(
    ("source", "banned", "openers", "semicolons", "it"),
    [
        ("-- Answers the jobs, 'it;' for none.\n", 0, 0, 0, 0),
        ("-- no-writes\n-- Whether a job is told; its end.\n-- uses: news\n", 1, 1, 1, 1),
        ("local a = 1 -- Nobody knows it; never.\n", 1, 0, 1, 1),
        ("local it = 'x -- told; it'; redis.call(it)\n", 0, 0, 0, 0),
        ("-- Adds a job.\nlocal a\n\n-- Each goes.\nlocal b\n", 0, 1, 0, 0),
    ],
)
def test_comments_of_lua_are_read_as_docstrings(
    source: str, banned: int, openers: int, semicolons: int, it: int
) -> None:
    assert prose.of_lua(source)[1:] == (it, banned, openers, semicolons)


def test_each_folder_of_the_table_exists() -> None:
    assert [folder for folder in prose.BOUNDS if not (prose.ROOT / folder).exists()] == []
