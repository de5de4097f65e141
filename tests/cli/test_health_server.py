"""``/healthz`` and ``/readyz``: what they say, and what clients cannot do to them."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from forge_jobs import HandlerRegistry, open_storage
from forge_jobs.cli import health_server
from forge_jobs.cli.health_server import HealthServer
from forge_jobs.cli.processes import supervising
from forge_jobs.cli.processes.process import Child
from forge_jobs.errors import ConfigError
from tests.cli.conftest import CommandLine
from tests.support.faulty import Faults, faulty
from tests.support.ports import free_ports
from tests.support.runtimes import a_runtime
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio


@pytest.fixture
async def problems() -> list[str]:
    return []


@pytest.fixture
async def port(problems: list[str], unused_port: int) -> AsyncIterator[int]:
    async with HealthServer(unused_port, {"/readyz": lambda: problems}):
        yield unused_port


@pytest.fixture
def unused_port() -> Iterator[int]:
    with free_ports() as port:
        yield port


@asynccontextmanager
async def connected(
    port: int,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def ask(port: int, request: bytes) -> bytes:
    async with connected(port) as (reader, writer), asyncio.timeout(20):
        writer.write(request)
        return await reader.read()


async def test_a_probe_says_what_is_wrong(port: int, problems: list[str]) -> None:
    assert (await ask(port, b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")).endswith(b"\r\n\r\nok\n")
    problems += ["draining", "no beat yet"]

    answer = await ask(port, b"GET /readyz?verbose HTTP/1.0\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert answer.endswith(b"\r\n\r\ndraining\nno beat yet\n")


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET / HTTP/1.1", b"404"),
        (b"POST /readyz HTTP/1.1", b"405"),
        (b"HEAD /readyz HTTP/1.1", b"200"),
        (b"\x00\xff", b"404"),
    ],
)
async def test_other_requests_are_answered_too(
    port: int, request_line: bytes, status: bytes
) -> None:
    answer = await ask(port, request_line + b"\r\n\r\n")
    assert answer.split()[1] == status
    assert (answer.partition(b"\r\n\r\n")[2] == b"") is request_line.startswith(b"HEAD")


async def test_a_request_that_is_too_long_is_not_answered(port: int) -> None:
    assert await ask(port, b"GET /readyz HTTP/1.1\r\nX: " + b"x" * 100_000) == b""


async def test_slow_clients_are_bounded_in_time_and_number(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_server, "_CONNECTIONS", 2)
    async with connected(port), connected(port):
        await wait_until(lambda: refused(port), description="both places are taken")
    await wait_until(lambda: served(port), description="there is room again")

    monkeypatch.setattr(health_server, "_SECONDS", 0.01)
    async with connected(port) as (reader, _), asyncio.timeout(20):
        assert await reader.read() == b""


async def test_a_connection_whose_task_never_began_is_closed_in_the_end() -> None:
    """As when the loop is cancelled just after the connection came."""
    ours, theirs = socket.socketpair()
    with theirs:
        reader, writer = await asyncio.open_connection(sock=ours)
        async with HealthServer(0, {}) as server:
            serving = server._accept(reader, writer)
            assert serving is not None
            serving.close()
            assert not writer.transport.is_closing()
        assert writer.transport.is_closing()

        late_reader, late = await asyncio.open_connection(sock=theirs.dup())
        assert server._accept(late_reader, late) is None
        assert late.transport.is_closing()


async def refused(port: int) -> bool:
    try:
        return await ask(port, b"GET /readyz HTTP/1.1\r\n\r\n") == b""
    except ConnectionError:
        return True


async def served(port: int) -> bool:
    return not await refused(port)


async def test_a_port_in_use_is_refused_in_words(port: int) -> None:
    with pytest.raises(ConfigError, match=f"--health-port {port}: cannot listen there"):
        async with HealthServer(port, {}):
            pass


@pytest.mark.parametrize("kept_open", [True, False], ids=["socket", "number"])
@pytest.mark.parametrize(
    ("host", "others"), [("127.0.0.1", False), ("localhost", False), ("", True)]
)
async def test_an_address_keeps_other_addresses_out(
    unused_port: int, host: str, others: bool, kept_open: bool
) -> None:
    port = health_server.listening(unused_port, host) if kept_open else unused_port
    async with HealthServer(port, {"/readyz": list}, host=host):
        with ExitStack() as stack:
            if not others:
                stack.enter_context(pytest.raises(ConnectionRefusedError))
            _, writer = await asyncio.open_connection("127.0.0.2", unused_port)
            writer.close()


async def test_an_address_of_no_machine_is_refused_in_words(unused_port: int) -> None:
    told = "--health-host 192.0.2.1 --health-port .* an address of this machine"
    with pytest.raises(ConfigError, match=told):
        health_server.listening(unused_port, "192.0.2.1")
    with pytest.raises(ConfigError, match=told):
        await HealthServer(unused_port, {}, host="192.0.2.1").open()


async def test_a_heartbeat_that_does_not_turn_is_an_ailment_and_the_store_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults()
    async with (
        await open_storage(f"sqlite:///{tmp_path / 'jobs.db'}") as storage,
        a_runtime(faulty(storage, faults), HandlerRegistry()).start() as handle,
    ):
        faults.down = True
        await wait_until(lambda: handle.health().problems, description="the store is away")
        assert handle.ailments() == []
        monkeypatch.setattr(handle._pod.heartbeat, "silent_for", lambda: 61.0)
        assert handle.ailments() == ["the heartbeat thread has not turned for 61 s"]
        monkeypatch.undo()
        faults.down = False


def test_each_of_several_processes_has_a_port_of_its_own(
    forge: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports: list[int] = []

    async def run_processes(children: Sequence[Child], **_: object) -> int:
        for child in children:
            assert child.listener is not None
            assert child.command[-1] == f"--health-socket={child.listener.fileno()}"
            ports.append(child.listener.getsockname()[1])
            child.listener.close()
        return 0

    monkeypatch.setattr(supervising, "run_processes", run_processes)
    with free_ports(3) as first:
        options = ("--processes", "3", "--health-port", str(first))
        forge("worker", "x:y", "--queues", "default", *options)

    assert ports == [first, first + 1, first + 2]
