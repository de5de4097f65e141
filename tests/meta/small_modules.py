"""Modules under 40 lines, and why each is a module: the check is in ``module_sizes``.

A small module makes a reader open one more file, so each needs a reason. Files of packages
(``__init__.py``) are not counted.
"""

SMALL = 40

REASONS = {
    "a command, found by the word that people type": [
        "cli/commands/backup",
        "cli/commands/completion",
        "cli/commands/operating/hints",
        "cli/commands/operating/kin",
        "cli/commands/operating/me",
        "cli/commands/operating/reveal",
        "cli/commands/operating/store",
    ],
    "a page or an address, found by its name": [
        "web/health",
        "web/metrics",
        "web/pages/job/columns",
        "web/pages/job/revealing",
    ],
    "a name that other programs import or start": [
        "__main__",
        "alembic",
        "handlers/recurring",
        "runtime/pod/stop_report",
        "testing/kit/clock",
    ],
    "needed by modules that must not import each other": [
        "handlers/durations",
        "model/sweeps",
        "operating/words",
        "policy/randomness",
        "runtime/shared/clean_texts",
        "runtime/shared/failure_texts",
        "runtime/shared/handing_back",
        "storage/batches",
        "storage/deleting",
        "storage/elsewhere",
        "storage/set_back",
        "storage/sql/hot/parts",
        "storage/sql/sqlite/pragmas",
        "web/access",
        "web/pages/forms/sending",
        "web/values",
    ],
    "a room that each subject or each store has under this name": [
        "operating/actions/documents",
        "operating/errors/documents",
        "operating/kinds/documents",
        "storage/redis/actions/calls",
        "storage/redis/config/limit_keys",
        "storage/redis/actions/steps",
        "storage/redis/driver/messages",
        "storage/redis/driver/reporting",
        "storage/redis/jobs/unique_keys",
        "storage/redis/progress/steps",
        "storage/sql/base/unique_tables",
        "storage/sql/config/tables",
        "storage/sql/jobs/lists/numbers",
        "storage/sql/sqlite/opening",
    ],
    "a part of a protocol that a store may implement apart": [
        "storage/protocols/editing",
        "storage/protocols/looking",
        "storage/protocols/waiting",
    ],
    "one decision, or one rule of a loop, tried by itself": [
        "policy/bursts",
        "policy/dependencies",
        "policy/judgement/long_runs",
        "policy/seeds",
        "runtime/passes/depths",
        "runtime/pod/labels",
    ],
    "one way of a client, so that its large module stays within its limit": [
        "clients/removing",
    ],
    "one statement of PostgreSQL, beside the verb that has it": [
        "storage/sql/postgres/driver/literals",
        "storage/sql/postgres/short/many",
        "storage/sql/postgres/short/renewals",
        "storage/sql/postgres/short/schedules",
        "storage/sql/postgres/short/successes",
    ],
}
