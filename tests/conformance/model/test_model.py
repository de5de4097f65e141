"""All backends against the model, alone and together.

``FORGE_MODEL_EXAMPLES`` sets how many programs are tried, ``FORGE_MODEL_STEPS`` how long each may
get. They are the same programs on each run. With ``FORGE_MODEL_RANDOM=1`` each run draws others.
With ``FORGE_MODEL_SHRINK=0`` the first failing program is reported, not the shortest found. A
failure prints the program and a line ``FORGE_MODEL_REPLAY=...`` that runs this one again.
``FORGE_MODEL_RULES=unique_keys,letters`` leaves out the rules of all other modules.
"""

import asyncio
import inspect
import os
import re
from collections.abc import Collection

import pytest
from hypothesis import HealthCheck, Phase, reproduce_failure, settings
from hypothesis.stateful import RULE_MARKER, get_state_machine_test

from tests.conformance.model.machine import StoreMachine
from tests.support.backends import BACKENDS, VARIANTS

_EXAMPLES = int(os.environ.get("FORGE_MODEL_EXAMPLES", "5"))
_STEPS = int(os.environ.get("FORGE_MODEL_STEPS", "40"))
_RANDOM = os.environ.get("FORGE_MODEL_RANDOM", "0") != "0"
_PHASES = [Phase.explicit, Phase.generate]
if os.environ.get("FORGE_MODEL_SHRINK", "1") != "0":
    _PHASES.append(Phase.shrink)
_RULES = frozenset(filter(None, os.environ.get("FORGE_MODEL_RULES", "").split(",")))
_REPLAY = os.environ.get("FORGE_MODEL_REPLAY", "")
_BLOB = re.compile(r"@reproduce_failure\('([^']+)', b'([^']+)'\)")


def _run(backends: tuple[str, ...], examples: int) -> None:
    with asyncio.Runner() as runner:

        class Machine(StoreMachine):
            pass

        if _RULES:
            _keep_rules_of(Machine, _RULES)
        Machine.loop = runner.get_loop()
        Machine.backends = backends
        wanted = settings(
            max_examples=examples,
            stateful_step_count=_STEPS,
            phases=_PHASES,
            report_multiple_bugs=False,
            deadline=None,
            database=None,
            derandomize=not _RANDOM,
            print_blob=True,
            suppress_health_check=[HealthCheck.too_slow],
        )
        test = get_state_machine_test(Machine, settings=wanted)
        if _REPLAY:
            version, _, blob = _REPLAY.partition(":")
            test = reproduce_failure(version, blob.encode())(test)
        try:
            test()
        except BaseException as error:
            for note in getattr(error, "__notes__", ()):
                if found := _BLOB.search(note):
                    error.add_note(f"Again: FORGE_MODEL_REPLAY={found[1]}:{found[2]}")
                    break
            raise


def _keep_rules_of(machine: type[StoreMachine], modules: Collection[str]) -> None:
    """Hide the rules of all other modules, which stay to be called as plain methods."""
    for name, found in inspect.getmembers(machine):
        if hasattr(found, RULE_MARKER):
            plain = inspect.unwrap(found)
            if plain.__module__.rpartition(".")[2] not in modules:
                setattr(machine, name, plain)


# Finding the shortest failing program may take Hypothesis five minutes.
_SHRINKING = 330


# The longest one first: two workers of pytest-xdist would end with this one alone.
@pytest.mark.timeout(_SHRINKING + _EXAMPLES * 16)
def test_all_stores_do_the_same() -> None:
    """Run a program step by step on every backend and the model."""
    _run(tuple(sorted(BACKENDS)), max(_EXAMPLES // 2, 1))


@pytest.mark.timeout(_SHRINKING + _EXAMPLES * 8)
@pytest.mark.parametrize("backend", sorted(BACKENDS))
def test_a_store_does_what_the_model_does(backend: str) -> None:
    _run((backend,), _EXAMPLES)


@pytest.mark.timeout(_SHRINKING + _EXAMPLES * 8)
@pytest.mark.parametrize("variant", sorted(VARIANTS))
def test_a_store_does_it_on_every_way(variant: str) -> None:
    _run((variant,), max(_EXAMPLES // 2, 1))
