"""The bench of the floor of a pickup measures both sides by turns."""

from pathlib import Path

import pytest

from bench import floor

pytestmark = pytest.mark.anyio


async def test_both_sides_run_by_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(floor, "BLOCK", 2)

    await floor.measure("sqlite", f"sqlite:///{tmp_path}/floor.db", rounds=2)

    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == ["ours", "bare", "ours"]
    assert "ours to bare" in lines[-1]
