"""The files of examples/deploy, read by parsers and not by eye."""

import configparser
import json
import re
import shlex
from typing import Any

import yaml
from msgspec import Struct

from tests.examples.running import ROOT

FOLDER = ROOT / "examples" / "deploy"


class Start(Struct, frozen=True):
    """A command that a file starts.

    :param environ: the variables that the file sets, "" for values that come from elsewhere
    :param stop_seconds: how long the starter waits after SIGTERM. None where the file is silent
    """

    where: str
    command: tuple[str, ...]
    environ: dict[str, str]
    stop_seconds: float | None = None

    @property
    def is_worker(self) -> bool:
        """Return whether the command runs until a signal."""
        return self.command[1:2] == ("worker",)


def instructions() -> dict[str, list[str]]:
    """Return instruction of the Dockerfile -> the rest of the lines."""
    text = (FOLDER / "Dockerfile").read_text()
    joined = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
    found: dict[str, list[str]] = {}
    for line in filter(None, joined.splitlines()):
        name, _, rest = line.partition(" ")
        found.setdefault(name, []).append(rest)
    return found


def image() -> Start:
    """Return the command that the image starts by itself."""
    told = instructions()
    [environ], [command] = told["ENV"], told["CMD"]
    pairs = dict(pair.partition("=")[::2] for pair in shlex.split(environ))
    return Start("Dockerfile", tuple(json.loads(command)), pairs)


def health_check() -> list[str]:
    """The command of the image's own probe."""
    [line] = instructions()["HEALTHCHECK"]
    return [str(word) for word in json.loads(line.partition("CMD ")[2])]


def services() -> list[Start]:
    """Ours of the compose file, with what the image brings."""
    document = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    return [
        Start(
            f"compose.yaml: {name}",
            tuple(service.get("command", image().command)),
            image().environ | service["environment"],
            _seconds(service.get("stop_grace_period")),
        )
        for name, service in document["services"].items()
        if "build" in service
    ]


def _seconds(text: str | None) -> float | None:
    return None if text is None else float(text.removesuffix("s"))


def manifests() -> dict[str, Any]:
    """Kind -> document of the Kubernetes manifest."""
    documents = yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text())
    return {document["kind"]: document for document in documents}


def containers() -> list[Start]:
    """The containers of the manifest."""
    found = []
    for kind, document in manifests().items():
        pod = document["spec"]["template"]["spec"]
        [container] = pod["containers"]
        found.append(
            Start(
                f"kubernetes.yaml: {kind}",
                tuple(container["command"]),
                image().environ
                | {each["name"]: each.get("value", "") for each in container["env"]},
                pod.get("terminationGracePeriodSeconds"),
            )
        )
    return found


def unit() -> configparser.ConfigParser:
    """Return the unit of systemd. Names keep their capitals, and none is given twice."""
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(FOLDER / "forge-jobs-worker.service")
    return parser


def unit_starts() -> list[Start]:
    """The commands of the unit, in their environment."""
    service = unit()["Service"]
    lines = (FOLDER / "worker.env").read_text().splitlines()
    environ = dict(line.partition("=")[::2] for line in lines if line and line[0] != "#")
    return [
        Start(f"the unit: {name}", _installed(service[name]), environ, float(service[stop]))
        for name, stop in (("ExecStartPre", "TimeoutStopSec"), ("ExecStart", "TimeoutStopSec"))
    ]


def _installed(line: str) -> tuple[str, ...]:
    first, *rest = shlex.split(line)
    return (first.rpartition("/")[2], *rest)


def starts() -> list[Start]:
    """Return all commands of all files."""
    return [image(), *services(), *containers(), *unit_starts()]
