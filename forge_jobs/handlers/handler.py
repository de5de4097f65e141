"""A registered function: still callable as itself, and a maker of requests."""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from forge_jobs.errors import InvalidInput, UndecodablePayload
from forge_jobs.handlers.options import HandlerOptions
from forge_jobs.handlers.requests import CheckedJson, EnqueueRequest
from forge_jobs.handlers.signatures import Mismatch, Signature, to_plain
from forge_jobs.model.payloads import encode_json

_ENQUEUES = frozenset(
    [
        "apply",
        "apply_async",
        "apply_at",
        "configure",
        "defer",
        "defer_async",
        "delay",
        "enqueue",
        "kiq",
        "s",
        "send",
        "send_with_options",
        "si",
        "signature",
        "submit",
    ]
)

P = ParamSpec("P")
R = TypeVar("R")


class Handler(Generic[P, R]):
    """The function of one kind. A call of the handler calls the plain function.

    :param function: called with the payload's fields as keyword arguments
    :param kind: the name under which jobs are stored
    :param aliases: further kinds of this handler, so that a rename strands no stored job
    :raises RegistrationError: the function cannot be a handler as written
    """

    def __init__(
        self,
        function: Callable[..., R],
        kind: str,
        aliases: tuple[str, ...] = (),
        options: HandlerOptions | None = None,
    ) -> None:
        self.function = function
        self.kind = kind
        self.aliases = aliases
        self.options = options or HandlerOptions()
        self.name = getattr(function, "__name__", type(function).__name__)
        self.is_async = is_async(function)
        self.signature = Signature(function, self.name)
        self.context_parameter = self.signature.context_parameter
        self.__name__ = self.name
        self.__doc__ = inspect.getdoc(function)
        self.__module__ = getattr(function, "__module__", __name__)
        self.__qualname__ = getattr(function, "__qualname__", self.name)
        self.__wrapped__ = function

    def __call__(self, *args: Any, **kwargs: Any) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"Handler({self.kind!r}, {self.__module__}.{self.__qualname__})"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            # The name that other libraries use.
            hint = ""
            if name in _ENQUEUES:
                hint = (
                    f"; to enqueue a job make a request: await client.enqueue("
                    f"{self.__dict__.get('name', 'handler')}.request(...))"
                )
            raise AttributeError(f"a handler has no attribute {name!r}{hint}", name=name, obj=self)

    @property
    def description(self) -> str:
        """The first line of the function's docstring, "" without one."""
        return (self.__doc__ or "").partition("\n")[0].strip()

    def request(self, *args: P.args, **kwargs: P.kwargs) -> EnqueueRequest:
        """A request to run this handler with these arguments, the context left out.

        :raises InvalidInput: they do not fit the annotations. Names the field, as
            ``sync_issue.number``
        """
        payload = CheckedJson(self.signature.encode(args, kwargs))
        return EnqueueRequest(self.kind, payload, self.options)

    def check_payload(self, payload: str) -> None:
        """Refuse a payload text that :meth:`decode` would not accept.

        :raises InvalidInput: names the field
        """
        self.signature.check(payload)

    def decode(self, payload: str) -> dict[str, Any]:
        """The keyword arguments of one run, without the context.

        :raises UndecodablePayload: the stored payload does not fit the annotations
        """
        try:
            return self.signature.decode(payload)
        except Mismatch as mismatch:
            raise UndecodablePayload(f"{self.name}{mismatch.path}", mismatch.problem) from None

    def encode_result(self, value: object) -> str | None:
        """Encode the return value as JSON text. None is kept as ``null``, so that a result
        of None differs from a result that is no longer there.

        :raises InvalidInput: the value cannot be stored. The field is ``result``
        """
        if value is None:
            return "null"
        try:
            return encode_json("result", value)
        except InvalidInput as refused:
            # Only pydantic models need this detour, and they are rare enough to come second.
            try:
                plain = to_plain(value)
            except (TypeError, ValueError, RecursionError):
                raise refused from None
            return encode_json("result", plain)

    def same_function(self, other: "Handler[..., Any]") -> bool:
        """True when both stand for one function, also after a reload of the module."""
        if self.function is other.function:
            return True
        if (self.__module__, self.__qualname__) != (other.__module__, other.__qualname__):
            return False
        # Lambdas and local functions share their names. A reload leaves their code equal.
        return "<" not in self.__qualname__ or _code(self) == _code(other)


def is_async(function: Callable[..., object]) -> bool:
    """True when a call gives an awaitable. Looks through partials and callable objects."""
    while hasattr(function, "func"):
        function = function.func
    if inspect.iscoroutinefunction(function):
        return True
    return inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def _code(handler: Handler[..., Any]) -> object:
    return getattr(inspect.unwrap(handler.function), "__code__", None)
