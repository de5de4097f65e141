"""``forge-jobs demo --web``: the dashboard beside the demo, and three problems to end."""

import html
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.cli.conftest import CommandLine, wait
from tests.support.ports import free_ports

BURST, COOLING, PAUSED = "error_burst", "cooling_with_work", "paused_with_work"
OFFERED = ("Pause demo-cards", "End the cool-down of demo-crm", "Resume demo-mail")
_PATIENCE = 120


class Visit:
    """The demo in a process of its own, and a visitor of the dashboard."""

    def __init__(self, folder: Path, temporary: Path, *options: str) -> None:
        environ = {name: text for name, text in os.environ.items() if not name.startswith("FORGE_")}
        self.temporary = temporary
        self._log = temporary.parent / "log"
        command = [sys.executable, "-m", "forge_jobs", "demo", str(folder), "--web", "--port", "0"]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "--pace", "0", *options],
                env=environ | {"TMPDIR": str(temporary)},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.says("The dashboard: http")
        address = re.search(r"http://[\d.:]+", self.text)
        assert address is not None
        headers = {"Sec-Fetch-Site": "same-origin"}
        self.caller = httpx.Client(base_url=address[0], timeout=60, headers=headers)

    @property
    def text(self) -> str:
        return self._log.read_text()

    def says(self, text: str) -> None:
        """Wait until the demo has said something."""
        wait(
            lambda: text in self.text or self.process.poll() is not None,
            description=f"the demo says {text!r}",
            timeout=_PATIENCE,
        )
        assert text in self.text, self.text

    def queue(self, name: str) -> dict[str, Any]:
        """Return a queue as the API shows it. Nothing before the queue is known."""
        found = self.caller.get("/api/v1/queues").json()["queues"]
        return next((each for each in found if each["name"] == name), {})

    def problems(self) -> set[tuple[str, str]]:
        """Return the queues of the problems, and the codes."""
        found = self.caller.get("/api/v1/problems").json()["problems"]
        return {(each["queue"], each["code"]) for each in found}

    def offered(self) -> dict[str, str]:
        """Return what the Overview offers: the words of each action, and the page."""
        found = re.findall(
            r'<a[^>]*href="(/act/[^"]+)"[^>]*>([^<]+)</a>', self.caller.get("/").text
        )
        return {label.strip(): html.unescape(page) for page, label in found}

    def act(self, path: str) -> None:
        """Do over HTTP what a visitor does."""
        answer = self.caller.post(f"/api/v1{path}")
        assert answer.status_code == 200, answer.text

    def close(self) -> None:
        """End the process, if there is one."""
        self.process.kill()
        self.process.wait()
        if hasattr(self, "caller"):
            self.caller.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "files"
    place.mkdir()
    for number in range(20):
        (place / f"{number:03}.txt").write_text("two words\n")
    return place


@pytest.fixture
def visit(tmp_path: Path, folder: Path) -> Iterator[Visit]:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    visit = Visit(folder, temporary)
    yield visit
    visit.close()


def in_its_folder(visit: Visit) -> list[int]:
    """Return the processes that work for a demo."""
    return [each.pid for each in psutil.process_iter(["environ"]) if _works_for(visit, each)]


def _works_for(visit: Visit, process: psutil.Process) -> bool:
    return (process.info["environ"] or {}).get("TMPDIR") == str(visit.temporary)


@pytest.mark.processes
def test_a_visitor_ends_three_problems_and_a_signal_ends_the_demo(visit: Visit) -> None:
    wait(
        lambda: ("demo-cards", BURST) in visit.problems(),
        description="the burst is seen",
        timeout=_PATIENCE,
    )
    visit.act("/queues/demo-cards/pause")
    visit.says("the card service is back. 2 of 3 problems left.")
    visit.act("/queues/demo-cards/resume")
    wait(
        lambda: visit.queue("demo-cards")["counts"]["by_status"]["done"],
        description="a charge is done",
        timeout=_PATIENCE,
    )

    wait(
        lambda: visit.queue("demo-crm").get("cooldown_remaining"),
        description="the CRM throttles",
        timeout=_PATIENCE,
    )
    assert visit.caller.delete("/api/v1/queues/demo-crm/cool-down").status_code == 200
    assert visit.queue("demo-mail")["paused"]
    visit.act("/queues/demo-mail/resume")
    visit.says("That was all.")
    visit.says("The dashboard goes on until Ctrl-C")

    visit.process.send_signal(signal.SIGTERM)

    # On a machine with nothing else to do this takes a second.
    assert visit.process.wait(20) == 0
    assert visit.text.endswith("Stopped. Nothing of it is left behind.\n")
    assert list(visit.temporary.iterdir()) == []
    assert in_its_folder(visit) == []


@pytest.mark.processes
@pytest.mark.long
def test_the_overview_names_all_three_and_what_it_offers_ends_them(visit: Visit) -> None:
    wait(
        lambda: visit.offered().keys() >= set(OFFERED),
        description="all three actions are offered",
        timeout=2 * _PATIENCE,
    )
    for label in OFFERED:
        page = visit.offered()[label]
        assert 'class="primary' in visit.caller.get(page).text
        assert "<h1>Done" in visit.caller.post(page).text
    visit.says("That was all.")
    # The burst is over now, and leaves the list five minutes behind the last failure.
    gone = {("demo-crm", COOLING), ("demo-mail", PAUSED)}
    wait(lambda: not visit.problems() & gone, description="they are gone", timeout=_PATIENCE)


@pytest.mark.daily
@pytest.mark.processes
def test_ctrl_c_in_the_middle_is_an_end_like_any_other(visit: Visit) -> None:
    visit.says("files handed out")
    visit.process.send_signal(signal.SIGINT)
    assert visit.process.wait(20) == 0
    assert list(visit.temporary.iterdir()) == []
    assert in_its_folder(visit) == []


def test_what_does_not_go_together_is_refused(folder: Path) -> None:
    told = CommandLine("").refuse("demo", str(folder), "--web", "--json")
    assert "goes on until a signal" in told
    with free_ports() as port, socket.create_server(("127.0.0.1", port)):
        told = CommandLine("").refuse("demo", str(folder), "--web", "--port", str(port))
    assert f"port {port} of 127.0.0.1 cannot be used; give another --port" in told
