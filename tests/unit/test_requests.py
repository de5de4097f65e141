"""From request to job: defaults, checks, and what wins over what."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from forge_jobs.errors import InvalidInput
from forge_jobs.handlers.preparing import prepare
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.ids import check_job_id, new_job_id
from forge_jobs.model.jobs import After, NewJob, Unique
from forge_jobs.model.transitions import OCCURRENCE
from forge_jobs.privacy.secrets import ORIGIN, SECRETS

handlers = HandlerRegistry()


@handlers.job(
    "busy",
    aliases=("busy.old",),
    queue="q",
    priority=7,
    max_attempts=9,
    timeout=30,
    tags=("t",),
    keep_result=False,
)
def busy(number: int) -> None: ...


@handlers.job("bare")
def bare() -> None: ...


def job(payload: Any = None, kind: str = "any", **options: Any) -> NewJob:
    return prepare(EnqueueRequest(kind, {} if payload is None else payload, **options), handlers)


class TestDefaults:
    def test_a_raw_request_for_an_unknown_kind_gets_the_documented_defaults(self) -> None:
        made = job({"a": 1})

        assert (made.queue, made.kind, made.payload) == ("default", "any", '{"a":1}')
        assert (made.priority, made.max_attempts, made.timeout) == (0, 5, None)
        assert (made.run_at, made.delay, made.expires_at) == (None, None, None)
        assert (made.unique, made.after, made.tags) == (None, (), ())
        assert (made.metadata, made.trace, made.fingerprint) == ("{}", "", "")
        assert made.keep_result
        assert check_job_id(made.id) == made.id

    @pytest.mark.parametrize("kind", ["busy", "busy.old"])
    def test_a_handlers_defaults_fill_in_what_a_raw_request_leaves_out(self, kind: str) -> None:
        made = job({"number": 1}, kind=kind)

        assert (made.queue, made.kind) == ("q", kind)
        assert (made.priority, made.max_attempts, made.tags) == (7, 9, ("t",))
        assert made.timeout == timedelta(seconds=30)
        assert not made.keep_result

    def test_they_hold_for_the_handlers_own_requests_without_the_registry_too(self) -> None:
        made = prepare(busy.request(1))

        assert (made.queue, made.priority, made.keep_result) == ("q", 7, False)

    def test_an_explicit_option_wins_also_when_it_equals_a_general_default(self) -> None:
        made = prepare(
            busy.request(1).options(
                queue="default",
                priority=0,
                max_attempts=5,
                timeout=None,
                tags=(),
                keep_result=True,
            )
        )

        assert (made.queue, made.priority, made.max_attempts) == ("default", 0, 5)
        assert (made.timeout, made.tags, made.keep_result) == (None, (), True)

    def test_none_is_an_explicit_number_of_attempts(self) -> None:
        assert prepare(busy.request(1).options(max_attempts=None)).max_attempts is None

    def test_the_queue_comes_from_request_then_handler_then_router_then_the_default(self) -> None:
        def router(kind: str) -> str | None:
            return {"bare": "routed", "busy": "never"}.get(kind)

        assert (
            prepare(
                busy.request(
                    1,
                ).options(queue="asked"),
                handlers,
                router,
            ).queue
            == "asked"
        )
        assert prepare(busy.request(1), handlers, router).queue == "q"
        assert prepare(bare.request(), handlers, router).queue == "routed"
        assert prepare(EnqueueRequest("else"), handlers, router).queue == "default"

    def test_a_router_that_answers_no_name_is_refused(self) -> None:
        with pytest.raises(InvalidInput, match="queue"):
            prepare(bare.request(), handlers, lambda kind: "a,b")

    def test_options_are_put_on_a_copy(self) -> None:
        request = busy.request(1)

        changed = request.options(priority=1).options(tags=["x"])

        assert (prepare(changed).priority, prepare(changed).tags) == (1, ("x",))
        assert prepare(request).priority == 7


class TestPayloads:
    def test_a_payload_may_be_json_text_and_is_kept_as_written(self) -> None:
        assert job('{ "a": 1.0 }').payload == '{ "a": 1.0 }'

    @pytest.mark.parametrize("payload", ["[1]", "1", "", "{", b"{}", [1], 7])
    def test_a_payload_that_is_no_object_is_refused(self, payload: Any) -> None:
        with pytest.raises(InvalidInput, match="payload"):
            job(payload)

    @pytest.mark.parametrize("payload", [{"number": "1"}, '{"number":"1"}'])
    def test_a_raw_payload_is_checked_against_a_known_handler(self, payload: Any) -> None:
        with pytest.raises(InvalidInput) as caught:
            job(payload, kind="busy")

        assert caught.value.field == "busy.number"

    def test_hostile_values_are_refused_by_path(self) -> None:
        with pytest.raises(InvalidInput, match=r"payload\.a\[1\]"):
            job({"a": [1, float("nan")]})


SOME_ID = new_job_id()
NAIVE = datetime(2030, 1, 1)  # noqa: DTZ001 - what must be refused


class TestChecks:
    @pytest.mark.parametrize(
        ("options", "field", "problem"),
        [
            ({"id": "7"}, "id", "ULID"),
            ({"queue": "a,b"}, "queue", "comma"),
            ({"queue": None}, "queue", "NoneType"),
            ({"priority": 101}, "priority", "101"),
            ({"priority": True}, "priority", "bool"),
            ({"max_attempts": 0}, "max_attempts", "0"),
            ({"max_attempts": 1_000_001}, "max_attempts", "1000001"),
            ({"run_at": NAIVE}, "run_at", "is naive"),
            ({"run_at": "now"}, "run_at", "str"),
            ({"run_at": datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))}, "run_at", ""),
            ({"expires_at": NAIVE}, "expires_at", "is naive"),
            ({"run_at": datetime(2030, 1, 1, tzinfo=UTC), "delay": 1}, "run_at", "delay"),
            ({"delay": -1}, "delay", "-1"),
            ({"timeout": 0}, "timeout", "0"),
            ({"result_ttl": 0}, "result_ttl", "0"),
            ({"tags": "tag"}, "tags", "str"),
            ({"tags": ["a\n"]}, "tags", "control"),
            ({"tags": [str(n) for n in range(33)]}, "tags", "33"),
            ({"metadata": {"a": 1}}, "metadata.a", "int"),
            ({"metadata": ["a"]}, "metadata", "list"),
            ({"metadata": {"a": "x" * 70_000}}, "metadata", "bytes"),
            ({"metadata": {"a": "b", ORIGIN: "x pay"}}, "metadata", "'forge_jobs.origin'"),
            ({"metadata": {"forge_jobs.later": "x"}}, "metadata", "'forge_jobs.later'"),
            ({"trace": {"a": 1}}, "trace.a", "int"),
            ({"unique_key": ""}, "unique_key", "empty"),
            ({"unique_key": "a", "unique": Unique("a")}, "unique_key", "unique"),
            ({"unique": "a"}, "unique", "str"),
            ({"unique": Unique("a", "swap")}, "unique", "swap"),  # type: ignore[arg-type]
            ({"after": SOME_ID}, "after", "str"),
            ({"after": ["7"]}, "after", "ULID"),
            ({"after": [SOME_ID, After(SOME_ID, "hold")]}, "after", "twice"),
            ({"after": [After(SOME_ID, "else")]}, "after", "else"),  # type: ignore[arg-type]
            ({"keep_result": 1}, "keep_result", "int"),
            ({"kind": "a,b"}, "kind", "comma"),
        ],
    )
    def test_a_wrong_value_is_refused_by_name(
        self, options: dict[str, Any], field: str, problem: str
    ) -> None:
        with pytest.raises(InvalidInput) as caught:
            job(**options)

        assert caught.value.field == field
        assert problem in caught.value.problem

    def test_an_unknown_option_suggests_the_nearest(self) -> None:
        with pytest.raises(InvalidInput, match="colour: is not an option of enqueue; give one of"):
            EnqueueRequest("k").options(colour=1)  # type: ignore[call-arg]
        with pytest.raises(InvalidInput, match="did you mean priority"):
            EnqueueRequest("k").options(prioritty=1)  # type: ignore[call-arg]

    def test_values_within_bounds_arrive_normalised(self) -> None:
        eastern = timezone(timedelta(hours=2))
        made = job(
            id=SOME_ID.lower(),
            run_at=datetime(2030, 1, 1, 2, tzinfo=eastern),
            expires_at=datetime(2031, 1, 1, 2, tzinfo=eastern),
            timeout=1.5,
            result_ttl=60,
            tags=["b", "a", "b"],
            metadata={"who": "me"},
            trace={"traceparent": "00"},
            unique_key="k",
            after=[SOME_ID, SOME_ID],
            priority=-100,
        )

        assert made.id == SOME_ID
        assert made.run_at == datetime(2030, 1, 1, tzinfo=UTC)
        assert made.run_at.tzinfo is UTC
        assert made.expires_at == datetime(2031, 1, 1, tzinfo=UTC)
        assert (made.timeout, made.result_ttl) == (timedelta(seconds=1.5), timedelta(seconds=60))
        assert made.tags == ("b", "a")
        assert (made.metadata, made.trace) == ('{"who":"me"}', '{"traceparent":"00"}')
        assert made.unique == Unique("k")
        assert made.after == (After(SOME_ID),)

    def test_metadata_of_a_job_that_was_read_says_what_to_leave_out(self) -> None:
        read = {"who": "me", SECRETS: '[["card"]]', OCCURRENCE: "2"}

        with pytest.raises(InvalidInput) as caught:
            job(metadata=read)

        assert "'forge_jobs.secrets', 'forge_jobs.occurrence'" in caught.value.problem
        assert 'not key.startswith("forge_jobs.")' in caught.value.fix
        rest = {key: text for key, text in read.items() if not key.startswith("forge_jobs.")}
        assert job(metadata=rest).metadata == '{"who":"me"}'

    def test_a_delay_may_be_seconds_and_zero(self) -> None:
        assert job(delay=0).delay == timedelta(0)
        assert job(delay=timedelta(days=2)).delay == timedelta(days=2)


class TestFingerprints:
    def test_only_a_job_with_an_id_of_the_callers_has_one(self) -> None:
        assert job().fingerprint == ""
        assert job(id=SOME_ID).fingerprint != ""

    def test_equal_requests_have_equal_ones_whatever_the_trace(self) -> None:
        assert job(id=SOME_ID).fingerprint == job(id=SOME_ID, trace={"a": "b"}).fingerprint

    @pytest.mark.parametrize(
        "other",
        [
            {"payload": {"a": 2}},
            {"kind": "other"},
            {"queue": "other"},
            {"priority": 1},
            {"delay": 1},
            {"max_attempts": None},
            {"unique_key": "k"},
            {"tags": ["t"]},
            {"metadata": {"a": "b"}},
            {"keep_result": False},
        ],
    )
    def test_any_other_content_has_another(self, other: dict[str, Any]) -> None:
        assert job(id=SOME_ID).fingerprint != job(id=SOME_ID, **other).fingerprint

    def test_a_default_that_is_written_out_does_not_change_it(self) -> None:
        assert job(id=SOME_ID).fingerprint == job(id=SOME_ID, priority=0).fingerprint
