# SPDX-License-Identifier: Apache-2.0
"""sudo inside: who has it, what the command is and gets, how it ends, that nothing of it outlives its caller, and that
its program is no file of the sandbox's."""

import json
import os
import subprocess
import unittest

from buildkit import BuildTest
from helpers import BRIG, wait_until
from imagekit import Image, base_layer, entry, tar
from jailkit import BUILD, needs_root
from service import ServiceTest
from test_disks import DiskTest
from test_template_pool import PoolTest
from test_templates import ServedRootless

PLACE = "/usr/local/bin/sudo"
NOT_ALLOWED = "sudo: this sandbox does not allow it: make it with sudo (brig create --sudo)\n"
MAY_NOT = "this user has no sudo in this sandbox\n"
SEVEN = "00000000000000fb"
PATHS = {"env": {"PATH": "/usr/local/bin:/bin"}}  # that of the image has its /bin alone
# Everything about rights that the kernel says of a process.
STATUS = "grep -E '^(Uid|Gid|Groups|Cap|NoNewPrivs|Seccomp)' /proc/self/status"
# Bytes that are no request, descriptors that were not asked for, and callers that say nothing.
HOSTILE = """
import array, socket, sys
for what in (b"", b"x", b"\\xff" * 4096, bytes(100000), b"\\1\\0\\0\\0" * 8000):
    for fds in ([], [0], [0, 1, 2], [0] * 50):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.connect("\\0brig/sudo")
        s.sendmsg([what], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])
        s.close()
open_ones = []
for i in range(12):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.connect("\\0brig/sudo")
    open_ones.append(s)
print("asked")
"""
# Whoever may not ask finds that out whatever is sent, and holds nobody up.
REFUSED = """
import array, socket, struct
for what in (b"x", bytes(4096)):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.connect("\\0brig/sudo")
    s.sendmsg([what], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))])
    print(*struct.unpack("3I", s.recv(100)))
"""

# A terminal around sudo: its keys reach the command, which writes there and finds it as its stdin.
TERMINAL = """
import os, pty, sys
pid, master = pty.fork()
if pid == 0:
    os.execlp("sudo", "sudo", "sh", "-c", "trap \\"echo got; exit 3\\" INT; tty; echo up; while :; do sleep 0.1; done")
said = b""
while b"up" not in said:
    said += os.read(master, 100)
os.write(master, b"\\x03")
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said.split()[0].startswith(b"/dev/pts/"))
"""


class SudoTest(ServiceTest):
    def make(self, **members):
        made = self.d.ask("POST", "/v1/sandboxes", {"sudo": True, **members})
        self.assertEqual(made.status, 201, made)
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{made.json['id']}")
        return made.json

    def run_in(self, box, command, **members):
        answer = self.d.ask("POST", f"/v1/sandboxes/{box}/run", {"command": command, **members})
        self.assertEqual(answer.status, 200, answer)
        return answer.json

    def said(self, box, command, stdout, stderr="", **members):
        ran = self.run_in(box, command, **members)
        self.assertEqual((ran["stdout"], ran["stderr"]), (stdout, stderr), ran)


@needs_root
class Sudo(SudoTest):
    def test_the_command_is_root_and_its_caller_is_not(self):
        made = self.make(writable_root=True)
        box = made["id"]
        self.assertTrue(made["sudo"])
        self.assertFalse(made["protection"]["layers"]["caps"]["on"])
        self.assertIn("root inside", made["protection"]["layers"]["caps"]["why"])
        self.said(box, "touch /usr/x 2>/dev/null || echo no; sudo touch /usr/x; stat -c %u /usr/x", "no\n0\n")
        # The caller has what the user of any sandbox has; the command what root has there that a process may name.
        plain = self.make(sudo=False)["id"]
        self.assertEqual(self.run_in(box, STATUS)["stdout"].replace(SEVEN, "0" * 16),
                         self.run_in(plain, STATUS)["stdout"])
        self.assertEqual(self.run_in(box, "id -u; grep -E '^Cap(Prm|Eff|Inh|Amb)' /proc/self/status | cut -f2")
                         ["stdout"].split(), ["1000"] + ["0" * 16] * 4)
        root = self.run_in(box, STATUS, user="root")["stdout"]
        self.assertIn(f"CapEff:\t{SEVEN}", root)
        self.said(box, f"sudo sh -c \"{STATUS}\"", root)
        self.assertEqual(self.run_in(box, "sudo sh -c 'ls -l /proc/self/fd | wc -l; ulimit -a'")["stdout"],
                         self.run_in(box, "ls -l /proc/self/fd | wc -l; ulimit -a", user="root")["stdout"])

    def test_stdio_directory_and_status(self):
        box = self.make()["id"]
        self.said(box, "cd /tmp; echo in | sudo sh -c 'cat; pwd; echo err >&2; exit 7'; echo $?", "in\n/tmp\n7\n",
                  "err\n")
        self.said(box, "sudo no-such-command; echo $?", "127\n", "sudo: no-such-command: command not found\n")
        self.said(box, "sudo /etc/passwd; echo $?", "126\n", "sudo: /etc/passwd: permission denied\n")
        self.said(box, "sudo sh -c 'kill -TERM $$' 2>/dev/null; echo $?", "143\n")
        self.said(box, "sudo -u nobody-here id; echo $?", "1\n", "sudo: id: there is no such user\n")
        self.said(box, "sudo -u 'a b' id; echo $?", "1\n", "sudo: id: there is no such user\n")
        # What the caller has closed is /dev/null, and not something else of ours.
        self.said(box, "sudo sh -c 'readlink /proc/self/fd/0 >&2; cat' <&- >&-", "", "/dev/null\n")

    def test_environment_and_users(self):
        box = self.make()["id"]
        said = self.run_in(box, "X=1 Y=2 TZ=UTC sudo Z=3 env")["stdout"].splitlines()
        for line in ("HOME=/root", "USER=root", "LOGNAME=root", "SUDO_UID=1000", "SUDO_GID=1000", "SUDO_USER=user",
                     "SUDO_COMMAND=env", "Z=3", "TZ=UTC",
                     "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"):
            self.assertIn(line, said)
        self.assertFalse([line for line in said if line.startswith(("X=", "Y="))])
        self.assertIn("X=1", self.run_in(box, "X=1 sudo -E env")["stdout"].splitlines())
        self.said(box, "X=1 Y=2 sudo --preserve-env=X,HOME sh -c 'echo $X$Y $HOME'", "1 /home/user\n")
        self.said(box, "sudo -n -u '#33' -- id -u; sudo -u user id -u; sudo -s id -u; sudo -i pwd; sudo -iu user pwd",
                  "33\n1000\n0\n/root\n/home/user\n")
        self.said(box, "sudo -s printf '%s|' 'a  b' '$(id)' \"'\" ';'", "a  b|$(id)|'|;|")
        self.said(box, f"sudo -u 33 sh -c \"grep -E '^Cap(Prm|Eff|Amb)' /proc/self/status | cut -f2\"",
                  ("0" * 16 + "\n") * 3)

    def test_options_without_a_command(self):
        box = self.make()["id"]
        self.said(box, "sudo -nv; echo $?; sudo -S -v < /dev/null; echo $?; sudo -k; echo $?; sudo -K", "0\n0\n0\n")
        self.assertIn("(ALL : ALL) NOPASSWD: ALL\n", self.run_in(box, "sudo -l")["stdout"])
        ran = self.run_in(box, "sudo -b id; echo $?; sudo; echo $?")
        self.assertEqual(ran["stdout"], "1\n1\n")
        self.assertIn("sudo: there is no such option: -b\n", ran["stderr"])
        self.assertIn("sudo: there is no command\n", ran["stderr"])

    def test_signals_reach_the_command(self):
        box = self.make()["id"]
        self.said(box, "exec 2>/dev/null; cd; mkfifo f; sudo sh -c 'trap \"echo got; exit 3\" TERM; echo up > f; "
                       "while :; do sleep 0.1; done' & read x < f; kill -TERM $!; wait $!; echo $?", "got\n3\n")
        ran = self.run_in(box, "sudo sh -c 'kill -KILL $$'; echo $?")
        self.assertEqual(ran["stdout"].split()[-1], "137", ran)
        # Stopped and continued together with its caller.
        self.said(box, "exec 2>/dev/null; cd; mkfifo g; sudo sh -c 'echo $$ > g; exec sleep 1000' & read pid < g; "
                       "kill -TSTP $!; until grep -q '^State:.T' /proc/$!/status; do sleep 0.05; done; "
                       "until sudo grep '^State:.T' /proc/$pid/status; do sleep 0.05; done; kill -CONT $!; "
                       "while sudo grep -q '^State:.T' /proc/$pid/status; do sleep 0.05; done; kill $!; wait $!; "
                       "echo $?", "State:\tT (stopped)\n143\n")

    def test_the_keys_of_a_terminal(self):
        box = self.make()["id"]
        put = self.d.ask("PUT", f"/v1/sandboxes/{box}/files?path=/workspace/t.py", TERMINAL.encode())
        self.assertEqual(put.status, 200, put)
        self.said(box, "python3 t.py", "3 True\n")

    def test_it_ends_with_its_caller(self):
        box = self.make()["id"]
        self.run_in(box, "cd; mkfifo f; sudo sh -c 'echo $$ > /tmp/pid; echo up > f; exec sleep 1000' & read x < f")
        wait_until("the command has ended", lambda: self.run_in(
            box, "sudo kill -0 $(cat /tmp/pid) 2>/dev/null; echo $?")["stdout"] == "1\n")

    def test_others_may_not(self):
        box = self.make()["id"]
        self.said(box, "sudo id -u; echo $?", "1\n", f"sudo: id: {MAY_NOT}", user="33")
        self.said(box, "sudo -v; echo $?", "1\n", f"sudo: -v: {MAY_NOT}", user="33")
        # 125 in the place of a status, refused before a process was made, EPERM.
        self.said(box, f"python3 -c '{REFUSED}'", "32000 6 1\n" * 2, user="33")
        self.said(box, "sudo id -u", "0\n", user="root")

    def test_a_hostile_caller(self):
        box = self.make()["id"]
        self.said(box, f"python3 -c '{HOSTILE}'", "asked\n")
        self.said(box, "for i in $(seq 40); do sudo id -u & done; wait", "0\n" * 40)
        self.said(box, "sudo sudo sudo -u user sudo id -u", "0\n")

    def test_where_there_is_none(self):
        for members in ({}, {"writable_root": True}):
            made = self.make(sudo=False, **members)
            self.assertFalse(made["sudo"])
            self.assertTrue(made["protection"]["layers"]["caps"]["on"])
            self.said(made["id"], f"sudo id; echo $?; {PLACE} -n true; echo $?", "1\n1\n", NOT_ALLOWED * 2)
        # The real program, in a sandbox that has nobody to ask.
        other = self.make()["id"]
        program = self.d.ask("GET", f"/v1/sandboxes/{other}/files?path={PLACE}").body
        put = self.d.ask("PUT", f"/v1/sandboxes/{made['id']}/files?path=/workspace/sudo&mode=0755", program)
        self.assertEqual(put.status, 200, put)
        self.said(made["id"], "chmod 755 sudo; ./sudo id; echo $?", "1\n", NOT_ALLOWED)

    def test_what_is_refused(self):
        bind = {"binds": [{"source": "/var/tmp", "target": "/usr/local"}]}
        volume = {"volumes": [{"name": "data", "target": "/usr/local/bin"}]}
        for body, status, word in (({"sudo": 1}, 400, "sudo"), ({"sudo": True, "require": ["caps"]}, 422, "caps"),
                                   ({"sudo": True, "require": "all"}, 422, "caps"),
                                   ({"sudo": True, **bind}, 400, f"its program is {PLACE}, so nothing can be mounted "
                                                                 "at /usr/local"),
                                   ({"sudo": True, **volume}, 400, "nothing can be mounted at /usr/local/bin")):
            answer = self.d.ask("POST", "/v1/sandboxes", body)
            self.assertEqual(answer.status, status, answer)
            self.assertIn(word, answer.json["error"]["message"])

    def test_profiles_and_a_root_that_cannot_be_written(self):
        for profile in ("paranoid", "compat"):
            box = self.make(profile=profile)["id"]
            self.said(box, "echo in | sudo sh -c 'cat; id -u; touch /usr/x 2>/dev/null || echo no'", "in\n0\nno\n")

    def test_of_the_command_line(self):
        made = subprocess.run([BRIG, "create", "--sudo", "-q"], env=self.d.env, capture_output=True, text=True,
                              timeout=120, check=False)
        self.assertEqual(made.returncode, 0, made)
        box = made.stdout.strip()
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{box}")
        self.said(box, "sudo id -u", "0\n")
        run = subprocess.run([BRIG, "run", "--sudo", "--", "id"], env=self.d.env, capture_output=True, text=True,
                             timeout=120, check=False)
        self.assertEqual((run.returncode, run.stdout), (125, ""), run)
        self.assertIn("--sudo: only with --template", run.stderr)


@needs_root
class Attacks(SudoTest):
    """Whoever may ask gets root inside, and nobody gets more."""

    def test_another_sandbox_has_nobody_to_ask(self):
        self.make()
        plain = self.make(sudo=False)["id"]
        script = ("import socket\nfor kind in (socket.SOCK_SEQPACKET, socket.SOCK_STREAM, socket.SOCK_DGRAM):\n"
                  "    print(socket.socket(socket.AF_UNIX, kind).connect_ex(chr(0) + \"brig/sudo\"))\n")
        self.said(plain, f"python3 -c '{script}'", "111\n" * 3)

    def test_the_name_cannot_be_taken_over(self):
        box = self.make()["id"]
        script = ("import socket\ns = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
                  "try: s.bind(chr(0) + \"brig/sudo\"); print(\"taken\")\nexcept OSError as e: print(e.errno)\n")
        self.said(box, f"python3 -c '{script}'; sudo python3 -c '{script}'", "98\n98\n")

    def test_root_by_sudo_is_held_as_root_inside_is(self):
        """The cases of tests/hostile that root inside tries, by sudo."""
        made = self.make(writable_root=True, limits={"pids": 256, "memory": "512m", "disk": "128m"})
        with open(os.path.join(BUILD, "tests/hostile/hostile-probe"), "rb") as f:
            put = self.d.ask("PUT", f"/v1/sandboxes/{made['id']}/files?path=/workspace/probe&mode=0755", f.read())
        self.assertEqual(put.status, 200, put)
        env = {f"HOSTILE_NS_{kind}": os.readlink(f"/proc/self/ns/{kind}")
               for kind in ("mnt", "pid", "net", "ipc", "uts", "cgroup", "user")}
        env.update(HOSTILE_INSIDE="1", HOSTILE_MODE="root", HOSTILE_HOST_NAME=os.uname().nodename)
        words = " ".join(f"'{name}={value}'" for name, value in env.items())
        # U23 is about another profile, U37 about a bind; U43 and U44 fill the disk and the table of processes.
        cases = [f"U{n:02}" for n in range(1, 51) if n not in (23, 37, 43, 44)]
        ran = self.run_in(made["id"], f"for c in {' '.join(cases)}; do sudo {words} ./probe $c; echo $c: $?; done")
        self.assertEqual([line for line in ran["stdout"].splitlines() if line.startswith("BREACH")], [])
        for case in cases:
            self.assertIn(f"{case}: 0\n", ran["stdout"])

    def test_the_server_cannot_be_read_or_stopped_by_its_caller(self):
        box = self.make()["id"]
        ran = self.run_in(box, "cd; mkfifo f; sudo sh -c 'echo $PPID > f; exec sleep 1000' & read server < f; "
                               "exec 2>/dev/null; "
                               "for f in mem environ fd exe maps; do cat /proc/$server/$f && echo read; done; "
                               "kill -9 $server && echo killed; kill -STOP 1 && echo stopped; "
                               "sudo cat /proc/$server/environ && echo read; kill $!; wait $!; "
                               "sudo id -u")
        self.assertEqual(ran["stdout"], "0\n", ran)

    def test_no_descriptor_of_the_service_comes_along(self):
        box = self.make()["id"]
        self.said(box, "sudo python3 -c 'import os; print(sorted(int(n) for n in os.listdir(\"/proc/self/fd\"))[:3], "
                       "len(os.listdir(\"/proc/self/fd\")))' </dev/null", "[0, 1, 2] 4\n")

    def test_limits_are_those_of_the_sandbox(self):
        box = self.make(limits={"pids": 24, "memory": "64m"})["id"]
        ran = self.run_in(box, "sudo sh -c 'i=0; while [ $i -lt 60 ]; do sleep 1000 & i=$((i+1)); done; wait' "
                               "> /dev/null 2>&1; echo $?")
        self.assertNotEqual(ran["stdout"], "0\n", ran)
        ran = self.run_in(box, "sudo dd if=/dev/zero of=/dev/null bs=200M count=1 2>/dev/null; echo $?")
        self.assertEqual(ran["stdout"].split()[-1], "137", ran)
        self.said(box, "sudo id -u", "0\n")

    def test_a_waiting_room_that_is_full(self):
        """16 that hold their place: others wait, and nothing is lost."""
        box = self.make()["id"]
        self.said(box, "cd; mkfifo f g; exec 7<>g 8<>f; "
                       "for i in $(seq 16); do sudo sh -c 'echo > g; read x < f' & done; "
                       "for i in $(seq 16); do read x <&7; done; sudo id -u & for i in $(seq 16); do echo >&8; done; "
                       "wait", "0\n")

    def test_a_user_that_may_not_cannot_hold_it_up(self):
        box = self.make()["id"]
        script = ("import socket, time\nheld = []\nfor i in range(12):\n"
                  "    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect(chr(0) + \"brig/sudo\")\n"
                  "    held.append(s)\nprint(\"held\", flush=True)\ntime.sleep(1000)\n")
        made = self.d.ask("POST", f"/v1/sandboxes/{box}/processes", {"argv": ["python3", "-c", script], "user": "33"})
        self.assertEqual(made.status, 201, made)
        self.said(box, "sudo id -u", "0\n")


@needs_root
class Kept(DiskTest):
    """Copies of a sandbox have it again, and a template that is made of one has nothing of it."""

    def test_copies(self):
        box = self.box(sudo=True, writable_root=True)
        self.assertEqual(self.out(box, "sudo touch /usr/local/bin/own && ls /usr/local/bin/own /usr/local/bin/sudo"),
                         "/usr/local/bin/own\n/usr/local/bin/sudo\n")
        for copy in (self.fork(box)[0]["id"], self.restore(self.snapshot(box)["id"])["id"]):
            self.assertEqual(self.out(copy, "sudo stat -c %u /usr/local/bin/own; id -u"), "0\n1000\n")

    def test_a_commit_does_not_have_it(self):
        box = self.box(sudo=True, writable_root=True)
        self.out(box, "sudo touch /usr/local/bin/own; sudo -v")
        self.commit(box, "made")
        plain = self.sandbox(template="made")
        # It is that of any sandbox without it: the line, and no program of 100 KiB.
        self.assertEqual(self.out(plain, f"ls /usr/local/bin/own; head -n 1 {PLACE}"),
                         "/usr/local/bin/own\n#!/bin/sh\n")
        self.assertEqual(self.d.sh(plain, "sudo id")["stderr"], NOT_ALLOWED)
        again = self.sandbox(template="made", sudo=True)
        self.assertEqual(self.out(again, "sudo id -u; sudo rm /usr/local/bin/sudo; ls /usr/local/bin/own"),
                         "0\n/usr/local/bin/own\n")


@needs_root
class Templates(BuildTest):
    def test_on_layers(self):
        self.base()
        box = self.sandbox(template="base", sudo=True, writable_root=True, **PATHS)
        self.assertEqual(self.d.sh(box, "sudo sh -c 'id -u; touch /usr/local/bin/x /usr/x'; stat -c %u /usr/x; "
                                        "stat -c '%u %a' /usr /usr/local /usr/local/bin /usr/local/bin/sudo")["stdout"],
                         "0\n0\n" + "0 755\n" * 4)
        self.assertEqual(self.d.sh(box, "sudo id -u", user="33")["stderr"], f"sudo: id: {MAY_NOT}")
        other = self.sandbox(template="base", sudo=True, user="7:8", **PATHS)
        self.assertEqual(self.d.sh(other, "id -u; sudo id -u; sudo sh -c 'echo $SUDO_UID'")["stdout"], "7\n0\n7\n")
        none = self.sandbox(template="base")
        self.assertEqual(self.d.sh(none, f"ls {PLACE} /usr/local 2>/dev/null; echo $?")["stdout"], "2\n")

    def test_root_is_uid_0_whatever_the_image_says(self):
        lies = tar(entry("etc/passwd", b"root:x:1000:1000::/tmp:/bin/sh\n0:x:7:7::/:\nother:x:0:5::/srv:/bin/sh\n"),
                   entry("etc/group", b"root:x:1000:\n"))
        self.loaded(Image(base_layer(), lies).oci(), "name=lies")
        box = self.sandbox(template="lies", sudo=True, **PATHS)
        see = "sh -c 'id -u; id -g; echo $HOME $USER'"
        for words in ("sudo", "sudo -u root", "sudo -u 0"):
            self.assertEqual(self.d.sh(box, f"{words} {see}")["stdout"].split()[:3], ["0", "0", "/srv"], words)
        self.assertEqual(self.d.sh(box, f"sudo {see}")["stdout"], "0\n0\n/srv root\n")
        self.assertEqual(self.d.sh(box, "id -u; id -g", user="root")["stdout"], "0\n0\n")

    def test_directories_look_as_the_image_has_them(self):
        layer = tar(entry("usr", mode=0o755), entry("usr/local", mode=0o2775, gid=50),
                    entry("usr/local/bin", mode=0o751, uid=3, gid=4), entry("usr/local/bin/sudo", b"image\n", 0o755))
        self.loaded(Image(base_layer(), layer).oci(), "name=own")
        box = self.sandbox(template="own", sudo=True)
        self.assertEqual(self.d.sh(box, "sudo stat -c '%u %g %a' /usr /usr/local /usr/local/bin")["stdout"],
                         "0 0 755\n0 50 2775\n3 4 751\n")

    def test_a_link_on_the_way_is_refused(self):
        for name, link in (("a", entry("usr/local", link="/opt", kind=b"2")),
                           ("b", entry("usr/local/bin", link="../../bin", kind=b"2"))):
            self.loaded(Image(base_layer(), tar(link)).oci(), f"name={name}")
            answer = self.d.ask("POST", "/v1/sandboxes", {"template": name, "sudo": True})
            self.assertGreaterEqual(answer.status, 400, answer)
            self.assertIn("sudo: /usr/local/bin of the template", answer.json["error"]["message"])

    def test_a_setting_of_the_template(self):
        self.base()
        made = self.built("FROM base\n", "with", template_toml="sudo = true\n")[0]
        self.assertEqual(made["settings"], {"sudo": True})
        box = self.sandbox(template="with", **PATHS)
        self.assertEqual(self.d.sh(box, "sudo id -u")["stdout"], "0\n")
        box = self.d.create(template="with", sudo=False)
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{box['id']}")
        self.assertFalse(box["sudo"])
        self.assertEqual(self.built("FROM with\n", "upper")[0]["settings"], {"sudo": True})
        upper = self.built("FROM with\n", "upper2", template_toml="sudo = false\n")[0]
        self.assertEqual(upper["settings"], {"sudo": False})
        self.refused_build("FROM base\n", "template.toml:1: sudo", template_toml="sudo = 1\n")
        answer = self.d.ask("POST", "/v1/sandboxes", {"template": "with", "require": "all"})
        self.assertEqual(answer.status, 422, answer)
        run = subprocess.run([BRIG, "run", "--template", "base", "--sudo", "-o", "json", "--entrypoint", "/bin/sh",
                              "--", "-c", f"id -u; {PLACE} id -u"], env=self.d.env, capture_output=True, text=True,
                             timeout=120, check=False)
        self.assertEqual(json.loads(run.stdout)["stdout"], "1000\n0\n", run)


@needs_root
class Pool(PoolTest):
    def test_those_that_wait_have_it_or_not(self):
        self.template("sudo = true\n")
        self.full()
        box = self.create()
        self.assertEqual((box["pooled"], box["sudo"]), (True, True))
        self.assertEqual(self.d.sh(box["id"], f"id -u; {PLACE} id -u")["stdout"], "1000\n0\n")
        box = self.create(sudo=False)
        self.assertEqual((box.get("pooled", False), box["sudo"]), (False, False))
        self.assertEqual(self.d.sh(box["id"], f"test -e {PLACE}; echo $?")["stdout"], "1\n")


@needs_root
class Rootless(ServedRootless, BuildTest):
    def test_on_layers_and_not_on_the_host(self):
        self.base()
        box = self.sandbox(template="base", sudo=True, writable_root=True, **PATHS)
        self.assertEqual(self.d.sh(box, "id -u; sudo sh -c 'id -u; touch /usr/x'; sudo -u 33 touch /tmp/x; "
                                        "stat -c %u /usr/x /tmp/x")["stdout"].split(), ["1000", "0", "0", "33"])
        self.assertIn(f"CapEff:\t{SEVEN}\n", self.d.sh(box, "sudo cat /proc/self/status")["stdout"])
        self.assertEqual(self.d.sh(box, "sudo id -u", user="33")["stderr"], f"sudo: id: {MAY_NOT}")
        answer = self.d.ask("POST", "/v1/sandboxes", {"sudo": True})
        self.assertEqual(answer.status, 422, answer)
        self.assertIn("the files of the template host belong to an id", answer.json["error"]["message"])
        none = self.sandbox()
        self.assertEqual(self.d.sh(none, "sudo id")["stderr"], NOT_ALLOWED)


if __name__ == "__main__":
    unittest.main()
