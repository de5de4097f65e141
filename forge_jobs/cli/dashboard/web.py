"""``forge-jobs web``: serve the API and the dashboard."""

import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from forge_jobs.cli.logs import configure_logging
from forge_jobs.cli.options import deployment_options, json_option, storage_url
from forge_jobs.cli.output import emit_json, emit_table, talk
from forge_jobs.config import Deployment
from forge_jobs.errors import ConfigError

if TYPE_CHECKING:
    from forge_jobs.web.alone.users import User

T = TypeVar("T")

_MISSING = "the dashboard is not installed; run pip install 'forge-jobs[web]'"


def need_web() -> None:
    """:raises ConfigError: the extra is not installed"""
    from importlib.util import find_spec

    if any(find_spec(name) is None for name in ("starlette", "uvicorn")):
        raise ConfigError(_MISSING)


_users_option: Callable[[Callable[..., T]], Callable[..., T]] = click.option(
    "--users",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="FORGE_WEB_USERS",
    help="The file of users (FORGE_WEB_USERS).",
)


@click.group(invoke_without_command=True)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    envvar="FORGE_WEB_HOST",
    help="The address to serve at (FORGE_WEB_HOST).",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8642,
    show_default=True,
    envvar="FORGE_WEB_PORT",
    help="The port (FORGE_WEB_PORT).",
)
@_users_option
@click.option(
    "--allow-host",
    "allowed",
    default="",
    envvar="FORGE_WEB_ALLOW_HOST",
    metavar="NAME,...",
    help="Names under which browsers reach this server (FORGE_WEB_ALLOW_HOST).",
)
@click.option(
    "--proxy-header",
    default="",
    envvar="FORGE_WEB_PROXY_HEADER",
    metavar="NAME",
    help="The header in which a proxy names the caller (FORGE_WEB_PROXY_HEADER).",
)
@click.option(
    "--proxy-from",
    default="",
    envvar="FORGE_WEB_PROXY_FROM",
    metavar="ADDRESS,...",
    help="The addresses of that proxy (FORGE_WEB_PROXY_FROM).",
)
@click.option(
    "--redact",
    default="",
    envvar="FORGE_WEB_REDACT",
    metavar="NAME,...",
    help="Fields to hide, as password,card.number (FORGE_WEB_REDACT, else FORGE_REDACT).",
)
@deployment_options
@click.pass_context
def web(
    context: click.Context,
    *,
    deployment: Deployment,
    host: str,
    port: int,
    users: Path | None,
    allowed: str,
    proxy_header: str,
    proxy_from: str,
    redact: str,
) -> None:
    """Serve the dashboard and the HTTP API until a signal."""
    if context.invoked_subcommand is not None:
        return
    need_web()
    import asyncio

    from forge_jobs.web.alone.server import WebOptions, address_of, serve

    options = WebOptions(
        host=host,
        port=port,
        users=users,
        allowed_hosts=_names(allowed),
        redact=_names(redact) or deployment.redact,
        proxy_header=proxy_header,
        proxy_from=_names(proxy_from),
    )
    configure_logging(deployment)
    serving = serve(storage_url(deployment), options)
    talk(address_of(host, port))
    asyncio.run(serving)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


@web.group()
def user() -> None:
    """Users of the dashboard: names, passwords, tokens and rights."""


@user.command()
@click.argument("name")
@_users_option
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")
@click.option("--token", "with_token", is_flag=True, help="Make a token, and print the token.")
@click.option("--no-password", is_flag=True, help="The user signs in by token or proxy only.")
@click.option("--action", "actions", multiple=True, help="An action, as cancel_jobs, or '*'.")
@click.option("--queue", "queues", multiple=True, help="Only this queue. May be repeated.")
@click.option("--payloads", is_flag=True, help="May read payloads and results.")
@json_option
def add(
    *,
    name: str,
    users: Path | None,
    password_stdin: bool,
    with_token: bool,
    no_password: bool,
    actions: tuple[str, ...],
    queues: tuple[str, ...],
    payloads: bool,
    as_json: bool,
) -> None:
    """Add a user, or replace the one of that name. Without --action the user may only read."""
    need_web()
    from forge_jobs.web.alone.users import User, check_user_name, hashed, write_user

    check_user_name(name)
    path = _path(users)
    password = "" if no_password else _password(from_stdin=password_stdin)
    secret = secrets.token_urlsafe(24) if with_token else ""
    write_user(
        path,
        User(
            name=name,
            password=hashed(password) if password else "",
            token=hashed(secret) if secret else "",
            actions=actions,
            queues=queues or None,
            payloads=payloads,
        ),
    )
    if as_json:
        emit_json({"name": name, "token": f"{name}.{secret}" if secret else None})
        return
    talk(f"{name}: written to {path.name}")
    if secret:
        click.echo(f"{name}.{secret}")


@user.command()
@click.argument("name")
@_users_option
@json_option
def remove(name: str, users: Path | None, as_json: bool) -> None:
    """Remove a user. Takes effect at the next request."""
    need_web()
    from forge_jobs.web.alone.users import remove_user

    if not remove_user(_path(users), name):
        raise ConfigError(f"{name[:40]!r} is no user of the file; see forge-jobs web user list")
    if as_json:
        emit_json({"name": name})
        return
    talk(f"{name}: removed")


@user.command("list")
@_users_option
@json_option
def list_users(users: Path | None, as_json: bool) -> None:
    """List users and their rights."""
    need_web()
    from forge_jobs.web.alone.users import read_users

    found = read_users(_path(users)).users
    if as_json:
        emit_json({"users": [_rights(each) for each in found]})
        return
    rows = [
        [
            each.name,
            " ".join(part for part in ("password", "token") if getattr(each, part)) or "proxy",
            ", ".join(each.actions) or "read only",
            "all" if each.queues is None else ", ".join(each.queues),
            "yes" if each.payloads else "",
        ]
        for each in found
    ]
    emit_table(["user", "signs in by", "actions", "queues", "payloads"], rows, none="No user.")


def _rights(user: "User") -> dict[str, object]:
    """Return what a user may do, without hashes."""
    return {
        "name": user.name,
        "signs_in_by": [way for way in ("password", "token") if getattr(user, way)] or ["proxy"],
        "actions": user.actions,
        "queues": user.queues,
        "payloads": user.payloads,
    }


def _path(users: Path | None) -> Path:
    if users is None:
        raise ConfigError("no file of users is named; give --users FILE, or set FORGE_WEB_USERS")
    return users


def _password(*, from_stdin: bool) -> str:
    from forge_jobs.web.alone.users import check_password

    if from_stdin:
        return check_password(sys.stdin.readline().rstrip("\r\n"))
    typed: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    return check_password(typed)
