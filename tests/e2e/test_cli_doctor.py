# SPDX-License-Identifier: Apache-2.0
"""`brig doctor` and `brig version`: their words, their JSON and their status agree with each other and with `brig
run`."""

import json
import os
import re
import shutil
import subprocess
import unittest

from helpers import BRIG, PATIENCE, BrigTest, brig, environment

LAYERS = ("user_ns mount_ns pid_ns net_ns ipc_ns uts_ns cgroup_ns uid_range caps no_new_privs seccomp landlock "
          "root_readonly proc fds memory "
          "cpu pids disk inodes").split()


class Doctor(BrigTest):
    @classmethod
    def setUpClass(cls):
        cls.text = brig("doctor")
        cls.json = brig("doctor", "-o", "json")
        cls.found = json.loads(cls.json.stdout)

    def test_status_says_what_is_possible(self):
        wanted = 0 if self.found["complete"] else 1 if self.found["usable"] else 2
        self.assertEqual((self.json.returncode, self.text.returncode), (wanted, wanted))

    def test_every_layer_has_a_row(self):
        rows = {r["name"]: r for r in self.found["rows"]}
        for name in LAYERS:
            self.assertIn(name, rows)
            self.assertTrue(rows[name]["needed"], name)
            self.assertTrue(rows[name]["state"], name)

    def test_every_provider_has_a_row(self):
        rows = {r["name"]: r for r in self.found["providers"]}
        self.assertEqual(rows["local"]["on"], self.found["usable"])
        text = self.text.stdout.decode()
        for name in ("runc", "crun", "runsc"):
            here = os.geteuid() == 0 and shutil.which(name) is not None
            self.assertEqual(rows[name]["on"], self.found["usable"] and here, rows[name])
            if not here:
                self.assertIn(f"apt-get install {name}", rows[name]["state"])
        for name, state in (("docker", "needs a service of root, and [docker] socket or DOCKER_HOST"),
                            ("firecracker", "needs a service of root, [firecracker] path and kernel, and [vm]")):
            self.assertEqual((rows[name]["on"], rows[name]["state"]), (False, state))
            self.assertRegex(text, rf"(?m)^{name} +off +{re.escape(state)}$")

    def test_complete_means_that_all_needed_rows_are_on(self):
        needed = [r for r in self.found["rows"] if r["needed"]]
        self.assertEqual(self.found["complete"], all(r["on"] for r in needed))

    def test_what_is_missing_has_a_fix(self):
        for row in self.found["rows"]:
            if row["needed"] and not row["on"]:
                self.assertTrue(row.get("fix"), row)

    def test_text_has_every_row_and_every_fix(self):
        text = self.text.stdout.decode()
        for row in self.found["rows"]:
            self.assertIn(row["name"], text)
            if row.get("fix"):
                self.assertIn("fix: " + row["fix"], text)
        self.assertTrue(text.rstrip().endswith(self.found["summary"]))
        self.assertEqual(self.text.stderr, b"")

    @unittest.skipUnless(os.geteuid() == 0, "only root can read net.core.bpf_jit_limit")
    def test_room_for_filters_against_max_sandboxes(self):
        row = next(r for r in self.found["rows"] if r["name"] == "filter_room")
        room = int(row["state"].split()[-2])
        self.assertEqual((row["on"], row["state"]),
                         (True, f"net.core.bpf_jit_limit has room for the filters of {room} sandboxes"))
        done = brig("doctor", "-o", "json", env=environment(BRIG_MANAGER_MAX_SANDBOXES=str(room + 1)))
        row = next(r for r in json.loads(done.stdout)["rows"] if r["name"] == "filter_room")
        self.assertFalse(row["on"])
        self.assertTrue(row["state"].endswith(f"room for the filters of {room} sandboxes, max_sandboxes is {room + 1}"),
                        row)
        self.assertRegex(row["fix"], r"^sysctl -w net\.core\.bpf_jit_limit=\d+, or lower max_sandboxes$")

    def test_it_agrees_with_a_run(self):
        if not self.found["usable"]:
            self.skipTest("no sandbox can be made here: " + self.found["summary"])
        done = brig("run", "--require", "all", "--", "/bin/true")
        self.assertEqual(done.returncode == 0, self.found["complete"], done)
        if not self.found["complete"]:
            self.assertEqual(done.returncode, 125)
            missing = [r["name"] for r in self.found["rows"] if r["needed"] and not r["on"]]
            self.assertTrue(any(name in done.stderr.decode() for name in missing), done.stderr)


PLAIN = 54322  # nobody's


def procfs_mounts():
    with open("/proc/self/mounts", encoding="utf-8") as mounts:
        fields = [line.split() for line in mounts]
    return [f[1] for f in fields if f[2] == "proc" and os.path.isdir(f"{f[1]}/irq")]


@unittest.skipUnless(os.geteuid() == 0, "only root can break a host for brig")
class BrokenHost(BrigTest):
    """Hosts that lack something, made in namespaces of their own: the row that says so has the fix."""

    def doctor(self, status, before="true", plain=False, **env):
        """brig doctor -o json after the shell commands `before`, in a mount namespace of its own: (its JSON, its rows
        by name)."""
        drop = f"setpriv --reuid {PLAIN} --regid {PLAIN} --clear-groups -- " if plain else ""
        if plain:
            os.chmod(self.dir, 0o755)
            os.makedirs(self.path("home"), exist_ok=True)
            os.chown(self.path("home"), PLAIN, PLAIN)
            env["HOME"] = self.path("home")
        done = subprocess.run(["unshare", "-m", "sh", "-ec", f'{before}\nexec {drop}"$0" doctor -o json', BRIG],
                              stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=PATIENCE, env=environment(**env))
        self.assertEqual((done.returncode, done.stderr), (status, b""), done.stdout)
        found = json.loads(done.stdout)
        rows = {r["name"]: r for r in found["rows"]}
        self.assertEqual(len(rows), len(found["rows"]), "a name twice")
        for row in found["rows"]:
            if row["needed"] and not row["on"]:
                self.assertTrue(row.get("fix"), row)
        return found, rows

    def off(self, rows, name, *words):
        """The row is off, and its fix has the words."""
        self.assertFalse(rows[name]["on"], rows[name])
        for word in words:
            self.assertIn(word, rows[name]["fix"])

    def test_no_helpers(self):
        found, rows = self.doctor(2, BRIG_LIBEXEC_DIR="/nowhere")
        self.assertTrue(found["summary"].startswith("no sandbox can be made: "), found["summary"])
        self.off(rows, "helpers", "BRIG_LIBEXEC_DIR")
        self.off(rows, "user_ns", "as for helpers below")

    def test_no_loop_devices(self):
        complete = 0 if json.loads(brig("doctor", "-o", "json").stdout)["complete"] else 1
        _, rows = self.doctor(complete, "mount -t tmpfs none /mnt; cp -a /dev/null /dev/zero /dev/full /dev/random "
                              "/dev/urandom /dev/tty /mnt\n"
                              "mkdir /mnt/shm /mnt/pts; mount --move /mnt /dev")
        self.off(rows, "image_store", "loop")
        self.assertIn("memory-backed", rows["disk"]["state"])

    def test_no_cgroups(self):
        _, rows = self.doctor(1, "mount -t tmpfs none /sys/fs/cgroup")
        self.off(rows, "cgroups", "mount -t cgroup2")
        self.off(rows, "memory", "mount -t cgroup2")

    def test_run_directory_of_others(self):
        os.mkdir(self.path("run"))
        os.chmod(self.path("run"), 0o777)
        _, rows = self.doctor(2, BRIG_RUN_DIR=self.path("run"))
        self.off(rows, "directories", "install -d -o 0 -g 0 -m 755 " + self.path("run"))

    def test_no_user_namespaces(self):
        found, rows = self.doctor(2,
                                  "exec unshare -U --map-root-user sh -ec 'echo 0 >/proc/sys/user/max_user_namespaces\n"
                                     "exec \"$0\" doctor -o json' \"$0\"")
        self.off(rows, "user_namespaces", "sysctl -w user.max_user_namespaces=")
        self.off(rows, "user_ns", "as for user_namespaces below")
        self.assertIn("user namespace", found["summary"])

    def test_plain_user(self):
        """No name, no subordinate ids, no cgroup: everything works that needs none of them, and the fixes are for
        sudo."""
        found, rows = self.doctor(1, plain=True)
        self.assertFalse(found["complete"])
        for name in ("uid_range", "memory", "cpu"):
            self.off(rows, name, "sudo " if name == "uid_range" else "cgroup" if "v1" in rows["cgroups"]["state"]
                     else "Delegate=yes")
            self.assertIn(name, found["summary"])
        self.off(rows, "subordinate_ids", f"useradd -u {PLAIN}")
        self.assertTrue(rows["pids"]["on"], rows["pids"])

    def test_masked_proc(self):
        """A procfs that is mounted elsewhere too is masked there as well: one that can be seen whole would do."""
        masks = "; ".join(f"mount -t tmpfs none '{point}/irq'" for point in procfs_mounts())
        _, rows = self.doctor(2, masks, plain=True)
        self.off(rows, "full_proc", "systempaths=unconfined", "procMount")
        self.assertIn("/proc/irq", rows["full_proc"]["state"])


class Version(BrigTest):
    def test_json(self):
        done = brig("version", "-o", "json")
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        got = json.loads(done.stdout)
        self.assertEqual(set(got), {"version", "commit", "features", "protocol"})
        self.assertRegex(got["version"], r"^\d+\.\d+\.\d+")
        self.assertRegex(got["commit"], r"^([0-9a-f]{7,40}(-dirty)?|unknown)$")
        self.assertIsInstance(got["protocol"], int)
        self.assertTrue(got["features"] and all(isinstance(f, str) and f for f in got["features"]))

    def test_text(self):
        got = json.loads(brig("version", "-o", "json").stdout)
        for args in (["version"], ["--version"], ["version", "-o", "text"]):
            done = brig(*args)
            self.assertEqual(done.returncode, 0)
            self.assertIn(got["version"].encode(), done.stdout)
            self.assertIn(got["commit"].encode(), done.stdout)


if __name__ == "__main__":
    unittest.main()
