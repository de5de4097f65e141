"""Modules of the conformance suite whose statements the two SQL stores share."""

from types import FunctionType

SHARED_STATEMENTS = (
    "actions",
    "again",
    "allocations",
    "bookkeeping",
    "bounded_lists",
    "bulk",
    "checkpoints",
    "children",
    "config_store",
    "cooldowns",
    "cron_store",
    "deleting",
    "due_kinds",
    "editing",
    "expired_holders",
    "failures",
    "flow_totals",
    "hand_backs",
    "hostile_input",
    "hours",
    "kin",
    "leader",
    "letters",
    "list_orders",
    "looks",
    "not_kept",
    "operator_events",
    "operators",
    "overruled",
    "place",
    "place_in_queue",
    "pod_requests",
    "proc_store",
    "progress",
    "queue_retry",
    "reads",
    "report",
    "requeued_children",
    "restore",
    "retention",
    "retry_time",
    "revive",
    "routes",
    "series",
    "set_back",
    "summaries",
    "unique_keys",
    "unique_modes",
    "unique_windows",
    "unknown_kinds",
)
"""Modules about what Postgres does by the statements that SQLite runs every day. ``make test-all``
tries them on Postgres too, and the model tries each verb there every day. The rest of the
conformance suite is about other statements: the short ways of Postgres store no unique keys.
"""

_AT_ONCE = frozenset({"create_task_group", "gather"})
"""Names in a test that makes calls at once, which meet the locks of Postgres."""

_SHORTER_UNPOOLED = frozenset(
    {
        "config_store",
        "cron_store",
        "leader",
        "pod_requests",
        "proc_store",
        "revive",
        "unknown_kinds",
    }
)
"""Modules among them whose calls have a shorter way where no pooler stands in between."""


def shares_statements(node_id: str, function: FunctionType) -> bool:
    """Return whether a test is about such statements, with no two calls at once."""
    files = (f"conformance/test_{name}.py" for name in SHARED_STATEMENTS)
    is_one = any(name in node_id for name in files)
    return is_one and not _AT_ONCE.intersection(function.__code__.co_names)


def is_as_unpooled(node_id: str, function: FunctionType) -> bool:
    """Return whether a test shows behind a pooler what the same test shows without one.

    Such a test prepares jobs by enqueues, claims and ends, which are scripts behind a pooler. Their
    own modules are tried there. The call under test is the same script on both ways.
    """
    shorter = any(f"conformance/test_{name}.py" in node_id for name in _SHORTER_UNPOOLED)
    return shares_statements(node_id, function) and not shorter
