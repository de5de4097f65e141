"""Conditions on payloads, and which strike means a job."""

import json
import random
from collections.abc import Iterable
from typing import Any

import pytest

from forge_jobs.errors import InvalidInput
from forge_jobs.model.strikes import (
    Condition,
    Effect,
    Strike,
    StrikeRule,
    parse_condition,
    read_strike,
    strike_text,
)
from forge_jobs.policy import strikes as policy
from forge_jobs.policy.strikes import Judge, holds

PAYLOAD = {
    "amount": 10,
    "rate": 2.5,
    "region": "eu",
    "vip": True,
    "note": None,
    "items": [1, 2],
    "customer": {"id": 7},
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("amount == 10", True),
        ("amount == 10.0", True),
        ("amount==11", False),
        ("amount != 11", True),
        ("amount != 10", False),
        ("amount < 11", True),
        ("amount < 10", False),
        ("amount <= 10", True),
        ("amount > 9.5", True),
        ("amount > 10", False),
        ("amount >= 10", True),
        ("amount >= 11", False),
        ("amount between [10, 20]", True),
        ("amount between [0, 10]", True),
        ("amount between [11, 20]", False),
        ("amount in [1, 10]", True),
        ("rate < 3", True),
        ('region == "eu"', True),
        ('region > "da"', True),
        ('region in ["us", "eu"]', True),
        ('region between ["da", "fr"]', True),
        ("customer.id == 7", True),
        ('customer == {"id": 7}', True),
        ("items == [1, 2]", True),
        ("items == [1, 2, 3]", False),
        ("vip == true", True),
        ("note == null", True),
        ("note in [null]", True),
    ],
)
def test_a_condition_compares_values_of_one_type(text: str, expected: bool) -> None:
    assert holds(parse_condition(text), PAYLOAD) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # No value equals one of another type, and there is no order between types.
        ('amount == "10"', False),
        ('amount != "10"', True),
        ("vip == 1", False),
        ("vip != 1", True),
        ("vip in [1]", False),
        ("items == [true, 2]", False),
        ('amount < "z"', False),
        ('amount >= "a"', False),
        ('amount between ["a", "z"]', False),
        ("vip > 0", False),
        ("note < 1", False),
        ("note != 1", True),
        ("items > 0", False),
        ("customer < 1", False),
        # No condition holds for a field that is missing.
        ("gone == 1", False),
        ("gone != 1", False),
        ("gone == null", False),
        ("gone in [null]", False),
        ("customer.gone != 1", False),
        ("amount.id != 1", False),
        ("items.0 == 1", False),
    ],
)
def test_another_type_and_a_missing_field_never_raise(text: str, expected: bool) -> None:
    assert holds(parse_condition(text), PAYLOAD) is expected


@pytest.mark.parametrize("payload", [None, [], "text", 5, True, {}])
def test_a_payload_that_is_no_object_holds_no_condition(payload: Any) -> None:
    assert not holds(Condition("a", "!=", 1), payload)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "amount",
        "amount ==",
        "== 5",
        "amount = 5",
        "amount == eu",
        "amount < null",
        "amount < true",
        "amount < [1]",
        "amount in 5",
        "amount between 5",
        "amount between [1]",
        "amount between [1, null]",
        "amount == " + "[" * 100_000,
    ],
)
def test_a_bad_condition_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"customer_id == 7"):
        parse_condition(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("amount in []", "the list behind 'in' is empty"),
        ("amount between [5, 1]", "the lower bound is above the upper one"),
        ('region between ["b", "a"]', "the lower bound is above the upper one"),
        ('amount between [0, "z"]', "nothing is between a number and a text"),
    ],
)
def test_a_condition_that_never_holds_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=f"where: holds for no job, because {why}"):
        parse_condition(text)
    # One that an earlier release has stored says so, and is lifted as any other.
    stored = json.dumps({**json.loads(strike_text(StrikeRule(kind="k"), "ada")), "where": text})
    assert f"because {why}" in read_strike("old", stored, None).unreadable


def test_bounds_may_be_equal() -> None:
    assert holds(parse_condition("amount between [10, 10]"), PAYLOAD)


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"reason": "no kind"},
        {"kind": 5},
        {"kind": "k", "where": "amount"},
        {"kind": "k", "effect": "maybe"},
        {"kind": "k", "reason": "x" * 1001},
        {"kind": "a\0b"},
    ],
)
def test_a_bad_rule_is_refused(parts: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        StrikeRule(**parts)


def a_strike(name: str, **rule: Any) -> Strike:
    return Strike(name=name, rule=StrikeRule(**rule), by="ada", at=None)


def unasked() -> str:
    raise AssertionError("the payload is not needed")


def test_a_strike_by_kind_needs_no_payload() -> None:
    judge = Judge([a_strike("mail", kind="mail")])
    struck = judge.verdict("mail", unasked)
    assert struck is not None
    assert struck.name == "mail"
    assert judge.verdict("report", unasked) is None


def test_kind_and_condition_hold_together_and_a_condition_alone_means_every_kind() -> None:
    both = Judge([a_strike("both", kind="mail", where="n == 1")])
    assert both.verdict("mail", lambda: '{"n": 1}') is not None
    assert both.verdict("mail", lambda: '{"n": 2}') is None
    assert both.verdict("report", unasked) is None
    assert Judge([a_strike("any", where="n == 1")]).verdict("x", lambda: '{"n": 1}') is not None


def test_of_several_strikes_one_that_cancels_comes_first_then_the_name_decides() -> None:
    strikes = [
        a_strike("b", kind="mail"),
        a_strike("a", kind="mail"),
        a_strike("c", where="n == 1", effect=Effect.CANCEL),
    ]
    names = [Judge(strikes).verdict("mail", lambda n=n: f'{{"n": {n}}}').name for n in (1, 2)]  # type: ignore[misc, union-attr]
    assert names == ["c", "a"]


@pytest.mark.parametrize("error", [ValueError("no key"), RuntimeError("changed")])
def test_a_payload_that_cannot_be_read_holds_no_condition(error: Exception) -> None:
    def payload() -> str:
        raise error

    judge = Judge([a_strike("by payload", where="n != 1"), a_strike("by kind", kind="mail")])
    assert judge.verdict("report", payload) is None
    assert judge.verdict("report", lambda: "{") is None
    struck = judge.verdict("mail", payload)
    assert struck is not None
    assert struck.name == "by kind"


def test_a_stored_strike_is_read_back_and_a_spoilt_one_holds_nothing() -> None:
    rule = StrikeRule(kind="mail", where="n == 1", effect=Effect.CANCEL, reason="broken")
    again = read_strike("s", strike_text(rule, "ada"), None)
    assert (again.rule, again.by, again.unreadable) == (rule, "ada", "")
    for text in ("", "{", "[]", '{"kind": 5}', '{"effect": "hold"}', '{"kind": "k"}'):
        spoilt = read_strike("s", text, None)
        assert spoilt.unreadable
        assert not Judge([spoilt])


WHERES = (
    *(f"n == {value}" for value in (1, 1.0, '"1"', "true", "null", "[1]", '{"a": 1}', 2**60)),
    *(f"n != {value}" for value in (1, "true", "null")),
    'n in [1, "1"]',
    "n in [null, true]",
    "n in [[1], 2]",
    "n > 0",
    'n >= "1"',
    "n between [0, 1]",
    "n.a == 1",
    "n.a in [1, 2]",
    "other == 1",
    "",
)
VALUES = (
    None,
    True,
    False,
    0,
    1,
    1.0,
    1.5,
    "1",
    "",
    [1],
    [1.0],
    [True],
    {"a": 1},
    {"a": True},
    2**60,
)


@pytest.mark.parametrize("seed", range(60))
def test_many_strikes_judge_as_each_asked_in_its_order_would(seed: int) -> None:
    drawn = random.Random(seed)
    strikes = []
    for number in range(drawn.choice((1, 3, 12))):
        where = drawn.choice(WHERES)
        kind = drawn.choice(("", "mail", "report") if where else ("mail", "report"))
        effect = drawn.choice(list(Effect))
        strikes.append(a_strike(f"s{number}", kind=kind, where=where, effect=effect))
    judge = Judge(strikes)
    ordered = sorted(strikes, key=lambda each: (each.rule.effect is not Effect.CANCEL, each.name))
    for kind in ("mail", "report", "other"):
        for payload in ({}, *({"n": value, "other": 1} for value in VALUES)):
            expected = [
                each.name
                for each in ordered
                if each.rule.kind in {"", kind}
                and ((asked := each.rule.condition()) is None or holds(asked, payload))
            ]
            found = judge.verdict(kind, lambda payload=payload: json.dumps(payload))  # type: ignore[misc]
            assert (None if found is None else found.name) == next(iter(expected), None)


def test_a_thousand_strikes_on_values_are_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[object] = []
    look = policy._at

    def counted(payload: object, path: Iterable[str]) -> object:
        looks.append(path)
        return look(payload, path)

    monkeypatch.setattr(policy, "_at", counted)
    judge = Judge([a_strike(f"s{n}", where=f"customer.id == {n}") for n in range(1_000)])
    found = judge.verdict("mail", lambda: '{"customer": {"id": 900}}')
    assert found is not None
    assert (found.name, len(looks)) == ("s900", 1)
