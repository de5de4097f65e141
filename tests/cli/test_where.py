"""``--where``: the filter language on the command line, answered by a real store."""

from collections.abc import Callable

from tests.cli.conftest import CommandLine

Enqueue = Callable[..., str]


def _ids(forge: CommandLine, where: str) -> list[str]:
    return [job["id"] for job in forge.json("jobs", "list", "--where", where)["jobs"]]


def test_a_line_lists_the_jobs_that_it_means(forge: CommandLine, enqueue: Enqueue) -> None:
    first = enqueue("a", "--queue", "x", "--tag", "t")
    second = enqueue("b", "--queue", "y", "--unique-key", "two words")
    forge("jobs", "cancel", second)

    assert _ids(forge, "") == [second, first]
    assert _ids(forge, "queue:x,y") == [second, first]
    assert _ids(forge, "queue:x") == _ids(forge, "tag:t") == _ids(forge, f"id:{first}") == [first]
    assert _ids(forge, "-status:cancelled") == [first]
    assert _ids(forge, 'kind:b key:"two words" cause:cancelled') == [second]


def test_durations_count_by_the_stores_time(forge: CommandLine, enqueue: Enqueue) -> None:
    job = enqueue("a")

    assert _ids(forge, "enqueued:<1h") == _ids(forge, "enqueued:>0s") == [job]
    assert _ids(forge, "enqueued:>1h") == []


def test_a_command_changes_all_that_a_line_means(forge: CommandLine, enqueue: Enqueue) -> None:
    job, other = enqueue("a", "--queue", "x"), enqueue("a", "--queue", "y")

    done = forge("jobs", "cancel", "--where", "queue:x enqueued:<1h", "--all-matching", "--yes")

    assert done.stdout == "1 cancelled\n"
    assert _ids(forge, "status:cancelled") == [job]
    assert _ids(forge, "status:pending") == [other]


def test_a_line_looks_into_payloads_times_and_what_is_excluded(
    forge: CommandLine, enqueue: Enqueue
) -> None:
    paid = enqueue("pay", "--payload", '{"customer": {"id": 42}}')
    other = enqueue("pay", "--payload", '{"customer": {"id": "42"}}', "--delay", "2h")

    assert _ids(forge, "payload.customer.id:42") == [paid]
    assert _ids(forge, "due:>-1h") == [paid]
    assert _ids(forge, f"-id:{paid} -kind:none attempt:0") == [other]
    assert forge("jobs", "count", "--where", "payload.customer.id:42").stdout == "1\n"
    text = "kind:pay -payload.customer.id:42"
    done = forge.json("jobs", "cancel", "--where", text, "--all-matching", "--yes")
    assert forge("actions", "jobs", done["id"]).stdout == f"{other}\n"


def test_an_empty_line_changes_nothing(forge: CommandLine, enqueue: Enqueue) -> None:
    enqueue("a")

    text = forge.refuse("jobs", "delete", "--where", " ", "--all-matching", "--yes")

    assert "a filter means every job" in text
    assert len(_ids(forge, "")) == 1


def test_a_wrong_line_is_refused_before_the_store_is_asked(forge: CommandLine) -> None:
    def refused(*args: str) -> str:
        return forge.refuse("jobs", "list", *args, "--storage", "sqlite:///nowhere/x.db")

    assert "satus: is no term of a filter; did you mean status?" in refused("--where", "satus:dead")
    assert "put them in --where too" in refused("--where", "queue:a", "--tag", "t")
