"""A headless Chromium, and what the pages under test are made from."""

import os
import shutil

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_ADVICE = (
    "`make test-browser` finds no {what} on PATH: install Chromium and its driver "
    "(Debian, Ubuntu: apt install chromium chromium-driver; elsewhere Chrome and the chromedriver of its version)"
)
_FLAGS = (
    # No sandbox: in a container one is root, whom Chromium would refuse. It opens our own pages alone.
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    # Nothing here needs a network: without these the browser looks for its maker's servers at every start.
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic"),
)


def pytest_configure(config):
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    for what, path in (("Chromium or Chrome", browser), ("chromedriver", shutil.which("chromedriver"))):
        if path is None:
            pytest.exit(_ADVICE.format(what=what), returncode=2)


@pytest.fixture
def browser(tmp_path):
    """A browser window of 1280 x 900 that has nothing of an earlier one; its log is looked through at the end.

    Any message of level SEVERE fails the test: an exception in a page's script, or something that it wanted to load.
    """
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = next(filter(None, map(shutil.which, _BROWSERS)))
    for flag in (*_FLAGS, "--window-size=1280,900", f"--user-data-dir={tmp_path / 'chromium'}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        yield driver
        severe = [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    finally:
        driver.quit()
    assert severe == []
