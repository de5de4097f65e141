"""``forge-jobs completion``: what a shell needs to complete commands."""

import click
from click.shell_completion import get_completion_class

_PROGRAM = "forge-jobs"
_VARIABLE = "_FORGE_JOBS_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell, to be sourced there."""
    completer = get_completion_class(shell)
    assert completer is not None, "the choices are the shells that click knows"
    script = completer(context.find_root().command, {}, _PROGRAM, _VARIABLE)
    # Not .source(): for bash that runs the shell to look at its version.
    click.echo(completer.source_template % script.source_vars())
