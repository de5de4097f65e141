"""Finding the user's handlers."""

import sys
import traceback
from pathlib import Path

from forge_jobs.config import Deployment
from forge_jobs.errors import ConfigError, ForgeJobsError
from forge_jobs.handlers.registry import HandlerRegistry, load_registry


def load_handlers(reference: str | None, deployment: Deployment) -> HandlerRegistry:
    """The registry at ``module:attribute``, else the one that ``FORGE_HANDLERS`` names.

    Modules of the working directory are found, as with ``python -m``.

    :raises ConfigError: neither names one, there is none at that place, or importing it failed
    """
    named = reference or deployment.handlers
    if not named:
        raise ConfigError(
            "FORGE_HANDLERS is not set; set it, or name the registry, as myapp.jobs:handlers"
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return load_registry(named)
    except ForgeJobsError:
        raise
    except (Exception, SystemExit) as error:  # a script without a main guard may exit
        # Where, not what: the text of a stranger's exception may hold anything.
        file, line = _place(error)
        raise ConfigError(
            f"importing {named} failed: {type(error).__name__} in {Path(file).name} "
            f"line {line}; see it whole with 'forge-jobs --traceback ...'"
        ) from error


def _place(error: BaseException) -> tuple[str, int | None]:
    if isinstance(error, SyntaxError) and error.filename:
        return error.filename, error.lineno  # its traceback ends in the importer
    [*_, frame] = traceback.extract_tb(error.__traceback__)
    return frame.filename, frame.lineno
