"""Settings from the environment and from a file: what is read, what is refused, and how."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forge_jobs.config import Deployment, RuntimeSettings, variable_of
from forge_jobs.durations import format_duration, parse_duration
from forge_jobs.errors import ConfigError
from forge_jobs.model.queues import RateLimit

durations = st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=999_999_999))


@given(durations)
def test_a_formatted_duration_is_read_back_exactly(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration


@given(st.text())
def test_any_text_is_a_duration_or_refused_with_the_fix(text: str) -> None:
    try:
        outcome: object = parse_duration(text)
    except ValueError as error:
        outcome = str(error)

    assert isinstance(outcome, timedelta) or "1h30m" in str(outcome)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("1.5", 1.5),
        ("250ms", 0.25),
        ("1h30m", 5400),
        ("30m1h", 5400),
        ("1m1m", 120),
        ("2d", 172_800),
        ("0", 0),
        ("0.000001s", 0.000001),
    ],
)
def test_durations_are_seconds_or_numbers_with_units(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text",
    ["", " ", "5x", "-1s", "1h30", "1 h", "s", "1e3", "nan", "٣s", "1" * 19, "999999999999d"],
)
def test_what_is_not_a_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="give seconds"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(0), "0s"),
        (timedelta(seconds=90), "1m30s"),
        (timedelta(milliseconds=250), "250ms"),
        (timedelta(hours=25), "1d1h"),
        (timedelta(seconds=1.5), "1.5s"),
    ],
)
def test_durations_are_written_short(duration: timedelta, text: str) -> None:
    assert format_duration(duration) == text


def test_nothing_set_gives_the_defaults() -> None:
    assert Deployment.from_environment({}) == Deployment()


def test_every_part_of_a_deployment_has_a_variable() -> None:
    deployment = Deployment.from_environment(
        {
            "FORGE_QUEUES": "gh, slack=2",
            "FORGE_STORAGE_URL": "sqlite:///jobs.db",
            "FORGE_HANDLERS": "app.jobs:handlers",
            "FORGE_RATE_LIMITS": "smtp=100/1m, gh = 5000/1h",
            "FORGE_WORKER_PREFIX": "shop",
            "FORGE_WORKER_VERSION": "1.2",
            "FORGE_WORKER_ID": "7",
            "FORGE_CONCURRENCY": "8",
            "FORGE_EVENT_LOOP": "asyncio",
            "FORGE_LOG": "warning",
            "FORGE_LOG_FORMAT": "json",
            "FORGE_LEASE": "1m",
            "FORGE_MAX_CRASHES": "2",
        }
    )

    assert deployment == Deployment(
        queues={"gh": None, "slack": 2},
        storage_url="sqlite:///jobs.db",
        handlers="app.jobs:handlers",
        rate_limits={
            "smtp": RateLimit(100, per=timedelta(minutes=1)),
            "gh": RateLimit(5000, per=timedelta(hours=1)),
        },
        worker_prefix="shop",
        worker_version="1.2",
        worker_id="7",
        concurrency=8,
        event_loop="asyncio",
        log="WARNING",
        log_format="json",
        runtime=RuntimeSettings(lease=timedelta(minutes=1), max_crashes=2),
    )


def test_every_runtime_setting_survives_the_way_through_its_variable() -> None:
    # Settings that are derived from others, or left to the store, unless they are given.
    derived = {"patience": timedelta(seconds=1), "keep_minutes": timedelta(hours=2)}
    doubled: dict[str, Any] = {
        field.name: derived[field.name] if field.default is None else field.default * 2
        for field in msgspec.structs.fields(RuntimeSettings)
    }
    wanted = RuntimeSettings(**doubled)
    environ = {
        variable_of(name): format_duration(value) if isinstance(value, timedelta) else str(value)
        for name, value in msgspec.structs.asdict(wanted).items()
    }

    assert Deployment.from_environment(environ).runtime == wanted
    assert wanted != RuntimeSettings()


def test_a_queue_named_with_a_colon_and_a_number_is_given_with_its_number_or_in_a_file(
    tmp_path: Path,
) -> None:
    file = tmp_path / "forge.toml"
    file.write_text('queues = ["shard:2"]')
    assert Deployment.from_environment({}, file).queues == {"shard:2": None}
    given = Deployment.from_environment({"FORGE_QUEUES": "shard:1=4,eu:mail"})
    assert given.queues == {"shard:1": 4, "eu:mail": None}


def test_an_empty_variable_counts_as_not_set() -> None:
    assert Deployment.from_environment({"FORGE_LEASE": "", "FORGE_QUEUES": ""}) == Deployment()


def test_variables_of_other_programs_pass() -> None:
    assert Deployment.from_environment({"FORGE_TOKEN": "x", "HOME": "/"}) == Deployment()


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"FORGE_QEUES": "a"}, "FORGE_QEUES is not known; did you mean FORGE_QUEUES?"),
        ({"FORGE_LEASES": "1"}, "FORGE_LEASES is not known; did you mean FORGE_LEASE?"),
        ({"FORGE_LEASE": "5x"}, "FORGE_LEASE: '5x' is not a duration; give seconds"),
        ({"FORGE_LEASE": "1s"}, "lease must be at least three heartbeats (0:00:09)"),
        ({"FORGE_LEASE": "1s"}, "(FORGE_LEASE)"),
        ({"FORGE_CLEANUP_INTERVAL": "0"}, "cleanup_interval must be above zero"),
        ({"FORGE_MAX_CRASHES": "two"}, "FORGE_MAX_CRASHES: 'two' is not a whole number"),
        ({"FORGE_CONCURRENCY": "0"}, "FORGE_CONCURRENCY: is 0; give 1 to 100000"),
        ({"FORGE_MAX_CRASHES": "0"}, "max_crashes must be a whole number, at least 1"),
        ({"FORGE_LEASE": "999999d"}, "lease must be at most a century"),
        ({"FORGE_HEARTBEAT_INTERVAL": "999999999d"}, "(FORGE_HEARTBEAT_INTERVAL)"),
        ({"FORGE_QUEUES": "a,,b"}, "FORGE_QUEUES: is empty; give 1 to 200 characters"),
        ({"FORGE_QUEUES": "a,a=2"}, "FORGE_QUEUES: names the queue 'a' twice"),
        ({"FORGE_QUEUES": "a=many"}, "FORGE_QUEUES: 'many' is not a whole number"),
        (
            {"FORGE_QUEUES": "a,gh:3"},
            "FORGE_QUEUES: 'gh:3' is read as the name of a queue; give gh=3",
        ),
        ({"FORGE_QUEUES": "a=100001"}, "give at most 100000"),
        ({"FORGE_LOG": "loud"}, "FORGE_LOG: 'loud' is not known; give DEBUG or INFO"),
        ({"FORGE_SETTINGS": "/nowhere/x.toml"}, "settings file x.toml: cannot be read"),
    ],
)
def test_a_wrong_variable_is_refused_by_name(environ: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Deployment.from_environment(environ)

    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_claim_ahead_alone_may_be_zero() -> None:
    deployment = Deployment.from_environment({"FORGE_CLAIM_AHEAD": "0"})

    assert deployment.runtime.claim_ahead == timedelta(0)


def write(folder: Path, text: str) -> Path:
    file = folder / "forge_jobs.toml"
    file.write_text(text)
    return file


@pytest.mark.parametrize("queues", ['"gh,slack=2"', '["gh", "slack=2"]'])
def test_a_settings_file_says_the_same_in_lower_case(tmp_path: Path, queues: str) -> None:
    file = write(tmp_path, f'queues = {queues}\nlease = 60\nreap_interval = "1m30s"\nlog = "DEBUG"')

    assert Deployment.from_environment({}, file) == Deployment(
        queues={"gh": None, "slack": 2},
        log="DEBUG",
        runtime=RuntimeSettings(lease=timedelta(seconds=60), reap_interval=timedelta(seconds=90)),
    )


def test_queues_of_a_settings_file_may_be_a_table(tmp_path: Path) -> None:
    file = write(tmp_path, "[queues]\ngh = 3\n")

    assert Deployment.from_environment({}, file).queues == {"gh": 3}


def test_the_environment_wins_over_the_file_that_it_names(tmp_path: Path) -> None:
    file = write(tmp_path, 'lease = "20s"\ngrace = "7s"')

    deployment = Deployment.from_environment({"FORGE_SETTINGS": str(file), "FORGE_LEASE": "30s"})

    assert deployment.runtime.lease == timedelta(seconds=30)
    assert deployment.runtime.grace == timedelta(seconds=7)


def test_rate_limits_of_a_settings_file_may_be_a_table(tmp_path: Path) -> None:
    file = write(tmp_path, '[rate_limits]\nsmtp = "100/1m"\n')

    assert Deployment.from_environment({}, file).rate_limits == {
        "smtp": RateLimit(100, per=timedelta(minutes=1))
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("smtp", "is empty"),
        ("smtp=", "'' is not a limit; give a count per duration: 100/1m"),
        ("smtp=100", "'100' is not a limit; give a count per duration: 100/1m"),
        ("smtp=x/1m", "'x' is not a whole number; give one like 3"),
        ("smtp=0/1m", "is 0; give at least 1"),
        ("smtp=1/soon", "'soon' is not a duration; give seconds (90)"),
        ("smtp=1/0", "give a duration above zero"),
        ("smtp=1/1m,smtp=2/1m", "names the limit 'smtp' twice; name each once"),
    ],
)
def test_a_wrong_rate_limit_is_refused_by_its_variable(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Deployment.from_environment({"FORGE_RATE_LIMITS": text})

    assert str(refused.value).startswith("FORGE_RATE_LIMITS: ")
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('qeues = "a"', "settings file forge_jobs.toml: qeues is not known; did you mean queues?"),
        ("zzz = 1", "zzz is not known; known are blocked_after,"),
        ("lease = true", "settings file forge_jobs.toml: lease: is a bool; give seconds"),
        ("lease = nan", "is not a duration"),
        ("max_crashes = 1.5", "max_crashes: '1.5' is not a whole number"),
        ("max_crashes = -1", "max_crashes: '-1' is not a whole number"),
        ("queues = 3", "queues: is neither a text nor a list"),
        ("rate_limits = 3", "rate_limits: is neither a text nor a table"),
        ("rate_limits = { a = 3 }", "rate_limits: is an int; give a text"),
        ("storage_url = 3", "storage_url: is an int; give a text"),
        ("= nonsense", "settings file forge_jobs.toml: is not TOML"),
    ],
)
def test_a_wrong_settings_file_is_refused_by_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Deployment.from_environment({}, write(tmp_path, text))

    assert message in str(refused.value)
    assert str(tmp_path) not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"keep_minutes": timedelta(minutes=59)}, "keep_minutes must be 1 hour to 30 days"),
        ({"keep_minutes": timedelta(days=31)}, "keep_minutes must be 1 hour to 30 days"),
        ({"keep_hours": timedelta(minutes=59)}, "keep_hours must be at least 1 hour"),
        (
            {"keep_minutes": timedelta(hours=3), "keep_hours": timedelta(hours=2)},
            r"keep_hours must be at least keep_minutes \(3:00:00\), not 2:00:00",
        ),
    ],
)
def test_history_that_cannot_be_kept_so_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RuntimeSettings(**given)
    RuntimeSettings(keep_minutes=timedelta(hours=1), keep_hours=timedelta(hours=1))


def test_the_storage_url_is_not_in_the_text_of_a_deployment() -> None:
    deployment = Deployment(storage_url="postgresql://me:hunter2@db/app")

    assert "hunter2" not in repr(deployment)
    assert "hunter2" not in str(deployment)


def test_patience_is_a_quarter_of_the_grace_at_most() -> None:
    def seconds(value: float) -> timedelta:
        return timedelta(seconds=value)

    assert RuntimeSettings().patience_within(seconds(100)) == seconds(5)
    assert RuntimeSettings().patience_within(seconds(4)) == seconds(1)
    given = RuntimeSettings(grace=seconds(100), patience=seconds(25))
    assert given.patience_within(given.grace) == seconds(25)
    with pytest.raises(ConfigError, match=r"patience must be at most a quarter of the grace"):
        RuntimeSettings(grace=seconds(100), patience=seconds(26))
