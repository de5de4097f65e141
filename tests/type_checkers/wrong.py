"""Uses that two type checkers must refuse: each line with the mark at its end, and no other."""

from datetime import timedelta

from forge_jobs import EnqueueRequest, HandlerRegistry, JobClient, JobContext, SyncJobClient
from tests.type_checkers.right import Report, first, injects, last, nothing, without

handlers = HandlerRegistry()


def requests() -> None:
    first.request("7")  # wrong
    first.request(order="7")  # wrong
    first.request(7, 8)  # wrong
    first.request()  # wrong
    first.request(7, adress="a@b")  # wrong
    last.request(7).options(prio=1)  # wrong
    without.request("7")  # wrong
    without.request(7, "a@b")  # wrong
    without.request(order="8")  # wrong
    nothing.request(7)  # wrong
    first.request(7).options(priority="high")  # wrong
    first.request(7).options(prioritty=1)  # wrong
    EnqueueRequest("x", {}, prioritty=1)  # wrong
    EnqueueRequest("x", {}, priority="high")  # wrong
    number: EnqueueRequest[int] = first.request(7)  # wrong
    print(number)


async def calls(ctx: JobContext) -> None:
    text: str = await first(ctx, 7)  # wrong
    number: int = without(7)  # wrong
    print(text, number)


async def enqueue(client: JobClient, sync: SyncJobClient, ctx: JobContext) -> None:
    await client.enqueue(first.request(7), prioritty=1)  # wrong
    await client.enqueue(first.request(7), delay="1h")  # wrong
    await client.enqueue(first.request(7), tags=7)  # wrong
    await client.enqueue(first)  # wrong
    await ctx.enqueue(first.request(7), prioritty=1)  # wrong
    ctx.sync.enqueue(first.request(7), delay="1h")  # wrong
    sync.enqueue(first.request(7), run_at=timedelta(1))  # wrong


async def results(client: JobClient, sync: SyncJobClient, ctx: JobContext) -> None:
    outcome = await client.enqueue(first.request(7))
    text: str = await client.result(outcome, 1)  # wrong
    print((await client.result(outcome, 1)).page)  # wrong
    number: int = sync.result(outcome, 1)  # wrong
    other: int = await client.result(outcome.job_id, 1, Report)  # wrong
    await client.result(7, 1)  # wrong
    [many] = await client.enqueue_many([injects.request(7)])
    print((await client.result(many, 1)).pages)  # wrong
    [parent] = await ctx.parents()
    page: str = parent.result(Report)  # wrong
    print(text, number, other, page)


@handlers.job("a", prioritty=1)  # wrong
def a() -> None: ...


@handlers.job("b", timeout="1h")  # wrong
def b() -> None: ...


@handlers.job("c", executor="fork")  # wrong
def c() -> None: ...


def d() -> None: ...


handlers.register(d, "d", max_attempts="many")  # wrong


@handlers.cron("@daily", time_zone="UTC")  # wrong
@handlers.job("e")
def e() -> None: ...


@handlers.cron("@daily", overlap="never")  # wrong
@handlers.job("f")
def f() -> None: ...
