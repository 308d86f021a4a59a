"""The page in headless Chromium (Debian's): a chat that streams, stops, is edited; the wave; nothing from elsewhere."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from emel.server.settings import Settings
from server.conftest import serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from server.conftest import Server

pytestmark = [pytest.mark.model, pytest.mark.slow]

PARIS = "The capital of France is Paris."
SECONDS = 60_000  # milliseconds: the machine may be busy


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium")
    if path is None:
        if os.environ.get("CI"):
            pytest.fail("chromium is missing: apt-get install chromium")
        pytest.skip("chromium is not installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, server: Server) -> Iterator[Page]:
    """The page, open; afterwards no error must have been said and nothing asked of anybody else."""
    page = browser.new_page()
    page.set_default_timeout(SECONDS)
    expect.set_options(timeout=SECONDS)
    errors: list[str] = []
    asked: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{server.url}/")
    expect(page.locator("#model option")).to_have_text("smollm2")
    page.locator("#settings summary").click()
    page.locator("#temperature").fill("0")
    yield page
    page.close()
    assert not errors
    assert all(url.startswith(server.url) for url in asked)


def ask(page: Page, text: str) -> None:
    page.locator("#text").fill(text)
    page.locator("#text").press("Enter")


def test_an_answer_streams_and_its_figures_are_told(page: Page) -> None:
    ask(page, "What is the capital of France?")
    expect(page.locator(".assistant .body")).to_have_text(PARIS)
    expect(page.locator("#figures")).to_contain_text("tokens/s")
    expect(page.locator("#figures")).to_contain_text("first token")
    page.locator("#retry").click()
    expect(page.locator(".message")).to_have_count(2)
    expect(page.locator(".assistant .body")).to_have_text(PARIS)


def test_a_question_is_edited_and_asked_again(page: Page) -> None:
    ask(page, "What is the capital of Germany?")
    expect(page.locator("#retry")).to_be_enabled()
    page.get_by_role("button", name="Edit message 1").click()
    expect(page.locator("#text")).to_have_value("What is the capital of Germany?")
    expect(page.locator(".message")).to_have_count(0)
    ask(page, "What is the capital of France?")
    expect(page.locator(".assistant .body")).to_have_text(PARIS)


def test_escape_stops_an_answer_and_frees_its_lane(page: Page, server: Server) -> None:
    ask(page, "Write a very long story about a fox who counts to a thousand.")
    expect(page.locator(".assistant .body")).not_to_be_empty()
    page.locator("#text").press("Escape")
    expect(page.locator("#stop")).to_be_disabled()
    page.get_by_role("tab", name="Wave").click()
    expect(page.locator("#wave-figures")).to_contain_text("0 of 8 lanes")
    assert not server.model.wave.snapshot().lanes


def test_the_wave_and_the_states_of_a_machine_are_drawn(page: Page) -> None:
    ask(page, "Write a very long story about a fox who counts to a thousand.")
    page.get_by_role("tab", name="Wave").click()
    expect(page.locator("#lanes tbody tr")).to_have_count(1)
    expect(page.locator("#wave-figures")).to_contain_text("the last computed 1 token")
    expect(page.locator("#wave-figures")).not_to_contain_text("1 tokens")
    expect(page.locator("#diagram [data-state='DECODING'].lit")).to_have_count(1)
    expect(page.locator("#doc code")).to_have_text(["context.ids", "text", "error"])
    expect(page.locator("#doc")).not_to_contain_text("`")
    page.locator("#machine").select_option("WavefrontMachine")
    page.locator("#follow").check()
    expect(page.locator("#diagram .lit")).to_have_count(1)
    expect(page.locator("#steps li").first).to_be_visible()
    page.get_by_role("tab", name="Chat").click()
    page.locator("#stop").click()


def test_a_server_with_keys_asks_for_one_and_goes_on(browser: Browser, smollm2_path: Path) -> None:
    with serving(smollm2_path, Settings(api_keys=("secret",))) as server:
        page = browser.new_page()
        page.set_default_timeout(SECONDS)
        page.goto(f"{server.url}/")
        expect(page.locator("#key")).to_be_focused()
        expect(page.locator("#notice")).to_contain_text("enter this server's key below")
        page.locator("#temperature").fill("0")
        ask(page, "What is the capital of France?")
        expect(page.locator("#key")).to_be_focused()
        page.locator("#key").fill("wrong")
        page.locator("#key").press("Enter")
        expect(page.locator("#notice")).to_contain_text("not a key of this server")
        page.locator("#key").fill("secret")
        page.locator("#key").press("Enter")
        expect(page.locator(".assistant .body")).to_have_text(PARIS)
        expect(page.locator("#notice")).to_be_empty()
        page.locator("#key").fill("")
        page.get_by_role("tab", name="Wave").click()
        expect(page.locator("#key")).to_be_focused()
        page.locator("#key").fill("secret")
        page.locator("#key").press("Enter")
        expect(page.locator("#wave-figures")).to_contain_text("of 8 lanes")
        page.close()


def test_a_gentle_temperature_is_told_and_can_be_left_to_the_server(browser: Browser, server: Server) -> None:
    page = browser.new_page()
    page.goto(f"{server.url}/")
    expect(page.locator("#given")).to_have_text("temperature 0.2")
    page.locator("#settings summary").click()
    page.get_by_role("button", name="The server's values").click()
    expect(page.locator("#temperature")).to_have_value("")
    expect(page.locator("#given")).to_have_text("the server's own values")
    with page.expect_request("**/v1/chat/completions") as sent:
        ask(page, "Hi")
    assert "temperature" not in json.loads(sent.value.post_data or "")
    page.locator("#stop").click(force=True)
    page.close()


def test_an_error_is_told_in_the_servers_words(page: Page) -> None:
    page.locator("#temperature").fill("1000")
    ask(page, "Hi")
    expect(page.locator("#notice")).to_contain_text("temperature is 1000")
    expect(page.locator(".message.assistant")).to_have_count(0)


def test_tabs_and_theme_answer_to_the_keyboard(page: Page) -> None:
    page.get_by_role("tab", name="Chat").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Wave")).to_be_focused()
    expect(page.locator("#wave")).to_be_visible()
    page.locator("#theme").press("Enter")
    assert page.locator("html").get_attribute("data-theme") in ("dark", "light")


def test_what_a_model_or_user_writes_is_never_markup(page: Page) -> None:
    ask(page, "<img src=x onerror=alert(1)>")
    expect(page.locator(".user .body")).to_have_text("<img src=x onerror=alert(1)>")
    assert page.locator(".message img").count() == 0
    page.locator("#stop").click(force=True)
