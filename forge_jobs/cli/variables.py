"""Options of commands as variables of the environment: ``--limit`` of ``jobs list`` is
``FORGE_JOBS_LIST_LIMIT``."""

import click

from forge_jobs.config import PREFIX

TYPED_ONLY = frozenset({"--all", "--all-matching", "--yes", "--with-jobs", "--id"})
"""Options that make a command change more, or without a question, and the id of a new job.

A variable that was forgotten in a shell must not do so."""

ELSEWHERE = frozenset(
    {
        "--storage",
        "--settings",
        "--handlers",
        "--redact",
        "--queues",
        "--queue-patterns",
        "--processes",
        "--concurrency",
        "--max-jobs-per-process",
        "--max-memory-per-process",
    }
)
"""Settings of the whole deployment, which have variables of their own."""


def read_from_environment(command: click.Command, words: tuple[str, ...] = ()) -> None:
    """Let each option of a command, and of all below, be given by a variable too.

    What is typed wins. An option that names a variable keeps that name.
    """
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.envvar is None and words:
            parameter.envvar = variable_for(words, parameter)
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            read_from_environment(each, (*words, name))


def variable_for(words: tuple[str, ...], option: click.Option) -> str | None:
    """Return the variable of an option, or None for those that have none."""
    longest = max(option.opts, key=len)
    if option.hidden or longest in TYPED_ONLY | ELSEWHERE:
        return None
    parts = (*words, longest.removeprefix("--"))
    return PREFIX + "_".join(parts).replace("-", "_").upper()
