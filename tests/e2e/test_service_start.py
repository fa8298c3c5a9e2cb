# SPDX-License-Identifier: Apache-2.0
"""Starts that cannot work end with one message and 125, `brig config check` says the same before, and what belongs to
root is handed over.

One brig serve per case: each is another start. Nothing here needs a sandbox."""

import os
import pwd
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import tempfile
import unittest

from helpers import BRIG, PATIENCE, environment, wait_until
from service import Daemon, free_port

BRIGD = pwd.getpwnam("brig").pw_uid if "brig" in (u.pw_name for u in pwd.getpwall()) else 62744
NO_WAY = f"user {BRIGD}, which brigd runs as, may not pass through"


def make_certificate(directory, name="tls"):
    key, cert = f"{directory}/{name}.key", f"{directory}/{name}.crt"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                    "-keyout", key, "-out", cert, "-subj", f"/CN={name}", "-days", "2"],
                   check=True, capture_output=True)
    os.chmod(key, 0o600)
    return cert, key


def common_name(port):
    context = ssl._create_unverified_context()
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as plain, context.wrap_socket(plain) as s:
        der = s.getpeercert(binary_form=True)
    shown = subprocess.check_output(["openssl", "x509", "-inform", "der", "-noout", "-subject"], input=der)
    return shown.decode().strip().replace(" ", "").rpartition("CN=")[2]


def is_socket(path):
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


@unittest.skipUnless(os.geteuid() == 0, "root: brigd has a user of its own only then")
class Start(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="brig-start-")
        os.chmod(self.dir, 0o755)
        self.addCleanup(wait_until, "nothing writes there any more", self.removed)
        self.config = f"{self.dir}/config.toml"
        self.env = environment(BRIG_STATE_DIR=f"{self.dir}/state", BRIG_RUN_DIR=f"{self.dir}/run",
                               BRIG_CACHE_DIR=f"{self.dir}/cache", BRIG_CONFIG=self.config,
                               BRIG_LISTEN=f"127.0.0.1:{free_port()}", BRIG_SOCKET=f"{self.dir}/run/brig.sock")
        self.write("")

    def removed(self):
        """A spawner that had too little time to end is on its own, and still removes what it has made."""
        shutil.rmtree(self.dir, ignore_errors=True)
        return not os.path.exists(self.dir)

    def write(self, text):
        with open(self.config, "w", encoding="utf-8") as f:
            f.write(text)

    def closed(self):
        """A directory that only root can pass."""
        os.makedirs(f"{self.dir}/closed", mode=0o700)
        return f"{self.dir}/closed"

    def brig(self, *argv):
        return subprocess.run([BRIG, *argv], stdin=subprocess.DEVNULL, env=self.env, capture_output=True, text=True,
                              timeout=PATIENCE, check=False)

    def ends(self, *messages):
        """brig serve ends by itself, and a client that waited does not hang."""
        done = self.brig("serve")
        self.assertEqual(done.returncode, 125, done.stderr)
        for message in messages:
            self.assertIn(message, done.stderr.splitlines()[-1])
        self.assertFalse(is_socket(self.env["BRIG_SOCKET"]))
        return done.stderr

    def check(self, message):
        done = self.brig("config", "check")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (1, "", f"brig: {message}\n"))

    def both(self, message):
        """The check and the start end with the same words."""
        self.check(message)
        self.assertEqual(self.ends().splitlines()[-1], f"brig: {message}")

    def test_state_directory(self):
        self.env["BRIG_STATE_DIR"] = f"{self.closed()}/state"
        self.both(f"the state directory {self.dir}/closed/state: {NO_WAY} {self.dir}/closed: Permission denied")

    def test_database(self):
        self.write(f'[store]\ndatabase_url = "sqlite:{self.closed()}/brig.db"\n')
        self.both(f"store.database_url {self.dir}/closed/brig.db: {NO_WAY} {self.dir}/closed: Permission denied")

    def test_database_that_belongs_to_another(self):
        self.write(f'[store]\ndatabase_url = "sqlite:{self.dir}/brig.db"\n')
        self.both(f"store.database_url {self.dir}/brig.db: user {BRIGD}, which brigd runs as, cannot make a file in "
                  f"{self.dir}: Permission denied")

    def test_provider_that_is_off(self):
        self.write('[manager]\nprovider = "chroot"\n')
        self.check(f"{self.config}:2: [manager] provider = chroot: must be the name of a provider, such as local")
        self.write('[manager]\nprovider = "firecracker"\n')
        self.ends("[manager] provider: provider firecracker: needs a service of root, [firecracker] path and kernel, "
                  "and [vm]")
        self.write('[manager]\nprovider = "gvisor"\n[providers]\nonly = "local"\n')
        self.ends("[manager] provider: provider runsc: [providers] only does not name it")
        self.write('[providers]\nonly = "local chroot"\n')
        self.check(f"{self.config}:2: [providers] only = local chroot: must be names of providers with spaces between "
                   "them, such as local runc")

    def test_database_server(self):
        self.write(f'[store]\ndatabase_url = "postgresql://nobody@127.0.0.1:{free_port()}/none"\n')
        self.ends("brig: ", "Connection refused")

    def test_log_file(self):
        self.write(f'[server]\nlog_file = "{self.closed()}/log"\n')
        self.both(f"log_file {self.dir}/closed/log: {NO_WAY} {self.dir}/closed: Permission denied")

    def test_log_file_that_belongs_to_another(self):
        with open(f"{self.dir}/log", "w", encoding="ascii"):
            os.chmod(f"{self.dir}/log", 0o600)
        self.write(f'[server]\nlog_file = "{self.dir}/log"\n')
        self.both(f"log_file {self.dir}/log, opened by user {BRIGD}, which brigd runs as: Permission denied")

    def test_tls_files(self):
        self.write(f'[server]\ntls_cert = "{self.dir}/none.crt"\ntls_key = "{self.dir}/none.key"\n')
        self.both(f"server.tls_cert {self.dir}/none.crt: No such file or directory")

    def test_tls_key_of_another_certificate(self):
        cert, _ = make_certificate(self.dir)
        _, key = make_certificate(self.dir, "other")
        self.write(f'[server]\ntls_cert = "{cert}"\ntls_key = "{key}"\n')
        self.ends("brig: ", "key")

    def test_key_ring(self):
        self.write(f'[secrets]\nkey_file = "{self.dir}/none.keys"\n')
        self.both(f"secrets.key_file {self.dir}/none.keys: No such file or directory")
        with open(f"{self.dir}/bad.keys", "w", encoding="ascii") as f:
            f.write("not a key\n")
        os.chmod(f"{self.dir}/bad.keys", 0o600)
        self.write(f'[secrets]\nkey_file = "{self.dir}/bad.keys"\n')
        self.ends("brig: ", "key")

    def test_address_in_use(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self.env["BRIG_LISTEN"] = f"127.0.0.1:{taken.getsockname()[1]}"
            self.ends("brig: ", "Address already in use")

    def test_a_client_that_waits_is_told(self):
        """It waits in the listener's queue while brigd tries; then the connection ends."""
        with socket.create_server(("127.0.0.1", 0)) as database:  # it says nothing, until it is closed
            self.write(f'[store]\ndatabase_url = "postgresql://nobody@127.0.0.1:{database.getsockname()[1]}/none"\n')
            quiet = {"stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE, "env": self.env, "text": True}
            with subprocess.Popen([BRIG, "serve"], **quiet) as serve:
                with database.accept()[0]:
                    client = subprocess.Popen([BRIG, "ls"], **quiet)
                _, said = client.communicate(timeout=PATIENCE)
                serve.communicate(timeout=PATIENCE)
            self.assertEqual(serve.returncode, 125)
            self.assertEqual(client.returncode, 125)
            self.assertNotEqual(said, "")

    def broken(self, name):
        """Helpers of which one ends as soon as it is started."""
        helpers = f"{self.dir}/libexec"
        shutil.copytree(os.environ["BRIG_LIBEXEC_DIR"], helpers)
        os.unlink(f"{helpers}/{name}")
        with open(f"{helpers}/{name}", "w", encoding="ascii") as f:
            f.write("#!/bin/sh\nexit 3\n")
        os.chmod(f"{helpers}/{name}", 0o755)
        self.env["BRIG_LIBEXEC_DIR"] = helpers

    def test_a_daemon_that_never_comes_up(self):
        for name in ("brigd", "brig-spawner"):
            with self.subTest(name):
                shutil.rmtree(f"{self.dir}/libexec", ignore_errors=True)
                self.broken(name)
                said = self.ends("brig: ")
                self.assertRegex(said, rf"{name} \(pid [0-9]+\) ended with status 3")
                self.assertNotIn("starting it again", said)

    def test_without_brig_egress_it_serves(self):
        """Only networks need it; it is tried again, ever more slowly, and said once."""
        self.broken("brig-egress")
        d = Daemon(env={"BRIG_LIBEXEC_DIR": self.env["BRIG_LIBEXEC_DIR"]})
        self.addCleanup(d.close)
        network = {"default": "deny", "rules": [{"action": "allow", "domain": "example.com", "ports": [443]}]}
        answer = d.ask("POST", "/v1/sandboxes", {"network": network})
        self.assertEqual(answer.status, 503, answer)
        self.assertIn("brig-egress", answer.json["error"]["message"])
        self.assertEqual(d.ask("POST", "/v1/sandboxes", {}).status, 201)

    def test_check_of_what_works(self):
        cert, key = make_certificate(self.dir)
        os.chmod(self.dir, 0o755)
        self.write(f'[server]\ntls_cert = "{cert}"\ntls_key = "{key}"\n')
        done = self.brig("config", "check")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, f"{self.config}: ok\n", ""))

    def test_check_of_files_that_are_yet_to_be_made(self):
        for name in ("db", "log"):
            os.mkdir(f"{self.dir}/{name}")
            os.chown(f"{self.dir}/{name}", BRIGD, BRIGD)
        self.write(f'[server]\nlog_file = "{self.dir}/log/brig.log"\n'
                   f'[store]\ndatabase_url = "sqlite:{self.dir}/db/brig.db"\n')
        done = self.brig("config", "check")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, f"{self.config}: ok\n", ""))
        closed = subprocess.run(["/bin/sh", "-c", 'exec "$0" config check <&-', BRIG], env=self.env,
                                capture_output=True,
                                text=True, timeout=PATIENCE, check=False)
        self.assertEqual((closed.returncode, closed.stdout, closed.stderr), (0, f"{self.config}: ok\n", ""))
        self.assertEqual([os.listdir(f"{self.dir}/{name}") for name in ("db", "log")], [[], []])


    # ---- set-ups that are broken in one place: the check fails exactly where the start does, with the same words ----

    def own(self, path, mode=0o700, uid=0):
        """A directory with this mode and owner, whatever the umask."""
        os.makedirs(path, exist_ok=True)
        os.chmod(path, mode)
        os.chown(path, uid, uid)

    def link(self, path):
        os.makedirs(f"{self.dir}/elsewhere", exist_ok=True)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(f"{self.dir}/elsewhere", path)

    def tops(self):
        for top in ("state", "run", "cache"):
            at = f"{self.dir}/{top}"
            yield (f"{top} of another", lambda at=at: self.own(at, uid=4711),
                   f"{top} directory {at} belongs to uid 4711, not to the caller (uid 0): Operation not permitted")
            yield (f"{top} that all may write", lambda at=at: self.own(at, mode=0o777),
                   f"{top} directory {at} may be written to by others (mode 0777): Operation not permitted")
            yield (f"{top} is a link", lambda at=at: self.link(at),
                   f"{top} directory {at} (a symlink there is not followed): Not a directory")
            yield (f"{top} below a file", lambda top=top: self.env.update(
                {f"BRIG_{top.upper()}_DIR": f"{self.config}/{top}"}),
                   f"{top} directory {self.config}/{top} (a symlink there is not followed): Not a directory")
        yield ("cache is closed", lambda: self.own(f"{self.dir}/cache"),
               f"the directory of dependency sets {self.dir}/cache/sets: {NO_WAY} {self.dir}/cache: Permission denied")

    def brigds(self):
        for name in ("state/service", "state/audit", "state/keys", "cache/sets"):
            at = f"{self.dir}/{name}"
            yield (f"{name} is a link", lambda at=at: self.link(at), f"{at}: Not a directory")
            yield (f"{name} of another", lambda at=at: self.own(at, uid=4711),
                   f"{at}: belongs to user 4711, not to us: Operation not permitted")
            yield (f"{name} is a file", lambda at=at: (os.makedirs(os.path.dirname(at)), open(at, "x").close()),
                   f"{at}: Not a directory")

    def inside(self):
        opened = f"opened by user {BRIGD}, which brigd runs as: "
        for name, what, why in (
                ("service/artifacts", "the directory of artifacts", "Not a directory"),
                ("service/brig.db-lock", "the database", "Too many levels of symbolic links"),
                ("audit/audit.jsonl", "the audit log", "Too many levels of symbolic links"),
                ("audit/heads.jsonl", "the heads of the audit log", "Too many levels of symbolic links"),
                ("keys/audit.pem", "the key of the audit log", "Too many levels of symbolic links"),
                ("keys/preview.key", "the key of previews", "Too many levels of symbolic links")):
            at = f"{self.dir}/state/{name}"
            yield (f"{name} is a link", lambda at=at: (
                self.own(f"{self.dir}/state", mode=0o711), self.own(os.path.dirname(at), uid=BRIGD), self.link(at)),
                   f"{what} {at}, {opened}{why}")

    def sockets(self):
        at = f"{self.dir}/brig.sock"
        yield ("the socket is a file", lambda: (self.env.update(BRIG_SOCKET=at), open(at, "x").close()),
               f"{at}: there is a file of that name that is not a socket")
        yield ("the socket is a directory", lambda: (self.env.update(BRIG_SOCKET=at), os.mkdir(at)),
               f"{at}: there is a file of that name that is not a socket")
        yield ("the socket has no directory", lambda: self.env.update(BRIG_SOCKET=f"{self.dir}/none/brig.sock"),
               f"{self.dir}/none/brig.sock: No such file or directory")
        yield ("the socket is below a file", lambda: self.env.update(BRIG_SOCKET=f"{self.config}/brig.sock"),
               f"{self.config}/brig.sock: Not a directory")
        yield ("no address of this host", lambda: (
            self.env.update(BRIG_LISTEN="192.0.2.1:2744"), self.write("[server]\ninsecure = true\n")),
               "listen on 192.0.2.1:2744: Cannot assign requested address")
        spawner = f"{self.dir}/run/spawner.sock"
        yield ("the spawner's socket is a file", lambda: (self.own(f"{self.dir}/run"), open(spawner, "x").close()),
               f"{spawner}: not a socket of ours: Operation not permitted")

    def files(self):
        keys = f"{self.dir}/keys"
        yield ("keys that all may read", lambda: (
            open(keys, "x").close(), os.chmod(keys, 0o644), self.write(f'[secrets]\nkey_file = "{keys}"\n')),
               f"secrets.key_file {keys}: must belong to the service's user and be closed to others: chmod 600")
        yield ("no keys", lambda: (
            open(keys, "x").close(), os.chmod(keys, 0o600), self.write(f'[secrets]\nkey_file = "{keys}"\n')),
               f"{keys}: there is no key in it")
        yield ("keys in two places", lambda: (
            self.env.update(BRIG_SECRETS_KEY="one"), self.write(f'[secrets]\nkey_file = "{keys}"\n')),
               "secrets: the keys are in BRIG_SECRETS_KEY and secrets.key_file is set; they come from one of them")
        yield ("no CA bundle", lambda: self.write(f'[gate]\nca_bundle = "{self.dir}/none"\n'),
               f"gate.ca_bundle {self.dir}/none: No such file or directory")
        yield ("a CA bundle for root alone", lambda: (
            self.closed(), open(f"{self.dir}/closed/ca", "x").close(),
            self.write(f'[gate]\nca_bundle = "{self.dir}/closed/ca"\n')),
               f"gate.ca_bundle {self.dir}/closed/ca: {NO_WAY} {self.dir}/closed: Permission denied")
        yield ("tools for root alone", lambda: self.write(f'[tools]\nexec_dir = "{self.closed()}/tools"\n'),
               f"tools.exec_dir {self.dir}/closed/tools: {NO_WAY} {self.dir}/closed: Permission denied")

    def mend(self):
        self.write("")
        for left in os.listdir(self.dir):
            path = f"{self.dir}/{left}"
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            elif path != self.config:
                os.unlink(path)

    def cases(self, table):
        whole = dict(self.env)
        for name, break_it, message in table():
            with self.subTest(name):
                self.mend()
                self.env = dict(whole)
                break_it()
                self.both(message)

    def test_directories(self):
        self.cases(self.tops)

    def test_directories_of_brigd(self):
        self.cases(self.brigds)

    def test_links_in_directories_of_brigd(self):
        self.cases(self.inside)

    def test_listeners(self):
        self.cases(self.sockets)

    def test_files(self):
        self.cases(self.files)

    def test_check_beside_the_service(self):
        """That its own service listens is no mistake; and the check has changed nothing."""
        d = Daemon()
        self.addCleanup(d.close)
        done = subprocess.run([BRIG, "config", "check"], env=d.env, capture_output=True, text=True, timeout=PATIENCE,
                              check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(d.ask("GET", "/readyz").status, 200)

    def test_check_makes_no_directory(self):
        self.assertEqual(self.brig("config", "check").returncode, 0)
        self.assertEqual(os.listdir(self.dir), ["config.toml"])


@unittest.skipUnless(os.geteuid() == 0, "root: brigd has a user of its own only then")
class Directories(unittest.TestCase):
    def test_of_templates(self):
        """Layers are the spawner's and closed to all others; brigd's parts lie beside them."""
        d = Daemon()
        self.addCleanup(d.close)
        for name, mode, uid in (("templates", 0o711, 0), ("templates/layers", 0o700, 0),
                                ("templates/blobs", 0o700, BRIGD), ("templates/work", 0o700, BRIGD)):
            st = os.lstat(f"{d.dir}/state/{name}")
            self.assertEqual((stat.S_IMODE(st.st_mode), st.st_uid), (mode, uid), name)
        self.assertEqual(os.listdir(f"{d.dir}/state/templates/layers"), [".lock"])  # the spawner has it


@unittest.skipUnless(os.geteuid() == 0, "root: brigd has a user of its own only then")
class Handed(unittest.TestCase):
    """A certificate with a key for root only, and a log file that is renamed and made anew."""

    def setUp(self):
        self.d = Daemon()
        self.addCleanup(self.d.close)
        self.log_dir = f"{self.d.dir}/logs"
        os.mkdir(self.log_dir)
        os.chown(self.log_dir, *os.stat(f"{self.d.dir}/state/service")[4:6])

    def configure(self, text):
        with open(self.d.config, "w", encoding="utf-8") as f:
            f.write(text)

    def reload(self):
        return subprocess.run([BRIG, "config", "reload"], env=self.d.env, capture_output=True, text=True,
                              timeout=PATIENCE, check=False)

    def lines(self, name):
        try:
            with open(f"{self.log_dir}/{name}", encoding="utf-8") as f:
                return f.read()
        except FileNotFoundError:
            return ""

    def test_tls_key_of_root(self):
        cert, key = make_certificate(self.d.dir, "first")
        config = f'[server]\ntls_cert = "{cert}"\ntls_key = "{key}"\n'
        self.d.stop()
        self.configure(config)
        self.d.start()
        self.assertEqual(common_name(self.d.port), "first")
        other_cert, other_key = make_certificate(self.d.dir, "second")
        os.rename(other_cert, cert)
        os.rename(other_key, key)
        self.assertEqual(self.reload().returncode, 0)
        self.assertEqual(common_name(self.d.port), "second")
        os.unlink(key)
        done = self.reload()
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(f"server.tls_key {key}: No such file or directory", done.stderr)
        self.assertEqual(common_name(self.d.port), "second")

    def test_rotation(self):
        self.d.stop()
        self.configure(f'[server]\nlog_file = "{self.log_dir}/log"\n')
        self.d.start()
        for i in range(2):  # the first rename used to be the last one that worked
            os.rename(f"{self.log_dir}/log", f"{self.log_dir}/log.{i}")
            self.d.process.send_signal(signal.SIGUSR1)
            wait_until("the log file is made anew", lambda: os.path.exists(f"{self.log_dir}/log"))
            self.assertEqual(self.reload().returncode, 0)
            self.d.ask("GET", "/readyz")
            wait_until("a request in the new file", lambda: "/readyz" in self.lines("log"))
        self.configure(f'[server]\nlog_file = "{self.log_dir}/other"\n')
        self.assertEqual(self.reload().returncode, 0)
        self.d.ask("GET", "/readyz")
        wait_until("a request in the other file", lambda: "/readyz" in self.lines("other"))
        self.configure(f'[server]\nlog_file = "{self.d.dir}/none/log"\n')
        done = self.reload()
        self.assertIn(f"log_file {self.d.dir}/none/log, opened by user {BRIGD}: No such file or directory", done.stderr)
