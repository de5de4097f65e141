"""Fields that people must not read: marked in annotations, hidden wherever a payload is shown.

The payload is stored unchanged (``Encryption`` is for stores that may not see payloads). The job's
metadata says where the secrets are, so that tools without the handler hide them too.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from forge_jobs.errors import InvalidInput
from forge_jobs.privacy.encryption import is_encrypted, key_named_by

Secret = msgspec.Meta(extra_json_schema={"writeOnly": True})
"""Marks what is hidden from logs, errors and commands, as in ``token: Annotated[str, Secret]``.

Of parameters, and of fields of dataclasses and Structs at any depth. In a pydantic model
``Field(json_schema_extra={"writeOnly": True})`` means the same.
"""

SECRETS = "forge_jobs.secrets"
"""The key of a job's metadata that says where the secrets of the payload are."""

ORIGIN = "forge_jobs.origin"
"""The key of a job's metadata that says which request an encrypted payload was written for: see
:func:`~forge_jobs.privacy.encryption.origin_of`."""

HIDDEN = "***"
"""Shown in place of a secret."""

_LEAST_CHARACTERS = 4
"""A shorter secret is not looked for in texts, of which half would be hidden."""

Path = tuple[str, ...]
"""Names of fields from the payload down. ``*``: each element or value."""

EACH = "*"


def is_secret(part: Mapping[str, Any]) -> bool:
    """Return True for a part of a JSON Schema that is marked as secret."""
    return part.get("writeOnly") is True


def is_masked(part: Mapping[str, Any]) -> bool:
    """Return True for a part of a JSON Schema that pydantic writes as asterisks."""
    return is_secret(part) and part.get("format") == "password"


def secret_paths(
    schema: Mapping[str, Any], is_meant: Callable[[Mapping[str, Any]], bool] = is_secret
) -> tuple[Path, ...]:
    """Return where a JSON Schema is marked as secret.

    A part that contains itself is secret from the second round on, when the part has a secret.
    """
    parts: dict[str, list[Any]] = {}
    _note_parts(schema, parts)
    found: dict[Path, None] = {}
    holders = _holders(parts, is_meant)
    _collect(schema, _Parts(parts, holders, is_meant), (), frozenset(), found)
    return tuple(found)


class _Parts(NamedTuple):
    """The definitions of a schema by name, and the names of those that hold what is meant."""

    by_name: Mapping[str, Sequence[Any]]
    holders: frozenset[str]
    is_meant: Callable[[Mapping[str, Any]], bool]


def _note_parts(node: Any, parts: dict[str, list[Any]]) -> None:
    if isinstance(node, Mapping):
        for name, part in node.get("$defs", {}).items():
            parts.setdefault(name, []).append(part)
        for child in node.values():
            _note_parts(child, parts)
    elif isinstance(node, list):
        for child in node:
            _note_parts(child, parts)


def _holders(
    parts: Mapping[str, Sequence[Any]], is_meant: Callable[[Mapping[str, Any]], bool]
) -> frozenset[str]:
    leads_to: dict[str, set[str]] = {}
    found: set[str] = set()
    for name, nodes in parts.items():
        leads_to[name] = set()
        waiting = list(nodes)
        while waiting:
            node = waiting.pop()
            if not isinstance(node, Mapping):
                continue
            if is_meant(node):
                found.add(name)
            elif "$ref" in node:
                leads_to[name].add(_name_of(node))
            else:
                waiting += [child for _, child in _children(node)]
    size = -1
    while size < len(found):
        size = len(found)
        found |= {name for name, others in leads_to.items() if others & found}
    return frozenset(found)


def _collect(
    node: Any, parts: _Parts, path: Path, within: frozenset[str], found: dict[Path, None]
) -> None:
    if not isinstance(node, Mapping):
        return
    if parts.is_meant(node):
        found[path] = None
    elif "$ref" in node:
        name = _name_of(node)
        if name not in within:
            for part in parts.by_name.get(name, ()):
                _collect(part, parts, path, within | {name}, found)
        elif name in parts.holders:
            found[path] = None
    else:
        for step, child in _children(node):
            _collect(child, parts, path if step is None else (*path, step), within, found)


def _name_of(reference: Mapping[str, Any]) -> str:
    return str(reference["$ref"]).rpartition("/")[2]


def _children(node: Mapping[str, Any]) -> Iterator[tuple[str | None, Any]]:
    """Yield the parts of a schema with the step that leads to each. None: the same value."""
    yield from node.get("properties", {}).items()
    for name in ("items", "additionalProperties"):
        yield EACH, node.get(name)
    for child in node.get("prefixItems", ()):
        yield EACH, child
    for name in ("anyOf", "allOf", "oneOf"):
        for child in node.get(name, ()):
            yield None, child


def marked(paths: Iterable[Path]) -> str:
    """Return the text of :data:`SECRETS` for these paths."""
    return msgspec.json.encode([list(path) for path in paths]).decode()


def paths_in(metadata: Mapping[str, str]) -> tuple[Path, ...]:
    """Return where a job's metadata says that secrets are."""
    text = metadata.get(SECRETS)
    if text is None:
        return ()
    try:
        return msgspec.json.decode(text, type=tuple[Path, ...])
    except msgspec.MsgspecError:
        return ((),)  # unreadable: all of it is secret


def readable(payload: str, metadata: Mapping[str, str]) -> str:
    """Return a stored payload as people may read it: JSON text with the secrets hidden.

    Of an encrypted payload only the name of the key is shown.
    """
    if is_encrypted(payload):
        return f'"(encrypted with key {key_named_by(payload)})"'
    paths = paths_in(metadata)
    if not paths:
        return payload
    try:
        value = msgspec.json.decode(payload)
    except msgspec.MsgspecError:
        return f'"{HIDDEN}"'
    for path in paths:
        value = _hide(value, path)
    return msgspec.json.encode(value).decode()


def _hide(value: Any, path: Path) -> Any:
    if not path:
        return HIDDEN
    step, below = path[0], path[1:]
    if isinstance(value, dict):
        names = list(value) if step == EACH else [step] if step in value else []
        for name in names:
            value[name] = _hide(value[name], below)
    elif isinstance(value, list) and step == EACH:
        value[:] = [_hide(each, below) for each in value]
    return value


def with_secrets_of(given: str, stored: str, metadata: Mapping[str, str]) -> tuple[str, bool]:
    """Return a payload that a person has edited, and whether a secret is another one now.

    Where the person has left :data:`HIDDEN` in place of a secret, the stored secret stays. The
    place of an item in a list says which item is meant.

    :param given: JSON text as :func:`readable` has shown the stored payload, edited
    :raises InvalidInput: a secret is left hidden where the job has none, or in a list that has
        another length now
    """
    paths = paths_in(metadata)
    if not paths:
        return given, False
    before, after = msgspec.json.decode(stored), msgspec.json.decode(given)
    for path in paths:
        after = _keep(after, before, path)
    for path in paths:
        if _hides(_at(after, path)) and not _hides(_at(before, path)):
            raise InvalidInput(
                "payload",
                f"has {HIDDEN} for a secret that the job does not have in this place",
                "write the secret out",
            )
    text = given if after == msgspec.json.decode(given) else msgspec.json.encode(after).decode()
    return text, any(_at(after, path) != _at(before, path) for path in paths)


def _hides(value: Any) -> bool:
    return any(map(_hides, value)) if isinstance(value, list) else value == HIDDEN


def _keep(value: Any, stored: Any, path: Path) -> Any:
    if not path:
        return stored if value == HIDDEN else value
    step, below = path[0], path[1:]
    if isinstance(value, dict) and isinstance(stored, dict):
        for name in list(value) if step == EACH else [step]:
            if name in value and name in stored:
                value[name] = _keep(value[name], stored[name], below)
    elif _are_lists(value, stored) and step == EACH and len(value) == len(stored):
        # In a list of another length the place of an item says nothing.
        both = zip(value, stored, strict=True)
        value[:] = [_keep(each, before, below) for each, before in both]
    return value


def _are_lists(*values: Any) -> bool:
    return all(isinstance(value, list) for value in values)


def _at(value: Any, path: Path) -> Any:
    """Return what lies at a path: a list of all where a step means each."""
    for place, step in enumerate(path):
        if step == EACH:
            parts = value.values() if isinstance(value, dict) else value
            is_some = isinstance(value, dict | list)
            return [_at(each, path[place + 1 :]) for each in parts] if is_some else None
        value = value.get(step) if isinstance(value, dict) else None
    return value


def secret_texts(payload: str, paths: Iterable[Path]) -> tuple[str, ...]:
    """Return the texts of the secrets of a payload, the longest first, for :func:`without`."""
    try:
        value = msgspec.json.decode(payload)
    except msgspec.MsgspecError:
        return ()
    texts = {text for path in paths for text in _texts(value, path)}
    return tuple(sorted(texts, key=lambda text: (-len(text), text)))


def _texts(value: Any, path: Path) -> Iterator[str]:
    if isinstance(value, dict):
        steps = value.values() if not path or path[0] == EACH else [value.get(path[0])]
        for child in steps:
            yield from _texts(child, path[1:])
    elif isinstance(value, list):
        for child in value if not path or path[0] == EACH else ():
            yield from _texts(child, path[1:])
    elif not path and value is not None and not isinstance(value, bool):
        text = str(value)
        if len(text) >= _LEAST_CHARACTERS:
            yield text


def without(text: str, secrets: Iterable[str]) -> str:
    """Return ``text`` with each of the secrets hidden, also as ``repr`` and JSON write them."""
    for secret in secrets:
        for form in {secret, repr(secret)[1:-1], msgspec.json.encode(secret).decode()[1:-1]}:
            text = text.replace(form, HIDDEN)
    return text
