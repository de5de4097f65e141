"""``forge-jobs backup``."""

from pathlib import Path

from tests.cli.conftest import CommandLine


def test_a_store_is_copied_and_the_copy_is_a_store(forge: CommandLine, tmp_path: Path) -> None:
    job_id = forge("enqueue", "tests.noop").stdout.strip()
    target = tmp_path / "backup.db"
    assert f"Copied to {target}" in forge("backup", str(target)).stderr
    copied = CommandLine(f"sqlite:///{target}")
    assert copied.json("jobs", "show", job_id)["kind"] == "tests.noop"


def test_a_copy_takes_nobodys_place(forge: CommandLine, tmp_path: Path) -> None:
    assert "target: is there already" in forge.refuse("backup", str(tmp_path / "jobs.db"))


def test_another_store_is_refused_with_its_tool(tmp_path: Path) -> None:
    told = CommandLine("postgresql://localhost/app").refuse("backup", str(tmp_path / "copy"))
    assert "pg_dump" in told
