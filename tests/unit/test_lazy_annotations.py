"""Annotations that Python evaluates when they are read, as from 3.14 on, where a name is missing.

Such a function is a fake here: reading its annotations raises ``NameError``, and ``annotationlib``
has a ``ForwardRef`` for each missing name.
"""

import inspect
import sys
from types import SimpleNamespace
from typing import Any, ForwardRef

import pytest

from forge_jobs import HandlerRegistry, RegistrationError
from forge_jobs.handlers.context import JobContext
from forge_jobs.handlers.injection.annotations import annotations_of, signature_of


class Lazy:
    """A function as Python 3.14 makes one."""

    def __init__(self, **forward: Any) -> None:
        self.forward = forward
        self.__globals__: dict[str, Any] = {}

    def __getattribute__(self, name: str) -> Any:
        if name == "__annotations__":
            raise NameError("name 'Missing' is not defined")
        return super().__getattribute__(name)


def lazy(**forward: Any) -> Any:
    """Return a function whose annotations are these, read by ``annotationlib``."""

    async def handle(ctx: Any, number: int) -> None:
        return None

    handle.__annotations__ = {"number": "Missing"}
    handle.__wrapped__ = Lazy(**forward)  # type: ignore[attr-defined]
    return handle


@pytest.fixture(autouse=True)
def _annotationlib(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = SimpleNamespace(
        Format=SimpleNamespace(FORWARDREF="forwardref"),
        get_annotations=lambda target, *, format: target.forward if format == "forwardref" else {},
    )
    monkeypatch.setitem(sys.modules, "annotationlib", fake)
    plain = inspect.signature

    def signature(function: Any, **options: Any) -> inspect.Signature:
        if not isinstance(getattr(function, "__wrapped__", None), Lazy):
            return plain(function)
        if options != {"annotation_format": "forwardref"}:
            raise NameError("name 'Missing' is not defined")
        return plain(function, follow_wrapped=False)

    monkeypatch.setattr(inspect, "signature", signature)


def test_a_context_for_type_checkers_is_recognised() -> None:
    for name in ("JobContext", "forge_jobs.JobContext"):
        function = lazy(ctx=ForwardRef(name), number=int, **{"return": ForwardRef("Receipt")})
        found = annotations_of(function, "mail")
        assert found == {"ctx": JobContext, "number": int, "return": "Receipt"}


def test_such_a_function_is_registered() -> None:
    handlers = HandlerRegistry()
    handlers.register(lazy(ctx=ForwardRef("JobContext"), number=int), "mail")
    assert handlers.kinds() == {"mail"}
    assert list(signature_of(lazy()).parameters) == ["ctx", "number"]


def test_another_missing_name_is_an_error_that_names_the_parameter() -> None:
    function = lazy(ctx=JobContext, number=ForwardRef("Order"))
    with pytest.raises(RegistrationError, match="mail: the annotation of number cannot be resol"):
        annotations_of(function, "mail")
