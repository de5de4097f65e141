"""On which backends tests run: what their parameters say, else where they lie."""

import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path

TESTS = Path(__file__).parents[1]

_OF_ONE = {
    "backends/sqlite/": "sqlite",
    "backends/postgres/": "postgres",
    "backends/redis/test_cluster": "redis-cluster",
    "backends/redis/": "redis",
    "cli/": "sqlite",
    "cluster/test_cases_outages": "redis",
    "cluster/test_full_store": "redis",
    "debian/test_pgbouncer": "postgres",
    "unit/test_client_": "sqlite",
}
"""Tests without such a parameter, by how their paths begin: the first that fits. Others touch no
store."""

_ID = re.compile(r"tests/([\w/]+\.py)::(?:\w+::)*(test_\w+)(?:\[(.*)\])?")
_PARAMETER = re.compile(r"(?:^|-)(redis-cluster|sqlite|postgres|redis)(?=-|$)")


def backends_of_tests(files: Collection[str]) -> Mapping[str, frozenset[str]]:
    """Return the backends of each test of ``files``, as ``path::name``.

    :param files: relative to the folder of the tests
    """
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:xdist"]
    collected = subprocess.run(
        [*command, *(f"tests/{file}" for file in sorted(files))],
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert collected.returncode == 0, collected.stdout[-2_000:]
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path, name, parameters in map(_parts, collected.stdout.splitlines()):
        found[f"{path}::{name}"] |= _backends(path, parameters)
    return {test: frozenset(backends) for test, backends in found.items()}


def _parts(line: str) -> tuple[str, str, str]:
    match = _ID.fullmatch(line)
    return (match[1], match[2], match[3] or "") if match else ("", "", "")


def _backends(path: str, parameters: str) -> set[str]:
    if match := _PARAMETER.search(parameters):
        return {match[1]}
    return set(
        next(([backend] for start, backend in _OF_ONE.items() if path.startswith(start)), [])
    )
