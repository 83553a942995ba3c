"""The page in headless Chromium: sorting, filtering, opening cells, narrow and dark.

Without a browser these tests are skipped, unless PMBNN_BROWSER=1 says that there must be one.
"""

import json
import os
import shutil

import pandas as pd
import pytest
from hostile import INJECTIONS
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.wait import WebDriverWait
from typer.testing import CliRunner

from pmbnn.cli import app
from pmbnn.compare.contrasts import FILE, VERDICT_COLUMNS
from pmbnn.results.loading import load_results
from pmbnn.results.store import Results

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")

pytestmark = pytest.mark.skipif(
    not (BROWSER and DRIVER) and os.environ.get("PMBNN_BROWSER") != "1",
    reason="neither chromium nor google-chrome with its chromedriver is installed",
)

WIDE, NARROW = (1280, 900), (360, 740)


@pytest.fixture(scope="module")
def browser():
    assert BROWSER and DRIVER, "PMBNN_BROWSER=1 asks for chromium and chromedriver"
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in ("headless=new", "no-sandbox", "disable-gpu", "disable-background-networking",
                 "disable-dev-shm-usage"):  # fmt: skip
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def opened(browser, page):
    """The page, freshly opened, light and wide."""
    show(browser, page)
    return browser


def show(browser, page, size=WIDE, scheme="light"):
    width, height = size
    told = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", told)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    # On a busy machine the driver comes back while the page before this one still stands.
    browser.execute_script("window.before = true")
    browser.get(page.as_uri())
    loaded = "return !window.before && document.readyState === 'complete'"
    WebDriverWait(browser, 60).until(lambda _: browser.execute_script(loaded))


def find(browser, selector):
    return browser.find_element(By.CSS_SELECTOR, selector)


def columns(browser, table):
    return browser.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map(h => h.textContent.trim())",
        f"#{table} thead th",
    )


def shown(browser, table, column):
    """Words under a heading, of the rows that are shown."""
    at = columns(browser, table).index(column)
    script = (
        "return [...document.querySelectorAll(arguments[0])].filter(r => !r.hidden)"
        ".map(r => r.cells[arguments[1]].textContent.trim())"
    )
    return browser.execute_script(script, f"#{table} tbody tr", at)


def heading(browser, table, column):
    at = columns(browser, table).index(column) + 1
    return find(browser, f"#{table} thead th:nth-child({at})")


def focused(browser):
    return browser.switch_to.active_element


@pytest.mark.slow
def test_sorting(opened):
    head = heading(opened, "cells", "accuracy")
    button = head.find_element(By.TAG_NAME, "button")
    assert head.get_attribute("aria-sort") == "none"
    button.click()
    assert head.get_attribute("aria-sort") == "ascending"
    rising = [float(w.split()[0]) for w in shown(opened, "cells", "accuracy") if w]
    assert rising == sorted(rising) and len(set(rising)) > 5
    button.send_keys(Keys.ENTER)
    assert head.get_attribute("aria-sort") == "descending"
    falling = shown(opened, "cells", "accuracy")
    assert [float(w.split()[0]) for w in falling if w] == rising[::-1]
    assert falling[-1] == "", "the failed cell has none and comes last"
    other = heading(opened, "cells", "prior")
    other.find_element(By.TAG_NAME, "button").click()
    priors = shown(opened, "cells", "prior")
    assert priors == sorted(priors, key=str.lower)
    assert head.get_attribute("aria-sort") == "none"


@pytest.mark.slow
def test_filtering(opened):
    find(opened, "#cells-words").send_keys("laplace half")
    assert set(shown(opened, "cells", "prior")) == {"Laplace"}
    assert set(shown(opened, "cells", "hyperprior")) == {"half-normal"}
    count = find(opened, "#cells output")
    assert count.text == "2 of 10 cells"
    find(opened, "#cells-words").clear()
    at = columns(opened, "cells").index("status")
    choice = Select(find(opened, f"#cells-{at}"))
    choice.select_by_value("diverged")
    assert shown(opened, "cells", "status") == ["diverged"]
    choice.select_by_value("")
    assert count.text == "10 cells"


@pytest.mark.slow
def test_published_numbers_start_with_results(opened):
    assert set(shown(opened, "published", "kind")) == {"result"}
    at = columns(opened, "published").index("mark")
    Select(find(opened, f"#published-{at}")).select_by_visible_text("bound")
    assert set(shown(opened, "published", "mark")) == {"bound"}


@pytest.mark.slow
def test_opening_a_cell_by_keyboard(opened, make):
    button = find(opened, "#cells tbody [data-cell]")
    opened.execute_script("arguments[0].focus()", button)
    focused(opened).send_keys(Keys.ENTER)
    dialog = find(opened, "#detail")
    assert dialog.get_attribute("open") is not None
    assert focused(opened).get_attribute("id") == "detail-title"
    assert find(opened, "#detail-title").text.startswith("moons, noise 0.4: Normal prior")
    assert len(dialog.find_elements(By.CSS_SELECTOR, "svg")) == 2
    for words in ("Settings", "Restarts", "Scales tried", "dataset.noise", "it rose by 0.1"):
        assert words in dialog.text
    image = dialog.find_element(By.TAG_NAME, "img")
    WebDriverWait(opened, 5).until(lambda _: image.get_property("naturalWidth") > 0)
    focused(opened).send_keys(Keys.ESCAPE)
    WebDriverWait(opened, 5).until(lambda _: dialog.get_attribute("open") is None)
    assert focused(opened) == button


@pytest.mark.slow
def test_a_hostile_reason_is_text(opened, make):
    opened.execute_script("document.querySelectorAll('#cells tbody [data-cell]')[9].click()")
    assert make.hostile in find(opened, "#detail-content").text
    find(opened, "#detail-close").click()
    assert find(opened, "#detail").get_attribute("open") is None


@pytest.mark.slow
def test_maps_of_one_data_seed_at_a_time(opened):
    choice = Select(find(opened, "select[data-grids]"))
    assert find(opened, "#grid-0-0").is_displayed() and not find(opened, "#grid-0-1").is_displayed()
    choice.select_by_visible_text("1")
    assert find(opened, "#grid-0-1").is_displayed() and not find(opened, "#grid-0-0").is_displayed()
    heads = [e.text for e in opened.find_elements(By.CSS_SELECTOR, "#grid-0-1 thead th")]
    assert heads == ["fixed (tuned)", "half-normal"]
    find(opened, "#grid-0-1 .thumb").send_keys(Keys.SPACE)
    assert find(opened, "#detail-title").text.endswith("data seed 1")


@pytest.mark.slow
def test_figures_open_large(opened):
    find(opened, "#figure-0").click()
    assert "accuracy" in find(opened, "#detail-title").text
    assert find(opened, "#detail-content img").get_property("naturalWidth") == 300
    find(opened, "#detail-close").click()
    link = find(opened, "#published-section .index a")
    link.send_keys(Keys.ENTER)
    assert focused(opened).get_attribute("id") == link.get_attribute("data-show")


@pytest.fixture(scope="module")
def judged(make, tmp_path_factory):
    """A page whose experiment was sampled too, with a verdict of every colour."""
    folder = tmp_path_factory.mktemp("judged") / "trust"
    make.results(folder, make.records(), experiment="trust")
    rows = [
        make.contrast("normal: half-normal less fixed", "better", "distorts"),
        make.contrast(make.hostile, "undecided", "undecided", note="Few seeds."),
        make.contrast("cauchy: half-normal less fixed", "equivalent", "faithful"),
    ]
    Results(folder).write_table(FILE, pd.DataFrame(rows, columns=VERDICT_COLUMNS))
    load_results(folder).note_made([FILE])
    done = CliRunner().invoke(app, ["report", str(folder), "--out", str(folder.parent / "out")])
    assert done.exit_code == 0, done.output
    return folder.parent / "out" / "index.html"


@pytest.mark.slow
def test_verdicts_stand_after_the_predictions(browser, judged, make):
    show(browser, judged)
    sections = [
        e.get_attribute("id") for e in browser.find_elements(By.CSS_SELECTOR, "main > section")
    ]
    assert sections[:3] == ["answer-section", "predictions-section", "posterior-section"]
    section = find(browser, "#posterior-section")
    assert "Of 3 contrasts the posterior decides 2; ADVI is faithful in 1" in section.text
    rows = [
        [cell.text for cell in row.find_elements(By.CSS_SELECTOR, "th, td")]
        for row in section.find_elements(By.CSS_SELECTOR, ".forest tbody tr")
    ]
    assert [row[-1].split("\n") for row in rows] == [
        ["better", "distorts"], ["undecided", "undecided"],
        ["equivalent (within the margin)", "faithful"],
    ]  # fmt: skip
    assert rows[1][0] == f"{make.hostile}\nmoons, noise 0.4 (5 data seeds)"
    assert rows[0][2].split("\n")[0] == "posterior −0.0020 (−0.0030 to −0.0010)"
    kinds = ("best", "undecided", "equivalent")
    assert all(section.find_elements(By.CSS_SELECTOR, f".strip circle.{kind}") for kind in kinds)
    assert len(section.find_elements(By.CSS_SELECTOR, ".strip circle.advi")) == 3
    for folded in section.find_elements(By.CSS_SELECTOR, "summary"):
        folded.click()
    sentences = [item.text for item in section.find_elements(By.CSS_SELECTOR, "li")]
    assert sentences[0].endswith("ADVI distorts it, −0.0020 (−0.0030 to −0.0010) nats.")
    assert sentences[1].endswith("Few seeds.")
    assert "−0.0020" in find(browser, "#posterior-section .scroll").text


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.slow
def test_verdicts_on_a_narrow_screen(browser, judged, scheme):
    """The plot fits, the table scrolls within its frame, and badges can be read."""
    show(browser, judged, NARROW, scheme)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= NARROW[0]
    find(browser, "#posterior-section details:has(table) summary").click()
    frame = find(browser, "#posterior-section .scroll")
    assert browser.execute_script("return arguments[0].scrollWidth", frame) > frame.rect["width"]
    for badge in ("best", "behind"):
        assert contrast_of(browser, f"#posterior-section .badge.{badge}") >= 4.5


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.slow
def test_narrow_screen(browser, page, scheme):
    show(browser, page, NARROW, scheme)
    width = "return document.documentElement.scrollWidth"
    assert browser.execute_script(width) <= NARROW[0]
    browser.execute_script("document.querySelector('#cells tbody [data-cell]').click()")
    assert browser.execute_script(width) <= NARROW[0]
    box = find(browser, "#detail").rect
    assert box["x"] >= 0 and box["x"] + box["width"] <= NARROW[0]
    script = "const d = document.getElementById('detail'); return d.scrollWidth - d.clientWidth"
    assert browser.execute_script(script) == 0


def luminance(browser, selector, what):
    """Relative luminance of a colour, WCAG 2.2."""
    script = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]"
    words = browser.execute_script(script, selector, what)
    parts = [float(part) / 255 for part in words[words.index("(") + 1 : -1].split(",")[:3]]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast_of(browser, selector, ground=None):
    """Ratio of the luminances of text and what it stands on: itself, or another element."""
    text = luminance(browser, selector, "color")
    both = text, luminance(browser, ground or selector, "backgroundColor")
    return (max(both) + 0.05) / (min(both) + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.slow
def test_dark_and_light_can_be_read(browser, page, scheme):
    show(browser, page, scheme=scheme)
    paper = luminance(browser, "body", "backgroundColor")
    assert paper > 0.8 if scheme == "light" else paper < 0.05
    for selector, ground in [("h1", "body"), (".quiet", "body"), ("nav a", "body"),
                             (".badge.converged", ".badge.converged"),
                             (".badge.improper", ".badge.improper"),
                             (".badge.failed", ".badge.failed"),
                             (".mark-bound", ".mark-bound"),
                             (".mark-elsewhere", ".mark-elsewhere")]:  # fmt: skip
        # Level AA for text of usual size.
        assert contrast_of(browser, selector, ground) >= 4.5, selector


def requested(browser):
    """Addresses that were asked for since the last look."""
    events = [json.loads(e["message"])["message"] for e in browser.get_log("performance")]
    return [
        e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"
    ]


@pytest.mark.slow
def test_no_error_and_no_request(browser, page, judged):
    """Over everything above, and a fresh look at both pages."""
    pages = {page.as_uri(), judged.as_uri()}
    for one in (page, judged):
        show(browser, one)
    assert [entry for entry in browser.get_log("browser") if entry["level"] != "DEBUG"] == []
    sent = requested(browser)
    assert page.as_uri() in sent, "the log is kept"
    assert {url for url in sent if not url.startswith("data:")} == pages


def test_hostile_words_stay_words(browser, hostile_folders):
    """Also in what the page's own script writes; a window that pops up fails every command."""
    requested(browser)
    show(browser, hostile_folders[0] / "index.html")
    scripts = len(browser.find_elements(By.TAG_NAME, "script"))
    told = browser.execute_script(
        "return [...document.querySelectorAll('[data-cell], .thumb')].map(one => { one.click();"
        "  return document.querySelector('dialog[open]').textContent }).join()"
    )
    assert all(words in told for words in (INJECTIONS[0], INJECTIONS[5]))
    handlers = "[...document.querySelectorAll('*')].flatMap(e => e.getAttributeNames())"
    assert [a for a in browser.execute_script(f"return {handlers}") if a.startswith("on")] == []
    assert len(browser.find_elements(By.TAG_NAME, "script")) == scripts
    assert not [one for one in requested(browser) if not one.startswith(("file:", "data:"))]
    assert browser.title and browser.current_url.startswith("file:")
