"""The plugin in runs of pytest as users have them."""

import subprocess
import sys
from contextlib import closing

import psycopg
import pytest
from redis import Redis

from tests.support import servers

pytest_plugins = ["pytester"]
pytestmark = [pytest.mark.processes]

_PROGRAM = """
from forge_jobs import HandlerRegistry, JobContext

handlers = HandlerRegistry()

@handlers.job("mail.receipt", queue="mail")
async def send_receipt(ctx: JobContext, order: int) -> str:
    return f"{order} in attempt {ctx.attempt}"
"""

_BODY = """
    await forge_kit.enqueue(send_receipt.request(7))
    async with JobClient(forge_storage, handlers) as client:
        await client.enqueue(send_receipt.request(8))
    await forge_kit.assert_enqueued(send_receipt, count=2)
    assert (await forge_kit.drain()).counts == {"done": 2}
    assert await forge_kit.run_inline(send_receipt, 9) == "9 in attempt 1"
"""

_IMPORTS = """
import pytest
from forge_jobs import JobClient
from shop_jobs import handlers, send_receipt
"""

_ANYIO = f"""{_IMPORTS}
@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.mark.anyio
@pytest.mark.parametrize("time", range(2))
async def test_under_anyio(forge_kit, forge_storage, time):{_BODY}"""

_ASYNCIO = f"""{_IMPORTS}
@pytest.mark.asyncio
@pytest.mark.parametrize("time", range(2))
async def test_under_asyncio(forge_kit, forge_storage, time):{_BODY}

@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("time", range(2))
async def test_on_one_loop(forge_kit, forge_storage, time):{_BODY}"""

_SYNC = f"""{_IMPORTS}
@pytest.mark.parametrize("time", range(2))
def test_without_a_loop(forge_kit, forge_storage, time):
    forge_kit.sync.enqueue(send_receipt.request(7))
    forge_kit.sync.assert_enqueued("mail.receipt", payload={{"order": 7}}, count=1)
    assert forge_kit.sync.drain().counts == {{"done": 1}}
"""

_SETTINGS = """
[pytest]
forge_handlers = shop_jobs:handlers
filterwarnings = error
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project with handlers, named in the settings of pytest."""
    pytester.makepyfile(shop_jobs=_PROGRAM)
    pytester.makeini(_SETTINGS)
    pytester.syspathinsert()
    return pytester


def run(project: pytest.Pytester, *options: str) -> pytest.RunResult:
    """Run pytest in a process of its own, as at a shell."""
    if "no:asyncio" not in options:
        # Else pytest-asyncio warns of a default that will change.
        options = (*options, "-o", "asyncio_default_fixture_loop_scope=function")
    # These plugins take longer to import than the tests take.
    without = ("cacheprovider", "hypothesispytest", "schemathesis", "valkey")
    given = [option for name in without for option in ("-p", f"no:{name}")]
    return project.runpytest_subprocess(*given, *options)


@pytest.mark.daily
def test_under_anyio(project: pytest.Pytester) -> None:
    project.makepyfile(test_anyio=_ANYIO)
    run(project, "-p", "no:asyncio").assert_outcomes(passed=2)


@pytest.mark.parametrize("mode", [pytest.param("strict", marks=pytest.mark.long), "auto"])
def test_under_pytest_asyncio(project: pytest.Pytester, mode: str) -> None:
    project.makepyfile(test_asyncio=_ASYNCIO)
    run(project, f"--asyncio-mode={mode}").assert_outcomes(passed=4)


@pytest.mark.long
def test_without_a_loop(project: pytest.Pytester) -> None:
    project.makepyfile(test_sync=_SYNC)
    run(project, "-p", "no:asyncio", "-p", "no:anyio").assert_outcomes(passed=2)


@pytest.mark.long
def test_all_together_under_xdist(project: pytest.Pytester) -> None:
    project.makepyfile(test_anyio=_ANYIO, test_asyncio=_ASYNCIO, test_sync=_SYNC)
    run(project, "-n", "2").assert_outcomes(passed=8)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["postgres", "redis"])
def test_on_a_shared_server_all_together_under_xdist(project: pytest.Pytester, kind: str) -> None:
    url = servers.postgres_url() if kind == "postgres" else servers.redis_url()
    project.makepyfile(test_anyio=_ANYIO, test_asyncio=_ASYNCIO, test_sync=_SYNC)
    mine = f"{url}?{'schema' if kind == 'postgres' else 'prefix'}=of_{kind}"
    run(project, "-n", "2", f"--forge-storage={mine}").assert_outcomes(passed=8)
    if kind == "postgres":
        with psycopg.connect(url) as connection:
            query = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'of_postgres%'"
            assert connection.execute(query).fetchall() == []
    else:
        with closing(Redis.from_url(url)) as client:
            assert list(client.scan_iter(match="of_redis*")) == []


def test_the_settings_name_a_store_and_a_fixture_another(project: pytest.Pytester) -> None:
    project.makeini(_SETTINGS + "forge_storage = sqlite:///of_settings.db\n")
    project.makepyfile(
        test_settings="""
def test_of_the_settings(forge_kit):
    assert "of_settings-" in forge_kit.url
""",
        test_fixture="""
import pytest

@pytest.fixture(params=["sqlite:///of_fixture.db", ""])
def forge_storage_url(request):
    return request.param

def test_of_a_fixture(forge_kit, forge_storage_url):
    assert ("of_fixture-" in forge_kit.url) == bool(forge_storage_url)
""",
    )
    run(project).assert_outcomes(passed=3)
    assert list(project.path.glob("of_*")) == []


@pytest.mark.long
def test_a_kind_of_store_is_a_server_that_is_started(project: pytest.Pytester) -> None:
    project.makepyfile(test_sync=_SYNC)
    run(project, "--forge-storage=redis").assert_outcomes(passed=2)


@pytest.mark.long
def test_a_fixture_names_the_registry_too(project: pytest.Pytester) -> None:
    project.makeini("")
    project.makeconftest(
        "import pytest, shop_jobs\n"
        "@pytest.fixture\n"
        "def forge_handlers():\n"
        "    return shop_jobs.handlers\n"
    )
    project.makepyfile(test_sync=_SYNC)
    run(project).assert_outcomes(passed=2)


def test_a_missing_registry_is_an_error_that_says_what_to_write(project: pytest.Pytester) -> None:
    project.makeini("")
    project.makepyfile(test_sync=_SYNC)
    result = run(project)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*forge_handlers = my_package.jobs:handlers*"])


def test_a_failed_assertion_shows_what_is_stored(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_wrong=f"""{_IMPORTS}
def test_wrong(forge_kit):
    forge_kit.sync.enqueue(send_receipt.request(7))
    forge_kit.sync.assert_enqueued(send_receipt, payload={{"order": 8}})
"""
    )
    result = run(project)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*expected a job with kind 'mail.receipt', payload {'order': 8}; found none.",
            "*mail.receipt {'order': 7} in queue mail: pending*(payload*is 7, not 8)",
        ]
    )


def test_who_does_not_use_the_plugin_imports_nothing_of_forge_jobs(
    project: pytest.Pytester,
) -> None:
    project.makeini("")
    project.makepyfile(
        test_other="""
import sys

def test_other():
    loaded = [name for name in sys.modules if name.startswith("forge_jobs")]
    assert loaded == ["forge_jobs_pytest"]
"""
    )
    run(project).assert_outcomes(passed=1)


@pytest.mark.daily
def test_the_package_and_the_kit_import_no_pytest() -> None:
    program = (
        "import sys, forge_jobs.testing as t; t.Kit, t.fake_context; print('pytest' in sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout == "False\n"
