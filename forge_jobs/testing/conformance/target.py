"""Finds the function that opens the store under test."""

import sys
from importlib import import_module

from forge_jobs.errors import InvalidInput
from forge_jobs.testing.conformance.backends import OpenStore

_EXAMPLE = "give module:function, as in my_package.stores:open_store"


def load(target: str) -> OpenStore:
    """Return the function that ``target`` names.

    :raises InvalidInput: there is no such module or function, or the module is in a package named
        ``tests``, as the suite is
    """
    module_name, colon, name = target.partition(":")
    if not (module_name and colon and name):
        raise InvalidInput("open_store", f"is {target!r}", _EXAMPLE)
    if module_name.partition(".")[0] == "tests":
        raise InvalidInput(
            "open_store",
            f"is in {module_name!r}, and the suite is a package named tests too",
            "put the function into a module of another package",
        )
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise InvalidInput(
            "open_store", f"is {target!r}, and there is no module {error.name!r}", _EXAMPLE
        ) from None
    found = getattr(module, name, None)
    if not callable(found):
        raise InvalidInput(
            "open_store", f"is {target!r}, and {module_name} has no function {name!r}", _EXAMPLE
        )
    if "tests" in sys.modules and "tests.conformance" not in sys.modules:
        raise InvalidInput(
            "open_store",
            f"is {target!r}, whose module imports a package named tests, as the suite is",
            "put the function into a module that imports no tests",
        )
    opens: OpenStore = found
    return opens
