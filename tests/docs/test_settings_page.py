"""The page of settings says what the code reads."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forge_jobs.config import SETTINGS_VARIABLE, Deployment, RuntimeSettings, variable_of
from forge_jobs.durations import format_duration
from forge_jobs.errors import InvalidInput
from forge_jobs.storage.opening import open_storage
from tests.support import backends
from tests.support.redis_databases import with_options

PAGE = (Path(__file__).parents[2] / "docs" / "settings.md").read_text(encoding="utf-8")
NOTHING = "(none)"


def table(heading: str) -> dict[str, tuple[str, str, str]]:
    """Name -> (unit, default, meaning), of the table under a heading."""
    section = re.split(rf"\n##+ {heading}\n", PAGE)[1].split("\n##")[0]
    found = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \| (.+?) \|$", section, re.MULTILINE)
    return {name: (unit, default, meaning) for name, unit, default, meaning in found}


def defaults(struct: Any) -> dict[str, Any]:
    """Field -> default of a settings struct."""
    empty = struct()
    return {field.name: getattr(empty, field.name) for field in msgspec.structs.fields(struct)}


def test_the_runtime_table_has_each_setting_with_its_unit_and_default() -> None:
    shown = {name: (unit, default) for name, (unit, default, _) in table("The runtime").items()}
    expected = {name: _shown(value) for name, value in defaults(RuntimeSettings).items()}
    assert shown == expected
    assert list(shown) == list(expected)


def _shown(value: object) -> tuple[str, str]:
    if value is None:
        return "duration", NOTHING
    if isinstance(value, timedelta):
        return "duration", format_duration(value)
    return "count", str(value)


def test_the_deployment_table_has_each_variable_with_its_default() -> None:
    shown = {name: default for name, (_, default, _) in table("The deployment").items()}
    fields = defaults(Deployment)
    del fields["runtime"]
    words = {True: "yes", False: "no"}
    told = {
        name: words[value] if isinstance(value, bool) else str(value or NOTHING)
        for name, value in fields.items()
    }
    assert shown == told
    assert SETTINGS_VARIABLE in PAGE


def test_variables_named_on_the_page_are_read() -> None:
    names = {variable_of(name) for name in defaults(RuntimeSettings) | defaults(Deployment)}
    assert set(re.findall(r"FORGE_[A-Z_]*[A-Z]", PAGE)) - names == {SETTINGS_VARIABLE}


def test_the_settings_file_shown_is_read(tmp_path: Path) -> None:
    [example] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    file = tmp_path / "forge.toml"
    file.write_text(example, encoding="utf-8")
    assert Deployment.from_environment({}, file) == Deployment(
        storage_url="sqlite:///jobs.db",
        handlers="app.jobs:handlers",
        queues={"mail": 4, "reports": 1},
    )


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("heading", "backend"),
    [("SQLite", "sqlite"), ("PostgreSQL", "postgres"), ("Redis and Valkey", "redis")],
)
async def test_the_options_of_the_url_are_as_shown(
    heading: str, backend: str, tmp_path: Path
) -> None:
    options = {name: default for name, (_, default, _) in table(heading).items()}
    plain = (await backends.url_of(backend, tmp_path)).partition("?")[0]
    written = with_options(plain, **{k: v for k, v in options.items() if v != NOTHING})

    with pytest.raises(InvalidInput) as refused:
        await open_storage(f"{plain}?unheard-of=1")
    known = set(refused.value.fix.removeprefix("give one of: ").split(", "))

    assert set(options) <= known
    async with await open_storage(written) as spelt_out, await open_storage(plain) as left_out:
        assert spelt_out.jobs.store_id == left_out.jobs.store_id
        assert spelt_out.durability == left_out.durability
        assert spelt_out.pool_size == left_out.pool_size
