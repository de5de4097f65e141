"""``forge-jobs web``: serving in a process of its own, and the file of users."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from tests.cli.conftest import CommandLine, wait
from tests.support.ports import free_ports


@contextmanager
def serving(
    url: str, *options: str, **environ: str
) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    with free_ports() as port:
        process = subprocess.Popen(
            [sys.executable, "-m", "forge_jobs", "web", "--port", str(port), *options],
            env={**os.environ, "FORGE_STORAGE_URL": url, **environ},
            stderr=subprocess.PIPE,
        )
        try:
            address = f"http://127.0.0.1:{port}"
            wait(lambda: _answers(address), description="the server answers", timeout=60)
            yield address, process
        finally:
            process.kill()
            process.communicate()


def _answers(address: str) -> bool:
    try:
        return httpx.get(f"{address}/healthz").status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.processes
def test_an_empty_store_is_served_until_a_signal(forge: CommandLine) -> None:
    with serving(forge.url) as (address, process):
        wait(
            lambda: httpx.get(f"{address}/readyz").status_code == 200,
            description="the store answers",
            timeout=60,
        )
        assert httpx.get(address).status_code == 200
        assert httpx.get(address, headers={"Host": "evil.example"}).status_code == 400
        assert "server" not in httpx.get(address).headers
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


@pytest.mark.processes
def test_a_stop_ends_the_streams_of_hundred_viewers(forge: CommandLine) -> None:
    asked = b"GET /api/v1/live HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
    with serving(forge.url) as (address, process), ExitStack() as viewers:
        port = int(address.rpartition(":")[2])
        streams = []
        for _ in range(100):
            viewer = viewers.enter_context(socket.create_connection(("127.0.0.1", port), 60))
            viewer.sendall(asked)
            streams.append(viewers.enter_context(viewer.makefile("rb")))
        for stream in streams:
            while not stream.readline().startswith(b"event: "):
                pass

        process.send_signal(signal.SIGTERM)

        # A server that waits for viewers to leave would stay. This one takes half a second.
        assert process.wait(20) == 0


@pytest.mark.processes
def test_without_a_store_the_process_lives_and_is_not_ready() -> None:
    with free_ports() as port, serving(f"redis://127.0.0.1:{port}/0") as (address, _):
        assert httpx.get(f"{address}/readyz").status_code == 503


@pytest.mark.daily
@pytest.mark.processes
def test_a_user_of_the_file_signs_in(forge: CommandLine, tmp_path: Path) -> None:
    users = tmp_path / "users.json"
    token = forge("web", "user", "add", "ci", "--users", str(users), "--token", "--no-password")
    forge(
        "web", "user", "add", "ada", "--users", str(users), "--password-stdin", stdin="longer pw\n"
    )

    with serving(forge.url, FORGE_WEB_USERS=str(users)) as (address, _):
        assert httpx.get(address).status_code == 401
        assert httpx.get(address, auth=("ada", "longer pw")).status_code == 200
        bearer = {"Authorization": f"Bearer {token.stdout.strip()}"}
        assert httpx.get(address, headers=bearer).status_code == 200


def test_users_are_listed_and_removed(forge: CommandLine, tmp_path: Path) -> None:
    option = ("--users", str(tmp_path / "users.json"))
    forge(
        "web",
        "user",
        "add",
        "ada",
        *option,
        "--password-stdin",
        "--action",
        "*",
        stdin="12345678\n",
    )

    assert "ada" in forge("web", "user", "list", *option).stdout
    forge("web", "user", "remove", "ada", *option)
    assert "ada" not in forge("web", "user", "list", *option).stdout
    assert "no user" in forge.refuse("web", "user", "remove", "ada", *option)


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("web", "--host", "0.0.0.0"), "other machines"),
        (("web", "--users", "missing.json"), "cannot be read"),
        (("web", "user", "list"), "no file of users"),
        (("web", "user", "add", "a:b", "--users", "u"), "colon"),
        (("web", "user", "add", "ada", "--users", "u", "--password-stdin"), "short"),
    ],
)
def test_what_is_wrong_is_refused_in_a_line(
    forge: CommandLine, args: tuple[str, ...], text: str
) -> None:
    assert text in forge.refuse(*args, stdin="short\n")
