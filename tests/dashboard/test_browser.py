"""The page in a real browser shows what the snapshot says, on a laptop and on a phone, in light and in dark."""

import importlib.util
import json
import re
import urllib.request
from pathlib import Path

import pytest

spec = importlib.util.spec_from_file_location("dashboard_browser", Path(__file__).with_name("browser.py"))
browsers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(browsers)

pytestmark = pytest.mark.skipif(
    browsers.executable() is None,
    reason="the page is looked at with Chromium, which is not installed: apt-get install chromium",
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    started = browsers.Browser(tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


def snapshot_of(serving):
    with urllib.request.urlopen(f"http://127.0.0.1:{serving.server_port}/data", timeout=120) as answer:
        return json.loads(answer.read())


def text(browser, selector):
    return browser.value(f"document.querySelector({selector!r}).innerText")


def opened(browser, url, batch, **window):
    browser.go(url, **window)
    browser.wait(f"document.body && document.body.dataset.batch === {str(batch)!r}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390], ids=["laptop", "phone"])
def test_the_page_shows_what_the_snapshot_says(browser, serve, lived, width, scheme):
    serving = serve(lived)
    said = snapshot_of(serving)
    opened(browser, serving.url, 25, width=width, scheme=scheme)
    last = said["batches"][-1]
    assert text(browser, "#status") == "finished"
    assert said["location"] in text(browser, "#where")
    tiles = text(browser, "#tiles")
    assert (
        f"{last['imbalance_rows']:.2f}\nplain hash {last['imbalance_rows_hash']:.2f}, bound {last['bound_rows']:.2f}"
        in tiles
    )
    assert browser.value("document.querySelectorAll('#load .drawing rect.bar').length") == 2 * len(said["tasks"]) == 8
    assert browser.value("document.querySelectorAll('#stored .drawing rect.bar').length") == 4
    lines = browser.value(
        "[...document.querySelectorAll('#imbalance path.line')].map((each) => each.getAttribute('class'))"
    )
    assert lines == ["line hash", "line ours", "line bound"]
    changed = sum(
        one["plan"] != other["plan"] for one, other in zip(said["batches"], said["batches"][1:], strict=False)
    )
    assert browser.value("document.querySelectorAll('#imbalance line.mark').length") == changed > 0
    keys = browser.value("[...document.querySelectorAll('#hot tbody tr')].map((row) => row.cells[0].innerText)")
    assert keys == [each["key"] for each in said["hot_keys"]]
    assert said["plan"]["reason"] in text(browser, "#plan")
    reasons = browser.value(
        "[...document.querySelectorAll('#decisions li p:nth-child(2)')].map((each) => each.innerText)"
    )
    assert reasons == [re.sub(r"\s+", " ", each["reason"]) for each in said["decisions"]]
    assert browser.value("document.documentElement.scrollWidth") <= width, "the page is wider than the window"
    small = browser.value(
        "Math.min(...[...document.querySelectorAll('svg text')].map((each) => each.getBoundingClientRect().height))"
    )
    assert small >= 11, "the text of a chart is too small to read"
    back = browser.value("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", back)[:3])) < 200) == (scheme == "dark")
    assert not browser.complaints


def test_a_batch_appears_on_the_open_page_without_a_reload(browser, serve, story):
    serving = serve(story.play(2).folder)
    opened(browser, serving.url, 1)
    browser.value("window.stays = true")
    assert text(browser, "#status") == "running"
    story.play(1)
    browser.wait("document.body.dataset.batch === '2'")
    story.query.close()
    browser.wait("document.getElementById('status').innerText === 'finished'")
    assert browser.value("window.stays")
    assert not browser.complaints


def test_what_a_key_holds_is_shown_as_text(browser, serve, make_story, tmp_path, monkeypatch):
    odd = "<img src=x onerror=alert(1)><script>window.bad = true</script>"
    monkeypatch.setattr(make_story, "keys", staticmethod(lambda _: [odd] * 900 + [f"key {n}" for n in range(200)]))
    story = make_story(tmp_path / "odd").play(3)
    story.query.close()
    serving = serve(story.folder, watched={"literal_keys": True})
    opened(browser, serving.url, 2)
    assert browser.value("document.querySelector('#hot tbody tr').cells[0].innerText") == odd
    assert browser.value("document.images.length") == 0
    assert browser.value("window.bad") is None
    assert not browser.complaints


def test_the_keyboard_reaches_everything(browser, serve, lived):
    serving = serve(lived)
    opened(browser, serving.url, 25)
    visited = []
    for _ in range(40):
        browser.press("Tab")
        found = browser.value(
            "(({id, parentElement, className}) => id || parentElement.id || className)(document.activeElement)"
        )
        visited.append(found)
        if found == "metrics-link":
            break
    assert visited[0] == "skip"
    wanted = ["load", "load-details", "imbalance", "time", "stored", "decisions", "elastic", "busy", "data-link"]
    places = [visited.index(each) for each in wanted]
    assert places == sorted(places), visited
    browser.value("document.getElementById('imbalance').focus()")
    browser.press("End")
    said = snapshot_of(serving)["batches"]
    assert text(browser, "#imbalance .readout").startswith(
        f"Batch 25, plan {said[-1]['plan']}: {said[-1]['imbalance_rows']:.2f}"
    )
    browser.press("ArrowLeft")
    assert text(browser, "#imbalance .readout").startswith("Batch 24,")
    browser.press("Home")
    assert text(browser, "#imbalance .readout").startswith("Batch 0,")
    browser.value("document.querySelector('#promises-details').open = true")
    browser.wait("document.querySelectorAll('#promises-details tbody tr').length === 26")
    browser.value("document.querySelector('#promises-details').open = false")
    browser.value("document.querySelector('#imbalance-details summary').focus()")
    browser.press("Enter")
    browser.wait("document.querySelectorAll('#imbalance-details tbody tr').length === 26")
    shown = "[...document.querySelectorAll('.chart')].filter((each) => each.offsetParent !== null)"
    assert all(browser.value(f"{shown}.map((each) => each.getAttribute('aria-label'))"))


@pytest.mark.parametrize(
    ("harm", "status", "words"),
    [
        (lambda folder: (folder / "query").write_bytes(b"x"), "damaged", "check that the right file was opened"),
        (
            lambda folder: [path.unlink() for path in folder.rglob("*") if path.is_file()],
            "no batch yet",
            "waits for it",
        ),
    ],
    ids=["damaged", "empty"],
)
def test_a_checkpoint_without_figures_has_clear_words(browser, serve, copied, harm, status, words):
    harm(copied)
    serving = serve(copied)
    browser.go(serving.url, width=390)
    browser.wait(f"document.getElementById('status') && document.getElementById('status').innerText === {status!r}")
    assert words in text(browser, "#message")
    assert "No batch yet." in text(browser, "#load")
    assert not browser.complaints


def test_a_server_that_ends_leaves_its_last_words(browser, serve, lived):
    serving = serve(lived)
    opened(browser, serving.url, 25)
    serving.stopping.set()
    serving.access._hosts = frozenset()  # it answers nobody any more
    browser.wait("document.getElementById('live').innerText.includes('its last snapshot')")
    assert text(browser, "#status") == "finished"


def test_the_token_of_the_address_is_used_for_the_events(browser, serve, lived):
    serving = serve(lived, token="open sesame")  # noqa: S106 - of this test
    opened(browser, serving.url, 25)
    assert browser.value("document.getElementById('data-link').getAttribute('href')") == "/data?token=open%20sesame"
    assert not browser.complaints
