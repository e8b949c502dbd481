"""A headless Chromium, spoken to over a pipe in its DevTools protocol."""

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import time

PATIENCE = 120.0


class Browser:
    """One browser with one page.

    Parameters
    ----------
    folder
        Where it keeps its profile.
    """

    def __init__(self, folder):
        to_browser, self._writes = os.pipe()
        self._reads, from_browser = os.pipe()
        options = [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--remote-debugging-pipe", f"--user-data-dir={folder}", "about:blank",
        ]  # fmt: skip
        script = f'exec "$0" "$@" 3</dev/fd/{to_browser} 4>/dev/fd/{from_browser}'
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", script, executable(), *options],
            pass_fds=(to_browser, from_browser),
            stderr=subprocess.DEVNULL,
            env=os.environ | {"HOME": str(folder)},
        )
        os.close(to_browser)
        os.close(from_browser)
        self._numbers, self._rest, self._session = itertools.count(1), b"", None
        self.complaints = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method, **given):
        """What the browser answers."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": given}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._writes, json.dumps(message).encode() + b"\0")
        while True:
            said = self._next()
            if said.get("id") == number:
                assert "error" not in said, said
                return said["result"]

    def go(self, url, *, width=1280, height=900, scheme="light"):
        """Open a page in a window of this size; what the page before it complained of is forgotten."""
        self.call("Page.navigate", url="about:blank")
        self.wait("location.href === 'about:blank'")
        self.complaints.clear()
        phone = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=url)

    def value(self, script):
        """What an expression gives, as plain values."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, script):
        """Wait until an expression is true."""
        until = time.monotonic() + PATIENCE
        while not self.value(script):
            assert time.monotonic() < until, f"never became true: {script}; the browser said {self.complaints}"
            time.sleep(0.05)

    def press(self, key):
        """Press a key."""
        codes = {"Tab": 9, "Enter": 13, "ArrowLeft": 37, "Home": 36, "End": 35}
        typed = {"text": "\r"} if key == "Enter" else {}
        for kind, text in (("keyDown", typed), ("keyUp", {})):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=codes[key], **text)

    def picture(self, path):
        """Save what the whole page looks like."""
        taken = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(taken["data"]))

    def close(self):
        """End the browser."""
        self._process.terminate()
        self._process.wait(PATIENCE)
        os.close(self._writes)
        os.close(self._reads)

    def _next(self):
        until = time.monotonic() + PATIENCE
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._reads], [], [], max(0.0, until - time.monotonic()))
            assert ready, "the browser says nothing"
            read = os.read(self._reads, 1 << 20)
            assert read, "the browser has ended"
            self._rest += read
        message, _, self._rest = self._rest.partition(b"\0")
        said = json.loads(message)
        if said.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(said["params"]["exceptionDetails"])
        elif said.get("method") == "Log.entryAdded" and said["params"]["entry"]["level"] == "error":
            self.complaints.append(said["params"]["entry"]["text"])
        return said


def executable():
    """Path of the browser; ``None`` where there is none."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
