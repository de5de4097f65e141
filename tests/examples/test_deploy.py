"""The files of examples/deploy agree with the program that they start."""

import math
import re
import signal
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from forge_jobs.cli.last_exit import BEYOND_GRACE
from forge_jobs.cli.processes import supervising
from forge_jobs.config import Deployment, RuntimeSettings, variable_of
from tests.examples import deploying
from tests.examples.deploying import Start
from tests.examples.running import Program, copied
from tests.support import backends
from tests.support.ports import free_ports
from tests.support.waiting import wait_until

STARTS = {start.where: start for start in deploying.starts()}
WORKERS = {
    where: start for where, start in STARTS.items() if start.stop_seconds and start.is_worker
}
KNOWN = {
    variable_of(name)
    for name in (*Deployment.__struct_fields__, *RuntimeSettings.__struct_fields__)
}


@pytest.mark.parametrize("where", STARTS)
def test_every_variable_is_a_setting_and_is_read(where: str) -> None:
    ours = {name: text for name, text in STARTS[where].environ.items() if name.startswith("FORGE_")}

    assert set(ours) <= KNOWN
    Deployment.from_environment(ours)


@pytest.mark.parametrize("where", WORKERS)
def test_the_starter_waits_for_the_whole_stop(where: str) -> None:
    start = WORKERS[where]
    grace = Deployment.from_environment(start.environ).runtime.grace
    several = "--processes" in start.command
    beyond = supervising._BEYOND_GRACE if several else timedelta(seconds=BEYOND_GRACE)

    assert start.stop_seconds == math.ceil((grace + beyond).total_seconds()) + 1


def test_several_processes_hear_of_a_stop_from_the_first_alone() -> None:
    service = deploying.unit()["Service"]

    assert "--processes" in service["ExecStart"]
    assert service["KillMode"] == "mixed"


def test_the_image_starts_without_a_shell_and_without_root() -> None:
    told = deploying.instructions()

    assert told["CMD"][0].startswith("[")
    assert told["USER"] == ["10001"]
    assert told["COPY"][-1].split()[0] == "jobs.py"
    assert (deploying.FOLDER / "jobs.py").exists()


def test_ports_and_probes_of_the_manifest_belong_together() -> None:
    [container] = deploying.manifests()["Deployment"]["spec"]["template"]["spec"]["containers"]
    [port] = container["ports"]
    probes = [container[f"{name}Probe"] for name in ("startup", "liveness", "readiness")]

    assert container["command"][-2:] == ["--health-port", str(port["containerPort"])]
    assert [str(port["containerPort"])] == deploying.instructions()["EXPOSE"]
    assert {probe["httpGet"]["port"] for probe in probes} == {port["name"]}
    # A worker tries for a minute to open the store. The probe must not end the worker before.
    assert probes[0]["periodSeconds"] * probes[0]["failureThreshold"] > 60


def here(start: Start, folder: Path, url: str, port: int) -> tuple[Program, list[str]]:
    """The command of a file, on a store and a port of this test."""
    command = [*start.command]
    if "--health-port" in command:
        command[command.index("--health-port") + 1] = str(port)
    ours = {name: text or "here" for name, text in start.environ.items()}
    return copied("deploy", folder, **ours | {"FORGE_STORAGE_URL": url}), command


@pytest.mark.processes
@pytest.mark.anyio
@pytest.mark.parametrize("backend", backends.BACKENDS)
async def test_the_commands_of_the_manifest_run_and_answer_their_probes(
    backend: str, tmp_path: Path
) -> None:
    await _runs("kubernetes.yaml: Job", "kubernetes.yaml: Deployment", backend, tmp_path)


@pytest.mark.long
@pytest.mark.processes
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("compose.yaml: migrate", "compose.yaml: worker"),
        ("the unit: ExecStartPre", "the unit: ExecStart"),
    ],
)
async def test_the_commands_of_the_other_files_run(first: str, then: str, tmp_path: Path) -> None:
    await _runs(first, then, "sqlite", tmp_path)


async def _runs(first: str, then: str, backend: str, folder: Path) -> None:
    # Two processes need two ports.
    with free_ports(2) as port:
        await _runs_on(port, first, then, await backends.url_of(backend, folder), folder)
    await backends.forget(backend, folder)


async def _runs_on(port: int, first: str, then: str, url: str, folder: Path) -> None:
    migration, command = here(STARTS[first], folder / "first", url, port)
    migrated = migration.run(*command)
    assert migrated.returncode == 0, migrated.stderr

    program, command = here(STARTS[then], folder / "then", url, port)
    with program.started(*command) as worker:
        await wait_until(
            lambda: worker.poll() is not None or _answers(port, "/readyz"),
            description="the worker is ready",
        )
        assert _answers(port, "/healthz")
        check = [text.replace("8080", str(port)) for text in deploying.health_check()]
        assert program.run(*check).returncode == 0
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=100) == 0
    # The grace that the worker itself asks for.
    [*_, wanted] = re.findall(r"terminationGracePeriodSeconds: (\d+)", program.log.read_text())
    assert float(wanted) <= (STARTS[then].stop_seconds or 0)


def _answers(port: int, path: str) -> bool:
    try:
        answer = httpx.get(f"http://127.0.0.1:{port}{path}", timeout=5, trust_env=False)
    except httpx.TransportError:
        return False
    return answer.status_code == 200
