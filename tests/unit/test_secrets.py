"""Fields marked Secret: where they are found, and what people see in their place."""

from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import pydantic
import pytest

from forge_jobs.errors import InvalidInput, RegistrationError
from forge_jobs.handlers.handler import Handler
from forge_jobs.handlers.preparing import prepare
from forge_jobs.privacy.encryption import Encryption, Part
from forge_jobs.privacy.secrets import (
    SECRETS,
    Secret,
    marked,
    readable,
    secret_paths,
    secret_texts,
    with_secrets_of,
    without,
)


class Node(msgspec.Struct):
    password: Annotated[str, Secret]
    children: "list[Node]" = []


class Plain(msgspec.Struct):
    name: str
    children: "list[Plain]" = []


@dataclass
class Card:
    number: Annotated[str, Secret]
    pins: list[Annotated[int, Secret]]
    notes: dict[str, Annotated[str, Secret]] | None = None
    owner: str = ""


class Login(pydantic.BaseModel):
    user: str
    password: str = pydantic.Field(json_schema_extra={"writeOnly": True})


def paths_of(function: Any) -> tuple[tuple[str, ...], ...]:
    return secret_paths(Handler(function, "kind").signature.json_schema())


def test_marks_are_found_at_any_depth() -> None:
    def pay(amount: int, card: Card, token: Annotated[str, Secret] = "") -> None: ...

    assert set(paths_of(pay)) == {
        ("token",),
        ("card", "number"),
        ("card", "pins", "*"),
        ("card", "notes", "*"),
    }


def test_a_part_that_contains_itself_is_hidden_from_the_second_round_on() -> None:
    def walk(tree: Node, plain: Plain) -> None: ...

    assert set(paths_of(walk)) == {("tree", "password"), ("tree", "children", "*")}


def test_marks_of_pydantic_models_are_found() -> None:
    def log_in(login: Login) -> None: ...

    assert paths_of(log_in) == (("login", "password"),)


def test_a_pydantic_secret_that_would_be_stored_as_asterisks_is_refused() -> None:
    class Masked(pydantic.BaseModel):
        password: pydantic.SecretStr

    def log_in(login: Masked) -> None: ...

    with pytest.raises(RegistrationError, match=r"login.*asterisks.*writeOnly"):
        Handler(log_in, "kind")


def test_people_see_asterisks() -> None:
    def pay(amount: int, card: Card, token: Annotated[str, Secret] = "") -> None: ...

    card = Card("4111", [1234], {"a": "b"}, "me")
    handler: Handler[..., None] = Handler(pay, "pay")
    job = prepare(handler.request(5, card, token="t0ken"))
    metadata = msgspec.json.decode(job.metadata, type=dict[str, str])
    assert msgspec.json.decode(job.payload)["token"] == "t0ken"
    assert msgspec.json.decode(readable(job.payload, metadata)) == {
        "amount": 5,
        "card": {"number": "***", "pins": ["***"], "notes": {"a": "***"}, "owner": "me"},
        "token": "***",
    }


def test_a_payload_without_secrets_is_shown_byte_for_byte() -> None:
    text = '{"n": 18446744073709551615,  "x": 1.0}'
    assert readable(text, {}) == text


@pytest.mark.parametrize("spoilt", ["", "{", "[[1]]", '["a"]'])
def test_where_the_marks_cannot_be_read_all_is_hidden(spoilt: str) -> None:
    assert readable('{"password": "x"}', {SECRETS: spoilt}) == '"***"'


def test_a_payload_that_is_no_json_is_hidden_when_it_holds_secrets() -> None:
    assert readable("{broken", {SECRETS: marked([("a",)])}) == '"***"'


def test_of_an_encrypted_payload_the_key_is_named() -> None:
    encryption = Encryption([Encryption.new_key()])
    text = encryption.encrypt("{}", job_id="1", kind="k", part=Part.PAYLOAD)
    assert readable(text, {}) == f'"(encrypted with key {encryption.key_name})"'


def test_secrets_are_taken_out_of_texts_in_all_their_forms() -> None:
    paths = (("password",), ("pins", "*"), ("card",))
    payload = msgspec.json.encode(
        {"password": 'it\'s "quoted"\n', "pins": [987654, 12, None], "card": {"no": "4111-1111"}}
    ).decode()
    secrets = secret_texts(payload, paths)
    assert set(secrets) == {'it\'s "quoted"\n', "987654", "4111-1111"}
    error = f"{msgspec.json.decode(payload)!r} {payload} pin 987654 of 12"
    hidden = without(error, secrets)
    for secret in ("quoted", "987654", "4111-1111"):
        assert secret not in hidden
    assert "of 12" in hidden


STORED = '{"users":[{"name":"ada","pin":"one"},{"name":"bob","pin":"two"}],"keys":{"a":"three"}}'
MARKED = {SECRETS: marked([("users", "*", "pin"), ("keys", "*")])}


@pytest.mark.parametrize(
    ("old", "new", "expected", "is_another"),
    [
        ('"ada"', '"eve"', STORED.replace("ada", "eve"), False),
        ('"a":"***"', '"a":"four"', STORED.replace("three", "four"), True),
        # JSON may write the asterisks in another way.
        ('"***"', '"\\u002a**"', STORED, False),
        (',"keys":{"a":"***"}', "", STORED.replace(',"keys":{"a":"three"}', ""), True),
    ],
)
def test_secrets_that_a_person_left_hidden_stay(
    old: str, new: str, expected: str, is_another: bool
) -> None:
    given = readable(STORED, MARKED)
    assert old in given
    assert with_secrets_of(given.replace(old, new), STORED, MARKED) == (expected, is_another)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('{"name":"ada","pin":"***"},', ""),
        ('{"name":"ada"', '{"name":"eve","pin":"***"},{"name":"ada"'),
        ('"a":"***"', '"b":"***"'),
    ],
)
def test_a_hidden_secret_is_that_of_no_other_place(old: str, new: str) -> None:
    given = readable(STORED, MARKED)
    assert old in given
    with pytest.raises(InvalidInput) as refused:
        with_secrets_of(given.replace(old, new), STORED, MARKED)
    assert refused.value.field == "payload"
    assert "one" not in str(refused.value)
