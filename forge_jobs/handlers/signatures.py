"""A handler's signature as a msgspec Struct: one definition checks requests, decodes payloads
and describes the kind as JSON Schema.

Built once per handler. Decoding is strict ("7" is no int), and unknown fields are refused.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import UnionType
from typing import Any, Never, NoReturn, Union, get_args, get_origin

import msgspec
from msgspec import UNSET, Struct, UnsetType

from forge_jobs.errors import InvalidInput, RegistrationError, UndecodablePayload
from forge_jobs.handlers.context import JobContext
from forge_jobs.handlers.injection.annotations import annotations_of, classes_of, signature_of
from forge_jobs.handlers.injection.markers import Dependency
from forge_jobs.handlers.injection.plan import plan_of
from forge_jobs.handlers.injection.values import DEAD_LETTER, value_of
from forge_jobs.handlers.outcomes import Outcome
from forge_jobs.model.payloads import encode_json
from forge_jobs.model.progress import Progress

_VALIDATE, _DUMP, _SCHEMA = "model_validate", "model_dump", "model_json_schema"
"""The methods by which a class counts as a pydantic model, without importing pydantic."""

_PATH = re.compile(r" - at `\$(?P<path>.*)`$", re.DOTALL)
_FIELD = re.compile(r"(?:missing required|contains unknown) field `(?P<name>[^`]*)`")


class Mismatch(Exception):
    """A payload does not fit the signature.

    :param path: of the offending part, "" for the payload as a whole
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.path = path
        self.problem = problem


class Signature:
    """The parameters of a handler that come from the payload.

    :param name: what errors call the handler
    :raises RegistrationError: the function cannot be called with a JSON object
    """

    def __init__(
        self, function: Callable[..., object], name: str, middleware: Iterable[Dependency] = ()
    ) -> None:
        self.name = name
        annotations = annotations_of(function, name)
        parameters = _parameters(function, name)
        contexts = [p.name for p in parameters if _is_context(annotations.get(p.name))]
        if len(contexts) > 1:
            raise RegistrationError(
                f"{name}: {' and '.join(contexts)} are both annotated JobContext; keep one"
            )
        for parameter in parameters:
            if parameter.name == "ctx" and "ctx" not in annotations:
                raise RegistrationError(
                    f"{name}: ctx has no annotation; write ctx: JobContext (from forge_jobs import "
                    "JobContext), or the type of an argument that the job brings"
                )
        self.context_parameter: str | None = contexts[0] if contexts else None
        others = [p for p in parameters if p.name not in contexts]
        self.plan = partial(plan_of, others, annotations, name, middleware)
        """Makes ``injection`` again, with other factories in the place of some."""
        self.injection = self.plan()
        """How middleware and injected parameters are made. None: there is neither."""
        made = dict(self.injection.parameters) if self.injection is not None else {}
        own = [p for p in others if p.name not in made]
        self.takes_letter = any(value_of(annotations.get(n)) == DEAD_LETTER for n in made)
        """A parameter stands for the payload, which is that of any other kind."""
        if self.takes_letter and own:
            raise RegistrationError(
                f"{name}: {own[0].name} would come from the payload, and a DeadLetter stands for "
                f"all of the payload; read letter.payload instead of {own[0].name}"
            )
        self._types = {p.name: annotations.get(p.name, Any) for p in own}
        self._plain = inspect.Signature([p.replace(annotation=p.empty) for p in own])
        self._defaults = {p.name: p.default for p in own if p.default is not p.empty}
        self._has_models = _check_types(self._types, name)
        self.result_type: Any = _result_type(annotations.get("return", Any))
        """The type that a result is read as. A text: the annotation, when its name is not there at
        run time."""
        self.struct = self._define()
        self._decoder = msgspec.json.Decoder(self.struct, dec_hook=decode_model)

    def _define(self) -> type[Struct]:
        # A parameter with a default may be missing and is then left to the function itself, so
        # that jobs which wait through a deploy see the default of the code that runs them.
        fields = [
            (name, kind | UnsetType, UNSET) if name in self._defaults else (name, kind)
            for name, kind in self._types.items()
        ]
        is_whole = not self.takes_letter
        return msgspec.defstruct(self.name, fields, kw_only=True, forbid_unknown_fields=is_whole)

    def encode(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> str:
        """Call arguments as payload text that :meth:`decode` is known to accept.

        :raises InvalidInput: they do not fit. The field is ``name.parameter``
        """
        try:
            arguments: object = self._plain.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise InvalidInput(
                self.name, f"cannot be called so: {error}", f"give {self._plain}"
            ) from None
        if self._has_models:
            arguments = to_plain(arguments)
        text = encode_json(self.name, arguments)
        self.check(text)
        return text

    def check(self, text: str) -> None:
        """Refuse a payload text that the handler could not be called with.

        :raises InvalidInput: the field is ``name.parameter``
        """
        try:
            self._decode(text)
        except Mismatch as mismatch:
            raise InvalidInput(
                f"{self.name}{mismatch.path}", mismatch.problem, "give what the handler declares"
            ) from None

    def decode(self, text: str) -> dict[str, Any]:
        """The keyword arguments in ``text``, without the context.

        :raises Mismatch: the text does not fit
        """
        arguments = msgspec.structs.asdict(self._decode(text))
        for name in self._defaults:
            if arguments[name] is UNSET:
                del arguments[name]
        return arguments

    def _decode(self, text: str) -> Struct:
        if self.takes_letter:
            # The job may be dead because this text cannot be read.
            return self.struct()
        try:
            # A subclass of str is refused by the decoder.
            return self._decoder.decode(text if type(text) is str else str(text))
        except msgspec.ValidationError as error:
            raise _mismatch(str(error)) from None
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise Mismatch("", f"is not valid JSON ({error})") from None

    def json_schema(self) -> dict[str, Any]:
        """JSON Schema (2020-12) of the payload, with the components that the schema uses in
        ``$defs``."""
        (reference,), components = msgspec.json.schema_components(
            [self.struct], schema_hook=_model_schema
        )
        own = components.pop(reference["$ref"].rpartition("/")[2])
        for name, default in self._defaults.items():
            try:
                own["properties"][name].setdefault("default", to_plain(default))
            except (TypeError, ValueError):
                continue
        return {**own, "$defs": components} if components else own


def decode_model(kind: type, value: object) -> object:
    """msgspec's ``dec_hook``: pydantic models, recognised by ``model_validate``."""
    validate = getattr(kind, _VALIDATE, None)
    if validate is None:
        raise NotImplementedError(f"{kind} cannot be read from JSON")
    try:
        return validate(value)
    except ValueError as error:
        errors = getattr(error, "errors", None)
        if errors is None:
            raise
        first = errors()[0]
        path = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in first["loc"])
        raise ValueError(f"{path.lstrip('.')}: {first['msg']}" if path else first["msg"]) from None


def encode_value(field: str, value: object) -> str:
    """``value`` as JSON text, pydantic models included.

    :raises InvalidInput: the value cannot be stored. Names ``field``
    """
    try:
        return encode_json(field, value)
    except InvalidInput as refused:
        # Only pydantic models need this detour, and they are rare enough to come second.
        try:
            plain = to_plain(value)
        except (TypeError, ValueError, RecursionError):
            raise refused from None
        return encode_json(field, plain)


def decode_value(name: str, text: str, kind: Any) -> Any:
    """JSON text as a value of type ``kind``.

    :raises UndecodablePayload: the text is not of that type. Names ``name``
    """
    try:
        return msgspec.json.decode(text, type=kind, dec_hook=decode_model)
    except msgspec.MsgspecError as error:
        found = _mismatch(str(error))
        raise UndecodablePayload(f"{name}{found.path}", found.problem) from None


def to_plain(value: object) -> Any:
    """``value`` as JSON types, pydantic models included.

    :raises TypeError: some part of the value has no JSON form
    """
    return msgspec.to_builtins(value, enc_hook=_encode_model, str_keys=True)


def _encode_model(value: object) -> object:
    dump = getattr(value, _DUMP, None)
    if dump is None:
        raise TypeError(f"a {type(value).__name__} has no JSON form")
    return dump(mode="json")


def _model_schema(kind: type) -> dict[str, Any]:
    schema = getattr(kind, _SCHEMA, None)
    return schema() if schema is not None else {}


def _mismatch(message: str) -> Mismatch:
    """msgspec's text taken apart: where, and what."""
    where = _PATH.search(message)
    path = where["path"] if where else ""
    problem = message[: where.start()] if where else message
    field = _FIELD.search(problem)
    if field:
        path = f"{path}.{field['name']}"
        problem = "is missing" if "missing" in problem else "is not a parameter"
    problem = problem.replace("`", "")
    return Mismatch(path, problem[:1].lower() + problem[1:])


def _parameters(function: Callable[..., object], name: str) -> list[inspect.Parameter]:
    try:
        parameters = list(signature_of(function).parameters.values())
    except (TypeError, ValueError):
        raise RegistrationError(f"{name}: has no signature; wrap it in a function") from None
    for parameter in parameters:
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise RegistrationError(
                f"{name}: {parameter.name} is positional-only, but payloads carry names;"
                " remove the '/'"
            )
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise RegistrationError(
                f"{name}: *{parameter.name} has no names; take a list parameter instead"
            )
        if parameter.kind is parameter.VAR_KEYWORD:
            raise RegistrationError(
                f"{name}: **{parameter.name} would hide misspelt fields;"
                " name the parameters or take one dict parameter"
            )
    return parameters


def _result_type(annotation: Any) -> Any:
    """The return annotation without the outcomes that a handler may return."""
    if get_origin(annotation) in (Union, UnionType):
        results = [part for part in get_args(annotation) if not _is_outcome(part)]
        return Union[tuple(results)] if results else Any  # noqa: UP007 - not a fixed number
    is_result = annotation not in (Never, NoReturn, object) and not _is_outcome(annotation)
    return annotation if is_result else Any


def _is_outcome(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Outcome)


def _is_context(annotation: object) -> bool:
    return JobContext in classes_of(annotation)


def _check_types(types: Mapping[str, Any], name: str) -> bool:
    """Refuse annotations that cannot be read from JSON. Whether any is a pydantic model."""
    has_models = False
    for parameter, annotation in types.items():
        if Progress in classes_of(annotation):
            raise RegistrationError(
                f"{name}: {parameter} is annotated Progress, which is the stored record of how far "
                "a job has come; to report progress, annotate it with JobProgress"
            )
        try:
            found = list(_custom_classes(msgspec.inspect.type_info(annotation)))
            msgspec.json.Decoder(annotation, dec_hook=decode_model)
        except (TypeError, ValueError, NameError) as error:
            raise RegistrationError(
                f"{name}: {parameter} cannot be read from JSON ({error})"
            ) from None
        for kind in found:
            if not hasattr(kind, _VALIDATE):
                raise RegistrationError(
                    f"{name}: {parameter} cannot be read from JSON: {kind.__name__} is no JSON"
                    " type, dataclass, msgspec Struct, enum or pydantic model. For a value that no"
                    f" job brings, write {parameter}: Annotated[{kind.__name__}, Depends(...)]"
                )
        has_models = has_models or bool(found)
    return has_models


def _custom_classes(info: object) -> Iterator[type]:
    seen: set[int] = set()
    waiting = [info]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, msgspec.inspect.CustomType):
            yield node.cls
        elif isinstance(node, tuple | list):
            waiting.extend(node)
        elif isinstance(node, Struct) and type(node).__module__ == "msgspec.inspect":
            waiting.extend(getattr(node, field) for field in node.__struct_fields__)
