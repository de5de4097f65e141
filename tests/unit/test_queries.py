"""The filter language: what a line of text means, what is refused, and that both ways agree."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forge_jobs.errors import InvalidInput
from forge_jobs.model.ids import new_job_id
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.model.queries.reading import parse_query
from forge_jobs.model.queries.terms import (
    AGES,
    CHOICES,
    LENGTHS,
    NUMBERS,
    Choice,
    Compared,
    InPayload,
    JobQuery,
    Sign,
    Term,
)
from forge_jobs.model.queries.writing import format_query

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
CENTURY = timedelta(days=36_500)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=40)
NAMES = st.text(
    st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp"), exclude_characters=","),
    min_size=1,
    max_size=40,
)
QUEUES = NAMES.filter(lambda name: not any(each.isspace() for each in name))
VALUES = {
    "queue": QUEUES,
    "status": st.sampled_from([status.value for status in JobStatus]),
    "cause": st.sampled_from([cause.value for cause in Cause]),
    "id": st.builds(new_job_id),
    "error": TEXTS,
}
INSTANTS = st.datetimes(
    datetime(2, 1, 1),  # noqa: DTZ001 - of all time zones
    datetime(9998, 1, 1),  # noqa: DTZ001
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=45))]),
)
LOWER_OR_GREATER: st.SearchStrategy[Sign] = st.sampled_from(["<", "<=", ">=", ">"])
JSON_TEXTS = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(["true", "false", "null"]),
    TEXTS.map(lambda text: '"' + text.encode("unicode_escape").hex() + '"'),
)


def _choices(name: str) -> st.SearchStrategy[Term]:
    values = st.lists(VALUES.get(name, NAMES), min_size=1, max_size=4).map(tuple)
    return st.builds(Choice, st.just(name), values, st.booleans())


TERMS: st.SearchStrategy[Term] = st.one_of(
    *map(_choices, CHOICES),
    st.builds(
        Compared,
        st.sampled_from(NUMBERS),
        LOWER_OR_GREATER | st.just("="),
        st.integers(0, 1_000_000_000),
    ),
    st.builds(
        Compared,
        st.sampled_from(LENGTHS + AGES),
        LOWER_OR_GREATER,
        st.timedeltas(timedelta(0), CENTURY),
    ),
    st.builds(Compared, st.just("due"), LOWER_OR_GREATER, st.timedeltas(-CENTURY, CENTURY)),
    st.builds(Compared, st.sampled_from(AGES), LOWER_OR_GREATER, INSTANTS),
    st.builds(
        InPayload,
        st.lists(TEXTS | st.sampled_from(["", "a.b", "a:b", '"']), min_size=1, max_size=4).map(
            tuple
        ),
        st.lists(JSON_TEXTS, min_size=1, max_size=4).map(tuple),
        st.booleans(),
    ),
)


def _once(terms: list[Term]) -> JobQuery:
    """A query of these terms without a second positive one of a name."""
    seen: set[object] = set()
    kept = []
    for term in terms:
        mark = term.name if isinstance(term, Choice) and not term.excluded else object()
        if mark not in seen:
            kept.append(term)
        seen.add(mark)
    return JobQuery(tuple(kept))


QUERIES = st.lists(TERMS, max_size=8).map(_once)


@given(QUERIES)
@example(JobQuery((Compared("attempt", "=", 1_000_000_000),)))
def test_a_query_reads_as_itself(query: JobQuery) -> None:
    assert parse_query(format_query(query)) == query


@given(QUERIES)
def test_the_text_of_a_query_is_the_same_again(query: JobQuery) -> None:
    text = format_query(query)

    assert format_query(parse_query(text)) == text


@given(st.text() | st.lists(st.sampled_from([*'",:-.<>\\ ', "queue:", "payload."])).map("".join))
def test_any_text_is_read_or_refused_by_name(text: str) -> None:
    try:
        query = parse_query(text)
    except InvalidInput:
        return

    assert parse_query(format_query(query)) == query


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("queue:gh,slack", Choice("queue", ("gh", "slack"))),
        ("-status:done", Choice("status", ("done",), True)),
        ("status:retrying", Choice("status", ("failed",))),
        ("status:failed", Choice("status", ("failed",))),
        ("queue:a,a", Choice("queue", ("a",))),
        ('tag:"two words"', Choice("tag", ("two words",))),
        ("kind:a.b:c", Choice("kind", ("a.b:c",))),
        ("key:>odd", Choice("key", (">odd",))),
        ('error:"card \\"x\\"\\nnext"', Choice("error", ('card "x"\nnext',))),
        ("id:01j00000000000000000000000", Choice("id", ("01J00000000000000000000000",))),
        ("attempt:>2", Compared("attempt", ">", 2)),
        ("attempt:3", Compared("attempt", "=", 3)),
        ("running:>10m", Compared("running", ">", 10 * MINUTE)),
        ("enqueued:<=90", Compared("enqueued", "<=", timedelta(seconds=90))),
        ("due:>-1h", Compared("due", ">", -HOUR)),
        (
            "finished:>2026-11-20T10:00Z",
            Compared("finished", ">", datetime(2026, 11, 20, 10, tzinfo=UTC)),
        ),
        (
            "finished:>=2026-11-20T10:00+02:00",
            Compared("finished", ">=", datetime(2026, 11, 20, 8, tzinfo=UTC)),
        ),
        ('payload.path.to:"value"', InPayload(("path", "to"), ('"value"',))),
        ("payload.id:42", InPayload(("id",), ("42",))),
        ('payload.id:"42"', InPayload(("id",), ('"42"',))),
        ("payload.id:A7,true,null", InPayload(("id",), ('"A7"', "true", "null"))),
        ('-payload."a.b"."":1.50', InPayload(("a.b", ""), ("1.5",), True)),
        ("payload.n:9223372036854775808", InPayload(("n",), ("9223372036854775808",))),
    ],
)
def test_a_term_means(text: str, term: Term) -> None:
    assert parse_query(f"  {text}\n").terms == (term,)


def test_numbers_keep_their_digits() -> None:
    [term] = parse_query("payload.n:9223372036854775808,1.50").terms

    assert isinstance(term, InPayload)
    assert term.values == ("9223372036854775808", "1.5")


def test_terms_stand_apart_by_white_space_and_keep_their_order() -> None:
    query = parse_query('tag:a  -queue:gh\ttag:b error:"x y" error:z')

    assert [term.name for term in query.terms] == ["tag", "queue", "tag", "error", "error"]


def test_no_text_means_every_job() -> None:
    assert parse_query(" ") == JobQuery()
    assert format_query(JobQuery()) == ""


@pytest.mark.parametrize(
    ("text", "field", "part"),
    [
        ("satus:dead", "satus", "did you mean status?"),
        ("Queue:gh", "Queue", "did you mean queue?"),
        ("payloads.x:1", "payloads.x", "did you mean payload?"),
        ("xyz:1", "xyz", "the terms are queue, kind"),
        ("dead", "dead", 'write name:value, as in error:"dead"'),
        (":x", ":x", "write name:value"),
        ("status:ded", "status", "did you mean dead?"),
        ("cause:timeout", "cause", "did you mean timed_out?"),
        ("queue:", "queue", "queue:VALUE"),
        ("queue:a,", "queue", "has no value"),
        ("queue:a, b", "queue", "has no value"),
        ('queue:"a b"', "queue", "white space"),
        ('queue:"a', "queue", 'end the value with "'),
        ('tag:a"b', "tag", "put the whole value in quotes"),
        ('tag:"a"b', "tag", "put the whole value in quotes"),
        ('error:"\\q"', "error", "is no text of JSON"),
        ('error:""', "error", "give 1 to 1000"),
        ("id:7", "id", "not a ULID"),
        ("attempt:two", "attempt", "'two' is no whole number"),
        ("attempt:>-1", "attempt", "is no whole number"),
        ("attempt:>2,3", "attempt", "attempt:>2 attempt:<5"),
        ("-attempt:>2", "attempt", "cannot be excluded"),
        ("running:10m", "running", "give a bound, as in running:>10m"),
        ("running:>soon", "running", "'soon' is no duration"),
        ("running:>-1m", "running", "is below zero"),
        ("running:>2026-11-20T10:00Z", "running", "is no duration"),
        ("due:>200000d", "due", "is beyond a hundred years"),
        ("finished:>yesterday", "finished", "an instant like 2026-01-31T18:00Z"),
        ("finished:>2026-11-20", "finished", "has no time zone"),
        ("finished:>0001-01-01T00:00+05:00", "finished", "give a nearer instant"),
        ("payload:1", "payload", "payload.customer.id:42"),
        ("payload..a:1", "payload..a", 'payload."a.b".c:1'),
        ("payload.a:1e999", "payload.a", "is no value of JSON"),
        ("queue:a queue:b", "queue", "write queue:A,B for jobs of either"),
        (" ".join(["tag:a"] * 51), "where", "has 51 terms"),
        ("tag:" + ",".join(map(str, range(1001))), "where", "has 1001 values"),
        ("payload." + "a." * 32 + "a:1", "payload", "has a path of 33 names"),
    ],
)
def test_what_is_no_term_is_refused_by_name_with_the_nearest_good_one(
    text: str, field: str, part: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_query(text)

    assert caught.value.field == field
    assert part in str(caught.value)


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidInput, match="where: is a list"):
        parse_query(["queue:gh"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Choice("attempt", ("1",)),
        lambda: Choice("queue", ()),
        lambda: Choice("error", ("\ud800",)),
        lambda: Choice("error", ("a\0b",)),
        lambda: Compared("queue", ">", 1),
        lambda: Compared("attempt", ">", True),
        lambda: Compared("attempt", ">", HOUR),
        lambda: Compared("enqueued", "=", HOUR),
        lambda: Compared("enqueued", ">", 3),
        lambda: Compared("enqueued", ">", datetime(2026, 1, 1)),  # noqa: DTZ001 - that is the case
        lambda: InPayload(("a",), ()),
        lambda: InPayload(("a",), ("[1]",)),
        lambda: InPayload(("a",), ("plain",)),
        lambda: InPayload(("a",), ('"\\u0000"',)),
        lambda: InPayload(("a\0",), ("1",)),
        lambda: InPayload(("a",), ("9" * 1001,)),
    ],
)
def test_a_term_that_has_no_text_cannot_be_made(make: object) -> None:
    with pytest.raises(InvalidInput):
        make()  # type: ignore[operator]
