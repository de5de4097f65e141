"""``openapi.json``: the API as OpenAPI 3.1 describes it, from the types of the operator."""

import functools
from collections.abc import Iterable
from datetime import datetime, timedelta
from importlib.metadata import version
from typing import Any

import msgspec

from forge_jobs.model.filters import JobFilter
from forge_jobs.model.objectives import Objective
from forge_jobs.operating.actions import documents as of_actions
from forge_jobs.operating.actions.previews import MAX_KEY
from forge_jobs.operating.jobs import documents as of_jobs
from forge_jobs.operating.live.documents import LiveLost, LiveState
from forge_jobs.operating.operations import API
from forge_jobs.operating.settings import documents as of_settings
from forge_jobs.web.api.binding import Argument, Bound, bound_operations
from forge_jobs.web.api.conditions import HEADER, TAGS
from forge_jobs.web.problems import MEDIA_TYPE, TITLES, Problem

_JSON = "application/json"
KEY = "Idempotency-Key"
KEYED = frozenset({"enqueue", "apply_action"})
"""Operations that take a key."""

LIVE = "/live"
MAX_JOBS = 100
"""Jobs that one viewer of the stream may look at."""
_REFERENCES = "#/components/schemas/{name}"

_FORMS: dict[Any, dict[str, Any]] = {
    int: {"type": "integer"},
    bool: {"type": "boolean"},
    float: {"type": "number"},
    Objective: {"type": "string", "examples": ["95% within 30s"]},
    timedelta: {"type": "string", "examples": ["1h30m", "90"]},
    datetime: {"type": "string", "format": "date-time"},
    JobFilter: {"type": "string", "examples": ["queue:gh status:dead"]},
    Iterable: {"type": "array", "items": {"type": "string"}},
}

_JSON_TEXTS: dict[str, tuple[str, ...]] = {
    name: form.JSON_TEXTS
    for module in (of_jobs, of_settings, of_actions)
    for name, form in vars(module).items()
    if hasattr(form, "JSON_TEXTS")
}
"""Per document the fields that hold JSON. An answer has the values."""


@functools.lru_cache(maxsize=16)
def openapi(root: str) -> bytes:
    """Return the document.

    :param root: the prefix under which the application is mounted
    """
    bound = bound_operations()
    types = [Problem, LiveState, LiveLost]
    for each in bound:
        types += [each.result] if each.body is None else [each.result, each.body]
    schemas, components = msgspec.json.schema_components(
        types, ref_template=_REFERENCES, schema_hook=_schema_of
    )
    by_type = dict(zip(map(id, types), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for each in bound:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each, by_type)
    paths[LIVE] = {"get": _live(by_type)}
    description = {
        "openapi": "3.1.0",
        "info": {
            "title": "forge_jobs",
            "version": version("forge-jobs"),
            "description": "Jobs, queues, pods and schedules. Durations are seconds, instants UTC.",
        },
        "servers": [{"url": root + API}],
        "security": [{"bearer": []}, {"basic": []}],
        "paths": paths,
        "components": {
            "schemas": _as_written(components),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "basic": {"type": "http", "scheme": "basic"},
            },
        },
    }
    return msgspec.json.encode(description)


def _schema_of(form: Any) -> dict[str, Any]:
    if form is msgspec.Raw:
        return {}
    raise NotImplementedError(form)


def _as_written(components: dict[str, Any]) -> dict[str, Any]:
    """Return the schemas of documents: durations are numbers, JSON texts are values."""
    written = {}
    for name, component in components.items():
        written[name] = plain = _plain(component)
        if first := _first_line(component):
            plain["description"] = first
        for text in _JSON_TEXTS.get(name, ()):
            plain["properties"][text] = {}
    return written


def _first_line(component: dict[str, Any]) -> str:
    return str(component.get("description", "")).partition("\n")[0]


def _plain(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("format") == "duration":
        return {"type": "number", "description": "seconds"}
    return {name: _plain(each) for name, each in schema.items() if name != "default"}


def _refusals(by_type: dict[int, Any]) -> dict[str, Any]:
    return {
        str(status): {
            "description": title,
            "content": {MEDIA_TYPE: {"schema": by_type[id(Problem)]}},
        }
        for status, title in TITLES.items()
        if status != 500
    }


def _live(by_type: dict[int, Any]) -> dict[str, Any]:
    """Return the description of the stream, which is no operation."""
    answers = _refusals(by_type)
    answers["200"] = {
        "description": (
            "The whole state. With Accept: text/event-stream a stream that goes on: each event "
            "named state has a LiveState as its data, the first one whole, the others with what "
            "has changed. An event named lost has a LiveLost: the store does not answer, and the "
            "stream goes on once the store is back."
        ),
        "content": {
            _JSON: {"schema": by_type[id(LiveState)]},
            "text/event-stream": {"schema": {"type": "string"}},
        },
    }
    answers["304"] = {"description": "Not modified"}
    return {
        "operationId": "live",
        "summary": "What changes while a viewer looks: queues, pods, problems and named jobs.",
        "responses": answers,
        "parameters": [
            {
                "name": "job",
                "in": "query",
                "required": False,
                "schema": {"type": "array", "items": {"type": "string"}, "maxItems": MAX_JOBS},
            }
        ],
    }


def _operation(bound: Bound, by_type: dict[int, Any]) -> dict[str, Any]:
    answers = _refusals(by_type)
    answers["200"] = {
        "description": "OK",
        "content": {_JSON: {"schema": _plain(by_type[id(bound.result)])}},
    }
    if bound.method == "GET":
        answers["304"] = {"description": "Not modified"}
    described: dict[str, Any] = {
        "operationId": bound.operation.name,
        "summary": bound.summary,
        "responses": answers,
    }
    parameters = [_parameter(each) for each in bound.arguments]
    if bound.operation.name in KEYED:
        bounds = {"type": "string", "minLength": 1, "maxLength": MAX_KEY}
        parameters.append({"name": KEY, "in": "header", "schema": bounds})
    if bound.operation.name in TAGS:
        parameters.append({"name": HEADER, "in": "header", "schema": {"type": "string"}})
    if parameters:
        described["parameters"] = parameters
    if bound.body is not None:
        described["requestBody"] = {
            "required": True,
            "content": {_JSON: {"schema": _plain(by_type[id(bound.body)])}},
        }
    return described


def _parameter(argument: Argument) -> dict[str, Any]:
    return {
        "name": argument.key,
        "in": "path" if argument.in_path else "query",
        "required": argument.is_required,
        "schema": _FORMS.get(argument.form, {"type": "string"}),
    }
