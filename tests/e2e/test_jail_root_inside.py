# SPDX-License-Identifier: Apache-2.0
"""Root inside (--user root): uid 0 of the sandbox installs software in a writable root, and is nobody outside."""

import os
import shutil
import subprocess
import unittest

from jailkit import IS_ROOT, PATH, PLAIN_ID, PY, SH, JailTest, SubidUser, World, needs_root, read

SEVEN = "00000000000000fb"  # chown, dac_override, fowner, fsetid, kill, setgid, setuid
ROOT = ("--user", "root", "--writable-root")
USER = None
# What has to be there before dpkg can be used where no package was ever installed.
DPKG = "mkdir -p /var/lib/dpkg/info /var/lib/dpkg/updates /var/lib/dpkg/triggers; : > /var/lib/dpkg/status; "
# The host's programs, for a root that has none.
PROGRAMS = [word for name in ("bin", "sbin", "lib", "lib64") for word in ("-v", f"/usr/{name}:/usr/{name}:ro")]
CAPS = "grep -E '^Cap(Inh|Prm|Eff|Bnd|Amb)' /proc/self/status | cut -f2 | tr '\\n' ' '"


def setUpModule():
    global USER
    if IS_ROOT and all(shutil.which(tool, path=PATH) for tool in ("useradd", "userdel", "newuidmap", "newgidmap")):
        holder = SubidUser()
        USER = holder.__enter__()
        unittest.addModuleCleanup(holder.__exit__)


def build_package(world):
    """A package with files of several owners, set-id bits, and a script that changes owners when it is installed."""
    top = world.mkdir("package")
    for name, mode in (("opt/brig-e2e/suid", 0o4755), ("opt/brig-e2e/sgid", 0o2755),
                       ("opt/brig-e2e/secret", 0o440), ("opt/brig-e2e/plain", 0o644)):
        os.makedirs(os.path.dirname(f"{top}/{name}"), exist_ok=True)
        with open(f"{top}/{name}", "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\n")
        os.chmod(f"{top}/{name}", mode)
    os.makedirs(f"{top}/var/lib/brig-e2e")
    os.chmod(f"{top}/var/lib/brig-e2e", 0o2775)
    if IS_ROOT:
        os.chown(f"{top}/opt/brig-e2e/plain", 33, 33)
    os.mkdir(f"{top}/DEBIAN")
    with open(f"{top}/DEBIAN/control", "w", encoding="utf-8") as f:
        f.write("Package: brig-e2e\nVersion: 1\nArchitecture: all\nMaintainer: nobody <n@example.org>\n"
                "Description: a package\n")
    with open(f"{top}/DEBIAN/postinst", "w", encoding="utf-8") as f:
        f.write("#!/bin/sh\nset -e\nchown 42:43 /var/lib/brig-e2e\nchmod 2750 /var/lib/brig-e2e\n")
    os.chmod(f"{top}/DEBIAN/postinst", 0o755)
    path = f"{world.dir}/brig-e2e.deb"
    subprocess.run(["dpkg-deb", "--build", top, path], check=True, capture_output=True, env={"PATH": PATH})
    os.chmod(path, 0o644)
    return path


class Rights:
    """What holds wherever there is root inside. `flags` are those of the run."""

    flags = ()

    def root(self, script, *more, status=0, **kw):
        return self.shell(script, *self.flags, *more, status=status, **kw)

    def test_who_it_is(self):
        self.assertEqual(self.root("id -u; id -g; id -G; echo $HOME $USER $LOGNAME").split(),
                         ["0", "0", "0", "/root", "root", "root"])

    def test_exactly_seven_capabilities(self):
        none = "0" * 16
        self.assertEqual(self.root(CAPS).split(), [none, SEVEN, SEVEN, SEVEN, none])

    def test_a_change_to_another_user_leaves_none(self):
        none = "0" * 16
        for how in ("setpriv --reuid 33 --regid 33 --clear-groups", "setpriv --reuid 1000 --regid 1000 --init-groups"):
            self.assertEqual(self.root(f"{how} sh -c \"{CAPS.replace('$', chr(92) + '$')}\"").split()[:3],
                             [none, none, none], how)

    def test_a_python_that_drops(self):
        script = ("import os\nos.setgroups([5, 6]); os.setgid(8); os.setuid(7)\n"
                  "print(os.getresuid(), os.getgroups(), [l.split()[1] for l in open('/proc/self/status') if "
                  "l.startswith('CapEff')])\n"
                  "try: os.setuid(0); print('back')\nexcept PermissionError: print('stays')\n")
        self.assertEqual(self.python(script, *self.flags), "(7, 7, 7) [5, 6] ['0000000000000000']\nstays\n")

    def test_owners_and_modes(self):
        script = ("cd /workspace; touch f; chown 1234:4321 f; chmod 640 f; stat -c '%u %g %a' f; "
                  "mkdir d; chgrp 99 d; chmod 2770 d; stat -c '%g %a' d; touch d/x; stat -c %g d/x; "
                  "mkfifo p; ln -s f l; chown -h 7 l; stat -c %u l; "
                  "install -o 3 -g 4 -m 4755 /bin/true s; stat -c '%u %g %a' s")
        self.assertEqual(self.root(script).splitlines(), ["1234 4321 640", "99 2770", "99", "7", "3 4 4755"])

    def test_files_of_others_can_be_written_and_removed(self):
        script = ("mkdir -m 700 d; chown 1000 d; touch d/f; chown 1000 d/f; chmod 400 d/f; echo x > d/f; cat d/f; "
                  "rm -r d; echo gone")
        self.assertEqual(self.root(script), "x\ngone\n")

    def test_it_can_kill_what_another_user_runs(self):
        script = ("mkfifo -m 666 up; "
                  "setpriv --reuid 55 --regid 55 --clear-groups sh -c 'id -u > up; exec sleep 1000' & "
                  "read uid < up; echo $uid; kill $!; wait $!; echo $?")
        self.assertEqual(self.root(script), "55\n143\n")

    def test_the_root_is_its_own(self):
        script = ("echo x > /etc/brig-e2e; mkdir -p /opt/a /var/cache/b /root/c; touch /brig-e2e; "
                  "stat -c '%u %g' /etc/brig-e2e /opt /var/cache /root /brig-e2e /")
        self.assertEqual(set(self.root(script).splitlines()), {"0 0"})
        self.assertFalse(os.path.exists("/etc/brig-e2e") or os.path.exists("/brig-e2e"))

    def test_low_ports(self):
        script = ("import socket\nfor p in (1, 22, 80, 443):\n    s = socket.socket(); s.bind(('127.0.0.1', p)); "
                  "s.listen(); print(s.getsockname()[1])")
        self.assertEqual(self.python(script, *self.flags).split(), ["1", "22", "80", "443"])

    def test_the_statement_tells(self):
        receipt = self.w.receipt(*self.flags, "--", "/bin/true", status=0)
        layers = receipt["protection"]["layers"]
        self.assertFalse(layers["caps"]["on"])
        self.assertIn("root inside", layers["caps"]["why"])
        for name in ("user_ns", "mount_ns", "net_ns", "pid_ns", "no_new_privs", "seccomp", "proc", "fds", "disk"):
            self.assertTrue(layers[name]["on"], name)
        self.assertFalse(receipt["protection"]["complete"])

    def test_what_cannot_be_required(self):
        for what in ("all", "caps", "seccomp,caps"):
            self.refused(*self.flags, "--require", what, "--", "/bin/true", words=("user root", "caps"))
        self.outcome(*self.flags, "--require", "seccomp,landlock,no_new_privs,user_ns", "--", "/bin/true",
                     cause="exited", status=0)

    def test_a_package(self):
        path = build_package(self.w)
        script = (DPKG + "dpkg -i /deb >/tmp/log 2>&1 || cat /tmp/log; dpkg --audit; "
                  "stat -c '%n %u %g %a' /opt/brig-e2e/* /var/lib/brig-e2e")
        got = self.root(script, "-v", f"{path}:/deb:ro")
        plain = "33 33" if IS_ROOT else "0 0"
        self.assertEqual(sorted(line for line in got.splitlines() if line.startswith("/")), [
            f"/opt/brig-e2e/plain {plain} 644", "/opt/brig-e2e/secret 0 0 440",
            "/opt/brig-e2e/sgid 0 0 2755", "/opt/brig-e2e/suid 0 0 4755", "/var/lib/brig-e2e 42 43 2750"], got)

    def test_paranoid_keeps_set_id_bits_out(self):
        self.assertEqual(self.root("touch f; chmod 4755 f 2>/dev/null || echo no", "--profile", "paranoid"), "no\n")


@needs_root
class AsRoot(Rights, JailTest):
    flags = ROOT

    def test_files_of_the_template_are_roots(self):
        self.assertEqual(set(self.root("stat -c '%u %g' / /usr /etc /usr/bin/env /etc/passwd /dev/null /tmp /run "
                                       "/workspace").splitlines()), {"0 0"})
        self.assertEqual(self.root("stat -c '%u %g' /home/user"), "1000 1000\n")

    def test_the_template_can_be_changed_and_the_host_is_not(self):
        before = os.stat("/usr/bin/env")
        script = ("echo x > /usr/brig-e2e; chmod 700 /usr/bin/env; chown 5:6 /usr/bin/env; rm /etc/passwd; "
                  "stat -c '%u %g %a' /usr/bin/env; rm -r /etc/ssl; mkdir /etc/ssl; ls -A /etc/ssl | wc -l; "
                  "test -e /etc/passwd || echo gone")
        self.assertEqual(self.root(script).split(), ["5", "6", "700", "0", "gone"])
        after = os.stat("/usr/bin/env")
        self.assertEqual((before.st_uid, before.st_mode, before.st_mtime_ns), (after.st_uid, after.st_mode,
                                                                              after.st_mtime_ns))
        self.assertFalse(os.path.exists("/usr/brig-e2e"))
        self.assertTrue(os.path.exists("/etc/passwd"))

    def test_a_memory_store_too(self):
        """Without a writable root the store is memory, and root inside owns it."""
        self.assertEqual(self.shell("touch /workspace/f; chown 12 /workspace/f; stat -c %u /workspace /workspace/f; "
                                    "touch /usr/x 2>/dev/null || echo read-only", "--user", "root").split(),
                         ["0", "12", "read-only"])

    def test_a_bind_belongs_to_it_and_the_host_keeps_its_owner(self):
        top = self.w.mkdir("shared")
        os.chown(top, 4242, 4242)
        script = "stat -c %u /data; echo x > /data/f; chmod 4755 /data/f 2>/dev/null || echo no set-id; " \
                 "chown 1 /data/f 2>/dev/null || echo no owner"
        self.assertEqual(self.shell(script, *ROOT, "-v", f"{top}:/data").splitlines(), ["0", "no set-id", "no owner"])
        st = os.stat(f"{top}/f")
        self.assertEqual((st.st_uid, st.st_gid, st.st_mode & 0o7000), (4242, 4242, 0))

    def test_a_rootfs(self):
        top = self.w.mkdir("tree")
        for name in ("etc", "root", "srv", "var"):
            os.mkdir(f"{top}/{name}")
        for name in ("bin", "sbin", "lib", "lib64"):
            os.symlink(f"usr/{name}", f"{top}/{name}")
        os.mkdir(f"{top}/usr")
        with open(f"{top}/srv/file", "w", encoding="utf-8") as f:
            f.write("image\n")
        os.chown(f"{top}/srv/file", 33, 44)
        os.chmod(f"{top}/srv/file", 0o600)
        script = ("stat -c '%u %g' /srv/file; cat /srv/file; chown 7 /srv/file; rm -r /var; mkdir /var; "
                  "stat -c %u /srv/file /var")
        self.assertEqual(self.shell(script, *ROOT, "--rootfs", top, *PROGRAMS).split(),
                         ["33", "44", "image", "7", "0"])
        st = os.stat(f"{top}/srv/file")
        self.assertEqual((st.st_uid, st.st_gid), (33, 44))

    def test_limits_count_for_root_too(self):
        receipt = self.w.receipt(*ROOT, "--disk", "16m", *SH, "head -c 64m /dev/zero > /root/fill; echo $?", status=0)
        self.assertEqual(receipt["stdout"], "1\n")
        self.assertIn("disk", receipt["outcome"]["limits_hit"])

    def test_the_ordinary_user_is_as_before(self):
        none = "0" * 16
        self.assertEqual(self.shell(CAPS + "; id -u; stat -c %u /usr /etc").split(),
                         [none] * 5 + ["1000", "65534", "65534"])
        self.assertEqual(self.shell("touch f; chmod 4755 f 2>/dev/null || echo no", "--writable-root"), "no\n")


@needs_root
class Rootless(Rights, JailTest):
    """A plain user with subordinate ids, over a tree that belongs to them."""

    @classmethod
    def make_world(cls):
        if USER is None:
            raise unittest.SkipTest("subordinate ids (root, useradd, newuidmap)")
        world = World(USER.pw_uid, USER.pw_gid)
        first = next(int(line.split(":")[1]) for line in read("/etc/subuid").splitlines()
                     if line.startswith(USER.pw_name + ":"))
        cls.tree = cls.make_tree(world, first)
        cls.flags = (*ROOT, "--rootfs", cls.tree, *PROGRAMS)
        return world

    @staticmethod
    def make_tree(world, owner):
        """A root without programs: those of the host are shown at /usr, read-only."""
        top = f"{world.dir}/tree"
        os.mkdir(top)
        for name in ("etc", "root", "var", "usr"):
            os.mkdir(f"{top}/{name}")
        for name in ("bin", "sbin", "lib", "lib64"):
            os.symlink(f"usr/{name}", f"{top}/{name}")
        with open(f"{top}/etc/passwd", "w", encoding="utf-8") as f:
            f.write("root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n")
        with open(f"{top}/etc/group", "w", encoding="utf-8") as f:
            f.write("root:x:0:\nuser:x:1000:\n")
        for where, dirs, files in os.walk(top):
            for name in (".", *dirs, *files):
                os.chown(os.path.join(where, name), owner, owner, follow_symlinks=False)
        return top

    def test_the_host_is_refused(self):
        self.refused(*ROOT, "--", "/bin/true", words=("user root", "template host", "does not map"))

    def test_a_tree_of_the_user_is_refused(self):
        top = f"{self.w.home}/own"
        os.mkdir(top)
        os.chown(top, USER.pw_uid, USER.pw_gid)
        self.refused(*ROOT, "--rootfs", top, "--", "/bin/true", words=("user root", top, "subordinate ids"))

    def test_a_writable_bind_is_refused(self):
        top = f"{self.w.home}/data"
        os.mkdir(top)
        os.chown(top, USER.pw_uid, USER.pw_gid)
        self.refused(*self.flags, "-v", f"{top}:/data", "--", "/bin/true", words=("bind source", top, "read-only"))

    def test_a_process_for_each_id(self):
        """Without cgroups the kernel counts processes for each id; the limit is on their sum all the same."""
        script = ("import os, sys, time\nmade = 0\nfor uid in range(2000, 2200):\n    try: pid = os.fork()\n"
                  "    except BlockingIOError: break\n    if pid == 0:\n        os.setuid(uid)\n"
                  "        try: os.fork()\n        except BlockingIOError: pass\n        time.sleep(1000)\n"
                  "    made += 1\nprint(made)")
        receipt = self.w.receipt(*self.flags, "--pids", "40", *PY, script, status=0)
        self.assertLess(int(receipt["stdout"]), 40)
        self.assertTrue(receipt["protection"]["layers"]["pids"]["on"])

    def test_shared_ids_are_said(self):
        row = self.w.receipt(*self.flags, "--", "/bin/true", status=0)["protection"]["layers"]["uid_range"]
        self.assertFalse(row["on"])
        self.assertIn("share its subordinate ids", row["why"])


@needs_root
class OneId(JailTest):
    @classmethod
    def make_world(cls):
        return World(PLAIN_ID, PLAIN_ID)

    def test_it_is_refused(self):
        self.refused(*ROOT, "--", "/bin/true", words=("user root", "65536 ids"))


class Words(JailTest):
    def test_bad_users(self):
        for word in ("admin", "0", "root:root"):
            self.refused("--user", word, "--", "/bin/true", words=(f'--user "{word}"', "user or root"))
        self.refused("--user", "", "--", "/bin/true", words=('--user ""', "must be NAME or UID"))


if __name__ == "__main__":
    unittest.main()
