"""A registered function: still callable as itself, and a maker of requests."""

import inspect
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    TypeVar,
    TypeVarTuple,
    overload,
)

import msgspec

from forge_jobs.errors import RegistrationError, UndecodablePayload
from forge_jobs.handlers.around.hooks import Hooks
from forge_jobs.handlers.context import JobContext
from forge_jobs.handlers.injection.markers import Dependency
from forge_jobs.handlers.injection.running import ComposedRun, injected
from forge_jobs.handlers.limits.rates import ask_of
from forge_jobs.handlers.options import HandlerOptions
from forge_jobs.handlers.requests import CheckedJson, EnqueueRequest
from forge_jobs.handlers.signatures import Mismatch, Signature, encode_value
from forge_jobs.model.letters import DEAD_LETTER_KIND
from forge_jobs.model.queues import RateAsk
from forge_jobs.privacy.secrets import is_masked, marked, secret_paths

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
A = TypeVar("A")
Ts = TypeVarTuple("Ts")
R_co = TypeVar("R_co", covariant=True)

if TYPE_CHECKING:

    class _Request:
        """``Handler.request`` as type checkers see the method: the arguments of the handler, and a
        request of what the handler returns, behind the ``await`` of an ``async def``."""

        @overload
        def __get__(
            self, handler: "Handler[P, Coroutine[Any, Any, R]]", owner: object = None
        ) -> Callable[P, EnqueueRequest[R]]: ...
        @overload
        def __get__(
            self, handler: "Handler[P, R]", owner: object = None
        ) -> Callable[P, EnqueueRequest[R]]: ...
        def __get__(self, handler: Any, owner: object = None) -> Any: ...


class Handler(Generic[P, R_co]):
    """The function of one kind. A call of the handler calls the plain function, and is typed so.

    :param function: called with the payload's fields as keyword arguments
    :param kind: the name under which jobs are stored
    :param aliases: further kinds of this handler, so that a rename strands no stored job
    :param middleware: around each run, the first outermost
    :param hooks: called with the end of each run
    :raises RegistrationError: the function cannot be a handler as written
    """

    def __init__(
        self,
        function: Callable[..., R_co],
        kind: str,
        aliases: tuple[str, ...] = (),
        options: HandlerOptions | None = None,
        middleware: tuple[Dependency, ...] = (),
        *,
        hooks: Hooks | None = None,
    ) -> None:
        self.function = function
        self.kind = kind
        self.aliases = aliases
        self.name = getattr(function, "__name__", type(function).__name__)
        self.is_async = is_async(function)
        self.signature = Signature(function, self.name, middleware)
        self._check_letter()
        self.context_parameter = self.signature.context_parameter
        self.result_type: Any = self.signature.result_type
        """The type that a result is read as, ``Any`` for JSON types. See ``Signature``."""
        self.options = self._with_secrets(options or HandlerOptions())
        self.in_process = self.options.executor == "process"
        plan = self.signature.injection
        if self.in_process and plan is not None and plan.needs_client:
            raise RegistrationError(
                f'{self.name}: a client is injected, which a handler with executor="process" does '
                "not have: take a JobContext and call ctx.enqueue, or leave out the executor"
            )
        self.run: ComposedRun | None = None if plan is None else injected(plan, function)
        """The function that the runtime awaits for each run. None: the plain call of the function,
        which costs nothing beside the call."""
        self.rate = self.options.rate
        """How often jobs may start. None: a run asks for no token."""
        self.hooks = hooks or None
        """Called with the end of each run, if there are any."""
        self.needs_thread = (
            not self.is_async
            or (plan is not None and plan.needs_thread)
            or (hooks is not None and hooks.need_thread)
        )
        """A run uses a thread, for the handler, for what is injected, or for a hook."""
        self.__name__ = self.name
        self.__doc__ = inspect.getdoc(function)
        self.__module__ = getattr(function, "__module__", __name__)
        self.__qualname__ = getattr(function, "__qualname__", self.name)
        self.__wrapped__ = function

    def _with_secrets(self, options: HandlerOptions) -> HandlerOptions:
        schema = self.signature.json_schema()
        for path in secret_paths(schema, is_masked):
            raise RegistrationError(
                f"{self.name}: {'.'.join(path)} would be stored as asterisks, since pydantic "
                'writes a SecretStr so; write str = Field(json_schema_extra={"writeOnly": True})'
            )
        paths = secret_paths(schema)
        return msgspec.structs.replace(options, secrets=marked(paths)) if paths else options

    def _check_letter(self) -> None:
        is_of_letters = DEAD_LETTER_KIND in (self.kind, *self.aliases)
        if is_of_letters and not self.signature.takes_letter:
            raise RegistrationError(
                f"{self.name}: jobs of kind {DEAD_LETTER_KIND!r} have payloads of other kinds; "
                "take one parameter letter: DeadLetter (from forge_jobs import DeadLetter)"
            )
        if self.signature.takes_letter and (self.kind != DEAD_LETTER_KIND or self.aliases):
            raise RegistrationError(
                f"{self.name}: only jobs of kind {DEAD_LETTER_KIND!r} are dead letters; write "
                "job(DEAD_LETTER_KIND) (from forge_jobs import DEAD_LETTER_KIND), without aliases"
            )

    def __call__(self, *args: Any, **kwargs: Any) -> R_co:
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

    if TYPE_CHECKING:
        request = _Request()
    else:

        def request(self, *args: Any, **kwargs: Any) -> EnqueueRequest:
            """A request to run this handler with these arguments, the context left out.

            :raises InvalidInput: they do not fit the annotations. Names the field, as
                ``sync_issue.number``
            """
            payload = CheckedJson(self.signature.encode(args, kwargs))
            return EnqueueRequest(self.kind, payload, self.options, self.result_type)

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
        return encode_value("result", value)

    def rate_ask(self, payload: str) -> RateAsk | None:
        """Return the request for the token that a run needs. None: a run needs none.

        :param payload: JSON text of an object, decrypted
        """
        if self.rate is None:
            return None
        is_private = self.options.encryption is not None or bool(self.options.secrets)
        return ask_of(self.rate, self.kind, payload, is_private=is_private)

    def same_function(self, other: "Handler[..., Any]") -> bool:
        """True when both stand for one function, also after a reload of the module."""
        if self.function is other.function:
            return True
        if (self.__module__, self.__qualname__) != (other.__module__, other.__qualname__):
            return False
        # Lambdas and local functions share their names. A reload leaves their code equal, and the
        # plain values that they hold.
        return "<" not in self.__qualname__ or _held(self) == _held(other)


_PLAIN = (str, bytes, int, type(None))


class Registering(Protocol):
    """The decorator. With the context as first parameter, or with none, a type checker holds
    ``request`` to the signature. With the context elsewhere among the positional parameters, a
    wrong call is refused only when made, and a type checker asks for a keyword-only context."""

    @overload  # Only a function of several contexts fits both, and registering refuses that.
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[JobContext, P], R], /
    ) -> Handler[P, R]: ...
    @overload
    def __call__(self, function: Callable[[*Ts, JobContext], R], /) -> Handler[..., R]: ...
    @overload
    def __call__(self, function: Callable[[A, JobContext, *Ts], R], /) -> Handler[..., R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Handler[P, R]: ...


def is_async(function: Callable[..., object]) -> bool:
    """True when a call gives an awaitable. Looks through partials and callable objects."""
    while hasattr(function, "func"):
        function = function.func
    if inspect.iscoroutinefunction(function):
        return True
    return inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def _held(handler: Handler[..., Any]) -> tuple[object, dict[str, object]]:
    """Return the code of a function, and the plain values that the function takes from around."""
    function = inspect.unwrap(handler.function)
    if not inspect.isfunction(function):
        return None, {}
    plain: dict[str, object] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # not set yet
            if isinstance(cell.cell_contents, _PLAIN):
                plain[name] = cell.cell_contents
    return function.__code__, plain
