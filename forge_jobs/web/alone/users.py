"""The file of users: names, hashes of passwords and tokens, and rights."""

import base64
import binascii
import hashlib
import hmac
import os
import secrets
from pathlib import Path

import msgspec
from msgspec import Struct

from forge_jobs.errors import ConfigError, InvalidInput
from forge_jobs.model.names import check_name

_COST, _BLOCK, _PARALLEL = 2**14, 8, 1
"""Parameters of scrypt: 16 MiB and about 50 ms a hash."""

MIN_PASSWORD = 8


class User(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A user of the file.

    :param password: scrypt hash, "" when the user signs in by a token or a proxy only
    :param token: scrypt hash of the secret part of the token, "" without a token
    :param actions: as in ``Access``, likewise the other rights
    """

    name: str
    password: str = ""
    token: str = ""
    actions: tuple[str, ...] = ()
    queues: tuple[str, ...] | None = None
    payloads: bool = False


class UserFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of the file."""

    users: tuple[User, ...] = ()


def hashed(secret: str) -> str:
    """Return the scrypt hash of a password, with the parameters and a fresh salt."""
    salt = secrets.token_bytes(16)
    return "$".join(
        (
            "scrypt",
            str(_COST),
            str(_BLOCK),
            str(_PARALLEL),
            base64.b64encode(salt).decode(),
            base64.b64encode(_scrypt(secret, salt, _COST, _BLOCK, _PARALLEL)).decode(),
        )
    )


def matches(secret: str, stored: str) -> bool:
    """Compare in constant time. A stored hash that cannot be read matches nothing."""
    try:
        name, cost, block, parallel, salt, digest = stored.split("$")
        found = _scrypt(secret, base64.b64decode(salt), int(cost), int(block), int(parallel))
        return name == "scrypt" and hmac.compare_digest(found, base64.b64decode(digest))
    except (ValueError, binascii.Error):
        return False


def _scrypt(secret: str, salt: bytes, cost: int, block: int, parallel: int) -> bytes:
    text = secret.encode("utf-8", "surrogatepass")
    return hashlib.scrypt(
        text, salt=salt, n=cost, r=block, p=parallel, maxmem=256 * 1024 * 1024, dklen=32
    )


UNKNOWN = "scrypt$16384$8$1$AAAAAAAAAAAAAAAAAAAAAA==$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
"""The hash that a secret is compared with when the user is not known: as slow, and never equal."""


def read_users(path: Path) -> UserFile:
    """Read the file.

    :raises ConfigError: the file cannot be read, or holds something else
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=UserFile)
    except OSError as error:
        raise ConfigError(
            f"FORGE_WEB_USERS: {path.name} cannot be read ({error.strerror}); "
            "make the file by forge-jobs web user add NAME"
        ) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"FORGE_WEB_USERS: {path.name} is no file of users ({error}); "
            "make a new one by forge-jobs web user add NAME"
        ) from None


def write_user(path: Path, user: User) -> None:
    """Add a user to the file, or replace the one of the same name. Only the owner can read it.

    :raises ConfigError: the file cannot be read or written, or holds something else
    """
    before = read_users(path) if path.exists() else UserFile()
    others = [each for each in before.users if each.name != user.name]
    _write(path, UserFile((*others, user)))


def remove_user(path: Path, name: str) -> bool:
    """Remove a user. Return whether the file had one.

    :raises ConfigError: as :func:`write_user`
    """
    before = read_users(path)
    left = tuple(each for each in before.users if each.name != name)
    _write(path, UserFile(left))
    return len(left) < len(before.users)


def _write(path: Path, content: UserFile) -> None:
    text = msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(os.open(unfinished, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError as error:
        raise ConfigError(
            f"{path.name} cannot be written ({error.strerror}); check the folder"
        ) from None


def check_user_name(name: str) -> str:
    """Return a name that HTTP can carry.

    :raises InvalidInput: the name is empty, too long, or has a colon or a dot
    """
    check_name("name", name)
    if ":" in name or "." in name:
        raise InvalidInput("name", "has a colon or a dot", "give a name without them")
    return name


def check_password(password: str) -> str:
    """Return a password that is long enough.

    :raises InvalidInput: too short
    """
    if len(password) < MIN_PASSWORD:
        raise InvalidInput("password", "is short", f"give at least {MIN_PASSWORD} characters")
    return password
