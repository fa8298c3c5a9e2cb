# SPDX-License-Identifier: Apache-2.0
"""Networks of a runner's sandboxes are served again, whoever of those that serve them has died."""

import os
import pathlib
import shutil
import signal
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

from carrykit import RUNSC_NEW  # noqa: E402
from helpers import wait_until  # noqa: E402
from jailkit import needs_root  # noqa: E402
from service import Daemon  # noqa: E402

# A name is answered by brig-egress, and a port of the policy by a listener; any other is refused by the kernel.
LOOK = """import errno, socket
def name():
    try: return socket.getaddrinfo('example.com', 443, socket.AF_INET)[0][4][0].split('.')[:2]
    except OSError: return 'no name'
def port(n):
    s = socket.socket()
    s.settimeout(20)
    return errno.errorcode.get(s.connect_ex(('93.184.216.34', n)), 'there')
print(name(), *(port(int(n)) for n in __import__('sys').argv[1:]))
"""
SERVED = "['198', '19']"


class Networks:
    LIMIT_SECONDS = 180
    CONFIG = ""

    def setUp(self):
        self.d = Daemon(f'[server]\non_shutdown = "keep"\n[manager]\nprovider = "{self.PROVIDER}"\n{self.CONFIG}')
        self.addCleanup(self.d.close)

    def rules(self, *ports):
        return {"rules": [{"action": "allow", "domain": "example.com", "ports": list(ports)}]}

    def box(self, network):
        made = self.d.create(network=network)
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{made['id']}")
        return made["id"]

    def look(self, box, *ports):
        return self.d.run(box, "python3", "-I", "-c", LOOK, *map(str, ports))["stdout"].strip()

    def served(self, box, *ports, refused=()):
        want = " ".join([SERVED, *("there" for _ in ports), *("ECONNREFUSED" for _ in refused)])
        wait_until(f"the network of {box} is served", lambda: self.look(box, *ports, *refused) == want)

    def kill(self, *names):
        before = self.d.children()
        for name in names:
            os.kill(before[name], signal.SIGKILL)
        wait_until(f"another {' and '.join(names)}",
                   lambda: all(self.d.children().get(name, before[name]) != before[name] for name in names))
        self.d.wait_ready()

    def test_whoever_dies_it_is_served_again(self):
        runner = f"brig-r-{self.PROVIDER}"
        named, any_port = self.box(self.rules(443)), self.box({"default": "allow"})
        self.served(named, 443, refused=(8443,))
        self.served(any_port, 443, 8443)
        for dead in ((runner,), ("brig-egress",), ("brigd", runner), (runner, "brig-egress"), ("brigd", "brig-egress")):
            with self.subTest(dead=dead):
                self.kill(*dead)
                self.served(named, 443, refused=(8443,))
                self.served(any_port, 443, 8443)

    def test_further_ports_after_the_runner_has_died(self):
        runner = f"brig-r-{self.PROVIDER}"
        box = self.box(self.rules(443))
        self.kill(runner)
        wait_until("the runner answers", lambda: self.d.ask("POST", f"/v1/sandboxes/{box}/pause").status == 200)
        self.d.ask("POST", f"/v1/sandboxes/{box}/resume")
        answer = self.d.ask("PATCH", f"/v1/sandboxes/{box}", {"network": self.rules(443, 8443)})
        self.assertEqual(answer.status, 200, answer)
        self.served(box, 443, 8443, refused=(8444,))
        self.kill("brig-egress")  # what it had alone is opened again
        self.served(box, 443, 8443, refused=(8444,))

    def test_kept_from_one_service_to_the_next(self):
        named, any_port = self.box(self.rules(443)), self.box({"default": "allow"})
        self.d.stop()
        self.d.start()
        self.served(named, 443, refused=(8443,))
        self.served(any_port, 443, 8443)


@needs_root
@unittest.skipUnless(shutil.which("runc"), "runc is not installed: tools/setup.sh providers")
class OfRunc(Networks, unittest.TestCase):
    PROVIDER = "runc"


@needs_root
@unittest.skipUnless(os.path.exists(RUNSC_NEW), f"there is no {RUNSC_NEW}: tools/runsc.sh build")
class OfRunsc(Networks, unittest.TestCase):
    PROVIDER = "runsc"
    CONFIG = f'[runsc]\npath = "{RUNSC_NEW}"\n'


if __name__ == "__main__":
    unittest.main()
