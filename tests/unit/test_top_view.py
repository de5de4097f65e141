"""Keys and the screen of ``forge-jobs top``, without a terminal and without a store."""

import io
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from forge_jobs.cli.commands.terminal.screen.drawing import drawn
from forge_jobs.cli.commands.terminal.screen.keys import keys_in
from forge_jobs.cli.commands.terminal.screen.limits import rows_of
from forge_jobs.cli.commands.terminal.screen.view import Deed, Verb, View
from forge_jobs.model.ids import JobId
from forge_jobs.model.looks import FullKey
from forge_jobs.model.queues import RateLimit
from forge_jobs.operating.board.documents import Board, QueueLine, Run
from forge_jobs.operating.settings.concurrency import ConcurrencyLine
from forge_jobs.operating.settings.documents import RateLimitView

HOSTILE = ("\x1b[2Jx", "a\rb", "\x07", "[bold]b[/bold]", "\u202egnp", "x\x00y", "é", "名前" * 30)


def _queue(
    name: str, *, waited: int | None = None, dead: int = 0, paused: bool = False
) -> QueueLine:
    return QueueLine(
        name=name,
        running=1,
        granted=2,
        max_workers=4,
        due=3,
        oldest_due_for=None if waited is None else timedelta(seconds=waited),
        dead=dead,
        paused=paused,
        standing="open",
    )


def _run(job_id: str, queue: str = "a") -> Run:
    return Run(
        job_id=JobId(job_id),
        queue=queue,
        kind="image.crop",
        pod="pod",
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        running_for=timedelta(seconds=9),
        cancel_requested=False,
        attempt=1,
        progress=None,
    )


def _view(*queues: QueueLine, runs: tuple[Run, ...] = ()) -> View:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    board = Board(store="test", at=at, queues=queues, pods=(), runs=runs, more_runs=0)
    return View(store="test", board=board)


def _press(view: View, text: str) -> list[Deed]:
    return [deed for key in keys_in(text) if (deed := view.press(key)) is not None]


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("jk", ["j", "k"]),
        ("\x1b[A\x1b[B\x1bOA", ["up", "down", "up"]),
        ("\x1b[5~\x1b[1;5Cq", ["q"]),
        ("\x1b", ["escape"]),
        ("a\r\t\x7f\x01é", ["a", "enter", "tab", "backspace", "é"]),
    ],
)
def test_sequences_of_keys_are_keys(text: str, keys: list[str]) -> None:
    assert list(keys_in(text)) == keys


def test_a_capital_acts_only_after_a_yes() -> None:
    view = _view(_queue("a"))
    assert _press(view, "P") == []
    assert _press(view, "n") == []
    assert _press(view, "y") == []
    assert _press(view, "Py") == [Deed(Verb.PAUSE, ("a",), "pause queue a")]


def test_what_was_asked_is_what_is_done_whatever_comes_meanwhile() -> None:
    view = _view(_queue("a", waited=9), _queue("b"))
    _press(view, "P")
    view.board = _view(_queue("b", waited=99), _queue("c")).board
    assert _press(view, "y") == [Deed(Verb.PAUSE, ("a",), "pause queue a")]


def test_a_line_stays_chosen_while_others_come_and_go() -> None:
    view = _view(_queue("a", waited=3), _queue("b", waited=2), _queue("c", waited=1))
    _press(view, "j")
    view.board = _view(_queue("b", waited=2), _queue("z", waited=9), _queue("c", waited=1)).board
    assert view.at("queues") == "b"
    assert _press(view, "Py") == [Deed(Verb.PAUSE, ("b",), "pause queue b")]


def test_a_paused_queue_is_resumed_and_dead_jobs_are_counted() -> None:
    view = _view(_queue("a", dead=7, paused=True))
    assert _press(view, "Py") == [Deed(Verb.RESUME, ("a",), "resume queue a")]
    assert _press(view, "Ry") == [Deed(Verb.REQUEUE, ("a",), "requeue 7 dead jobs of queue a")]
    assert _press(_view(_queue("a")), "Ry") == []
    assert _press(_view(), "PyRyCy") == []


def test_a_filter_hides_what_does_not_match() -> None:
    view = _view(_queue("mail"), _queue("crops"), runs=(_run("1", "mail"), _run("2", "crops")))
    _press(view, "/MAX\x7fI\r")
    assert (view.names("queues"), view.names("runs")) == (["mail"], ["1"])
    assert _press(view, "q") == [Deed(Verb.QUIT)]
    _press(view, "/\x1b")
    assert len(view.names("queues")) == 2


def test_letters_of_a_filter_are_no_keys() -> None:
    view = _view(_queue("a"))
    assert _press(view, "/qP") == []
    assert (view.filter, view.asked) == ("qP", None)


def test_capitals_act_on_all_that_is_selected() -> None:
    queues = (_queue("a", waited=3, dead=2), _queue("b", waited=2), _queue("c", waited=1, dead=5))
    view = _view(*queues, runs=(_run("1"), _run("2"), _run("3")))
    assert _press(view, "xjjxPy") == [Deed(Verb.PAUSE, ("a", "c"), "pause 2 queues")]
    assert _press(view, "Ry") == [Deed(Verb.REQUEUE, ("a", "c"), "requeue 7 dead jobs of 2 queues")]
    assert _press(view, "gjACy") == [Deed(Verb.CANCEL, ("1", "2", "3"), "cancel 3 jobs")]
    assert _press(view, "AjCy") == [Deed(Verb.CANCEL, ("2",), "cancel job 2")]
    assert _press(view, "gqxjxjxPn") == []
    view.board = _view(_queue("a", paused=True), _queue("c", paused=True)).board
    view.picked = {"queues": frozenset({"a", "b", "c"})}
    assert _press(view, "Py") == [Deed(Verb.RESUME, ("a", "c"), "resume 2 queues")]
    view.board = _view(_queue("a", paused=True), _queue("c")).board
    assert _press(view, "Py") == [Deed(Verb.PAUSE, ("c",), "pause queue c")]


def test_a_letter_behind_g_goes_to_a_part() -> None:
    view = _view(_queue("a"), runs=(_run("1"),))
    assert _press(view, "gj") == []
    assert (view.part, view.mode) == ("runs", "list")
    assert _press(view, "gz") == []
    assert (view.part, view.mode) == ("runs", "list")
    assert _press(view, "gq") == []
    assert view.part == "queues"
    assert _press(view, "q") == [Deed(Verb.QUIT)]


@given(
    keys=st.text(alphabet="qjkgxAPCRyn/?\t\r\x1b\x7fa", max_size=30),
    width=st.integers(1, 220),
    height=st.integers(1, 60),
)
def test_whatever_is_pressed_the_screen_is_drawn_and_fits(
    keys: str, width: int, height: int
) -> None:
    queues = [_queue(f"{name}{at}", waited=at, dead=at) for at, name in enumerate(HOSTILE)]
    runs = tuple(_run(f"{at}{name}", name) for at, name in enumerate(HOSTILE))
    view = _view(*queues, runs=runs)
    view.away = HOSTILE[0]
    for key in keys_in(keys):
        view.press(key)
    console = Console(width=width, height=height, color_system=None)
    with console.capture() as captured:
        console.print(drawn(view, width=width, height=height), end="")
    text = captured.get()
    assert not set(text) & set("\x1b\r\x07\x00\u202e")
    assert "a b" in text or width < 200 or height < 40 or view.mode != "list" or view.filter


def _limit(name: str, *, waiting: int = 0, keys: tuple[FullKey, ...] = ()) -> ConcurrencyLine:
    return ConcurrencyLine(
        queue="a",
        name=name,
        at_most=2,
        overridden=False,
        running=4,
        waiting=waiting,
        full=len(keys),
        full_keys=keys,
    )


def _full(key: str) -> FullKey:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    begun = at - timedelta(minutes=9)
    return FullKey(
        key=key, running=2, waiting=3, due_at=begun, claimed_at=begun, kinds=("image.crop",)
    )


def _rate(scope: str, taken: int | None = 0, refused: int | None = 0) -> RateLimitView:
    return RateLimitView(
        scope=scope,
        limit=RateLimit(9, 60),
        available=5,
        overridden=False,
        taken_a_minute=taken,
        refused_a_minute=refused,
    )


def test_limits_with_their_full_keys_are_a_part_of_the_screen() -> None:
    view = _view(_queue("a"), runs=(_run("j1"),))
    rate = _rate("api", taken=4, refused=1_200)
    idle, busy = _limit("idle"), _limit("hosts", waiting=3, keys=(_full(HOSTILE[0]), _full("")))
    view.limit_rows = rows_of([idle, busy], [rate, _rate("quiet"), _rate("cut", None, None)])
    console = Console(width=160, height=40, record=True, file=io.StringIO())
    console.print(drawn(view, width=160, height=40))
    lines = [line.split() for line in console.export_text().splitlines()]
    [at] = [number for number, line in enumerate(lines) if line[:1] == ["LIMIT"]]
    assert [line[0] for line in lines[at + 1 : at + 6]] == ["hosts"] * 3 + ["idle", "api"]
    assert lines[at + 1][1:4] == ["a", "4,", "2"]
    assert lines[at + 3][1:] == ["a", "(all)", "2/2", "3", "9m", "9m"]
    said = " ".join(lines[at + 5][1:8])
    assert said == "(rate) 5/9 tokens, 4 taken 1,200 refused/min"
    assert [line[1:5] for line in lines[at + 6 : at + 8]] == [["(rate)", "5/9", "tokens", "-"]] * 2


def test_keys_go_to_limits_and_pass_over_them_where_there_are_none() -> None:
    view = _view(_queue("a"), runs=(_run("j1"),))
    assert [_press(view, "\t"), view.part] == [[], "runs"]
    assert [_press(view, "\t"), view.part] == [[], "queues"]
    view.limit_rows = rows_of([_limit("hosts", waiting=3, keys=(_full("b"), _full("c")))], [])
    _press(view, "\t")
    assert (view.part, view.at("limits")) == ("limits", "a\nhosts\n")
    _press(view, "jj")
    assert view.at("limits") == "a\nhosts\n=c"
    _press(view, "gqgl/=\x1b")
    assert (view.part, view.at("limits")) == ("limits", "a\nhosts\n=c")
    _press(view, "/c\r")
    assert view.names("limits") == ["a\nhosts\n=c"]
    assert _press(view, "\r") == []
    assert view.mode == "list"
