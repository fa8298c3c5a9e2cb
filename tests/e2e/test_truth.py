# SPDX-License-Identifier: Apache-2.0
"""Random programs whose end is known: every receipt must say it. By `brig run`, through the daemon and as a tool; as
root and as a plain user.

The seed is printed, and BRIG_TEST_SEED sets it; tests/long draws ten times as many.
"""

import concurrent.futures
import itertools
import json
import os
import sys
import threading
import time
import unittest

import truthkit
from helpers import wait_until
from jailkit import IS_ROOT, PLAIN_ID, PY, JailTest, World, needs_root
from service import Daemon

TIMES = int(os.environ.get("BRIG_TEST_TIMES", "1"))  # tests/long/test_programs.py: 10
AT_ONCE = 4
SEED = int(os.environ.get("BRIG_TEST_SEED", time.time_ns() % 1_000_000_007))


class Truth:
    """One way of running, as one caller. run_one() gives a receipt and what it says wrongly."""

    LIMIT_SECONDS = 300 * TIMES
    COUNT = 0
    NOT_HERE = frozenset()

    def missing(self):
        """Layers that no cgroup holds here: what is counted by cgroups is not known."""
        probe = truthkit.Program("probe", "os._exit(0)", "exited", exit_code=0)
        layers = self.run_one(probe, 1)[0]["protection"]["layers"]
        return {name for name in ("memory", "pids", "cpu") if "cgroup" not in layers[name].get("by", "")}

    def test_random_programs(self):
        seed = f"{SEED} {type(self).__name__}"
        print(f"BRIG_TEST_SEED={SEED}", file=sys.stderr)
        programs = truthkit.draw(seed, self.COUNT * TIMES, self.missing() | self.NOT_HERE)
        wrong = []

        def judge(number):
            program = programs[number]
            receipt, more = self.run_one(program, number)
            for field, told, truth in more:
                wrong.append(f"{number} ({program.kind}): {field} {told!r:.300}, not {truth!r:.300}; "
                             f"{receipt['outcome']}")

        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            for done in [pool.submit(judge, n) for n in range(len(programs))]:
                done.result()
        summary = f"BRIG_TEST_SEED={SEED}: {len(wrong)} wrong of {len(programs)}\n"
        self.assertEqual(wrong, [], summary + "\n".join(wrong[:20]))


# ---- brig run -------------------------------------------------------------------------------------------------------


class Local(Truth, JailTest):
    COUNT = 30
    lock = threading.Lock()  # a world counts its callers

    def run_one(self, program, _):
        with self.lock:
            process = self.w.start("-o", "json", *program.flags(), *PY, program.script)
        _, out, err = self.w.finish(process, 120)
        self.assertTrue(out, err)
        receipt = json.loads(out)
        return receipt, program.wrong(receipt)


@needs_root
class LocalRootless(Local):
    COUNT = 15

    @classmethod
    def make_world(cls):
        return World(PLAIN_ID, PLAIN_ID, delegated=True)


# ---- the service ----------------------------------------------------------------------------------------------------


class PlainDaemon(Daemon):
    """A plain user's service, with cgroups of its own as a session of systemd has."""

    def __init__(self, world, config):
        self.world = world
        super().__init__(config, user=PLAIN_ID, preexec=self.become)

    def start(self):
        self.user, self.places = {}, self.world.cgroups.for_a_caller()
        super().start()

    def become(self):
        self.world.become_caller(self.places)


class Service(Truth):
    CONFIG = "[tools]\nmax_runs = 20\n"

    @classmethod
    def setUpClass(cls):
        cls.d = Daemon(cls.CONFIG)
        cls.addClassCleanup(cls.d.close)


class PlainService(Service):
    @classmethod
    def setUpClass(cls):
        if not IS_ROOT:
            raise unittest.SkipTest("needs root to be another user")
        world = World(PLAIN_ID, PLAIN_ID, delegated=True)
        cls.addClassCleanup(world.close)
        cls.d = PlainDaemon(world, cls.CONFIG)
        cls.addClassCleanup(cls.d.close)


class InASandbox(Service, unittest.TestCase):
    """One sandbox for each program, whose death certificate is compared too."""

    COUNT = 20
    NOT_HERE = frozenset({"cpu"})  # of a process nobody limits CPU time
    OF_SANDBOX = {"memory", "pids", "disk", "inodes"}

    def run_one(self, program, _):
        made = self.d.create(limits=program.limits)
        path = f"/v1/sandboxes/{made['id']}"
        body = {"argv": [*PY[1:], program.script], "timeout": program.timeout}
        body |= {"output": program.output} if program.output else {}
        answer = self.d.ask("POST", f"{path}/run", body, timeout=120)
        self.assertEqual(answer.status, 200, answer)
        self.d.ask("DELETE", path)
        wait_until("a certificate", lambda: self.d.ask("GET", f"/v1/certificates/{made['id']}").status == 200)
        told = set(self.d.ask("GET", f"/v1/certificates/{made['id']}").json["limits_hit"])
        truth = set(program.hit) & self.OF_SANDBOX
        more = [] if told == truth else [("limits_hit of the certificate", told, truth)]
        return answer.json, program.wrong(answer.json, own_sandbox=False) + more


class InASandboxRootless(PlainService, InASandbox):
    COUNT = 10


class InASandboxUndelegated(InASandbox):
    """A plain user without cgroups: no process has one of its own, so the service asks for the state of the store."""

    COUNT = 5

    @classmethod
    def setUpClass(cls):
        if not IS_ROOT:
            raise unittest.SkipTest("needs root to be another user")
        cls.d = Daemon(cls.CONFIG, user=PLAIN_ID)
        cls.addClassCleanup(cls.d.close)

    def test_a_limit_that_nothing_can_enforce(self):
        for limit, value, why in (("memory", "100m", "no cgroup to change it in: Operation not supported"),
                                  ("cpus", 0.5, "no cgroup to change it in: Operation not supported"),
                                  ("pids", 60, "no cgroup to change it in: Operation not supported"),
                                  ("cpu_time", 5, "nothing counts it here; use cpus and timeout")):
            with self.subTest(limit=limit):
                refused = self.d.ask("POST", "/v1/run", {"language": "python", "code": "1", "limits": {limit: value}})
                self.assertEqual(refused.status, 422, refused)
                self.assertEqual((refused.json["error"]["code"], refused.json["error"]["message"]),
                                 ("unsupported", f"limits.{limit}: {why}"))


class AsATool(Service, unittest.TestCase):
    COUNT = 15
    names = itertools.count()

    def run_one(self, program, number):
        name = f"f{next(self.names)}"
        source, added = program.as_tool(name, answers=number % 2)
        schema = {"name": name, "description": "d", "parameters": {"type": "object"}}
        made = self.d.ask("POST", "/v1/tools/", {"source_code": source, "json_schema": schema})
        self.assertEqual(made.status, 200, made)
        limits = {**program.limits, **({"output": program.output} if program.output else {})}
        body = {"args": {}, "timeout": program.timeout, "limits": limits}
        ran = self.d.ask("POST", f"/v1/tools/{name}/run", body, timeout=120)
        self.assertEqual(ran.status, 200, ran)
        return ran.json["receipt"], program.wrong(ran.json["receipt"], added=added)


class AsAToolRootless(PlainService, AsATool):
    COUNT = 10
