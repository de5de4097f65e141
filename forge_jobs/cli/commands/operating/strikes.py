"""``forge-jobs strikes``: rules that keep jobs from running."""

import click

from forge_jobs.cli.options import deployment_options, json_option, with_operator
from forge_jobs.cli.output import emit_json, emit_table, talk
from forge_jobs.config import Deployment
from forge_jobs.model.names import check_name
from forge_jobs.model.strikes import Effect, Strike, StrikeRule
from forge_jobs.operating.jobs.strikes import in_words
from forge_jobs.policy import remedies


@click.group()
def strikes() -> None:
    """Strikes: rules that keep jobs from running, by kind or by payload."""


@strikes.command("list")
@json_option
@deployment_options
def list_strikes(deployment: Deployment, as_json: bool) -> None:
    """List all strikes, with who set them and why."""
    found = with_operator(deployment, lambda operator: operator.list_strikes())
    if as_json:
        emit_json(found)
        return
    columns = ["strike", "kind", "where", "effect", "by", "reason"]
    emit_table(columns, [_line(each) for each in found.strikes], none="There is no strike.")


def _line(strike: Strike) -> list[object]:
    rule = strike.rule
    if strike.unreadable:
        return [strike.name, "", "", "none", "", f"cannot be read: {strike.unreadable}"]
    return [strike.name, rule.kind or "any", rule.where, rule.effect, strike.by, rule.reason]


@strikes.command()
@click.argument("name")
@click.option("--kind", default="", help="Of the jobs. Every kind when left out.")
@click.option(
    "--where", default="", metavar="FIELD OPERATOR JSON", help="""As 'amount between [10, 20]'."""
)
@click.option("--cancel", is_flag=True, help="Cancel the jobs instead of holding them.")
@click.option("--reason", default="", help="For people. Shown wherever the strike is.")
@click.option("--preview", is_flag=True, help="Count the waiting jobs that are meant. Set nothing.")
@json_option
@deployment_options
def add(
    deployment: Deployment, name: str, cancel: bool, preview: bool, as_json: bool, **rule_of: str
) -> None:
    """Hold the jobs that are meant before they run, or cancel them.

    Operators are ==, !=, <, <=, >, >=, in and between.
    """
    check_name("name", name)
    effect = Effect.CANCEL if cancel else Effect.HOLD
    rule = StrikeRule(effect=effect, **rule_of)
    if preview:
        meant = with_operator(
            deployment,
            lambda operator: operator.preview_strike(kind=rule.kind, where=rule.where),
        )
        if as_json:
            emit_json(meant)
        else:
            talk(f"{name}: {in_words(meant, rule)} Nothing is set.")
        return
    strike = with_operator(
        deployment, lambda operator: operator.add_strike(name, rule), create=True
    )
    if as_json:
        emit_json(strike)
        return
    talk(f"{name}: set. Lift it with: {remedies.lift_strike(name)}")


@strikes.command()
@click.argument("name")
@json_option
@deployment_options
def lift(deployment: Deployment, name: str, as_json: bool) -> None:
    """Lift a strike. Jobs that it held are ready."""
    check_name("name", name)
    lifted = with_operator(deployment, lambda operator: operator.lift_strike(name))
    if as_json:
        emit_json(lifted)
        return
    talk(f"{lifted.name}: lifted. Jobs that it held are ready.")
