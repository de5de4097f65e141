"""A deed with its parameters, and the same as command, request and line of Python."""

from typing import Any

from msgspec import UNSET, Struct

from forge_jobs.clients.striking import ADD
from forge_jobs.errors import InvalidInput
from forge_jobs.model.ids import check_job_id
from forge_jobs.model.names import command_line
from forge_jobs.model.queues import RateLimit, check_limits
from forge_jobs.model.strikes import Effect, StrikeRule
from forge_jobs.operating.operations import BY_NAME
from forge_jobs.operating.settings.specs import ScheduleEdit
from forge_jobs.setting_values import read_rate_limits
from forge_jobs.web.pages.deeds import CONCURRENCY_DEEDS, OUTBOX_DEEDS, Deed
from forge_jobs.web.pages.forms.elsewhere import curl, literal
from forge_jobs.web.pages.frame import Visit, link
from forge_jobs.web.pages.queue import settings as of_queue


class Meant(Struct, frozen=True, kw_only=True):
    """The things that a deed is for: the parameters of the page's address.

    :param fields: all parameters, to send them again
    """

    deed: Deed
    fields: tuple[tuple[str, str], ...]

    def value(self, key: str) -> str:
        """Return the first value of a parameter, "" without one."""
        return next((value for name, value in self.fields if name == key), "")

    @property
    def changes(self) -> tuple[tuple[str, str], ...]:
        """The parameters beside the names."""
        named = (*self._named, "id") if self.is_of_outbox else self._named
        return tuple(each for each in self.fields if each[0] not in named)

    @property
    def is_of_queue(self) -> bool:
        """True for a deed on something that belongs to a queue."""
        return self.deed in CONCURRENCY_DEEDS

    @property
    def is_of_outbox(self) -> bool:
        """True for a deed on records of an outbox."""
        return self.deed in OUTBOX_DEEDS

    @property
    def _named(self) -> tuple[str, ...]:
        return ("queue", "name") if self.is_of_queue else ("name",)

    @property
    def names(self) -> tuple[str, ...]:
        """The names that the deed is for, in the order of the operation's arguments."""
        return tuple(self.value(each) for each in self._named)

    @property
    def label(self) -> str:
        """The names in words, the smaller thing first."""
        if self.is_of_outbox:
            ids = self.ids
            what = (
                "all that is set aside"
                if not ids
                else "1 job"
                if len(ids) == 1
                else (f"{len(ids)} jobs")
            )
            return f"{what} of the outbox for {self.value('name')}"
        return " of ".join(reversed(self.names))

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the jobs that were picked."""
        return tuple(value for name, value in self.fields if name == "id")


def edit_of(meant: Meant) -> list[Any]:
    """Return the edit of a deed that changes settings. Nothing for other deeds.

    :raises InvalidInput: a value is wrong
    """
    operation = meant.deed.operation
    if operation == "set_queue":
        return [of_queue.edit_of(meant.changes)]
    if operation == "set_limit":
        return [_size(meant)]
    if operation == "set_concurrency":
        return [_at_most(meant), _share(meant)]
    if operation == ADD:
        return [rule_of(meant)]
    if meant.is_of_outbox:
        return [ids] if (ids := _records(meant)) else []
    if operation == "set_schedule":
        timezone = meant.value("timezone")
        return [ScheduleEdit(expression=meant.value("expression"), timezone=timezone or UNSET)]
    return []


def command(meant: Meant) -> str:
    """Return the command that does the same."""
    names, options = list(meant.names), []
    if meant.deed.verb:
        names = list(meant.ids)
        options = [] if names else ["--where", meant.value("q"), "--all-matching"]
    elif meant.deed.operation == "set_limit":
        names.append(meant.value("size"))
    elif meant.deed.operation == "set_concurrency":
        share = _share(meant)
        names.append(str(_at_most(meant)))
        options = [] if share is None else ["--share", str(share)]
    elif meant.deed.operation == ADD:
        options = [f"--{key}={value}" for key, value in _of_rule(meant) if key != "effect"]
        options += ["--cancel"] if rule_of(meant).effect is Effect.CANCEL else []
    elif meant.is_of_outbox:
        records = _records(meant)
        names += records
        options = [] if records else ["--all"]
    elif meant.is_of_queue:
        names += [value for _, value in meant.changes]
    else:
        for key, value in meant.changes:
            options += [f"--{key.replace('_', '-')}", value]
    return command_line(BY_NAME[meant.deed.operation].command, *names, options=options)


def export_of(meant: Meant) -> str:
    """Return the command that keeps a copy of the jobs of a deed."""
    where = f"id:{','.join(meant.ids)}" if meant.ids else meant.value("q")
    return command_line("export", options=("--where", where, "-o", "jobs.jsonl"))


def request(meant: Meant, visit: Visit, token: str) -> str:
    """Return the request that does the same. Of an action on many that applies this preview.

    :raises InvalidInput: a value is wrong
    """
    name = "apply_action" if token else meant.deed.operation
    method, _, route = BY_NAME[name].http.partition(" ")
    if token:
        return curl(visit, method, route, {"token": token})
    named = link("", meant.value("name"))
    if meant.is_of_queue:
        route = route.replace("/{queue}", link("", meant.value("queue")))
    for part in ("/{name}", "/{action_id}", "/{host_id}"):
        route = route.replace(part, named)
    body = {key: _typed(value) for key, value in meant.changes}
    if meant.deed.operation == "set_queue":
        body = of_queue.document_of(of_queue.edit_of(meant.changes))
    elif meant.deed.operation == "set_limit":
        limit = _size(meant)
        body = {"capacity": limit.capacity, "per": limit.period.total_seconds()}
    elif meant.deed.operation == "set_concurrency":
        share = _share(meant)
        body = {"at_most": _at_most(meant)} | ({} if share is None else {"share": share})
    elif meant.deed.operation == ADD:
        body = dict(_of_rule(meant))
    elif meant.is_of_outbox:
        body = {"ids": ids} if (ids := _records(meant)) else {}
    return curl(visit, method, route, body)


def code(meant: Meant, token: str) -> str:
    """Return the line of a program with an ``operator`` that does the same.

    :raises InvalidInput: a value is wrong
    """
    if token:
        return f"await operator.apply_action(Apply(token={token!r}))"
    said = ", ".join(f"{key}={_typed(value)!r}" for key, value in meant.changes)
    more = f", ScheduleEdit({said})" if said else ""
    if meant.deed.operation == "set_queue":
        more = f", {of_queue.line_of(of_queue.edit_of(meant.changes))}"
    elif meant.deed.operation == "set_limit":
        limit = _size(meant)
        more = f", RateLimit({limit.capacity}, {literal(limit.period)})"
    elif meant.deed.operation == "set_concurrency":
        share = _share(meant)
        more = f", {_at_most(meant)}" + ("" if share is None else f", share={share}")
    elif meant.deed.operation == ADD:
        said = ", ".join(f"{key}={value!r}" for key, value in _of_rule(meant))
        more = f", StrikeRule({said})"
    elif meant.is_of_outbox:
        more = f", {ids!r}" if (ids := _records(meant)) else ""
    named = ", ".join(repr(each) for each in meant.names)
    return f"await operator.{meant.deed.operation}({named}{more})"


def rule_of(meant: Meant) -> StrikeRule:
    """Return the rule of a strike that a deed sets.

    :raises InvalidInput: a value is wrong
    """
    return StrikeRule(**dict(_of_rule(meant)))  # type: ignore[arg-type]


def _of_rule(meant: Meant) -> list[tuple[str, str]]:
    """Return the parts of a rule that are given, and no other parameter."""
    names = ("kind", "where", "effect", "reason")
    found = [(name, meant.value(name).strip()) for name in names]
    return [(name, text) for name, text in found if text]


def _records(meant: Meant) -> tuple[str, ...]:
    """Return the ids of the jobs of the records. None of them: all that are set aside.

    :raises InvalidInput: an id is none, or a discard names no job
    """
    ids = tuple(check_job_id(each, "id") for each in meant.ids)
    if not ids and meant.deed.operation == "discard_outbox":
        raise InvalidInput("id", "is missing", "name each job: nothing brings one back")
    return ids


def _typed(value: str) -> Any:
    return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else value


def _at_most(meant: Meant) -> int:
    text = meant.value("at_most").strip()
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidInput("at_most", f"is {text[:40]!r}", "give a whole number, as 4")
    check_limits({meant.value("name"): int(text)})
    return int(text)


def _share(meant: Meant) -> int | None:
    """Return the weight of each key. 0: none. None: as before."""
    text = meant.value("share").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidInput("share", f"is {text[:40]!r}", "give a whole number, 0 for none")
    share = int(text)
    name = meant.value("name")
    check_limits({name: _at_most(meant)}, {name: share} if share else {})
    return share


def _size(meant: Meant) -> RateLimit:
    """Return the size of a rate limit as the command takes one: ``100/1m``."""
    try:
        [limit] = read_rate_limits({meant.value("name"): meant.value("size")}).values()
    except InvalidInput:
        raise
    except (ValueError, OverflowError) as error:
        raise InvalidInput("size", f"{error}", "give a count per duration, as 100/1m") from None
    return limit
