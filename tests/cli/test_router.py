"""The router that a setting names."""

import pytest

from forge_jobs.cli.loading import load_router
from forge_jobs.config import Deployment
from forge_jobs.errors import ConfigError


def routed(setting: str, kind: str = "gh.sync") -> str | None:
    router = load_router(Deployment.from_environment({"FORGE_ROUTER": setting}))
    return None if router is None else router(kind)


def by_length(kind: str) -> str | None:
    return "long" if len(kind) > 3 else None


def test_the_setting_names_the_prefix_a_function_or_nothing() -> None:
    assert routed("") is None
    assert routed("prefix") == "gh"
    assert routed("tests.cli.test_router:by_length") == "long"
    assert routed("tests.cli.test_router:by_length", "gh") is None


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("prefixes", "FORGE_ROUTER: 'prefixes' is no router; give prefix or module:attribute"),
        ("tests.cli.test_router:nothing", "has no attribute 'nothing'"),
        ("tests.cli.test_router:__name__", "is a str; name a function that takes a kind"),
    ],
)
def test_a_setting_that_names_no_router_is_refused(setting: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        routed(setting)
