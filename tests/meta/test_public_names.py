"""The public surface: every name is meant, and no import loads what is not needed."""

import subprocess
import sys

import forge_jobs
from forge_jobs.handlers.injection.values import OF_THE_JOB

PRODUCER = """
import sys
import forge_jobs
heavy = ("sqlalchemy", "aiosqlite", "asyncpg", "redis", "pydantic", "click", "rich")
print([name for name in (*heavy, "forge_jobs.runtime.runtime") if name in sys.modules])
"""


def test_all_names_are_sorted_once_each_and_importable() -> None:
    names = forge_jobs.__all__

    assert names == sorted(set(names))
    for name in names:
        assert getattr(forge_jobs, name) is not None


def test_every_reexport_is_listed() -> None:
    public = {
        name
        for name, value in vars(forge_jobs).items()
        if not name.startswith("_") and getattr(value, "__module__", "").startswith("forge_jobs.")
    }

    assert public <= set(forge_jobs.__all__)


def test_what_the_manual_tells_readers_to_annotate_with_is_exported() -> None:
    asked_for = {name.rpartition(".")[2] for name in OF_THE_JOB if name.startswith("forge_jobs.")}

    assert {"JobProgress", "JobClient"} <= asked_for
    assert {*asked_for, "ParentJob"} <= set(forge_jobs.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(forge_jobs, "no_such_name")


def test_importing_the_package_loads_no_backend_and_no_runtime() -> None:
    finished = subprocess.run(
        [sys.executable, "-c", PRODUCER], capture_output=True, text=True, check=True
    )

    assert finished.stdout.strip() == "[]"
