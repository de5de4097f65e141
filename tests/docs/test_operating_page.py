"""The page of problems has a paragraph for each code there is, and for no other."""

import re
from pathlib import Path

from forge_jobs.policy.judgement.problems.problem import Code

PAGE = Path(__file__).parents[2] / "docs" / "operating.md"


def test_each_problem_has_a_paragraph() -> None:
    sections = dict(re.findall(r"^### (\w+)\n\n(.+)$", PAGE.read_text(), re.MULTILINE))

    assert set(sections) == set(Code)
    assert all(len(text) > 60 for text in sections.values())
