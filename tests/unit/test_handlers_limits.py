"""Limits that handlers declare: what is refused, and the key that a job is counted under."""

from typing import Annotated, Any

import pytest
from msgspec import structs

from forge_jobs import (
    EnqueueRequest,
    HandlerRegistry,
    InvalidInput,
    Limit,
    RegistrationError,
    Secret,
)
from forge_jobs.handlers.preparing import prepare, prepare_many
from forge_jobs.handlers.unique_keys import fingerprint


async def crawl(host: str, depth: int = 1) -> None: ...


@pytest.mark.parametrize(
    ("limit", "problem"),
    [
        (5, "concurrency: is an int; give Limit(count)"),
        (Limit(0), "concurrency.at_most: is 0; give 1 to 100000"),
        (Limit("2"), "concurrency.at_most: is '2'; give 1 to 100000"),  # type: ignore[arg-type]
        (Limit(key="{host}", share=0), "concurrency.share: is 0; give 1 to 100000"),
        (Limit(1, name="a,b"), "concurrency.name: contains a comma"),
        (Limit(1, key="host"), "concurrency.key: names no argument"),
        (Limit(1, key="{host!r}"), "concurrency.key: holds {host} with more than a name"),
        (Limit(1, key="{site}"), "concurrency.key: names 'site', which is no argument"),
    ],
)
def test_a_wrong_limit_is_refused_by_field(limit: Any, problem: str) -> None:
    with pytest.raises(RegistrationError) as refused:
        HandlerRegistry().register(crawl, "crawl", concurrency=limit)
    assert problem in str(refused.value)


def test_one_name_has_one_number() -> None:
    handlers = HandlerRegistry()
    handlers.register(crawl, "a", concurrency=Limit(2, name="hosts"))
    handlers.register(crawl, "b", concurrency=Limit(2, name="hosts", key="{host}"))
    handlers.register(crawl, "c", concurrency=Limit(7))
    assert handlers.limits() == ({"hosts": 2, "c": 7}, {})
    handlers.register(crawl, "d", concurrency=Limit(3, name="hosts"))
    with pytest.raises(RegistrationError, match="'d' declares 'hosts' with another number"):
        handlers.limits()


def test_the_key_follows_the_arguments_or_the_request() -> None:
    handlers = HandlerRegistry()
    handler = handlers.register(crawl, "crawl", concurrency=Limit(2, key="{host}/{depth}"))
    requests = [
        handler.request("a.b", 3),
        EnqueueRequest("crawl", {"host": "c"}),
        handler.request("a.b").options(concurrency_key="proxy"),
        handler.request("a.b").options(concurrency_key=""),
        handler.request("x" * 300),
        EnqueueRequest("elsewhere", {}, concurrency_key="k"),
        EnqueueRequest("elsewhere", {}),
    ]
    jobs = prepare_many(requests, handlers)
    for job, one in zip(jobs, requests, strict=True):
        assert structs.replace(prepare(one, handlers), id=job.id) == job
    found = [(job.limit_name, job.limit_key) for job in jobs]
    assert found[:4] == [
        ("crawl", "a.b/3"),
        ("crawl", "c/"),
        ("crawl", "proxy"),
        ("crawl", ""),
    ]
    assert found[4][1].startswith("#")
    assert found[5:] == [("elsewhere", "k"), ("", "")]
    with pytest.raises(InvalidInput, match="concurrency_key"):
        prepare(EnqueueRequest("crawl", {"host": "a"}, concurrency_key="a,b"), handlers)


def test_a_secret_is_never_a_key_as_it_is() -> None:
    async def sign(token: Annotated[str, Secret]) -> None: ...

    handlers = HandlerRegistry()
    handler = handlers.register(sign, "sign", concurrency=Limit(1, key="{token}"))
    key = prepare(handler.request("hunter2"), handlers).limit_key
    assert key.startswith("#")
    assert "hunter2" not in key


def test_a_job_without_a_limit_has_the_fingerprint_of_before() -> None:
    job = prepare(EnqueueRequest("k", {"a": 1}, id="01J00000000000000000000000"))
    assert job.fingerprint == "28ab0c64f387382d46d0cbb272ea144d"
    assert fingerprint(job) == job.fingerprint
