# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, driven over the DevTools protocol on a pair of pipes (--remote-debugging-pipe): no package but
Debian's."""

import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

from helpers import PATIENCE

CHROMIUM = "/usr/bin/chromium"


class Browser:
    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="brig-browser-")
        to_read, self.to = os.pipe()
        self.come, to_write = os.pipe()

        def wire():  # the protocol's own numbers
            a, b = os.dup(to_read), os.dup(to_write)
            os.dup2(a, 3)
            os.dup2(b, 4)

        # No sandbox of its own: the test runs as root, and shows it only pages that the test has written.
        self.process = subprocess.Popen(
            [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-extensions",
             "--disable-background-networking", "--disable-component-update", "--no-proxy-server",
             "--host-resolver-rules=MAP brig.test 127.0.0.1, MAP *.brig.test 127.0.0.1", "--remote-debugging-pipe",
             f"--user-data-dir={self.dir}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=wire,
            close_fds=False,
            start_new_session=True, env={**os.environ, "HOME": self.dir})
        os.close(to_read)
        os.close(to_write)
        self.buffer, self.number, self.events = b"", 0, []

    def close(self):
        os.killpg(self.process.pid, signal.SIGKILL)  # its own session: renderers and all
        self.process.wait()
        os.close(self.to)
        os.close(self.come)
        shutil.rmtree(self.dir, ignore_errors=True)

    def receive(self, end):
        while b"\0" not in self.buffer:
            if not select.select([self.come], [], [], max(end - time.monotonic(), 0))[0]:
                raise AssertionError("the browser says nothing")
            data = os.read(self.come, 1 << 20)
            if not data:
                raise AssertionError("the browser has ended")
            self.buffer += data
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, session=None, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + PATIENCE
        while True:
            got = self.receive(end)
            if got.get("id") == self.number:
                assert "error" not in got, (method, got)
                return got["result"]
            self.events.append(got)

    def page(self):
        return Page(self)


class Page:
    """A tab; all of one browser share its cookies."""

    def __init__(self, browser):
        self.browser = browser
        self.target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        self.call("Page.enable")
        self.call("Network.enable")

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def wait(self, method):
        end = time.monotonic() + PATIENCE
        while True:
            for i, event in enumerate(self.browser.events):
                if event.get("method") == method and event.get("sessionId") == self.session:
                    del self.browser.events[i]
                    return event["params"]
            self.browser.events.append(self.browser.receive(end))

    def go(self, url):
        """Navigates and waits until all of it is loaded; the address that it ended at."""
        self.browser.events.clear()
        done = self.call("Page.navigate", url=url)
        assert "errorText" not in done, done
        self.wait("Page.loadEventFired")
        return self.run("location.href")

    def run(self, expression):
        """The value of a JavaScript expression in the page; of a promise, what it becomes."""
        done = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")
