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
    except Exception as error:
        # Where, not what: the text of a stranger's exception may hold anything.
        [*_, frame] = traceback.extract_tb(error.__traceback__)
        raise ConfigError(
            f"importing {named} failed: {type(error).__name__} in {Path(frame.filename).name} "
            f"line {frame.lineno}; see it whole with 'forge-jobs --traceback ...'"
        ) from error
