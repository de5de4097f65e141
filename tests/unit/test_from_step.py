"""Parameters that get the results of steps: what is read, and how often."""

from typing import Annotated, Any

import pytest
from msgspec import Struct

from forge_jobs import Dead, FromStep, HandlerRegistry, InvalidInput
from forge_jobs.clients.flows.parents import Parent
from forge_jobs.handlers.injection.from_step import parents_by_step
from forge_jobs.handlers.signatures import Signature
from forge_jobs.testing import fake_context


class Rows(Struct):
    """A result with a type of its own."""

    count: int


class _Step(Struct):
    """A parent as a handler sees one."""

    step: str
    value: Any
    asked: list[Any] = []
    group: str | None = None

    def result(self, type: Any = Any) -> Any:
        self.asked.append(type)
        return self.value


async def report(
    rows: Annotated[Rows, FromStep("rows")], names: list[str] = FromStep("names"), day: int = 1
) -> None:
    """Take two results, and an argument of the payload."""


def test_the_parameters_are_no_part_of_the_payload() -> None:
    handlers = HandlerRegistry()
    handler = handlers.register(report, "report")
    assert handler.request(day=3).payload == '{"day":3}'
    with pytest.raises(InvalidInput):
        handler.request(rows=Rows(1))
    assert repr(FromStep("rows")) == "FromStep('rows')"
    with pytest.raises(InvalidInput, match="step"):
        FromStep("")


@pytest.mark.anyio
async def test_results_are_read_as_annotated_from_one_look_at_the_parents() -> None:
    plan = Signature(report, "report").injection
    assert plan is not None
    # The context, the steps by name, and a reader for each parameter.
    assert len(plan.steps) == 4
    steps = {"rows": [_Step("rows", 1)], "names": [_Step("names", 2)]}
    for name, number in plan.parameters:
        factory = plan.steps[number].factory
        assert factory is not None
        await factory.call(steps)
        assert steps[name][0].asked == [{"rows": Rows, "names": list[str]}[name]]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("annotation", "read_as"), [(list[int], int), (list, Any), (Any, Any), (int, None)]
)
async def test_a_group_is_the_list_of_its_results(annotation: Any, read_as: Any) -> None:
    members = [_Step("many", number, group="g") for number in range(2)]
    read = FromStep("many").made_by(annotation)
    if read_as is None:
        with pytest.raises(Dead, match="step 'many' is a group"):
            await read({"many": members})
        return
    assert await read({"many": members}) == [0, 1]
    assert [each.asked for each in members] == [[read_as], [read_as]]


@pytest.mark.anyio
async def test_parents_that_are_no_steps_are_left_out() -> None:
    ctx = fake_context(parents=[_Step("rows", 1), _Step("", 2)])
    assert list(await parents_by_step(ctx)) == ["rows"]
    assert Parent("1", None).step == ""  # type: ignore[arg-type]
