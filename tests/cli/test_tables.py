"""Tables fit the terminal they are shown on, and cut nothing that one would copy."""

import pytest

from forge_jobs.cli import output

ID = "01J00000000000000000000000"
COLUMNS = ["id", "state", "note"]
ROWS = [[ID, "waiting for a parent", "[red]x"], [ID, "done", ""]]


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "is_terminal", lambda: True)


def show(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    output.emit_table(COLUMNS, ROWS, none="")


def test_a_wide_terminal_shows_a_line_per_row(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    show(80, monkeypatch)

    header, first, second = capsys.readouterr().out.splitlines()
    assert header.split() == COLUMNS
    assert first.split() == [ID, "waiting", "for", "a", "parent", "[red]x"]
    assert second.split() == [ID, "done"]


def test_a_narrower_one_breaks_texts_between_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    show(46, monkeypatch)

    out = capsys.readouterr().out
    assert out.count(ID) == 2
    assert "…" not in out
    assert max(map(len, out.splitlines())) <= 46


def test_one_too_narrow_for_a_row_shows_records(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    show(30, monkeypatch)

    assert capsys.readouterr().out == (
        f"id:     {ID}\nstate:  waiting for a parent\nnote:   [red]x\n"
        f"\nid:     {ID}\nstate:  done\n"
    )
