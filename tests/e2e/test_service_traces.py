# SPDX-License-Identifier: Apache-2.0
"""Traces: spans arrive at a collector, say what they may and nothing else, and a collector that is away or slow
disturbs nobody."""

import http.server
import json
import threading
import time
import unittest

from helpers import wait_until
from service import Daemon

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Collector(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port=0):
        self.batches, self.status = [], 200
        super().__init__(("127.0.0.1", port), Batch)
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def spans(self):
        return [s for b in list(self.batches) for r in b["resourceSpans"] for scope in r["scopeSpans"]
                for s in scope["spans"]]

    def close(self):
        self.shutdown()
        self.server_close()


class Batch(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert (self.path, self.headers["Content-Type"]) == ("/v1/traces", "application/json")
        self.server.batches.append(json.loads(body))
        self.send_response(self.server.status)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")


def attributes(span):
    return {a["key"]: next(iter(a["value"].values())) for a in span["attributes"]}


class Traces(unittest.TestCase):
    def serve(self, endpoint):
        daemon = Daemon(f'[server]\notlp_endpoint = "{endpoint}"\n')
        self.addCleanup(daemon.close)
        return daemon

    def test_a_span_per_request(self):
        collector = Collector()
        self.addCleanup(collector.close)
        d = self.serve(f"http://127.0.0.1:{collector.server_port}")
        box = d.create()["id"]
        answer = d.ask("GET", f"/v1/sandboxes/{box}?", headers={"traceparent": PARENT})
        d.ask("GET", "/v1/sandboxes/secret-token-in-a-path",
              headers={"traceparent": "00-" + "0" * 32 + "-b7ad6b7169203331-01"})
        wait_until("they are there",
                   lambda: len([s for s in collector.spans() if s["name"] == "GET /v1/sandboxes/{id}"]) >= 2)
        found, missing = [s for s in collector.spans() if s["name"] == "GET /v1/sandboxes/{id}"][:2]
        self.assertEqual((found["traceId"], found["parentSpanId"]), (PARENT.split("-")[1], PARENT.split("-")[2]))
        self.assertEqual(attributes(found)["brig.request_id"], answer.headers["X-Request-Id"])
        self.assertEqual([attributes(s)["http.response.status_code"] for s in (found, missing)], [200, 404])
        self.assertNotIn("parentSpanId", missing)
        self.assertNotEqual(missing["traceId"], "0" * 32)
        self.assertLess(abs(int(found["endTimeUnixNano"]) - time.time_ns()), 60e9)
        self.assertLessEqual(int(found["startTimeUnixNano"]), int(found["endTimeUnixNano"]))
        self.assertNotIn("secret-token", json.dumps(collector.batches))
        self.assertIn("brig_trace_spans_dropped_total 0\n", d.ask("GET", "/metrics").body.decode())

    def test_no_collector_and_one_that_refuses(self):
        collector = Collector()
        collector.status = 503
        self.addCleanup(collector.close)
        for endpoint in (f"http://127.0.0.1:{collector.server_port}", "http://127.0.0.1:9"):
            d = self.serve(endpoint)
            for _ in range(50):
                self.assertEqual(d.ask("GET", "/v1/sandboxes").status, 200)

            def dropped(daemon=d):
                return int(daemon.ask("GET", "/metrics").body.decode().split("\nbrig_trace_spans_dropped_total ")[1]
                           .split()[0])

            wait_until("they are counted", lambda: dropped() >= 50)
            self.assertIn("\nbrig_trace_spans_sent_total 0\n", d.ask("GET", "/metrics").body.decode())

    def test_off_by_default(self):
        d = Daemon()
        self.addCleanup(d.close)
        self.assertIn("\nbrig_trace_spans_dropped_total 0\n", d.ask("GET", "/metrics").body.decode())

    def test_names_are_refused(self):
        for endpoint in ("http://collector.example:4318", "https://127.0.0.1:4318", "http://127.0.0.1",
                         "http://[::1:4318"):
            with self.assertRaisesRegex(AssertionError, "an address, not a name"):
                Daemon(f'[server]\notlp_endpoint = "{endpoint}"\n')


if __name__ == "__main__":
    unittest.main()
