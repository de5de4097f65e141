"""Sign-in by password, token and proxy."""

import base64
from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.requests import Request

from forge_jobs.clock import ManualClock
from forge_jobs.errors import ConfigError
from forge_jobs.operating.access import ALL, Access, Actor
from forge_jobs.web.alone.server import WebOptions, authorize_of
from forge_jobs.web.alone.sign_in import FAILURES, Proxy, SignIn
from forge_jobs.web.alone.users import User, hashed, matches, read_users, remove_user, write_user
from forge_jobs.web.problems import Refused

pytestmark = pytest.mark.anyio

SECRET = "correct horse"
STORED = hashed(SECRET)


def request(peer: str = "10.0.0.9", **headers: str) -> Request:
    raw = [(name.replace("_", "-").encode(), text.encode()) for name, text in headers.items()]
    return Request({"type": "http", "headers": raw, "client": (peer, 1), "path": "/"})


def basic(name: str, secret: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{secret}".encode()).decode()


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "users.json"
    write_user(path, User(name="ada", password=STORED, actions=("*", "reveal_job"), payloads=True))
    write_user(path, User(name="ci", token=STORED, queues=("gh",)))
    return path


async def refused(sign_in: SignIn, given: Request) -> int:
    with pytest.raises(Refused) as caught:
        await sign_in(given)
    return caught.value.document.status


async def test_a_password_and_a_token_sign_in_with_the_rights_of_the_file(users: Path) -> None:
    sign_in = SignIn(users)

    ada = await sign_in(request(authorization=basic("ada", SECRET)))
    ci = await sign_in(request(authorization=f"Bearer ci.{SECRET}"))

    assert ada == Actor(name="ada", surface="web", access=ALL)
    assert ci == Actor(name="ci", surface="web", access=Access(queues=frozenset({"gh"})))


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Basic",
        "Basic !!!",
        "Basic /w==",
        "Bearer x",
        "Bearer .",
        f"Bearer ada.{SECRET}",
        basic("ci", SECRET),
        basic("ada", "wrong"),
        basic("nobody", SECRET),
        basic("ci", ""),
    ],
)
async def test_anything_else_is_not_signed_in(users: Path, header: str) -> None:
    assert await refused(SignIn(users), request(authorization=header)) == 401


async def test_ten_failures_a_minute_then_429_and_a_minute_later_401(users: Path) -> None:
    clock = ManualClock()
    sign_in = SignIn(users, clock=clock)
    right, wrong = basic("ada", SECRET), basic("ada", "wrong")
    await sign_in(request(authorization=right))

    for _ in range(FAILURES):
        assert await refused(sign_in, request("10.0.0.1", authorization=wrong)) == 401
    assert await refused(sign_in, request("10.0.0.1", authorization=wrong)) == 429
    assert await refused(sign_in, request("10.0.0.2", authorization=wrong)) == 429
    assert await refused(sign_in, request("10.0.0.1", authorization=basic("bob", "x"))) == 429
    # A caller who has signed in before is not shut out by others.
    assert (await sign_in(request(authorization=right))).name == "ada"

    clock.advance(61)
    assert await refused(sign_in, request("10.0.0.1", authorization=wrong)) == 401


async def test_a_change_of_the_file_counts_at_once(users: Path) -> None:
    sign_in = SignIn(users)
    given = request(authorization=basic("ada", SECRET))
    await sign_in(given)

    remove_user(users, "ada")
    assert await refused(sign_in, given) == 401

    write_user(users, User(name="ada", password=hashed("another one")))
    assert await refused(sign_in, given) == 401


@pytest.fixture
def broken(users: Path) -> tuple[SignIn, Path]:
    sign_in = SignIn(users)
    users.write_text("{")
    return sign_in, users


async def test_a_broken_file_signs_no_caller_in(broken: tuple[SignIn, Path]) -> None:
    sign_in, _ = broken
    assert await refused(sign_in, request(authorization=basic("ada", SECRET))) == 401


async def test_a_proxy_is_believed_from_its_own_address_only(users: Path) -> None:
    sign_in = SignIn(users, Proxy("X-User", ("10.0.0.0/24",)))

    assert (await sign_in(request("10.0.0.9", x_user="ada"))).access == ALL
    assert await sign_in(request("10.0.0.9", x_user="eve")) == Actor(name="eve", surface="web")
    assert await refused(sign_in, request("10.0.1.9", x_user="ada")) == 401
    twice = Request(
        {
            "type": "http",
            "headers": [(b"x-user", b"ada"), (b"x-user", b"eve")],
            "client": ("10.0.0.9", 1),
        }
    )
    assert await refused(sign_in, twice) == 401


def test_an_unknown_user_takes_as_long_as_a_known_one() -> None:
    """Both compute a hash of the same cost: counted, not timed."""
    from forge_jobs.web.alone import users as module

    assert module.UNKNOWN.split("$")[:4] == STORED.split("$")[:4]
    assert not matches("", module.UNKNOWN)


@pytest.mark.parametrize("stored", ["", "x", "scrypt$a$b$c$d$e", "plain$16384$8$1$AA==$AA=="])
def test_a_hash_that_cannot_be_read_matches_nothing(stored: str) -> None:
    assert not matches("", stored)


def test_only_the_owner_reads_the_file(users: Path) -> None:
    assert users.stat().st_mode & 0o777 == 0o600
    assert SECRET not in users.read_text()
    assert [user.name for user in read_users(users).users] == ["ada", "ci"]


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.7", "::", "jobs.example"])
def test_another_address_without_credentials_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match="other machines"):
        authorize_of(WebOptions(host=host))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_loopback_needs_no_credentials(host: str) -> None:
    authorize: Callable[[Request], object] = authorize_of(WebOptions(host=host))
    actor = authorize(request())
    assert isinstance(actor, Actor)
    assert actor.access == ALL


@pytest.mark.parametrize("peers", [(), ("proxy.example",)])
def test_a_proxy_needs_its_addresses(peers: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="proxy-from"):
        authorize_of(WebOptions(proxy_header="X-User", proxy_from=peers))
