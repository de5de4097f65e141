"""Payloads and results encrypted before a store sees them, with keys that can be rotated.

AES-256-GCM of the ``cryptography`` package. The text that is stored is a JSON object, so a store
keeps an encrypted payload as any other::

    {"forge_jobs.encrypted": 1, "key": "9f2c41d8", "of": "<job id>", "kind": "mail.send",
     "data": "<base64 of nonce and ciphertext>"}

All but ``data`` is readable and authenticated: a text that was moved to another job, another kind
or another part of a job is refused. A job that carries the payload of another request says so in
the metadata, which is not authenticated, so a writer of the store can move a payload among
jobs of one kind, and to a dead letter.
"""

import base64
import binascii
import hashlib
import hmac
import os
from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from forge_jobs.errors import ConfigError, DecryptionFailed, InvalidInput, KeyMissing, a_type
from forge_jobs.model.letters import DEAD_LETTER_KIND
from forge_jobs.model.payloads import ENCRYPTED_START, MAX_PAYLOAD_BYTES

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEYS_VARIABLE = "FORGE_ENCRYPTION_KEYS"
"""The environment variable of :meth:`Encryption.from_environment`."""

_VERSION = 1
_KEY_BYTES, _NONCE_BYTES = 32, 12
_INSTALL = "install forge-jobs[encryption]"


class Part(StrEnum):
    """The encrypted parts of a job. A text of one part is not accepted as another."""

    PAYLOAD = "payload"
    RESULT = "result"
    CHECKPOINT = "checkpoint"


class _Envelope(Struct, frozen=True, kw_only=True):
    version: int = msgspec.field(name="forge_jobs.encrypted")
    key: str
    of: str
    kind: str
    data: str


_decoder = msgspec.json.Decoder(_Envelope)


def is_encrypted(text: str) -> bool:
    """Return True for a payload or result that is encrypted."""
    return text.startswith(ENCRYPTED_START)


def key_named_by(text: str) -> str:
    """Return the name of the key that an encrypted text needs, "" when the text is damaged."""
    try:
        return _decoder.decode(text).key
    except (msgspec.MsgspecError, UnicodeError):
        return ""


def origin_of(job_id: str, kind: str) -> str:
    """Return the name of a request, which a copy of the payload keeps beside the text."""
    return f"{job_id} {kind}"


class Encryption:
    """The keys of payloads and results: the first encrypts, all decrypt.

    To rotate, put a new key in front wherever jobs are enqueued or run, and remove the old one when
    no stored job needs it any more. During the first step all programs must know the new key before
    one of them writes with it, so put it behind the old one first.

    A random nonce is used for each text, so a key should encrypt at most 2**32 texts (NIST SP
    800-38D, section 8.3).

    :param keys: from :meth:`new_key`, at least one
    :raises ConfigError: a key is no key, or ``cryptography`` is not installed
    """

    def __init__(self, keys: Iterable[str]) -> None:
        given = [keys] if isinstance(keys, str) else list(keys)
        if not given:
            raise ConfigError("encryption: no key is given; make one with Encryption.new_key()")
        ciphers = [_cipher(key, position) for position, key in enumerate(given, 1)]
        self._ciphers = dict(ciphers)
        self.key_name = ciphers[0][0]
        """The name of the key that encrypts: public, the start of the key's SHA-256."""
        self._hash_key = hashlib.blake2b(_raw(given[0], 1), person=b"forge_jobs").digest()

    @staticmethod
    def new_key() -> str:
        """Return a new random key: 32 bytes as URL-safe base64."""
        return base64.urlsafe_b64encode(os.urandom(_KEY_BYTES)).decode()

    @classmethod
    def from_environment(cls, variable: str = KEYS_VARIABLE) -> "Encryption":
        """Read the keys from an environment variable, separated by commas.

        :raises ConfigError: the variable is not set, or holds no keys
        """
        text = os.environ.get(variable, "")
        keys = [each.strip() for each in text.split(",") if each.strip()]
        if not keys:
            raise ConfigError(
                f"{variable}: is not set; give keys from Encryption.new_key(), separated by commas"
            )
        return cls(keys)

    def __repr__(self) -> str:
        return f"Encryption(keys {', '.join(self._ciphers)})"

    def encrypt(
        self, text: str, *, job_id: str, kind: str, part: Part, always_same: bool = False
    ) -> str:
        """Return ``text`` encrypted, as JSON text. Longer by a third and about 150 bytes.

        :param always_same: derive the nonce from the text, so that equal texts with equal names
            become equal: for texts that are compared, such as the definition of a schedule
        :raises InvalidInput: the encrypted text is longer than a store takes
        """
        bound_to = _bound_to(part, job_id, kind, self.key_name)
        if always_same:
            nonce = hmac.digest(self._hash_key, bound_to + b"\0" + text.encode(), "sha256")
            nonce = nonce[:_NONCE_BYTES]
        else:
            nonce = os.urandom(_NONCE_BYTES)
        data = nonce + self._ciphers[self.key_name].encrypt(nonce, text.encode(), bound_to)
        envelope = _Envelope(
            version=_VERSION,
            key=self.key_name,
            of=job_id,
            kind=kind,
            data=base64.b64encode(data).decode(),
        )
        encrypted = msgspec.json.encode(envelope).decode()
        if len(encrypted) > MAX_PAYLOAD_BYTES:
            raise InvalidInput(
                part,
                f"takes {len(encrypted)} bytes once encrypted",
                f"give at most {MAX_PAYLOAD_BYTES}, or store it elsewhere and pass a reference",
            )
        return encrypted

    def decrypt(self, text: str, *, job_id: str, kind: str, part: Part, origin: str = "") -> str:
        """Return the text that :meth:`encrypt` was given. A text that is not encrypted stays.

        :param origin: of :func:`origin_of`. Where a job carries the payload of another request, the
            text may be bound to that request instead, which is of the same kind. A dead letter
            carries the payload of any kind
        :raises KeyMissing: none of the keys is the one that encrypted
        :raises DecryptionFailed: the text was changed, or belongs to another job, kind or part
        """
        if not is_encrypted(text):
            return text
        from cryptography.exceptions import InvalidTag

        try:
            envelope = _decoder.decode(text)
            data = base64.b64decode(envelope.data, validate=True)
        except (msgspec.MsgspecError, UnicodeError, binascii.Error):
            raise DecryptionFailed(f"the encrypted {part} of job {job_id} is damaged") from None
        cipher = self._ciphers.get(envelope.key)
        if cipher is None:
            raise KeyMissing(job_id, part, envelope.key)
        is_of_job = (envelope.of, envelope.kind) == (job_id, kind)
        # Metadata is not authenticated, so an origin brings no text to another handler.
        may_carry = kind in {envelope.kind, DEAD_LETTER_KIND}
        is_carried = may_carry and origin_of(envelope.of, envelope.kind) == origin
        if not (is_of_job or is_carried):
            raise DecryptionFailed(
                f"the encrypted {part} of job {job_id} ({kind}) was made for job {envelope.of} "
                f"({envelope.kind})"
            )
        bound_to = _bound_to(part, envelope.of, envelope.kind, envelope.key)
        nonce, encrypted = data[:_NONCE_BYTES], data[_NONCE_BYTES:]
        try:
            return cipher.decrypt(nonce, encrypted, bound_to).decode()
        except (InvalidTag, ValueError):
            raise DecryptionFailed(
                f"the encrypted {part} of job {job_id} was changed after it was written"
            ) from None

    def fingerprint(self, content: bytes) -> str:
        """Return a keyed hash of the content, from which nothing can be guessed without the key."""
        return hmac.digest(self._hash_key, b"fingerprint\0" + content, "sha256")[:16].hex()


def decrypted(
    encryption: Encryption | None,
    text: str,
    *,
    job_id: str,
    kind: str,
    part: Part,
    origin: str = "",
) -> str:
    """Decrypt as :meth:`Encryption.decrypt` does, for a caller that may have no keys.

    :raises KeyMissing: the text is encrypted and there are no keys, or others
    :raises DecryptionFailed: see :meth:`Encryption.decrypt`
    """
    if not is_encrypted(text):
        return text
    if encryption is None:
        raise KeyMissing(job_id, part, key_named_by(text))
    return encryption.decrypt(text, job_id=job_id, kind=kind, part=part, origin=origin)


def check_encryption(value: object) -> Encryption | None:
    """Refuse a value that is no :class:`Encryption`.

    :raises InvalidInput: says what to give
    """
    if value is None or isinstance(value, Encryption):
        return value
    raise InvalidInput("encryption", f"is {a_type(value)}", "give Encryption([key, ...])")


def _cipher(key: str, position: int) -> "tuple[str, AESGCM]":
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise ConfigError(f"encryption: cryptography is not installed; {_INSTALL}") from None
    raw = _raw(key, position)
    return hashlib.sha256(b"forge_jobs key name" + raw).hexdigest()[:8], AESGCM(raw)


def _raw(key: object, position: int) -> bytes:
    # Never with the key itself: the error ends up in logs.
    problem = f"encryption: key {position} is not 32 bytes as URL-safe base64"
    fix = "make one with Encryption.new_key()"
    if not isinstance(key, str):
        raise ConfigError(f"{problem} but {a_type(key)}; {fix}")
    try:
        raw = base64.b64decode(key.encode(), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError(f"{problem}; {fix}") from None
    if len(raw) != _KEY_BYTES:
        raise ConfigError(f"{problem}; {fix}")
    return raw


def _bound_to(part: Part, job_id: str, kind: str, key_name: str) -> bytes:
    return "\0".join(("forge_jobs", str(_VERSION), part, job_id, kind, key_name)).encode()
