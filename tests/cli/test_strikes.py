"""``forge-jobs strikes``."""

import shlex

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


@pytest.mark.parametrize("name", ["provider down", "it's $HOME", "plain", "-x", "--help"])
def test_the_command_that_lifts_can_be_pasted_into_a_shell(forge: CommandLine, name: str) -> None:
    _, said = forge("strikes", "add", "--kind", "mail", "--", name).output.split("Lift it with: ")
    program, *words = shlex.split(said)
    assert program == "forge-jobs"
    assert f"{name}: lifted." in forge(*words).output


def test_a_preview_counts_and_sets_nothing(forge: CommandLine) -> None:
    for amount in (1, 2, 3):
        forge("enqueue", "pay", "--queue", "q", "--payload", f'{{"amount":{amount}}}')
    asked = ("strikes", "add", "big", "--kind", "pay", "--preview")
    assert "3 waiting jobs are meant now, and will be held before their run. Nothing is set." in (
        forge(*asked).output
    )
    told = forge(*asked, "--where", "amount >= 3", "--cancel").output
    assert "1 of the 3 waiting jobs is meant now, and will be cancelled before its run." in told
    found = forge.json(*asked, "--where", "amount >= 2")
    assert found == {"count": 2, "looked_at": 3, "more": False, "unknown": 0}
    assert "There is no strike." in forge("strikes", "list").output


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
