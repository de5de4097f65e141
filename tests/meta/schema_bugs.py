"""Bugs of changes of the schema. Each names the test that states its rule."""

from tests.meta.bugs import Bug, Edit

_AGES = "tests/migrations/test_ages.py::test_"
_BESIDE = "tests/migrations/test_postgres_beside_others.py::test_"
_ROLLING = (
    "tests/releases/test_rolling_deploys.py::"
    "test_a_roll_out_and_a_roll_back_under_load_lose_strand_and_refuse_nothing"
)
_OPENING = "tests/backends/redis/test_opening.py::test_"


def _bug(name: str, file: str, old: str, new: str, test: str, backend: str = "sqlite") -> Bug:
    edit = Edit(f"forge_jobs/storage/{file}", old, new)
    return Bug(f"schema: {name}", (test,), (edit,), backend)


SCHEMA_BUGS = (
    _bug(
        "a queue that forge_enqueue makes begins at a version that a deleted one had",
        "sql/migrations/0008_known_statuses.postgresql.sql",
        "SET DEFAULT (extract(epoch FROM clock_timestamp()) * 1000)::bigint",
        "SET DEFAULT '0'",
        "tests/backends/postgres/test_sql_enqueue.py::"
        "test_no_version_of_a_deleted_queue_comes_back_with_one_that_it_makes",
        "postgres",
    ),
    _bug(
        "every newer one is taken",
        "backend.py",
        "entry.works_from > mine",
        "entry.works_from > mine + 99",
        f"{_AGES}a_newer_schema_is_refused_with_what_to_do",
    ),
    _bug(
        "every newer one is refused",
        "backend.py",
        "not entry.known and entry.works_from > mine",
        "not entry.known",
        f"{_AGES}a_newer_schema_that_works_with_this_program_is_taken",
    ),
    _bug(
        "one that does not say which programs it works with is taken",
        "sql/migrations/runner.py",
        "version if works_from is None else works_from",
        "1 if works_from is None else works_from",
        f"{_AGES}a_schema_whose_migrations_do_not_say_which_programs_they_work_with",
    ),
    _bug(
        "undone although that loses data",
        "sql/migrations/runner.py",
        "if lost is not None:",
        "if lost is None and query:",
        f"{_AGES}what_would_lose_data_is_not_undone",
    ),
    _bug(
        "undone under pods that work",
        "sql/migrations/runner.py",
        "    if entries:\n        _refuse_at_work(tx)\n",
        "",
        f"{_AGES}nothing_is_undone_under_pods_that_work",
    ),
    _bug(
        "a wait for a table holds up all who come later",
        "sql/postgres/migrating.py",
        "_LOCK_MS = 100",
        "_LOCK_MS = 30_000",
        f"{_BESIDE}nobody_waits_behind_a_change_that_waits_for_a_reader",
        "postgres",
    ),
    _bug(
        "indexes are not built concurrently",
        "sql/migrations/files.py",
        'place: str = "", how: str = "CONCURRENTLY "',
        'place: str = "", how: str = ""',
        f"{_BESIDE}an_index_is_built_beside_a_writer_and_says_what_it_waits_for",
        "postgres",
    ),
    _bug(
        "what a killed build has left counts as built",
        "sql/postgres/migrating.py",
        "SELECT i.indisvalid FROM",
        "SELECT i.indisvalid OR true FROM",
        f"{_BESIDE}what_a_killed_build_has_left_is_built_again",
        "postgres",
    ),
    _bug(
        "a build that goes on in the server is dropped",
        "sql/postgres/migrating.py",
        "        await _until_no_other_build(options, builder, index)\n",
        "",
        f"{_BESIDE}a_build_that_still_goes_on_in_the_server_is_waited_for",
        "postgres",
    ),
    _bug(
        "redis: what a newer layout says of older programs is not read",
        "redis/lua/base/schema.lua",
        "from = tonumber(from or number)",
        "from = number",
        f"{_OPENING}a_newer_layout_that_works_with_this_program_is_taken",
        "redis",
    ),
    _bug(
        "programs of the release before are refused",
        "sql/migrations/0011_unique_modes.sqlite.sql",
        "-- works-from: 1\n",
        "-- works-from: 11\n",
        _ROLLING,
    ),
    _bug(
        "redis: programs of the release before are refused",
        "redis/base/schema.py",
        "in_cluster=2, is_needed=False),\n",
        'in_cluster=2, is_needed=False),\n    Layout(3, "later", 3),\n',
        _ROLLING,
        "redis",
    ),
)
