"""Bugs of the filter language: what a line means, what it refuses, and the way back."""

from tests.meta.bugs import Bug, Edit
from tests.meta.policy_bugs import in_policy

_TERMS, _READING = "model/queries/terms", "model/queries/reading"
_WRITING, _ANSWERS = "model/queries/writing", "model/answering/filters"
_MEANS = "queries.py::test_a_term_means"
_REFUSED = "queries.py::test_what_is_no_term_is_refused_by_name_with_the_nearest_good_one"
_ITSELF = "queries.py::test_a_query_reads_as_itself"
_FILTER = "query_filters.py::test_a_query_means_a_filter"

QUERY_BUGS: tuple[Bug, ...] = (
    in_policy(
        "filter text: a minus is read over",
        _READING,
        "name, is_excluded = head[2], bool(head[1])",
        "name, is_excluded = head[2], False",
        _MEANS,
    ),
    in_policy(
        "filter text: of several values the first is kept",
        _READING,
        "        at += 1\n",
        "        return values[:1], len(text)\n",
        _MEANS,
    ),
    in_policy(
        "filter text: the nearest good term is not named",
        _TERMS,
        "    if not close:\n",
        "    if close:\n",
        _REFUSED,
    ),
    in_policy(
        "filter text: a bare number of a payload is a text",
        _READING,
        "or value in _LITERALS or _NUMBER.fullmatch(value):",
        "or value in _LITERALS:",
        _MEANS,
    ),
    in_policy(
        "filter text: a whole number of a payload becomes a float",
        _TERMS,
        "int(text) if _WHOLE_NUMBER.fullmatch(text) else msgspec.json.decode(text)",
        "float(text) if _WHOLE_NUMBER.fullmatch(text) else msgspec.json.decode(text)",
        "queries.py::test_numbers_keep_their_digits",
    ),
    in_policy(
        "filter text: a time ahead is one ago",
        _READING,
        "return -length if is_ahead else length",
        "return length",
        _MEANS,
    ),
    in_policy(
        "filter text: two queues at once mean the last",
        _TERMS,
        "            seen.add(term.name)\n",
        "",
        _REFUSED,
    ),
    in_policy(
        "filter text: names with spaces are written without quotes",
        _WRITING,
        """_BARE = re.compile(r'[^\\s",]+')""",
        """_BARE = re.compile(r'[^",]+')""",
        _ITSELF,
    ),
    in_policy(
        "filter text: a dot in a name of a path is a step",
        _WRITING,
        """_BARE_STEP = re.compile(r'[^\\s",.:]+')""",
        """_BARE_STEP = re.compile(r'[^\\s",:]+')""",
        _ITSELF,
    ),
    in_policy(
        "filter text: microseconds of an instant are not written",
        _WRITING,
        "value.isoformat()",
        'value.isoformat(timespec="seconds")',
        _ITSELF,
    ),
    in_policy(
        "filter text: a part that is no field of a filter is left out",
        _ANSWERS,
        "        left.append(_settled(term, now))\n",
        "",
        "query_filters.py::test_what_is_no_part_of_a_filter_is_one_of_its_terms",
    ),
    in_policy(
        "filter text: all statuses excluded mean any status",
        _ANSWERS,
        "            if not values:\n",
        "            if False:\n",
        _FILTER,
    ),
    in_policy(
        "filter text: an age is compared as an instant",
        _ANSWERS,
        "return _TURNED[term.sign], now - term.value",
        "return term.sign, now - term.value",
        _FILTER,
    ),
    in_policy(
        "filter text: later than an instant includes the instant",
        _ANSWERS,
        'at + _MICROSECOND if sign in {">", "<="} else at',
        "at",
        _FILTER,
    ),
    in_policy(
        "filter text: of two bounds the wider one counts",
        _ANSWERS,
        'bounds["enqueued_after"] = max(after)',
        'bounds["enqueued_after"] = min(after)',
        _FILTER,
    ),
    in_policy(
        "filter text: a filter forgets the unique key",
        _ANSWERS,
        '"schedule": "schedule", "key": "unique_key"}',
        '"schedule": "schedule"}',
        "query_filters.py::test_every_filter_is_a_text_that_means_the_same_filter",
    ),
    Bug(
        "--where: durations count from the year 2000",
        ("tests/cli/test_where.py::test_durations_count_by_the_stores_time",),
        (
            Edit(
                "forge_jobs/cli/selection.py",
                "return as_filter(which, with_store(deployment, lambda store: store.cron.now()))",
                "return as_filter(which, _ANY_TIME)",
            ),
        ),
    ),
    Bug(
        "--where: an option beside the line is dropped",
        ("tests/cli/test_where.py::test_a_wrong_line_is_refused_before_the_store_is_asked",),
        (
            Edit(
                "forge_jobs/cli/selection.py",
                "            if which != JobFilter():\n                raise",
                "            if False:\n                raise",
            ),
        ),
    ),
)
