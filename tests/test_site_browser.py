"""A site in a real browser: it plays, sorts, fits a telephone, and asks for nothing but its own files."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="sites need pyarrow, scipy and matplotlib: pip install 'chunksearch[study]'")
pytest.importorskip("matplotlib", reason="sites need matplotlib: pip install 'chunksearch[study]'")

from experiments.site import build as building
from experiments.site.audio import read_samples
from tests.browser import Browser, installed
from tests.study_run import made_run

PROGRAM = installed()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="needs Chromium in the path: apt-get install chromium")
TELEPHONE = 390


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fake voice has 100 samples a second, which no browser plays: each is repeated."""
    folder = tmp_path_factory.mktemp("browser")

    def audible(path: Path) -> tuple[Any, int]:
        pcm, rate = read_samples(path)
        return np.repeat(pcm, 80), rate * 80

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(building, "read_samples", audible)
        building.build(made_run(folder), folder / "site")
    return folder / "site"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(str(PROGRAM), tmp_path_factory.mktemp("profile")) as found:
        yield found


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Tests are not the place for an access log."""


@pytest.fixture(params=["file", "http"])
def address(request: pytest.FixtureRequest, site: Path) -> Iterator[str]:
    """Where the site is: opened from the disk, or served."""
    if request.param == "file":
        yield site.as_uri()
        return
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_takes_and_candidates_play_and_only_own_files_are_asked_for(browser: Browser, address: str) -> None:
    browser.open(f"{address}/prompts/plain.html")
    duration, moved, error = browser.ask(
        """(async () => {
            const audio = document.querySelector(".take audio");
            await audio.play();
            await new Promise(done => setTimeout(done, 300));
            audio.pause();
            return [audio.duration, audio.currentTime, audio.error];
        })()"""
    )
    assert error is None
    assert duration == pytest.approx(1.9, abs=0.6)  # 19 frames of 80 ms and some more
    assert 0.0 < moved <= duration
    pressed, place, released = browser.ask(
        """(async () => {
            const button = [...document.querySelectorAll(".tree .play")].find(one => Number(one.dataset.lead) > 0);
            const wait = (state) => new Promise(done => {
                const look = () => button.ariaPressed === state ? done() : setTimeout(look, 20);
                look();
            });
            document.getElementById("lead-in").checked = false;
            button.click();
            const pressed = button.ariaPressed;
            const begun = performance.now();
            await wait("false");
            const length = Number(button.dataset.end) - Number(button.dataset.start);
            return [pressed, (performance.now() - begun) / 1000 / length, button.ariaPressed];
        })()"""
    )
    assert (pressed, released) == ("true", "false")
    assert place > 0.5  # it was heard, and stopped at its end by itself
    assert any("/candidates/" in asked for asked in browser.requests)
    assert any("/audio/" in asked for asked in browser.requests)
    # The browser draws its own players with pictures that are no requests.
    assert all(asked.startswith((address, "data:image/")) for asked in browser.requests), browser.requests


def test_one_thing_plays_at_a_time(browser: Browser, site: Path) -> None:
    browser.open(f"{site.as_uri()}/prompts/plain.html")
    playing = browser.ask(
        """(async () => {
            const [first, second] = document.querySelectorAll(".take audio");
            await first.play();
            await second.play();
            const button = document.querySelector("table .play[data-take]");
            button.click();
            await new Promise(done => setTimeout(done, 100));
            const own = document.querySelector(`#${button.dataset.take} audio`);
            const others = [...document.querySelectorAll("audio")].filter(one => one !== own && !one.paused);
            return [own.paused, others.length, button.ariaPressed];
        })()"""
    )
    assert playing == [False, 0, "true"]


def test_a_click_or_a_key_sorts_numbers_as_numbers(browser: Browser, site: Path) -> None:
    browser.open(f"{site.as_uri()}/index.html")
    column = """(place) => {
        const table = document.querySelector("#configurations table");
        const head = table.tHead.rows[0].cells[place];
        head.querySelector("button").click();
        return [head.ariaSort, [...table.tBodies[0].rows].map(row => row.cells[place].innerText.split("\\n")[0])];
    }"""
    assert browser.ask(f"({column})(1)") == ["ascending", ["1", "2", "4"]]
    assert browser.ask(f"({column})(1)") == ["descending", ["4", "2", "1"]]
    assert browser.ask(f"({column})(0)") == ["ascending", ["n1", "n2", "n4"]]
    assert browser.ask("document.querySelectorAll('[aria-sort]').length") == 1
    focused = "document.querySelector('#prompts thead button').focus(), document.activeElement.tagName"
    assert browser.ask(focused) == "BUTTON"


@pytest.mark.parametrize("page", ["index.html", "prompts/plain.html", "prompts/prompt.2.html", "prompts/foreign.html"])
def test_pages_fit_a_telephone(browser: Browser, site: Path, page: str) -> None:
    browser.open(f"{site.as_uri()}/{page}", TELEPHONE)
    browser.ask("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert browser.ask("[innerWidth, document.documentElement.scrollWidth]") == [TELEPHONE, TELEPHONE]


def test_dark_and_light_follow_the_reader(browser: Browser, site: Path) -> None:
    colours = []
    for dark in (False, True):
        browser.open(f"{site.as_uri()}/index.html", dark=dark)
        colours.append(
            browser.ask(
                "[document.body, document.querySelector('figure svg text')].map(one => getComputedStyle(one))"
                ".map((style, place) => place ? style.fill : style.backgroundColor)"
            )
        )
    (light_paper, light_ink), (dark_paper, dark_ink) = colours
    assert light_paper != dark_paper
    assert light_ink != dark_ink
