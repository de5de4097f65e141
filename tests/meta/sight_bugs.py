"""Bugs in what people are shown of limits by key: when a key opens, and which keys starve."""

from tests.meta.bugs import Bug, Edit

_EXPLAINED = "tests/problems/test_explained_keys.py::test_"
_PERMITS = "forge_jobs/policy/slots/permits.py"
_KEYS, _LINES = (f"forge_jobs/clients/explaining/{name}.py" for name in ("keys", "lines"))
_PLACE = f"{_EXPLAINED}a_job_at_a_full_key_is_told_its_place_and_when_a_permit_comes_free"
_TURNS = f"{_EXPLAINED}a_key_with_a_share_is_told_its_place_in_the_turns"
_FRONT = f"{_EXPLAINED}a_job_of_a_sequence_is_told_what_the_one_in_front_does"


def _bug(name: str, file: str, old: str, new: str, test: str, backend: str = "sqlite") -> Bug:
    return Bug(f"sight: {name}", (test,), (Edit(file, old, new),), backend)


SIGHT_BUGS = [
    _bug(
        "a permit comes free with the last of the holders",
        _PERMITS,
        "sorted(times)[place : place + 1]",
        "sorted(times)[-1:]",
        _PLACE,
    ),
    _bug(
        "a lowered limit opens with the first end",
        _PERMITS,
        "beyond = max(key.running - limit.at_most, 0)",
        "beyond = 0",
        f"{_EXPLAINED}a_lowered_limit_opens_once_as_many_have_ended_as_run_beyond",
    ),
    _bug(
        "an estimate that has passed is a time to come",
        _PERMITS,
        "if opens_at > now else",
        "if opens_at else",
        _PLACE,
    ),
    _bug(
        "a job counts itself among those before it",
        _KEYS,
        "LinePlace(ahead=waiting.index(job_id))",
        "LinePlace(ahead=waiting.index(job_id) + 1)",
        _PLACE,
    ),
    _bug(
        "a place beyond the bound is none",
        _KEYS,
        "is_more = len(waiting) >= MOST_KEY_JOBS",
        "is_more = len(waiting) > MOST_KEY_JOBS",
        f"{_EXPLAINED}a_place_is_counted_up_to_a_bound",
    ),
    _bug(
        "a key is among the others of the limit",
        _KEYS,
        "for each in keys if each.key != job.limit_key",
        "for each in keys",
        _TURNS,
    ),
    _bug(
        "keys with as many jobs in progress come first",
        _KEYS,
        "sum(each < running for each in others)",
        "sum(each <= running for each in others)",
        _TURNS,
    ),
    _bug(
        "the job in front is the one before",
        _LINES,
        "between < _STEPS",
        "between < 0",
        _FRONT,
    ),
    _bug(
        "each blocked job is in a sequence",
        _LINES,
        "return edges.get(parent) in OF_SEQUENCES",
        "return parent in edges",
        f"{_EXPLAINED}parents_that_are_no_sequence_are_told_of_too",
    ),
]
