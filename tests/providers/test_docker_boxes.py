# SPDX-License-Identifier: Apache-2.0
"""The carrier `docker` of brig-runner with real engines of our own: Docker, and a Podman service. A brigd of a few
lines (tests/e2e/drivers/service_host.c) drives it, so that both can be killed."""

import io
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tarfile
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "e2e"), str(HERE.parent / "bench")]

import enginekit  # noqa: E402  pylint: disable=wrong-import-position
from helpers import PATIENCE, wait_until  # noqa: E402  pylint: disable=wrong-import-position
from jailkit import needs_root  # noqa: E402  pylint: disable=wrong-import-position
from test_jail_service import LIBEXEC, Host, fields  # noqa: E402  pylint: disable=wrong-import-position

TINY = "docker.io/library/tiny:latest"
LABEL = "org.brig.installation"
EAT = "x=x; while :; do x=$x$x; done"


class Runner:
    """brig-runner docker in directories of its own, and the brigds on its socket."""

    def __init__(self, directory, engine_socket, **env):
        self.dir = pathlib.Path(directory)
        self.env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "BRIG_RUNTIME_PATH": engine_socket,
                    "BRIG_ENGINE_PULL": "never", **env}
        for word in ("run", "state", "cache"):
            (self.dir / word).mkdir(mode=0o700, parents=True, exist_ok=True)
            self.env[f"BRIG_{word.upper()}_DIR"] = str(self.dir / word)
        self.socket, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.hosts = []
        self.start()

    def start(self):
        def in_child():
            os.dup2(self.theirs.fileno(), 3)
            os.set_inheritable(3, True)

        self.process = subprocess.Popen([f"{LIBEXEC}/brig-runner", "docker"], preexec_fn=in_child, close_fds=False,
                                        cwd="/", env=self.env, stdin=subprocess.DEVNULL)

    def host(self, found=0):
        host = Host(self.socket.fileno())
        self.hosts.append(host)
        heard = host.until("recovered")
        assert len(heard) == found + 1, heard
        return host

    def kill(self):
        """brigd and the runner die; the supervisor, which holds both ends of the socket, does not."""
        for host in self.hosts:
            host.kill()
        self.hosts = []
        self.process.kill()
        self.process.wait()

    def installation(self):
        return (self.dir / "state/docker-installation").read_text(encoding="ascii")

    def close(self):
        for host in self.hosts:
            host.kill()
        self.socket.close()
        self.theirs.close()
        self.process.wait(PATIENCE)


class Boxes:
    """The tests, for each engine."""

    LIMIT_SECONDS = 300
    PODMAN = False

    @classmethod
    def setUpClass(cls):
        temp = tempfile.TemporaryDirectory(prefix="brig-docker-")
        cls.addClassCleanup(temp.cleanup)
        cls.dir = pathlib.Path(temp.name)
        try:
            cls.engine = enginekit.Engine(cls.dir / "engine", cls.PODMAN)
            enginekit.busybox_tar(cls.dir / "tiny.tar")
        except enginekit.Missing as e:
            raise unittest.SkipTest(str(e)) from None
        cls.addClassCleanup(cls.engine.close)
        cls.engine.import_tar(cls.dir / "tiny.tar", "tiny")

    def setUp(self):
        self.runner = self.start()
        self.host = self.runner.host()

    def start(self, **env):
        temp = tempfile.TemporaryDirectory(prefix="brig-runner-")
        self.addCleanup(temp.cleanup)
        runner = Runner(temp.name, env.pop("engine", self.engine.socket), **env)
        self.addCleanup(runner.close)
        return runner

    def create(self, key="a", *words, image=TINY, host=None):
        host = host or self.host
        host.say("create", key, *([f"image={image}"] if image else []), *words)
        heard = host.until("hello", "ended")
        return heard

    def box(self, key="a", *words, host=None):
        heard = self.create(key, *words, host=host)
        self.assertTrue(heard[-1].startswith("hello"), heard)
        return next(line.split()[2] for line in heard if line.startswith("up"))

    def refusal(self, *words, image=TINY):
        heard = self.create("bad", *words, image=image)
        self.assertTrue(heard[-1].startswith("ended bad"), heard)
        return heard[-1]

    def run_in(self, script, key="a", host=None):
        host = host or self.host
        host.say("run", key, "sh", "-c", script)
        heard = host.until(f"exit {key}")
        return "\n".join(heard), fields(heard[-1])["status"]

    def end(self, key="a"):
        self.host.say("end", key)
        return self.host.until(f"ended {key}")[-1]

    def ours(self, runner=None):
        return self.engine.containers(f"{LABEL}={(runner or self.runner).installation()}")

    def inspect(self, box):
        return json.loads(self.engine.docker("inspect", f"brig-{box}"))[0]

    def test_a_program_and_the_end_that_leaves_nothing(self):
        box = self.box()
        out, status = self.run_in("id -u; echo hello > /workspace/x; cat /workspace/x; touch /bin/x; exit 3")
        self.assertIn("1000", out)
        self.assertIn("hello", out)
        self.assertIn("Read-only file system", out)
        self.assertEqual(status, 3 << 8)
        self.assertEqual(len(self.ours()), 1)
        self.assertIn("cancelled", self.end())
        self.assertEqual(self.ours(), [])
        wait_until("its directory is gone", lambda: not (self.runner.dir / "run/runner-docker" / box).exists())
        wait_until("its cgroups are gone",
                   lambda: not any(f"brig-{box}" in below for _, below, _ in os.walk("/sys/fs/cgroup")))

    def test_the_statement_is_what_the_kernel_and_the_engine_say(self):
        heard = self.create("a", "statement=1")
        layers = dict(word.split("=", 1) for word in re.findall(r"\w+=\d:", heard[0]))
        on = {name for name, value in layers.items() if value == "1:"}
        self.assertLessEqual({"mount_ns", "pid_ns", "net_ns", "ipc_ns", "uts_ns", "caps", "no_new_privs", "seccomp",
                              "landlock", "root_readonly", "proc", "fds", "memory", "cpu", "pids", "disk", "inodes"},
                             on)
        self.assertFalse({"user_ns", "uid_range"} & on)
        box = next(line.split()[2] for line in heard if line.startswith("up"))
        seen = self.inspect(box)
        config = seen["HostConfig"]
        self.assertFalse(config["Privileged"])
        self.assertTrue(config["ReadonlyRootfs"])
        self.assertEqual(config["NetworkMode"], "none")
        self.assertFalse(config["Devices"])
        self.assertEqual(config["PidMode"] or "private", "private")
        pid = seen["State"]["Pid"]
        status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        self.assertIn("NoNewPrivs:\t1", status)
        self.assertIn("Seccomp:\t2", status)
        kill_setgid_setuid_setpcap_ptrace = 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 19
        self.assertEqual(int(re.search(r"CapBnd:\t(\w+)", status)[1], 16), kill_setgid_setuid_setpcap_ptrace)
        groups = pathlib.Path(f"/proc/{pid}/cgroup").read_text(encoding="ascii")
        self.assertIn(f"/brig-{box}", groups)

    def test_argument_rules_hold_though_the_engine_cannot_say_them(self):
        self.box()
        out, _ = self.run_in("grep Seccomp /proc/self/status")  # the engine's profile, and the exact filter over it
        self.assertRegex(out, r"Seccomp_filters:\s*2")

    def test_limits_are_hit_with_their_cause_and_can_be_changed(self):
        self.box("a", f"memory={64 << 20}", "pids=20")
        out, status = self.run_in(EAT)
        self.assertEqual(status, signal.SIGKILL, out)
        self.host.say("stats", "a")
        self.assertGreaterEqual(fields(self.host.until("stats")[-1])["oom"], 1)
        self.host.say("limits", "a", str(96 << 20), "1000", "30")
        self.assertIn(str(96 << 20), self.host.until("limits")[-1])
        self.host.say("freeze", "a")
        self.host.until("frozen a ok")
        self.host.say("thaw", "a")
        self.host.until("frozen a ok")
        self.assertIn("still", self.run_in("echo still")[0])

    def test_a_box_outlives_brigd_the_runner_and_the_engine(self):
        box = self.box()
        self.run_in("echo kept > /workspace/x")
        self.runner.kill()
        self.runner.start()
        self.host = self.runner.host(found=1)
        self.host.say("attach", box)
        self.host.until("hello")
        self.assertIn("kept", self.run_in("cat /workspace/x", key=box)[0])
        self.assertEqual(len(self.ours()), 1)
        self.end(box)
        self.assertEqual(self.ours(), [])

    def test_what_no_box_knows_is_removed_and_nobody_elses(self):
        other = self.start()
        theirs = self.box("a", host=other.host())
        self.engine.docker("create", "--name", "stranger", "tiny", "/bin/true")
        self.addCleanup(self.engine.docker, "rm", "stranger")
        name = self.runner.installation()
        self.runner.kill()
        self.engine.docker("create", "--label", f"{LABEL}={name}", "--label", "org.brig.sandbox=gone", "tiny", "true")
        self.assertEqual(len(self.ours()), 1)
        self.runner.start()
        self.host = self.runner.host()
        wait_until("the orphan is removed", lambda: not self.ours())
        self.assertEqual(len(self.ours(other)), 1)
        self.assertTrue(self.inspect(theirs)["State"]["Running"])
        self.assertTrue(self.engine.docker("inspect", "stranger"))

    def test_a_container_that_somebody_else_removes_has_ended(self):
        box = self.box()
        self.engine.docker("rm", "-f", f"brig-{box}")
        self.assertIn("ended a", self.host.until("ended")[-1])
        self.assertIn("hello", self.box("b") and self.run_in("echo hello", key="b")[0])

    def test_what_is_wrong_is_one_line_and_leaves_nothing(self):
        self.assertIn("404", self.refusal(image="docker.io/library/none:latest"))
        self.assertIn("root inside", self.refusal("root=1"))
        for bad in ("tiny", "docker.io/library/UPPER:x", "docker.io/library/../x:y", "a b", "docker.io/library/tiny"):
            self.assertIn("image", self.refusal(image=bad), bad)
        self.assertEqual(self.ours(), [])

    def test_an_engine_that_comes_later(self):
        runner = self.start(engine=str(self.dir / "later.sock"))
        host = runner.host()
        heard = self.create("a", host=host)
        self.assertIn("no engine answers at", heard[-1])
        os.symlink(self.engine.socket, self.dir / "later.sock")
        self.addCleanup(os.unlink, self.dir / "later.sock")
        self.box("b", host=host)
        host.say("end", "b")
        host.until("ended b")

    def test_devices_and_set_id_files_of_an_image_are_inert(self):
        with tarfile.open(self.dir / "tiny.tar") as old, tarfile.open(self.dir / "bad.tar", "w") as new:
            for item in old:
                new.addfile(item, old.extractfile(item) if item.isreg() else None)
            device = tarfile.TarInfo("mem")
            device.type, device.mode, device.devmajor, device.devminor = tarfile.CHRTYPE, 0o666, 1, 1
            new.addfile(device)
            program = old.extractfile("bin/busybox").read()
            set_id = tarfile.TarInfo("id")
            set_id.size, set_id.mode = len(program), 0o4755
            new.addfile(set_id, io.BytesIO(program))
        self.engine.import_tar(self.dir / "bad.tar", "bad")
        heard = self.create(image="docker.io/library/bad:latest")
        self.assertTrue(heard[-1].startswith("hello"), heard)
        out, _ = self.run_in("ls -l /mem /id; head -c 1 /mem; /id -u")
        self.assertRegex(out, r"crw-rw-rw-.* 1,\s+1")
        self.assertIn("-rwsr-xr-x", out)
        self.assertIn("/mem: Permission denied", out)
        self.assertRegex(out, r"(?m)^(output a 1 \d+ )?1000$")

    def test_volumes_of_an_image_are_places_with_a_bound(self):
        self.engine.import_tar(self.dir / "tiny.tar", "voluminous", "VOLUME /data")
        heard = self.create(image="docker.io/library/voluminous:latest")
        self.assertTrue(heard[-1].startswith("hello"), heard)
        out, _ = self.run_in("stat -f -c %T /data; echo written > /data/x; cat /data/x")
        self.assertIn("tmpfs", out)
        self.assertIn("written", out)
        self.end()
        self.assertEqual(self.engine.docker("volume", "ls", "-q").split(), [])

    def root(self, name, **links):
        """A directory with a busybox, that may be the root of a sandbox."""
        root = self.dir / "roots" / name
        root.mkdir(parents=True)
        with tarfile.open(self.dir / "tiny.tar") as tar:
            tar.extractall(root)
        for place, target in links.items():
            place = root / place.replace("_", ".")
            if place.is_dir():
                shutil.rmtree(place)
            os.symlink(target, place)
        return root

    def roots(self):
        """A runner that may use and share directories of the host."""
        for word in ("roots", "shared"):
            (self.dir / word).mkdir(exist_ok=True)
        runner = self.start(BRIG_ROOTFS_ROOTS=str(self.dir / "roots"), BRIG_BIND_ROOTS=str(self.dir / "shared"))
        return runner, runner.host()

    def test_a_directory_is_a_root_whatever_it_has_at_our_places(self):
        runner, host = self.roots()
        root = self.root("bad", dev="/proc/1", proc="/etc", etc=str(self.dir), _brig="/workspace", tmp="/bin")
        os.mknod(root / "mem", 0o666 | stat.S_IFCHR, os.makedev(1, 1))
        shutil.copy(root / "bin/busybox", root / "id")
        os.chmod(root / "id", 0o4755)
        heard = self.create("a", f"rootfs={root}", "statement=1", image=None, host=host)
        self.assertTrue(heard[-1].startswith("hello"), heard)
        self.assertRegex(heard[0], r"root_readonly=1:.* proc=1:.* disk=1:.* inodes=1:")
        out, _ = self.run_in("cat /proc/self/comm; echo x > /dev/null && echo null; stat -c %F /dev/null /etc /tmp; "
                             "ls /etc /.brig; head -c 1 /mem; /id -u; touch /x; "
                             "echo w > /workspace/w && cat /workspace/w",
                             host=host)
        for said in (r"cat\n", r"null\n+(output a 1 \d+ )?character special file\ndirectory\ndirectory",
                     r"hostname\nhosts", "/mem: Permission denied", r"(?m)^(output a 1 \d+ )?1000$",
                     "/x: Read-only file system", r"(?m)^(output a 1 \d+ )?w$"):
            self.assertRegex(out, said)
        self.assertNotIn("engine.sock", out)
        self.assertEqual(os.listdir(root / "bin"), os.listdir(self.root("good") / "bin"))  # nothing was written there
        images = json.loads(self.engine.get("/images/json"))
        ours = [image for image in images if (image["Labels"] or {}).get(LABEL) == runner.installation()]
        self.assertEqual(len(ours), 1, images)  # and nothing of the root is in the engine
        self.assertLess(ours[0]["Size"], 64 << 10)
        host.say("end", "a")
        self.assertIn("cancelled", host.until("ended a")[-1])

    def test_binds_are_what_was_opened_without_a_link(self):
        _, host = self.roots()
        shared = self.dir / "shared"
        for name in ("in", "out"):
            (shared / name).mkdir(exist_ok=True)
        (shared / "in/file").write_text("from the host\n", encoding="ascii")
        if not (shared / "link").is_symlink():
            os.symlink("/etc", shared / "link")
        os.chown(shared / "out", 4321, 4321)
        for image in (TINY, None):
            heard = self.create("a", f"ro={shared}/in:/mnt/in", f"bind={shared}/out:/mnt/out",
                                f"ro={shared}/in/file:/mnt/one", image=image, host=host)
            self.assertTrue(heard[-1].startswith("hello"), heard)
            out, _ = self.run_in("cat /mnt/in/file /mnt/one; touch /mnt/in/x; echo mine > /mnt/out/x; stat -c %u "
                                 "/mnt/out/x", host=host)
            self.assertEqual(out.count("from the host"), 2, out)
            self.assertIn("Read-only file system", out)
            self.assertRegex(out, r"(?m)^(output a 1 \d+ )?1000$")
            written = os.stat(shared / "out/x")  # it belongs to the directory's owner
            self.assertEqual((written.st_uid, written.st_gid), (4321, 4321))
            os.unlink(shared / "out/x")
            host.say("end", "a")
            host.until("ended a")
            for source, said in ((f"{shared}/link", "link"), (f"{shared}/link/ssl", "link"),
                                 ("/etc", "not in a directory that this service may share")):
                heard = self.create("bad", f"ro={source}:/mnt/x", image=image, host=host)
                self.assertTrue(heard[-1].startswith("ended bad"), heard)
                self.assertIn(said, heard[-1])

    def test_a_writable_root_has_the_bound_of_the_disk(self):
        heard = self.create("a", "writable=1", f"disk={16 << 20}")
        self.assertTrue(heard[-1].startswith("hello"), heard)
        out, _ = self.run_in("echo new > /x; cat /x; dd if=/dev/zero of=/y bs=1M count=20")
        self.assertIn("new", out)
        self.assertIn("No space left on device", out)
        self.box("b")
        self.assertIn("No such file", self.run_in("cat /x", key="b")[0])


@needs_root
class DockerBoxes(Boxes, unittest.TestCase):
    def test_another_engine_process_takes_over(self):
        box = self.box()
        self.engine.kill()
        self.assertIn("alive", self.run_in("echo alive")[0])  # nothing of the engine is between
        self.engine.start()
        self.host.say("end", "a")
        self.host.until("ended a")
        self.assertEqual(self.engine.containers(f"{LABEL}={self.runner.installation()}"), [], box)


@needs_root
class PodmanBoxes(Boxes, unittest.TestCase):
    PODMAN = True


if __name__ == "__main__":
    unittest.main()
