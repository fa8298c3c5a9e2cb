# SPDX-License-Identifier: Apache-2.0
"""A run's network: its child was made with one that denies all; the claim's policy takes its place before the request is sent."""

from lettakit import LettaTest

LOOK = '''
def look(host: str):
    """Tries to connect.

    Args:
        host (str): where to.
    """
    import socket
    try:
        socket.create_connection((host, 443), timeout=5).close()
        return "connected"
    except OSError as e:
        return type(e).__name__
'''


class ChildNetwork(LettaTest):
    CONFIG = "[tools]\nmax_runs = 20\n"

    def test_the_policy_of_the_claim(self):
        tool = self.tool(LOOK)
        for policy in ({"default": "deny", "rules": [{"action": "allow", "domain": "a.invalid", "ports": [443]}]}, {"default": "deny", "rules": []}):
            ran = self.run_tool(tool, {"host": "b.invalid"}, network=policy)
            self.assertEqual(ran["status"], "success", ran)
            self.assertNotEqual(ran["result"], "connected")
            self.assertGreaterEqual(ran["receipt"]["network"]["decisions"]["denied"], 1, ran["receipt"]["network"])
        ran = self.run_tool(tool, {"host": "b.invalid"}, network="none")
        self.assertNotEqual(ran["result"], "connected")
        self.assertEqual(ran["receipt"]["network"]["policy"], "none")
