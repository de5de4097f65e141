"""Edits of the stores that plant bugs of sequences, and the tests that find these."""

from tests.meta.bugs import Bug, Edit

TESTS = (
    "tests/conformance/test_sequences.py",
    "tests/conformance/test_deleted_in_line.py",
    "tests/conformance/test_requeued_sequences.py",
    "tests/conformance/test_noted_sequences.py",
    "tests/conformance/test_far_sequences.py",
    "tests/conformance/test_stopped_sequences.py",
    "tests/conformance/test_mixed_sequences.py",
    "tests/conformance/test_lines_that_come_back.py",
    "tests/conformance/test_sequence_walks.py",
)
SQL = "forge_jobs/storage/sql/jobs/"
LUA = "forge_jobs/storage/redis/lua/"


def sql(name: str, file: str, old: str, new: str) -> Bug:
    return Bug(f"sequences: {name}", TESTS, (Edit(f"{SQL}{file}.py", old, new),))


def redis(name: str, file: str, old: str, new: str) -> Bug:
    edit = Edit(f"{LUA}{file}.lua", old, new)
    return Bug(f"sequences on redis: {name}", TESTS, (edit,), "redis")


def by_sql(name: str, old: str, new: str) -> Bug:
    edit = Edit("forge_jobs/storage/sql/migrations/0030_lines_of_sql.postgresql.sql", old, new)
    tests = ("tests/backends/postgres/test_sql_sequences.py",)
    return Bug(f"sequences: {name}", tests, (edit,), "postgres")
