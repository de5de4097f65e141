"""How a failure ends a command: one line on stderr, and an exit code."""

import errno
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from forge_jobs.cli.output import printable
from forge_jobs.errors import ConfigError, ForgeJobsError, InvalidInput, RegistrationError

FAILED = 1
BAD_INPUT = 2


class Refused(click.ClickException):
    """The operation failed, was refused, or met something that is not there."""

    exit_code = FAILED


class CommandLine(click.Group):
    """The root group. No failure of a command becomes a traceback or a second line.

    :ivar shows_traceback: let errors through as they are, for a developer
    """

    shows_traceback = False

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, False, **extra)
        try:
            outcome = super().main(args, prog_name, complete_var, False, **extra)
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            sys.exit(BAD_INPUT)
        except click.Abort:
            click.echo("Stopped.", err=True)
            sys.exit(FAILED)
        except Exception as error:  # for any error, people get one line
            if self.shows_traceback:
                raise
            text, code = describe(error)
            click.echo(f"Error: {printable(text)}", err=True)
            sys.exit(code)
        sys.exit(outcome if isinstance(outcome, int) else 0)


_OF_OUTPUT = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF)


def _drop_output() -> None:
    # Text that is still buffered would fail once more at the interpreter's end, with another code.
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), sys.stdout.fileno())


def describe(error: Exception) -> tuple[str, int]:
    """The line that people get for ``error``, and the exit code."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, click.UsageError):
        where = f" See '{error.ctx.command_path} --help'." if error.ctx else ""
        return error.format_message() + where, error.exit_code
    if isinstance(error, click.ClickException):
        return error.format_message(), error.exit_code
    if isinstance(error, InvalidInput | ConfigError | RegistrationError):
        return str(error), BAD_INPUT
    if isinstance(error, ForgeJobsError):
        return str(error), FAILED
    if isinstance(error, OSError) and error.errno in _OF_OUTPUT:
        _drop_output()
        return f"the output cannot be written: {os.strerror(error.errno)}", FAILED
    # The text of a foreign exception may hold a path, a host name or a password.
    return f"unexpected {type(error).__name__}; this is a defect, please report it", FAILED
