"""Pages in Chromium: two schemes, two widths, with and without JavaScript, and by keyboard."""

from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.async_api import Browser, Page, expect

from tests.browser.addresses import pages_of
from tests.browser.conftest import Site, serving

pytestmark = pytest.mark.anyio

Scheme = Literal["light", "dark"]
AXE = Path(__file__).parent / "vendor" / "axe.min.js"
RULES_OF: dict[Scheme, dict[str, Any]] = {
    "light": {},
    # The other rules see no colours, and find in light pages what they would find here.
    "dark": {"runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}},
}


def addresses(site: Site) -> dict[str, str]:
    """Return the addresses of the pages by name."""
    return pages_of(site.scene.jobs, site.scene.pod, site.actions, site.groups)


class Watched:
    """A page whose complaints are kept."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        page.on("console", lambda message: self._heard(message.type, message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _heard(self, kind: str, text: str) -> None:
        # Chromium writes a line for a page that is answered 404 or 400, as two here are on purpose.
        if kind in ("error", "warning") and "status of 40" not in text:
            self.complaints.append(text)


async def look(
    browser: Browser,
    site: Site,
    scheme: Scheme = "light",
    width: int = 1280,
    *,
    scripts: bool = True,
    again: bool = False,
) -> None:
    """Open each page, which must fit, complain of nothing, and be readable for all.

    :param again: load each page a second time, with what Chromium has kept of the first
    """
    context = await browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme=scheme,
        java_script_enabled=scripts,
        bypass_csp=False,
    )
    watched = Watched(await context.new_page())
    page = watched.page
    for name, path in addresses(site).items():
        await page.goto(site.address + path)
        await expect(page.locator("h1")).to_be_visible()
        if again:
            await page.reload()
        box = await page.locator("body").bounding_box()
        assert box is not None
        assert box["width"] <= width, name
        if scripts:
            scrolls = await page.evaluate("document.documentElement.scrollWidth")
            assert scrolls <= width, f"{name} scrolls sideways: {scrolls} of {width}"
        assert watched.complaints == [], name
    await context.close()


# A scheme changes colours alone (tests/web/test_schemes.py): dark is opened at one width.
@pytest.mark.parametrize(
    ("scheme", "width", "scripts"),
    [
        ("light", 1280, True),
        ("light", 1280, False),
        ("light", 390, True),
        ("light", 390, False),
        ("dark", 1280, True),
    ],
)
async def test_each_page_fits_and_complains_of_nothing(
    browser: Browser, site: Site, scheme: Scheme, width: int, scripts: bool
) -> None:
    await look(browser, site, scheme, width, scripts=scripts, again=scripts)


@pytest.mark.parametrize("backend", ["postgres", "redis", "redis-cluster"])
async def test_each_page_on_the_other_stores(
    browser: Browser, tmp_path: Path, backend: str
) -> None:
    async with serving(backend, tmp_path) as site:
        await look(browser, site)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
async def test_axe_finds_no_violation(
    browser: Browser, site: Site, scheme: Scheme, width: int
) -> None:
    context = await browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme
    )
    page = await context.new_page()
    source = AXE.read_text()
    found: dict[str, Any] = {}
    for name, path in addresses(site).items():
        await page.goto(site.address + path)
        # Evaluated by the debugger, which the policy of the page does not concern.
        await page.evaluate(source)
        result = await page.evaluate("(options) => axe.run(options)", RULES_OF[scheme])
        for each in result["violations"]:
            found[f"{name}: {each['id']}"] = [node["html"][:120] for node in each["nodes"][:2]]
    assert found == {}
    await context.close()


async def test_an_action_by_clicks_without_scripts(browser: Browser, site: Site) -> None:
    context = await browser.new_context(java_script_enabled=False)
    page = await context.new_page()
    await page.goto(f"{site.address}/jobs?q=queue:gh+status:dead")
    await page.locator("input[name=id]").first.check()
    await page.get_by_role("button", name="Requeue selected").click()
    await expect(page.locator("h1")).to_have_text("Requeue 1 job")
    await page.get_by_role("button", name="Requeue 1 job").click()
    await expect(page.locator("main")).to_contain_text("1 job requeued")
    await page.get_by_role("link", name="Go on").click()
    await expect(page.locator(".id").first).to_be_visible()
    await context.close()


async def test_a_queue_is_resumed_by_keyboard_alone(browser: Browser, site: Site) -> None:
    page = await browser.new_page()
    await page.goto(f"{site.address}/queues/mail")
    await _to(page, "Resume")
    await page.keyboard.press("Enter")
    await expect(page.locator("h1")).to_have_text("Resume mail")
    await _to(page, "Resume mail")
    await page.keyboard.press("Enter")
    await expect(page.locator("h1")).to_have_text("Done")
    await _to(page, "Go on")
    await page.keyboard.press("Enter")
    await expect(page.locator("main")).not_to_contain_text("paused")


async def _to(page: Page, text: str) -> None:
    """Press Tab until a button or link with this text has the focus."""
    for _ in range(80):
        await page.keyboard.press("Tab")
        focused = page.locator(":focus")
        if (await focused.inner_text()).strip() == text:
            return
    raise AssertionError(f"the keyboard never reaches {text!r}")


async def test_the_policy_of_the_pages_stops_foreign_code(browser: Browser, site: Site) -> None:
    """Break the rule on purpose: an inline script and style do nothing and are complained of."""
    watched = Watched(await browser.new_page())
    await watched.page.goto(site.address)
    await watched.page.evaluate(
        """() => {
            const script = document.createElement("script");
            script.textContent = "document.title = 'taken'";
            document.body.append(script);
            document.body.setAttribute("style", "color: red");
        }"""
    )
    assert await watched.page.title() != "taken"
    assert any("Content Security Policy" in each for each in watched.complaints)


@pytest.mark.parametrize("prefix", ["/admin/jobs", "/a, b; c/\u00fc"])
async def test_files_of_the_host_application_do_not_run_in_the_pages(
    browser: Browser, tmp_path: Path, prefix: str
) -> None:
    async with serving("sqlite", tmp_path, prefix) as site:
        page = await browser.new_page()
        await page.goto(f"{site.address}/")
        assert await page.evaluate("document.styleSheets[0].cssRules.length") > 10
        own = await page.locator("link[rel=stylesheet]").first.get_attribute("href")
        host = site.address.removesuffix(prefix)
        elsewhere = host.replace("127.0.0.1", "localhost")
        loaded = await page.evaluate(
            """(addresses) => Promise.all(addresses.map((address) => new Promise((resolve) => {
                const isScript = address.endsWith(".js");
                const element = document.createElement(isScript ? "script" : "link");
                element.rel = "stylesheet";
                element[isScript ? "src" : "href"] = address;
                element.onload = () => resolve(true);
                element.onerror = () => resolve(false);
                document.head.append(element);
            })))""",
            [own, f"{host}/uploads/x.js", f"{host}/uploads/x.css", f"{elsewhere}{own}"],
        )
        assert loaded == [True, False, False, False]
        assert await page.title() != "taken"
