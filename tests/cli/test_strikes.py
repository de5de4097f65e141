"""``forge-jobs strikes``."""

import pytest

from tests.cli.conftest import CommandLine


def test_strikes_are_added_listed_and_lifted(forge: CommandLine) -> None:
    assert "There is no strike." in forge("strikes", "list").output
    added = forge.json("strikes", "add", "a", "--kind", "mail", "--reason", "provider down")
    assert (added["name"], added["rule"]["kind"], added["rule"]["effect"]) == ("a", "mail", "hold")
    assert added["by"]
    forge("strikes", "add", "b", "--where", "amount between [1, 2]", "--cancel")
    [first, second] = forge.json("strikes", "list")["strikes"]
    assert first == added
    assert (second["rule"]["where"], second["rule"]["effect"]) == (
        "amount between [1, 2]",
        "cancel",
    )
    shown = forge("strikes", "list").stdout
    for text in ("mail", "provider down", "any", "amount between [1, 2]", "cancel"):
        assert text in shown

    assert "a: lifted. Jobs that it held are ready." in forge("strikes", "lift", "a").output
    assert [each["name"] for each in forge.json("strikes", "list")["strikes"]] == ["b"]
    verbs = [each["verb"] for each in forge.json("actions", "list")["actions"]]
    assert {"add_strike", "lift_strike"} <= {*verbs}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("add", "a"), "kind: is missing, and where too"),
        (("add", "a", "--where", "amount"), "where: is 'amount'; give one like"),
        (("add", "a", "--where", "amount > null"), "where: asks for the order of null"),
        (("lift", "a"), "there is no strike 'a'"),
    ],
)
def test_bad_input_is_said_in_a_line(forge: CommandLine, words: tuple[str, ...], said: str) -> None:
    forge("queues", "set", "q", "--max-workers", "1")
    refused = forge.run("strikes", *words)
    assert refused.exit_code
    assert said in refused.output
