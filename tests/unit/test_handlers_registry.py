"""Registries: names, conflicts, defaults, loading."""

import importlib
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from forge_jobs.errors import ConfigError, RegistrationError
from forge_jobs.handlers.context import JobContext
from forge_jobs.handlers.handler import Handler
from forge_jobs.handlers.registry import HandlerRegistry, load_registry
from forge_jobs.model.retries import Fixed


def run(number: int) -> None: ...


def other(number: int) -> None: ...


class TestKinds:
    def test_a_handler_is_found_by_its_kind_and_its_aliases(self) -> None:
        handlers = HandlerRegistry()

        handler = handlers.job("new.name", aliases=("old.name", "older"))(run)

        assert [handlers.get(kind) for kind in ("new.name", "old.name", "older")] == [handler] * 3
        assert handlers.kinds() == {"new.name", "old.name", "older"}
        assert list(handlers) == [handler]
        assert len(handlers) == 1
        assert "old.name" in handlers
        assert handlers.get("else") is None

    def test_another_function_under_a_taken_kind_is_refused_and_changes_nothing(self) -> None:
        handlers = HandlerRegistry()
        first = handlers.register(run, "kind")

        with pytest.raises(RegistrationError, match="belongs to") as caught:
            handlers.register(other, "fresh", aliases=("kind",))

        assert "other" in str(caught.value)
        assert handlers.kinds() == {"kind"}
        assert handlers.get("kind") is first

    def test_the_same_function_again_is_no_conflict(self) -> None:
        handlers = HandlerRegistry()
        handlers.register(run, "kind")

        again = handlers.register(run, "kind", priority=3)

        assert handlers.get("kind") is again
        assert again.options.priority == 3

    def test_two_local_functions_of_one_name_are_different_functions(self) -> None:
        handlers = HandlerRegistry()
        handlers.register(lambda: 1, "kind")

        with pytest.raises(RegistrationError, match="belongs to"):
            handlers.register(lambda: 2, "kind")

    def test_two_functions_of_one_factory_are_one_only_with_the_same_values(self) -> None:
        handlers = HandlerRegistry()

        def sending_to(address: str, by: object) -> Callable[[], object]:
            return lambda: (address, by)

        handlers.register(sending_to("here", object()), "kind")
        again = handlers.register(sending_to("here", object()), "kind")

        with pytest.raises(RegistrationError, match="belongs to"):
            handlers.register(sending_to("there", object()), "kind")
        assert handlers.get("kind") is again

    def test_one_function_can_have_several_kinds(self) -> None:
        handlers = HandlerRegistry()

        @handlers.job("a", priority=1)
        @handlers.job("b", priority=2)
        def both() -> None: ...

        assert {handler.kind: handler.options.priority for handler in handlers} == {"a": 1, "b": 2}

    def test_registries_share_nothing(self) -> None:
        one, two = HandlerRegistry(), HandlerRegistry()
        one.register(run, "kind")

        assert two.register(other, "kind") is two.get("kind")

    def test_include_takes_all_or_none(self) -> None:
        one, two = HandlerRegistry(), HandlerRegistry()
        one.register(run, "shared")
        two.register(run, "fresh", aliases=("also",))
        two.register(other, "shared")

        with pytest.raises(RegistrationError):
            one.include(two)
        assert one.kinds() == {"shared"}

        third = HandlerRegistry()
        third.include(two)
        assert third.kinds() == two.kinds()

    @pytest.mark.parametrize("kind", ["", "a,b", "x" * 201, "a\nb", 7])
    def test_a_kind_must_be_a_name(self, kind: Any) -> None:
        with pytest.raises(RegistrationError, match="kind"):
            HandlerRegistry().job(kind)
        with pytest.raises(RegistrationError, match="kind"):
            HandlerRegistry().register(run, "fine", aliases=(kind,))

    def test_a_generator_is_no_handler(self) -> None:
        def yields() -> Iterator[int]:
            yield 1

        with pytest.raises(RegistrationError, match="yields"):
            HandlerRegistry().register(yields, "kind")


class TestDefaults:
    def test_options_are_kept_with_the_handler(self) -> None:
        handler = HandlerRegistry().register(
            run,
            "kind",
            queue="q",
            priority=-5,
            max_attempts=None,
            timeout=1.5,
            retry=Fixed(3),
            retry_on=OSError,
            never_retry_on=[PermissionError, KeyError],
            tags=["a", "b", "a"],
            keep_result=False,
            max_crashes=1,
        )
        options = handler.options

        assert (options.queue, options.priority, options.max_attempts) == ("q", -5, None)
        assert options.timeout == timedelta(seconds=1.5)
        assert options.retry == Fixed(3)
        assert options.retry_on == (OSError,)
        assert options.never_retry_on == (PermissionError, KeyError)
        assert options.tags == ("a", "b")
        assert options.keep_result is False
        assert options.max_crashes == 1

    def test_what_is_left_out_has_the_documented_defaults(self) -> None:
        options = HandlerRegistry().register(run, "kind").options

        assert (options.queue, options.priority, options.max_attempts) == (None, 0, 5)
        assert options.timeout is None
        assert options.retry is None
        assert (options.retry_on, options.never_retry_on) == (None, ())
        assert (options.tags, options.keep_result, options.max_crashes) == ((), True, None)

    @pytest.mark.parametrize(
        "options",
        [
            {"queue": "a,b"},
            {"priority": 101},
            {"priority": -101},
            {"priority": 1.0},
            {"max_attempts": 0},
            {"max_attempts": True},
            {"timeout": 0},
            {"timeout": -1},
            {"tags": "tag"},
            {"tags": [str(number) for number in range(33)]},
            {"max_crashes": 0},
            {"retry_on": ["OSError"]},
            {"never_retry_on": int},
        ],
    )
    def test_a_wrong_option_is_refused_by_name_when_it_is_written(
        self, options: dict[str, Any]
    ) -> None:
        [name] = options

        with pytest.raises(RegistrationError, match=name):
            HandlerRegistry().job("kind", **options)

    def test_the_bounds_themselves_are_allowed(self) -> None:
        for priority in (-100, 100):
            assert HandlerRegistry().register(run, "k", priority=priority).options.priority == (
                priority
            )
        assert HandlerRegistry().register(run, "k", max_attempts=1).options.max_attempts == 1


MODULE = """
from forge_jobs.handlers.registry import HandlerRegistry

handlers = HandlerRegistry()

@handlers.job("kind")
def run(number: int) -> None: ...

class Config:
    handlers = handlers
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "forge_test_app.py").write_text(MODULE)
    (tmp_path / "forge_test_broken.py").write_text("import a_module_that_is_not_there\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "forge_test_app"
    sys.modules.pop("forge_test_app", None)


class TestLoading:
    def test_a_registry_is_loaded_by_module_and_attribute(self, module: str) -> None:
        assert load_registry(f"{module}:handlers").kinds() == {"kind"}
        assert load_registry(f"{module}:Config.handlers").kinds() == {"kind"}

    def test_a_module_that_was_reloaded_replaces_its_handlers_without_conflict(
        self, module: str
    ) -> None:
        application = HandlerRegistry()
        application.include(load_registry(f"{module}:handlers"))

        importlib.reload(sys.modules[module])
        reloaded = load_registry(f"{module}:handlers")
        application.include(reloaded)

        assert application.get("kind") is reloaded.get("kind")

    @pytest.mark.parametrize(
        ("target", "problem"),
        [
            ("forge_test_app", "form package.module:attribute"),
            (":handlers", "form package.module:attribute"),
            ("forge_test_app:", "form package.module:attribute"),
            ("forge_test_nothing:handlers", "no module 'forge_test_nothing'"),
            ("forge_test_app.sub:handlers", "no module 'forge_test_app.sub'"),
            ("forge_test_app:nothing", "no attribute 'nothing'"),
            ("forge_test_app:run", "name the HandlerRegistry"),
        ],
    )
    def test_a_target_that_is_no_registry_is_an_error_that_says_why(
        self, module: str, target: str, problem: str
    ) -> None:
        with pytest.raises(ConfigError) as caught:
            load_registry(target)

        assert problem in str(caught.value)

    def test_an_error_inside_the_module_is_not_hidden(self, module: str) -> None:
        with pytest.raises(ModuleNotFoundError, match="a_module_that_is_not_there"):
            load_registry("forge_test_broken:handlers")


class TestTypes:
    def test_a_context_in_any_place_can_be_left_out_of_a_request(self) -> None:
        handlers = HandlerRegistry()

        @handlers.job("first")
        async def first(ctx: JobContext, number: int) -> None: ...

        @handlers.job("last")
        async def last(number: int, ctx: JobContext) -> None: ...

        @handlers.job("none")
        async def none(number: int) -> None: ...

        requests = [first.request(1), last.request(1), none.request(number=1)]
        assert {request.payload for request in requests} == {'{"number":1}'}
        handler: Handler[..., Any] = first
        assert handler.context_parameter == "ctx"
