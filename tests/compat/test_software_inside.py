# SPDX-License-Identifier: Apache-2.0
"""Software is installed inside, by root of the sandbox and from the real package indexes: a minimal Debian as a
template (mmdebstrap), and in sandboxes of it `apt-get install` of a compiler, numpy by pip, npm's packages; by a
service of root, and by one of a plain user with subordinate ids."""

import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "e2e")]

from jailkit import SubidUser, needs_root  # noqa: E402  pylint: disable=wrong-import-position
from service import Daemon, ServiceTest  # noqa: E402  pylint: disable=wrong-import-position

SECONDS = 400


def debian_tar(where):
    path = f"{where}/debian.tar"
    with open("/etc/os-release", encoding="utf-8") as f:
        suite = next(line.split("=")[1].strip() for line in f if line.startswith("VERSION_CODENAME="))
    # An image of an administrator trusts whom the host trusts.
    trust = "copy-in /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs"
    # Its mounts end with it, also if it is killed.
    done = subprocess.run(["unshare", "--mount", "--propagation", "private", "mmdebstrap",
                           "--variant=minbase", "--include=ca-certificates", f"--customize-hook={trust}", suite, path],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                          env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "TMPDIR": where})
    assert done.returncode == 0, done.stderr
    return path


@needs_root
class AsRoot(ServiceTest):
    LIMIT_SECONDS = 900
    MEMORY = "2g"

    @classmethod
    def setUpClass(cls):
        temp = tempfile.TemporaryDirectory(prefix="brig-software-")
        cls.addClassCleanup(temp.cleanup)
        cls.d = cls.daemon()
        with open(debian_tar(temp.name), "rb") as f:
            answer = cls.d.ask("POST", "/v1/templates/load?name=debian", f.read(),
                               headers={"Content-Type": "application/x-tar"}, timeout=SECONDS)
        last = json.loads(answer.body.splitlines()[-1])
        assert "template" in last, last

    @classmethod
    def daemon(cls):
        return Daemon()

    def box(self):
        return self.sandbox(template="debian", user="root", writable_root=True, network="packages", timeout=SECONDS * 2,
                            limits={"memory": self.MEMORY, "disk": "2g", "inodes": 400000, "pids": 256})

    def do(self, box, command, **members):
        """stdout of a command that ends well."""
        answer = self.d.ask("POST", f"/v1/sandboxes/{box}/run",
                            {"command": command, "timeout": SECONDS, "env": {"DEBIAN_FRONTEND": "noninteractive"},
                             **members}, timeout=SECONDS + 60)
        self.assertEqual(answer.status, 200, answer)
        run = answer.json
        self.assertEqual((run["outcome"]["cause"], run["outcome"]["exit_code"]), ("exited", 0),
                         run["stdout"][-1500:] + run["stderr"][-1500:])
        return run["stdout"]

    def install(self, box, *packages):
        self.do(box, "apt-get update -q && apt-get install -qy --no-install-recommends " + " ".join(packages))
        self.assertEqual(self.do(box, "dpkg --audit"), "")

    def test_a_compiler_users_and_owners(self):
        box = self.box()
        self.install(box, "build-essential", "sudo", "openssh-client")
        self.do(box, "printf 'int main(void) { return 0; }' > /tmp/x.c && gcc -o /usr/local/bin/x /tmp/x.c && x")
        self.assertEqual(self.do(box, "stat -c '%a %U %G' /usr/bin/ssh-agent"), "2755 root _ssh\n")
        self.do(box, "useradd -m -s /bin/bash bob && echo bob:word | chpasswd && chown -R bob:bob /home/bob")
        self.assertEqual(self.do(box, "su bob -c 'id -un; grep CapEff /proc/self/status | cut -f2'"),
                         "bob\n0000000000000000\n")
        self.do(box, "groupadd -g 4242 team && usermod -aG team bob && su bob -c 'id -Gn | grep -qw team'")
        self.do(box, "cd /tmp && mkdir p && printf 'install:\\n\\tinstall -m 755 /tmp/x.c /usr/local/lib/x\\n' > "
                     "p/Makefile && make -C p install && test -x /usr/local/lib/x")

    def test_numpy_by_pip(self):
        box = self.box()
        self.install(box, "python3-pip")
        self.do(box, "pip install -q --break-system-packages --root-user-action=ignore numpy")
        self.assertEqual(self.do(box, "python3 -c 'import numpy; print(int(numpy.arange(5).sum()))'"), "10\n")
        self.assertEqual(self.do(box, "python3 -c 'import numpy; print(int(numpy.arange(5).sum()))'", user="user"),
                         "10\n")

    def test_a_package_of_npm(self):
        box = self.box()
        self.install(box, "nodejs", "npm")
        self.do(box, "npm install -g --no-audit --no-fund semver")
        self.assertEqual(self.do(box, "semver -i minor 1.2.3"), "1.3.0\n")


class Rootless(AsRoot):
    MEMORY = "5g"  # The store of a plain user's sandbox is memory.

    @classmethod
    def daemon(cls):
        subid = SubidUser()
        user = subid.__enter__()
        cls.addClassCleanup(subid.__exit__)
        return Daemon(user=user.pw_uid, group=user.pw_gid)

    @classmethod
    def tearDownClass(cls):
        cls.d.close()

    test_a_package_of_npm = None  # It is the same there, and takes minutes.
