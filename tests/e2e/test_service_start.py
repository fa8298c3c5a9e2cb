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
                    "-keyout", key, "-out", cert, "-subj", f"/CN={name}", "-days", "2"], check=True, capture_output=True)
    os.chmod(key, 0o600)
    return cert, key


def common_name(port):
    context = ssl._create_unverified_context()
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as plain, context.wrap_socket(plain) as s:
        der = s.getpeercert(binary_form=True)
    shown = subprocess.check_output(["openssl", "x509", "-inform", "der", "-noout", "-subject"], input=der)
    return shown.decode().strip().replace(" ", "").rpartition("CN=")[2]


@unittest.skipUnless(os.geteuid() == 0, "root: brigd has a user of its own only then")
class Start(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="brig-start-")
        os.chmod(self.dir, 0o755)
        self.addCleanup(shutil.rmtree, self.dir)  # nothing writes there any more
        self.config = f"{self.dir}/config.toml"
        self.env = environment(BRIG_STATE_DIR=f"{self.dir}/state", BRIG_RUN_DIR=f"{self.dir}/run",
                               BRIG_CACHE_DIR=f"{self.dir}/cache", BRIG_CONFIG=self.config,
                               BRIG_LISTEN=f"127.0.0.1:{free_port()}", BRIG_SOCKET=f"{self.dir}/run/brig.sock")
        self.write("")

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
        self.assertFalse(os.path.exists(self.env["BRIG_SOCKET"]))
        return done.stderr

    def check(self, message):
        done = self.brig("config", "check")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (1, "", f"brig: {message}\n"))

    def test_state_directory(self):
        self.env["BRIG_STATE_DIR"] = f"{self.closed()}/state"
        self.ends("brig: ", f"{self.dir}/closed/state", "Permission denied")
        self.check(f"the state directory {self.dir}/closed/state: {NO_WAY} {self.dir}/closed: Permission denied")

    def test_database(self):
        self.write(f'[store]\ndatabase_url = "sqlite:{self.closed()}/brig.db"\n')
        self.ends("brig: ", f"{self.dir}/closed/brig.db")
        self.check(f"store.database_url {self.dir}/closed/brig.db: {NO_WAY} {self.dir}/closed: Permission denied")

    def test_database_that_belongs_to_another(self):
        self.write(f'[store]\ndatabase_url = "sqlite:{self.dir}/brig.db"\n')
        self.check(f"store.database_url {self.dir}/brig.db: user {BRIGD}, which brigd runs as, cannot make a file in "
                   f"{self.dir}: Permission denied")
        self.ends("brig: ", f"{self.dir}/brig.db")

    def test_database_server(self):
        self.write(f'[store]\ndatabase_url = "postgresql://nobody@127.0.0.1:{free_port()}/none"\n')
        self.ends("brig: ", "Connection refused")

    def test_log_file(self):
        self.write(f'[server]\nlog_file = "{self.closed()}/log"\n')
        self.ends(f"brig: log_file {self.dir}/closed/log, opened by user {BRIGD}: Permission denied")
        self.check(f"log_file {self.dir}/closed/log: {NO_WAY} {self.dir}/closed: Permission denied")

    def test_log_file_that_belongs_to_another(self):
        with open(f"{self.dir}/log", "w", encoding="ascii"):
            os.chmod(f"{self.dir}/log", 0o600)
        self.write(f'[server]\nlog_file = "{self.dir}/log"\n')
        self.ends(f"brig: log_file {self.dir}/log, opened by user {BRIGD}: Permission denied")
        self.check(f"log_file {self.dir}/log, opened by user {BRIGD}, which brigd runs as: Permission denied")

    def test_tls_files(self):
        self.write(f'[server]\ntls_cert = "{self.dir}/none.crt"\ntls_key = "{self.dir}/none.key"\n')
        self.ends(f"brig: server.tls_cert {self.dir}/none.crt: No such file or directory")
        self.check(f"server.tls_cert {self.dir}/none.crt: No such file or directory")

    def test_tls_key_of_another_certificate(self):
        cert, _ = make_certificate(self.dir)
        _, key = make_certificate(self.dir, "other")
        self.write(f'[server]\ntls_cert = "{cert}"\ntls_key = "{key}"\n')
        self.ends("brig: ", "key")

    def test_key_ring(self):
        self.write(f'[secrets]\nkey_file = "{self.dir}/none.keys"\n')
        self.ends(f"brig: secrets.key_file {self.dir}/none.keys: No such file or directory")
        self.check(f"secrets.key_file {self.dir}/none.keys: No such file or directory")
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
        closed = subprocess.run(["/bin/sh", "-c", 'exec "$0" config check <&-', BRIG], env=self.env, capture_output=True,
                                text=True, timeout=PATIENCE, check=False)
        self.assertEqual((closed.returncode, closed.stdout, closed.stderr), (0, f"{self.config}: ok\n", ""))
        self.assertEqual([os.listdir(f"{self.dir}/{name}") for name in ("db", "log")], [[], []])


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
