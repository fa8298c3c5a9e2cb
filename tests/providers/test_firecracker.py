# SPDX-License-Identifier: Apache-2.0
"""The provider `firecracker`, with a stand-in for its monitor (standin_firecracker.py): no registry has the program.
What is shown is that the driver asks only what Firecracker's own description of its API allows, and the whole way from
a create to the end, with a real brig-init behind the vsock socket; not that a machine boots."""

import fcntl
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import unittest

from vmkit import BRIG, HERE, VmTest, wait_until

STANDIN = (HERE / "standin_firecracker.py").read_text(encoding="utf-8")
CRATE, VERSION = "fc-api", "0.2.3"
ASKED = [("GET", "/version"), ("PUT", "/machine-config"), ("PUT", "/boot-source"), ("PUT", "/drives/root"),
         ("PUT", "/vsock"), ("PUT", "/entropy"), ("PUT", "/actions")]


def description():
    """Firecracker's own description of its API, which the crate carries. It is downloaded once per build by cargo."""
    import yaml  # noqa: PLC0415

    place = pathlib.Path(os.environ["BRIG_BUILD_DIR"]) / "providers/firecracker-api"
    kept = place / "firecracker.yaml"
    place.mkdir(parents=True, exist_ok=True)
    with open(place / ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            fetch(place, kept)
    return yaml.safe_load(kept.read_text(encoding="utf-8"))


def fetch(place, kept):
    cargo = shutil.which("cargo") or shutil.which("cargo", path=pathlib.Path.home() / ".cargo/bin")
    if not cargo:
        raise unittest.SkipTest(f"there is no cargo to download the crate {CRATE}; apt-get install cargo")
    with tempfile.TemporaryDirectory(dir=place) as work:
        work = pathlib.Path(work)
        (work / "lib.rs").touch()
        (work / "Cargo.toml").write_text(
            '[package]\nname = "nothing"\nversion = "0.0.0"\nedition = "2021"\n[lib]\npath = "lib.rs"\n'
            f'[dependencies]\n{CRATE} = {{ version = "={VERSION}", default-features = false }}\n', encoding="utf-8")
        env = {**os.environ, "CARGO_HOME": str(work / "home"),
               "PATH": f"{os.path.dirname(cargo)}:{os.environ.get('PATH', '')}"}  # rustc lies beside it
        done = subprocess.run([cargo, "fetch", "--quiet"], cwd=work, text=True, capture_output=True, check=False,
                              env=env)
        found = list(work.glob(f"home/registry/src/*/{CRATE}-{VERSION}/spec/firecracker.yaml"))
        if done.returncode != 0 or not found:
            raise unittest.SkipTest(f"the crate {CRATE} {VERSION} cannot be had: {done.stderr.strip()[-200:]}")
        os.replace(found[0], kept)


class Schema:
    """A judge for the part of Swagger 2.0 that the description uses. What it does not know of is refused."""

    TYPES = {"object": dict, "string": str, "integer": int, "boolean": bool, "array": list}
    KNOWN = {"type", "properties", "required", "description", "enum", "minimum", "maximum", "default", "format", "$ref",
             "items", "readOnly"}

    def __init__(self, document):
        self.document = document

    def operation(self, method, target):
        for path, item in self.document["paths"].items():
            ours, theirs = target.split("/"), path.split("/")
            if len(ours) == len(theirs) and all(a == b or b.startswith("{") for a, b in zip(ours, theirs)):
                return item[method.lower()]
        raise AssertionError(f"{method} {target}: there is no such request")

    def judge(self, value, schema, where):
        if "$ref" in schema:
            schema = self.document["definitions"][schema["$ref"].rsplit("/", 1)[1]]
        if set(schema) - self.KNOWN:
            raise AssertionError(f"{where}: {set(schema) - self.KNOWN} is not understood here")
        is_bool = isinstance(value, bool)  # which Python calls an integer
        if not isinstance(value, self.TYPES[schema["type"]]) or is_bool != (schema["type"] == "boolean"):
            raise AssertionError(f"{where}: {value!r} is no {schema['type']}")
        if value not in schema.get("enum", [value]):
            raise AssertionError(f"{where}: {value!r} is none of {schema['enum']}")
        if schema["type"] == "integer" and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
            raise AssertionError(f"{where}: {value} is out of its range")
        if schema["type"] == "object":
            for name in schema.get("required", []):
                if name not in value:
                    raise AssertionError(f"{where}: there is no {name}")
            for name, member in value.items():
                if name not in schema["properties"]:
                    raise AssertionError(f"{where}: there is no member {name}")
                self.judge(member, schema["properties"][name], f"{where}.{name}")

    def request(self, asked):
        operation = self.operation(asked["method"], asked["target"])
        bodies = [p for p in operation.get("parameters", []) if p["in"] == "body"]
        where = f"{asked['method']} {asked['target']}"
        if bodies:
            if asked["headers"].get("content-type") != "application/json":
                raise AssertionError(f"{where}: its body is not said to be JSON")
            self.judge(json.loads(asked["body"]), bodies[0]["schema"], where)
        elif asked["body"]:
            raise AssertionError(f"{where}: it has no body")


@unittest.skipUnless(os.path.exists("/dev/kvm"), "there is no /dev/kvm, which its sandbox must have")
class FireTest(VmTest):
    FAULT = ""

    @classmethod
    def setUpClass(cls):
        cls.place = tempfile.TemporaryDirectory(prefix="brig-fire-")
        cls.addClassCleanup(cls.place.cleanup)
        os.chmod(cls.place.name, 0o755)
        cls.monitor = pathlib.Path(cls.place.name) / "firecracker"
        cls.becomes(cls.FAULT)
        kernel = pathlib.Path(cls.place.name) / "vmlinux"  # The stand-in boots nothing; it must be ELF.
        shutil.copyfile(pathlib.Path(BRIG).resolve(), kernel)
        os.chmod(kernel, 0o644)
        cls.MORE = f'[firecracker]\npath = "{cls.monitor}"\nkernel = "{kernel}"\n'
        super().setUpClass()
        cls.settle()

    @classmethod
    def settle(cls):
        """Waits for the end of the probe. A host that is too busy for it gets another brigd, which probes anew."""
        for _ in range(5):
            wait_until("the probe is over", lambda: "has not come up yet" not in str(cls.refusal()))
            if "no sandbox came up within" not in str(cls.refusal()):
                return
            cls.kill_brigd(cls)

    @classmethod
    def becomes(cls, fault):
        """Another file, so that a machine that runs keeps its own."""
        new = cls.monitor.with_suffix(".new")
        new.write_text(STANDIN.replace('FAULT = ""', f"FAULT = {fault!r}"), encoding="utf-8")
        os.chmod(new, 0o755)
        os.replace(new, cls.monitor)

    @classmethod
    def refusal(cls):
        """What a create says that asks for more memory than any machine has: it gets past the probe, and no further."""
        answer = cls.d.ask("POST", "/v1/sandboxes", {"provider": "firecracker", "limits": {"memory": "64m"}})
        return answer.status, answer.json["error"]["message"]

    def fire(self, **members):
        return self.sandbox(provider="firecracker", **members)

    def monitor_of(self, box):
        return min(pid for pid, name in self.processes(box).items() if name.startswith("monitor"))

    def asked(self, box):
        text = pathlib.Path(f"/proc/{self.monitor_of(box)}/root/run/standin.log").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]


class Firecracker(FireTest):
    def test_it_asks_what_the_description_allows(self):
        schema = Schema(description())
        box = self.fire(limits={"memory": "300m", "cpus": 2.5, "io_read_bps": 1 << 20})
        asked = self.asked(box)
        self.assertEqual([(a["method"], a["target"]) for a in asked], ASKED)
        for request in asked:
            schema.request(request)
        told = {a["target"]: json.loads(a["body"]) for a in asked if a["body"]}
        self.assertEqual(told["/machine-config"], {"vcpu_count": 3, "mem_size_mib": 300})
        self.assertEqual(told["/drives/root"]["rate_limiter"], {"bandwidth": {"size": 1 << 20, "refill_time": 1000}})
        self.assertTrue(told["/drives/root"]["is_read_only"])
        self.assertIn(f"brig.host={box}", told["/boot-source"]["boot_args"].split())
        for wrong in ({"vcpu_count": 33, "mem_size_mib": 1}, {"vcpu_count": 1}, {"vcpu_count": "1", "mem_size_mib": 1},
                      {"vcpu_count": 1, "mem_size_mib": 1, "more": 1}):
            with self.assertRaises(AssertionError):
                schema.request({**asked[1], "body": json.dumps(wrong)})

    def test_a_command_files_and_the_end(self):
        box = self.fire()
        self.assertEqual(self.d.run(box, "echo", "hello")["stdout"], "hello\n")
        data = os.urandom(200_000)
        path = f"/v1/sandboxes/{box}/files?path=/workspace/data"
        self.assertIn(self.d.ask("PUT", path, data).status, (200, 201, 204))
        self.assertEqual(self.d.ask("GET", path).body, data)
        found = self.d.ask("GET", f"/v1/sandboxes/{box}").json
        self.assertEqual((found["provider"], found["protection"]["layers"]["own_kernel"]),
                         ("firecracker", {"on": True, "by": "firecracker"}))
        self.assertEqual(self.d.ask("DELETE", f"/v1/sandboxes/{box}").status, 204)
        wait_until("nothing of it is left", lambda: not self.processes(box))

    def test_a_brigd_that_dies(self):
        box = self.fire()
        before = self.processes(box)
        self.kill_brigd()
        self.settle()
        self.assertEqual(self.processes(box), before)
        self.assertEqual(self.d.run(box, "echo", "again")["stdout"], "again\n")
        self.assertEqual(len(self.asked(box)), len(ASKED))  # It is not told again.

    def test_only_this_sandbox_has_the_device(self):
        box = self.fire()
        root = pathlib.Path(f"/proc/{self.monitor_of(box)}/root")
        self.assertEqual(os.major((root / "dev/kvm").stat().st_rdev), 10)
        other = self.sandbox(provider="local")
        self.assertEqual(self.d.sh(other, "ls /dev/kvm")["stdout"], "")
        answer = self.d.ask("POST", "/v1/sandboxes", {"provider": "local", "kvm": True})
        self.assertEqual(answer.status, 400, answer)

    def test_what_it_cannot_do(self):
        self.assertEqual(self.refusal(), (400, "memory 67108864: a virtual machine needs at least 134217728"))
        answer = self.d.ask("POST", "/v1/sandboxes", {"provider": "firecracker", "network": {"default": "deny"}})
        self.assertGreaterEqual(answer.status, 400, answer)
        self.assertIn("the provider firecracker has no network", answer.json["error"]["message"])

    def test_faults(self):
        for fault, said in (
                ("refuse /boot-source", "PUT /boot-source: Firecracker answers 400: a reason for /boot-source"),
                ("refuse /actions", "PUT /actions: Firecracker answers 400: a reason for /actions"),
                ("old", "Firecracker 1.7: must be 1.8 or a later 1"),
                ("die /vsock", "Firecracker died of signal 9"),
                ("half /entropy", "PUT /entropy: Firecracker ended the connection before the end of its answer"),
                ("garbage /drives/root", "PUT /drives/root: Firecracker gave an answer that breaks HTTP"),
                ("hang /machine-config", "PUT /machine-config: Firecracker gave no answer within 10 s"),
                ("panic", "Firecracker ended with status 0: Kernel panic")):
            with self.subTest(fault=fault):
                self.becomes(fault)
                answer = self.d.ask("POST", "/v1/sandboxes", {"provider": "firecracker"}, timeout=300)
                self.assertGreaterEqual(answer.status, 400, answer)
                self.assertIn(said, answer.json["error"]["message"])
        for fault in ("late", ""):  # late: the guest does not listen at first
            self.becomes(fault)
            self.assertEqual(self.d.run(self.fire(), "echo", "fine")["stdout"], "fine\n")

    def test_a_monitor_that_dies(self):
        box = self.fire()
        os.kill(self.monitor_of(box), signal.SIGKILL)
        end = self.certificate(box)
        self.assertEqual(end["cause"], "sandbox-gone", end)
        self.assertIn("Firecracker died of signal 9", str(end))


class Probe(FireTest):
    FAULT = "refuse /actions"

    def test_it_is_off_when_no_machine_comes_up(self):
        status, said = self.refusal()
        self.assertEqual(status, 501, said)
        self.assertIn("provider firecracker: no machine came up: PUT /actions: Firecracker answers 400", said)
        found = {p["name"]: p for p in self.d.ask("GET", "/v1/providers").json["providers"]}["firecracker"]
        self.assertFalse(found["enabled"], found)
        self.assertIn("no machine came up", found["why"])
