"""Bugs of the terms of filters, as stores answer them."""

from tests.meta.bugs import Bug, Edit

_SQL, _REDIS = "forge_jobs/storage/sql/jobs/", "forge_jobs/storage/redis/"
_TERMS = ("tests/conformance/test_filter_terms.py",)
_LUA = "lua/lib/jobs/operate/terms.lua"


def _everywhere(name: str, file: str, old: str, new: str) -> Bug:
    return Bug(f"terms: {name}", _TERMS, (Edit(f"forge_jobs/{file}.py", old, new),))


def _of_sql(name: str, file: str, old: str, new: str) -> Bug:
    return Bug(f"terms: {name}", _TERMS, (Edit(f"{_SQL}{file}.py", old, new),))


def _of_redis(name: str, file: str, old: str, new: str) -> Bug:
    return Bug(f"terms on redis: {name}", _TERMS, (Edit(f"{_REDIS}{file}", old, new),), "redis")


TERM_BUGS: tuple[Bug, ...] = (
    _everywhere(
        "an encrypted payload matches what is excluded",
        "model/queries/matching",
        "if not payload or payload.startswith(ENCRYPTED_START):",
        "if not payload:",
    ),
    _everywhere(
        "errors are compared letter for letter",
        "model/queries/matching",
        "value.casefold() in error",
        "value in error",
    ),
    Bug(
        "terms: people who may not see payloads learn of them by asking",
        ("tests/operating/test_rights.py",),
        (Edit("forge_jobs/operating/base.py", "if any(term.name", "if not any(term.name"),),
    ),
    _of_sql(
        "excluded keys leave out jobs without a key",
        "matching/terms",
        "and_(of.unique_key.is_not(None), of.unique_key.in_(places))",
        "of.unique_key.in_(places)",
    ),
    _of_sql(
        "a finished job is due",
        "matching/terms",
        "return and_(of.status.in_(_TURNS), bound)",
        "return bound",
    ),
    _of_sql(
        "an error is looked for in all errors of a job",
        "matching/terms",
        "row.errors.rfind(_RECORD)",
        "row.errors.find(_RECORD)",
    ),
    _of_sql(
        "a verb does not look at the texts again",
        "operate",
        "if visit.which.deep else set(rows)",
        "if False else set(rows)",
    ),
    _of_sql(
        "a search that has read its share says that there is no more",
        "filters",
        "if len(places) == read and len(matching) < self._limit:",
        "if False:",
    ),
    _of_redis("what is excluded is meant", _LUA, "      return not how\n", "      return true\n"),
    _of_redis("a finished job is due", _LUA, "IN_LINE[job.status] and whole", "whole"),
    _of_redis(
        "a verb does not look at the texts again",
        "lua/lib/jobs/lists/seen.lua",
        "~= seen[id]",
        "== ''",
    ),
    _of_redis(
        "an excluded queue is meant",
        "jobs/filters.py",
        "(name in term.values) != term.excluded for term in about",
        "True for term in about",
    ),
)
