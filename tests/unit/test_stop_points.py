"""Stop points that tests arm."""

import re
from pathlib import Path

import pytest

from forge_jobs import stop_points
from tests.support.points import FailingPoint, armed

SOURCE = Path(stop_points.__file__).parent


def test_every_point_that_has_a_name_stands_somewhere() -> None:
    source = "\n".join(file.read_text() for file in SOURCE.rglob("*.py"))
    reached = set(re.findall(r'reach(?:_now)?\("([a-z]+:[a-z]+)"\)', source))
    for moment in re.findall(r'_reach\("([a-z]+)"', source):
        reached |= {f"claim:{moment}", f"finalize:{moment}"}

    assert reached == stop_points.STOP_POINTS


def test_a_point_that_does_not_exist_cannot_be_armed() -> None:
    with pytest.raises(ValueError, match=r"'claim:sent' is no stop point; known are actions"):
        stop_points.arm("claim:sent", lambda: None)


@pytest.mark.anyio
async def test_a_point_does_what_it_is_armed_with_and_nothing_afterwards() -> None:
    fails = FailingPoint(times=5)
    with armed("run:start", fails), pytest.raises(Exception, match="lost on purpose"):
        await stop_points.reach("run:start")
    await stop_points.reach("run:start")

    assert fails.raised == 1
    assert not stop_points.ARMED
