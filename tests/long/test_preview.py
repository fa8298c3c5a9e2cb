# SPDX-License-Identifier: Apache-2.0
"""A preview's WebSocket with the service's own time limits: ten minutes with nothing but pings, then it goes on as
before."""

import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
from previewkit import WEBSOCKET_SERVER, serve  # noqa: E402
from service import ServiceTest  # noqa: E402


class Tunnels(ServiceTest):
    LIMIT_SECONDS = 20 * 60

    def test_ten_minutes_idle_with_pings(self):
        sid = self.sandbox()
        serve(self.d, sid, WEBSOCKET_SERVER, 8080)
        w = self.d.websocket(f"/v1/sandboxes/{sid}/proxy/8080/pings?30,20")
        self.addCleanup(w.close)
        w.sock.settimeout(120)
        self.assertEqual(w.receive(), (1, b"still here"))
        for i in range(20):
            w.send(f"message {i}")
            self.assertEqual(w.receive(), (1, f"message {i}".encode()))


if __name__ == "__main__":
    unittest.main()
