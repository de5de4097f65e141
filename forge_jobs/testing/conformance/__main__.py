"""``python -m forge_jobs.testing.conformance my_package:open_store [--part NAME]``."""

import os
import sys

import click

from forge_jobs.errors import ForgeJobsError
from forge_jobs.testing.conformance import suite
from forge_jobs.testing.conformance.target import load

_NO_PYTEST = "the suite runs in pytest, which is not installed: pip install pytest"
_PLUGINS = ("forge_jobs.testing.conformance.plugin", "tests.conformance.fixtures")
# Of the project in the working directory, neither settings nor fixtures count.
_ALONE = ("-c", os.devnull, "--noconftest", "-p", "no:cacheprovider", "-p", "no:asyncio")


@click.command(epilog="The exit code is that of pytest, and 2 where the call is wrong.")
@click.argument("open_store", metavar="MODULE:FUNCTION", required=False)
@click.argument("for_pytest", metavar="[-- PYTEST OPTIONS]", nargs=-1)
@click.option("--part", "names", multiple=True, help="Only this part. Several are possible.")
@click.option("--list", "only_lists", is_flag=True, help="List the parts.")
def main(
    open_store: str | None, for_pytest: tuple[str, ...], names: tuple[str, ...], only_lists: bool
) -> None:
    """Run the conformance suite of stores on a store of your own.

    The function gets a folder and a clock, and returns a context manager: see
    forge_jobs.testing.conformance.OpenStore.
    """
    try:
        files = suite.chosen(names)
        if only_lists:
            for name, file in suite.parts().items():
                click.echo(f"{name:20} {suite.about(file)}")
            return
        if open_store is None:
            raise click.UsageError("name the function that opens the store, or write --list")
        load(open_store)
    except ForgeJobsError as error:
        raise click.UsageError(str(error)) from None
    try:
        import pytest
    except ImportError:
        raise click.UsageError(_NO_PYTEST) from None
    tree = str(suite.tree())
    sys.path.insert(0, tree)
    plugins = [word for name in _PLUGINS for word in ("-p", name)]
    store = ("--open-store", open_store)
    call = [*_ALONE, "--rootdir", tree, *plugins, *store, *for_pytest, *map(str, files)]
    sys.exit(pytest.main(call))


if __name__ == "__main__":
    main(prog_name="python -m forge_jobs.testing.conformance")
