"""A headless Chromium, driven through its debugging pipe: no package is needed, only the program."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
SECONDS = 60


def installed() -> str | None:
    """The program; None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page. `requests` are the addresses that it has asked for so far."""

    def __init__(self, program: str, profile: Path) -> None:
        down, self._out = os.pipe()
        self._in, up = os.pipe()
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--mute-audio"]
        flags += ["--autoplay-policy=no-user-gesture-required", "--no-first-run", f"--user-data-dir={profile}"]
        # Chromium reads from descriptor 3 and writes to 4.
        shell = ["bash", "-c", f'exec "$@" 3<&{down} 4>&{up}', "bash", program, *flags, "about:blank"]
        self._process = subprocess.Popen(
            shell, pass_fds=(down, up), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(down)
        os.close(up)
        self._buffer, self._number, self._session = b"", 0, ""
        self.requests: list[str] = []

    def __enter__(self) -> Self:
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime"):
            self._call(f"{domain}.enable")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._out)
        os.close(self._in)
        self._process.terminate()
        self._process.wait(SECONDS)

    def open(self, address: str, width: int = 1200, *, dark: bool = False) -> None:
        """Show a page, and wait until it is there."""
        self._call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        self.requests.clear()
        self._call("Page.navigate", url=address)
        self.ask("new Promise(done => document.readyState === 'complete' ? done() : addEventListener('load', done))")

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression; promises are waited for."""
        found = self._call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in found:
            raise AssertionError(found["exceptionDetails"])
        return found["result"].get("value")

    def screenshot(self) -> str:
        """The whole page as PNG, in base 64."""
        picture: str = self._call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        return picture

    def _call(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("method") == "Network.requestWillBeSent":
                self.requests.append(answer["params"]["request"]["url"])
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            part = os.read(self._in, 1 << 16)
            assert part, "the browser has gone"
            self._buffer += part
        line, self._buffer = self._buffer.split(b"\0", 1)
        message: dict[str, Any] = json.loads(line)
        return message
