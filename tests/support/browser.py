"""A real Chromium for tests of pages, over its own pipe: no package, no port, no network.

It speaks the DevTools protocol (https://chromedevtools.github.io/devtools-protocol/), as JSON between NUL bytes on two
file descriptors. Tests marked ``needs_browser`` are skipped where there is none.
"""

import json
import os
import shutil
import struct
import subprocess
import tempfile
import zlib
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-device-scale-factor=1",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
PATIENCE_S = 30


def program() -> str | None:
    """The browser of this machine."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


needs_browser = pytest.mark.skipif(program() is None, reason="there is no Chromium on PATH")
"""Marks a test that a real browser takes part in."""


@dataclass
class Browser:
    """One browser with one tab. ``errors`` are what its console said, ``asked`` the addresses that it asked for."""

    said: int
    heard: int
    session: str = ""
    errors: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    loaded: bool = False
    _number: int = 0
    _rest: bytes = b""

    def call(self, method: str, **params: Any) -> Any:
        """One command and its answer; what happens meanwhile is noted."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.said, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = os.read(self.heard, 1 << 16)
            assert more, "the browser has gone"
            self._rest += more
        one, self._rest = self._rest.split(b"\0", 1)
        message: dict[str, Any] = json.loads(one)
        params = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.errors.append(str(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled":
                self.errors.append(str(params["args"]))
            case "Log.entryAdded":
                self.errors.append(str(params["entry"]["text"]))
            case "Network.requestWillBeSent":
                self.asked.append(str(params["request"]["url"]))
            case "Page.loadEventFired":
                self.loaded = True
        return message

    def open(
        self,
        path: Path,
        width: int = 1280,
        height: int = 900,
        *,
        dark: bool = False,
        media: str = "",
        script: bool = True,
    ) -> None:
        """Show a file, on a screen of so many pixels."""
        self.errors, self.asked, self.loaded = [], [], False
        self.screen(width, height, dark=dark, media=media)
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not self.loaded:
            self._next()
        if script:
            self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def screen(self, width: int, height: int, *, dark: bool = False, media: str = "") -> None:
        """Change the screen, and what the reader likes."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )

    def run(self, expression: str) -> Any:
        """The value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def key(self, key: str) -> None:
        """Press a key, and let go of it."""
        more = {"text": key} if len(key) == 1 else {"code": key, "windowsVirtualKeyCode": {"Tab": 9}.get(key, 0)}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """``mouseMoved``, ``mousePressed``, ``mouseReleased`` or ``mouseWheel``."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def picture(self, clip: Mapping[str, float] | None = None, *, whole: bool = False) -> bytes:
        """A PNG of the window, of the ``whole`` page, or of a part of it: x, y, width, height."""
        more: dict[str, Any] = {"captureBeyondViewport": True} if whole or clip else {}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"]}
        if clip:
            more["clip"] = {**clip, "scale": 1}
        return b64decode(self.call("Page.captureScreenshot", format="png", **more)["data"])


def pixels(png: bytes) -> list[list[tuple[int, int, int]]]:
    """The rows of a PNG of 8 bits a colour, not interlaced, as (red, green, blue)."""
    at, data = 8, b""
    width = height = channels = 0
    while at < len(png):
        (size,), kind = struct.unpack(">I", png[at : at + 4]), png[at + 4 : at + 8]
        body = png[at + 8 : at + 8 + size]
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", body[:10])
            assert depth == 8
            channels = {2: 3, 6: 4}[colour]
        data += body if kind == b"IDAT" else b""
        at += size + 12
    raw, stride = zlib.decompress(data), width * channels
    rows, above = [], bytes(stride)
    for y in range(height):
        start = y * (stride + 1)
        line = bytearray(raw[start + 1 : start + 1 + stride])
        _unfilter(raw[start], line, above, channels)
        above = bytes(line)
        rows.append([(line[i], line[i + 1], line[i + 2]) for i in range(0, stride, channels)])
    return rows


def _unfilter(kind: int, line: bytearray, above: bytes, channels: int) -> None:
    for i in range(len(line)) if kind else ():
        left = line[i - channels] if i >= channels else 0
        corner = above[i - channels] if i >= channels else 0
        up = above[i]
        if kind == 4:  # of the three the nearest to left + up - corner, the first of those that are as near
            to_left, to_up, to_corner = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
            guess = left if to_left <= to_up and to_left <= to_corner else up if to_up <= to_corner else corner
        else:
            guess = (0, left, up, (left + up) // 2)[kind]
        line[i] = (line[i] + guess) & 0xFF


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser that has just been started, with a profile of its own."""
    path = program()
    assert path is not None
    with tempfile.TemporaryDirectory(prefix="page-", ignore_cleanup_errors=True) as profile:
        hear_ours, said_ours = os.pipe()
        heard_ours, say_ours = os.pipe()
        # The browser reads from descriptor 3 and writes to 4, whatever they are here.
        command = f'exec "$0" "$@" 3<&{hear_ours} 4>&{say_ours}'
        words = ["bash", "-c", command, path, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        child = subprocess.Popen(words, pass_fds=(hear_ours, say_ours), stderr=subprocess.DEVNULL)
        os.close(hear_ours)
        os.close(say_ours)
        try:
            browser = Browser(said_ours, heard_ours)
            target = browser.call("Target.createTarget", url="about:blank")["targetId"]
            browser.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                browser.call(f"{domain}.enable")
            yield browser
            browser.session = ""
            browser.call("Browser.close")
            child.wait(PATIENCE_S)
        finally:
            child.kill()
            child.wait()
            os.close(said_ours)
            os.close(heard_ours)
