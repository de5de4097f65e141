"""Every backend against the model.

``FORGE_MODEL_EXAMPLES`` sets how many programs of 40 steps are tried.
"""

import os

import pytest
from anyio.from_thread import start_blocking_portal
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.conformance.model.machine import StoreMachine
from tests.support.backends import BACKENDS

_EXAMPLES = int(os.environ.get("FORGE_MODEL_EXAMPLES", "60"))


@pytest.mark.timeout(60 + _EXAMPLES * 2)
@pytest.mark.parametrize("backend", sorted(BACKENDS))
def test_a_store_does_what_the_model_does(backend: str) -> None:
    with start_blocking_portal("asyncio") as portal:

        class Machine(StoreMachine):
            pass

        Machine.portal = portal
        Machine.open_backend = staticmethod(BACKENDS[backend])
        run_state_machine_as_test(
            Machine,
            settings=settings(max_examples=_EXAMPLES, stateful_step_count=40),
        )
