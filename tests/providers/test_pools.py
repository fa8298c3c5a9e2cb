# SPDX-License-Identifier: Apache-2.0
"""Warm interpreters of other providers: a run takes one that was parked in a sandbox of its own provider, once. They
are bounded, counted, and gone with the service, also when it was killed."""

import os
import pathlib
import re
import shutil
import signal
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

from carrykit import RUNSC_NEW  # noqa: E402
from helpers import wait_until  # noqa: E402
from jailkit import needs_root  # noqa: E402
from service import ServiceTest  # noqa: E402

HERE = [name for name in ("runc", "crun") if shutil.which(name)] + ["runsc"] * os.path.exists(RUNSC_NEW)


@needs_root
@unittest.skipUnless(HERE, "there is no runtime: tools/setup.sh providers, tools/runsc.sh build")
class Pools(ServiceTest):
    LIMIT_SECONDS = 300
    CONFIG = f'[runsc]\npath = "{RUNSC_NEW}"\n[pool]\nproviders = "runc=2 crun=2 gvisor=2"\n'

    def pool(self, provider):
        """What is kept for it; without keys nothing is."""
        return [p for p in self.d.ask("GET", "/v1/pools").json["pools"] if p.get("provider") == provider]

    def prewarm(self, provider, count):
        answer = self.d.ask("POST", "/v1/pools/prewarm", {"count": count, "provider": provider})
        self.assertEqual(answer.status, 200, answer)

    def parked(self, provider):
        return sum(p["parked"] for p in self.pool(provider))

    def wait_parked(self, provider, count):
        wait_until(f"{provider} has {count} ready", lambda: self.parked(provider) == count
                   and not sum(p["making"] for p in self.pool(provider)))

    def metric(self, name, provider):
        found = re.search(rf'^brig_{name}{{provider="{provider}"}} (\d+)$',
                          self.d.ask("GET", "/metrics").body.decode(), re.M)
        return int(found[1]) if found else None

    def code(self, provider, text):
        answer = self.d.ask("POST", "/v1/run", {"language": "python", "code": text, "provider": provider})
        self.assertEqual(answer.status, 200, answer)
        self.assertEqual(answer.json["receipt"]["provider"], provider, answer)
        return answer.json

    def boxes(self, provider):
        """The sandboxes that its runner has on this machine."""
        return {e.name for e in os.scandir(f"{self.d.dir}/run/runner-{provider}") if len(e.name) > 20 and e.is_dir()}

    def test_a_run_takes_one_that_waits_and_nobody_takes_it_again(self):
        for provider in HERE:
            with self.subTest(provider):
                self.assertEqual((self.pool(provider), self.boxes(provider)), ([], set()))
                self.assertIsNone(self.metric("interpreters_parked", provider))
                self.prewarm(provider, 5)
                self.wait_parked(provider, 2)  # [pool] providers
                waiting = self.boxes(provider)
                self.assertEqual(len(waiting), 2)
                self.assertEqual(self.metric("interpreters_parked", provider), 2)
                used = set()
                for i in range(4):
                    self.wait_parked(provider, 2)
                    ran = self.code(provider, f"open('/workspace/mark', 'x').close(); print({i})")
                    self.assertEqual((ran["status"], ran["stdout"]), ("success", f"{i}\n"), ran)
                    used.add(ran["receipt"]["sandbox_id"])
                    self.assertIsNotNone(ran["receipt"]["usage"]["memory_peak_bytes"])  # its numbers came
                self.assertEqual(len(used), 4)
                self.assertTrue(waiting <= used, (waiting, used))
                self.assertEqual((self.metric("interpreter_claims_total", provider),
                                  self.metric("interpreter_misses_total", provider)), (4, 0))
                wait_until("those that ran are gone", lambda: not used & self.boxes(provider))
                self.prewarm(provider, 0)

    def test_what_is_parked_is_gone_with_a_killed_brigd_and_with_the_service(self):
        for provider in HERE:
            self.prewarm(provider, 1)
        for provider in HERE:
            self.wait_parked(provider, 1)
        before = {provider: self.boxes(provider) for provider in HERE}
        os.kill(self.d.children()["brigd"], signal.SIGKILL)
        self.d.wait_ready()
        for provider in HERE:
            wait_until("nobody's interpreters are gone", lambda: not self.boxes(provider) & before[provider])
            self.prewarm(provider, 1)
        for provider in HERE:
            self.wait_parked(provider, 1)
        self.d.stop()
        self.assertEqual([name for provider in HERE for name in self.boxes(provider)], [])
        self.d.start()

    def test_refusals(self):
        for body, status, said in (({"count": 1, "provider": "chroot"}, 422, "chroot: there is no such one"),
                                   ({"count": 1, "provider": 1}, 400, "provider: must be a string"),
                                   ({"count": 1, "provider": "modal"}, 501, "modal")):
            answer = self.d.ask("POST", "/v1/pools/prewarm", body)
            self.assertEqual(answer.status, status, answer)
            self.assertIn(said, answer.json["error"]["message"])


if __name__ == "__main__":
    unittest.main()
