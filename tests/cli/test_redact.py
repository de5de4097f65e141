"""Fields that ``FORGE_REDACT`` names are hidden by every command. ``jobs reveal`` shows them."""

import pytest

from tests.cli.conftest import CommandLine

SECRET = "swordfish"
PAYLOAD = '{"user":{"password":"swordfish","name":"ada"}}'


@pytest.mark.parametrize(
    "words",
    [("jobs", "show"), ("export",), ("jobs", "list"), ("jobs", "timeline"), ("jobs", "kin")],
)
def test_no_command_shows_a_hidden_field(
    forge: CommandLine, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("FORGE_REDACT", "password")
    job_id = forge("enqueue", "login", "--payload", PAYLOAD).stdout.strip()
    takes_a_job = words[-1] in ("show", "timeline", "kin")
    shown = forge(*words, *([job_id] if takes_a_job else []))
    assert SECRET not in shown.output
    if words[-1] in ("show", "export"):
        assert "ada" in shown.output
        assert SECRET in forge("jobs", "reveal", job_id).stdout


def test_the_setting_may_be_a_list_in_the_file(
    forge: CommandLine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("settings") / "forge.toml"
    file.write_text('redact = ["user.password"]')
    job_id = forge("enqueue", "login", "--payload", PAYLOAD).stdout.strip()
    assert SECRET in forge("jobs", "show", job_id).stdout
    assert SECRET not in forge("jobs", "show", job_id, "--settings", str(file)).stdout
    file.write_text("redact = 5")
    assert "redact" in forge.refuse("jobs", "show", job_id, "--settings", str(file))
