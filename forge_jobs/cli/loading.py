"""Finding the user's handlers and router."""

import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from forge_jobs.config import Deployment, variable_of
from forge_jobs.errors import ConfigError, ForgeJobsError, a_type
from forge_jobs.handlers.registry import HandlerRegistry, load_object, load_registry
from forge_jobs.handlers.routing import Router, checked_router, prefix_router
from forge_jobs.setting_values import PREFIX_ROUTER

_T = TypeVar("_T")


def load_handlers(reference: str | None, deployment: Deployment) -> HandlerRegistry:
    """The registry at ``module:attribute``, else the one that ``FORGE_HANDLERS`` names.

    Modules of the working directory are found, as with ``python -m``.

    :raises ConfigError: neither names a registry, none is at that place, or the import failed
    """
    named = reference or deployment.handlers
    if not named:
        raise ConfigError(
            "FORGE_HANDLERS is not set; set it, or name the registry, as myapp.jobs:handlers"
        )
    return _imported(named, load_registry)


def load_router(deployment: Deployment) -> Router | None:
    """The router that ``FORGE_ROUTER`` names, or None.

    :raises ConfigError: no router is at that place, or the import failed
    """
    named = deployment.router
    if not named:
        return None
    if named == PREFIX_ROUTER:
        return prefix_router()
    found = _imported(named, load_object)
    if not callable(found):
        raise ConfigError(
            f"{variable_of('router')}: {named} is {a_type(found)}; name a function that "
            "takes a kind and returns a queue, or None"
        )
    return checked_router(found)


def _imported(named: str, load: Callable[[str], _T]) -> _T:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return load(named)
    except ForgeJobsError:
        raise
    except (Exception, SystemExit) as error:  # a script without a main guard may exit
        # Say where, not what: the text of a foreign exception may hold anything.
        file, line = _place(error)
        raise ConfigError(
            f"importing {named} failed: {type(error).__name__} in {Path(file).name} "
            f"line {line}; see it whole with 'forge-jobs --traceback ...'"
        ) from error


def _place(error: BaseException) -> tuple[str, int | None]:
    if isinstance(error, SyntaxError) and error.filename:
        return error.filename, error.lineno  # the traceback ends in the importer
    [*_, frame] = traceback.extract_tb(error.__traceback__)
    return frame.filename, frame.lineno
