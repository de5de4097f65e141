"""Encryption of payloads and results: what is bound to what, rotation, and lost keys."""

import base64

import msgspec
import pytest

from forge_jobs.errors import ConfigError, DecryptionFailed, InvalidInput, KeyMissing
from forge_jobs.model.letters import DEAD_LETTER_KIND
from forge_jobs.model.payloads import MAX_PAYLOAD_BYTES
from forge_jobs.privacy.encryption import (
    Encryption,
    Part,
    check_encryption,
    decrypted,
    is_encrypted,
    key_named_by,
    origin_of,
)

OLD, NEW = Encryption.new_key(), Encryption.new_key()
TEXT = '{"card": "4111 1111 1111 1111", "name": "Žofie"}'


def encrypt(encryption: Encryption, text: str = TEXT, job_id: str = "job-1") -> str:
    return encryption.encrypt(text, job_id=job_id, kind="pay", part=Part.PAYLOAD)


def decrypt(
    encryption: Encryption,
    text: str,
    *,
    job_id: str = "job-1",
    kind: str = "pay",
    part: Part = Part.PAYLOAD,
    origin: str = "",
) -> str:
    return encryption.decrypt(text, job_id=job_id, kind=kind, part=part, origin=origin)


def test_what_was_encrypted_comes_back_and_is_not_readable() -> None:
    encryption = Encryption([OLD])
    text = encrypt(encryption)
    assert decrypt(encryption, text) == TEXT
    assert is_encrypted(text)
    assert not is_encrypted(TEXT)
    assert "4111" not in text
    assert "Žofie" not in text
    assert isinstance(msgspec.json.decode(text), dict)


def test_equal_texts_are_not_equal_when_encrypted() -> None:
    encryption = Encryption([OLD])
    assert encrypt(encryption) != encrypt(encryption)


def test_definitions_that_are_compared_stay_equal() -> None:
    texts = {
        encryption.encrypt(TEXT, job_id="s", kind="k", part=Part.PAYLOAD, always_same=True)
        for encryption in (Encryption([OLD]), Encryption([OLD, NEW]))
    }
    assert len(texts) == 1
    other = Encryption([OLD]).encrypt(
        TEXT, job_id="t", kind="k", part=Part.PAYLOAD, always_same=True
    )
    assert texts != {other}


def test_a_text_that_is_not_encrypted_stays() -> None:
    assert decrypt(Encryption([OLD]), TEXT) == TEXT


@pytest.mark.parametrize(
    "moved",
    [{"job_id": "job-2"}, {"kind": "refund"}, {"part": Part.RESULT}],
    ids=["job", "kind", "part"],
)
def test_a_text_that_was_moved_is_refused(moved: dict[str, str]) -> None:
    encryption = Encryption([OLD])
    with pytest.raises(DecryptionFailed):
        decrypt(encryption, encrypt(encryption), **moved)  # type: ignore[arg-type]


def test_a_header_that_was_rewritten_does_not_help() -> None:
    encryption = Encryption([OLD])
    text = encrypt(encryption).replace('"of":"job-1"', '"of":"job-2"')
    with pytest.raises(DecryptionFailed, match="was changed"):
        decrypt(encryption, text, job_id="job-2")


def test_a_copy_is_read_by_the_origin_kept_beside_it() -> None:
    encryption = Encryption([OLD])
    text = encrypt(encryption)
    assert decrypt(encryption, text, job_id="job-2", origin=origin_of("job-1", "pay")) == TEXT


@pytest.mark.parametrize("kind", ["echo", "pay "])
def test_an_origin_of_another_kind_is_refused(kind: str) -> None:
    encryption = Encryption([OLD])
    origin = origin_of("job-1", "pay")
    for job_id in ("job-1", "job-2"):
        with pytest.raises(DecryptionFailed, match="made for job job-1"):
            decrypt(encryption, encrypt(encryption), job_id=job_id, kind=kind, origin=origin)


def test_a_dead_letter_is_read_by_an_origin_of_any_kind() -> None:
    encryption = Encryption([OLD])
    origin = origin_of("job-1", "pay")
    text = encrypt(encryption)
    assert decrypt(encryption, text, job_id="job-2", kind=DEAD_LETTER_KIND, origin=origin) == TEXT


def test_each_changed_byte_is_refused() -> None:
    encryption = Encryption([OLD])
    fields = msgspec.json.decode(encrypt(encryption))
    data = base64.b64decode(fields["data"])
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 1
        fields["data"] = base64.b64encode(changed).decode()
        with pytest.raises(DecryptionFailed):
            decrypt(encryption, msgspec.json.encode(fields).decode())


@pytest.mark.parametrize("data", ["", "AAAA", "no base64 at all!"])
def test_data_that_is_damaged_is_refused(data: str) -> None:
    fields = {**msgspec.json.decode(encrypt(Encryption([OLD]))), "data": data}
    with pytest.raises(DecryptionFailed):
        decrypt(Encryption([OLD]), msgspec.json.encode(fields).decode())


def test_the_first_key_encrypts_and_all_decrypt() -> None:
    before = encrypt(Encryption([OLD]))
    during = Encryption([NEW, OLD])
    assert decrypt(during, before) == TEXT
    assert decrypt(Encryption([NEW]), encrypt(during)) == TEXT


def test_a_lost_key_is_named_and_never_shown() -> None:
    text = encrypt(Encryption([OLD]))
    with pytest.raises(KeyMissing) as caught:
        decrypt(Encryption([NEW]), text)
    assert caught.value.key_name == key_named_by(text) == Encryption([OLD]).key_name
    assert OLD not in str(caught.value)
    with pytest.raises(KeyMissing):
        decrypted(None, text, job_id="job-1", kind="pay", part=Part.PAYLOAD)


def test_an_encrypted_text_that_no_store_would_take_is_refused() -> None:
    with pytest.raises(InvalidInput, match="once encrypted") as caught:
        encrypt(Encryption([OLD]), f'"{"x" * (MAX_PAYLOAD_BYTES - 10)}"')
    assert caught.value.field == "payload"


@pytest.mark.parametrize(
    "keys",
    [[], ["too short"], ["?" * 44], [OLD, OLD[:-4]], [b"x" * 32]],
)
def test_what_is_no_key_is_refused_without_being_shown(keys: list[str]) -> None:
    with pytest.raises(ConfigError, match="new_key") as caught:
        Encryption(keys)
    assert all(str(key) not in str(caught.value) for key in keys)


def test_one_key_may_be_given_as_it_is() -> None:
    assert decrypt(Encryption(OLD), encrypt(Encryption([OLD]))) == TEXT


def test_keys_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORGE_ENCRYPTION_KEYS", f" {NEW} , {OLD},")
    assert decrypt(Encryption.from_environment(), encrypt(Encryption([OLD]))) == TEXT
    monkeypatch.delenv("FORGE_ENCRYPTION_KEYS")
    with pytest.raises(ConfigError, match="FORGE_ENCRYPTION_KEYS"):
        Encryption.from_environment()


def test_no_key_shows_in_a_repr() -> None:
    assert OLD not in repr(Encryption([OLD]))


def test_a_fingerprint_cannot_be_made_without_the_key() -> None:
    assert Encryption([OLD]).fingerprint(b"x") == Encryption([OLD, NEW]).fingerprint(b"x")
    assert Encryption([OLD]).fingerprint(b"x") != Encryption([NEW]).fingerprint(b"x")


def test_what_is_no_encryption_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"Encryption\(\[key"):
        check_encryption(OLD)
