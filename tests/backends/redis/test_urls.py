"""Options of a redis: URL, and the errors for wrong ones."""

import pytest

from forge_jobs.errors import InvalidInput
from forge_jobs.storage.redis.driver.address import Login, RedisUrl, Tls, parse_url

FILE = __file__
SECRETS = ("hunter2", "db.internal")


def the(url: str, name: str) -> object:
    """Return an option of a URL."""
    return getattr(parse_url(url), name)


@pytest.mark.parametrize(
    ("url", "name", "value"),
    [
        ("redis://db.internal", "hosts", (("db.internal", 6379),)),
        ("redis://db.internal:7000/3", "hosts", (("db.internal", 7000),)),
        ("redis://[::1]:7000", "hosts", (("::1", 7000),)),
        ("redis://db.internal:7000/3", "database", 3),
        ("redis://db.internal/", "database", 0),
        ("redis://db.internal", "login", Login(None, None)),
        ("redis://:hunter2@db.internal", "login", Login(None, "hunter2")),
        ("redis://me:hunter%402@db.internal", "login", Login("me", "hunter@2")),
        ("redis://me:a:b@db.internal", "login", Login("me", "a:b")),
        ("redis://db.internal", "tls", None),
        ("rediss://db.internal", "tls", Tls()),
        (f"rediss://db.internal?ssl_ca_certs={FILE}", "tls", Tls(ca_certs=FILE)),
        (
            "rediss://db.internal?ssl_cert_reqs=none",
            "tls",
            Tls(verify=False, check_hostname=False),
        ),
        ("rediss://db.internal?ssl_check_hostname=false", "tls", Tls(check_hostname=False)),
        ("redis+sentinel://a,b:1/main", "hosts", (("a", 26379), ("b", 1))),
        ("redis+sentinel://a,b:1/main/2", "service", "main"),
        ("redis+sentinel://a,b:1/main/2", "database", 2),
        ("redis+sentinel://a/m?sentinel_password=s", "sentinel_login", Login(None, "s")),
        ("redis+cluster://a,b:1", "hosts", (("a", 6379), ("b", 1))),
        ("redis+cluster://a/0", "database", 0),
        ("rediss+cluster://a", "tls", Tls()),
        ("redis://db.internal", "timeout", 5),
        ("redis://db.internal?timeout=2.5", "timeout", 2.5),
        ("redis://db.internal?pool_size=3", "pool_size", 3),
        ("redis://db.internal", "wakes", True),
        ("redis://db.internal?wake=poll", "wakes", False),
        ("redis://db.internal?wait_replicas=2&wait_timeout=0.5", "wait_replicas", 2),
    ],
)
def test_a_url_says(url: str, name: str, value: object) -> None:
    assert the(url, name) == value


def test_the_prefix_is_in_every_key() -> None:
    keys = parse_url("redis://db.internal?prefix=shop:jobs").keys
    assert keys.queue("a").startswith("shop:jobs:")
    assert keys.channel.startswith("shop:jobs:")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://", "server"),
        ("redis://db.internal:99999", "port"),
        ("redis://db.internal:x", "port"),
        ("redis://db.internal:0", "port"),
        ("redis://me@db.internal", "password"),
        ("redis://me:@db.internal", "password"),
        ("redis://a,b", "redis+cluster"),
        ("redis://db.internal/x", "database"),
        ("redis://db.internal/-1", "database"),
        ("redis+cluster://db.internal/1", "cluster"),
        ("redis+cluster://a,,b", "server"),
        ("redis+sentinel://db.internal", "service"),
        ("redis://db.internal?tiemout=3", "timeout"),
        ("redis://db.internal?timeout=0", "timeout"),
        ("redis://db.internal?pool_size=0", "pool_size"),
        ("redis://db.internal?wake=sometimes", "wake"),
        ("redis://db.internal?wait_replicas=-1", "wait_replicas"),
        ("redis://db.internal?prefix=a{b}", "prefix"),
        ("redis://db.internal?prefix=", "prefix"),
        ("redis://db.internal?ssl_ca_certs=/a.pem", "ssl_ca_certs"),
        ("rediss://db.internal?ssl_keyfile=/not/there", "ssl_keyfile"),
        ("redis://db.internal?sentinel_password=x", "sentinel_password"),
    ],
)
def test_a_bad_url_is_refused_with_the_fix(url: str, said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_url(url)
    assert refused.value.field == "url"
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://me:hunter2@db.internal:x",
        "redis://me:hunter2@db.internal/x",
        "redis://me:hunter2@db.internal,other",
        "redis+sentinel://me:hunter2@db.internal",
        "redis://me:hunter2@db.internal?timeout=x",
    ],
)
def test_a_refusal_shows_no_part_of_the_address(url: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_url(url)
    for secret in SECRETS:
        assert secret not in str(refused.value)


def test_what_a_url_says_shows_no_secret_when_printed() -> None:
    parsed: RedisUrl = parse_url("redis+sentinel://me:hunter2@db.internal/m?sentinel_password=pw77")
    for secret in (*SECRETS, "pw77"):
        assert secret not in repr(parsed)
