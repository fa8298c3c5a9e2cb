#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A private PostgreSQL of Debian's package for tests: in a directory of its own, on a unix socket only, gone with its
owner.

    with pg.Server() as server:
        server.url                     postgresql://... of an empty database; server.database("name") makes another
        server.stop(), server.start()  the server goes away and comes back, with its data

    tests/e2e/pg.py COMMAND...         runs COMMAND with BRIG_TEST_PG_URL set and exits with its status

PostgreSQL refuses to run as root, so there it runs as `postgres`, or `nobody`.  The superuser is called brig and needs
no password: who may enter the directory is the only lock, and it is for tests.
"""

import ctypes
import glob
import os
import re
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time

PR_SET_PDEATHSIG = 1
USER = "brig"


def bin_dir():
    """Of the newest PostgreSQL; None when there is none."""
    found = [d for d in glob.glob("/usr/lib/postgresql/*/bin") if os.access(d + "/initdb", os.X_OK)
             and os.access(d + "/postgres", os.X_OK)]
    if found:
        return max(found, key=lambda d: [int(n) for n in d.split("/")[4].split(".") if n.isdigit()])
    initdb = shutil.which("initdb")
    return os.path.dirname(os.path.realpath(initdb)) if initdb else None


def account():
    """The user to become; None to stay who we are."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            pass
    raise RuntimeError("neither postgres nor nobody is an account here")


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGQUIT)  # to postgres: stop at once


class Server:
    def __init__(self, patience=60):
        self.bin, self.patience, self.process, self.dir = bin_dir(), patience, None, None
        if not self.bin:
            raise FileNotFoundError("PostgreSQL is not installed (package postgresql)")

    def __enter__(self):
        # A short path: a socket's name has room for 107 bytes.
        self.dir = tempfile.mkdtemp(prefix="brig-pg-", dir="/tmp")
        try:
            who = account()
            if who:
                os.chown(self.dir, who.pw_uid, who.pw_gid)
            os.chmod(self.dir, 0o755)
            initdb = ["initdb", "-D", self.dir + "/data", "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8",
                      "--no-sync"]
            try:  # an order of letters that is not that of bytes, as data bases in the field have it; since version 15
                self.run(*initdb, "--locale-provider=icu", "--icu-locale=en")
            except RuntimeError:
                self.run(*initdb)
            with open(self.dir + "/data/postgresql.conf", "a", encoding="utf-8") as conf:
                # Nothing here survives the machine, so nothing waits for its disk.
                conf.write(f"listen_addresses = ''\nunix_socket_directories = '{self.dir}'\nfsync = off\n"
                           "max_connections = 60\n"
                           "shared_buffers = 16MB\nlog_min_messages = panic\n")
            self.start()
            self.url = self.database("brig")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc):
        self.stop()
        shutil.rmtree(self.dir, ignore_errors=True)

    def how(self):
        who = account()
        how = {"cwd": "/", "stdin": subprocess.DEVNULL,
               "env": {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "HOME": self.dir}}
        return {**how, "user": who.pw_uid, "group": who.pw_gid, "extra_groups": []} if who else how

    def run(self, program, *args):
        done = subprocess.run([f"{self.bin}/{program}", *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              check=False,
                              timeout=self.patience, **self.how())
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stdout.decode('utf-8', 'replace')[-2000:]}")

    def start(self):
        with open(self.dir + "/log", "ab") as log:
            self.process = subprocess.Popen([self.bin + "/postgres", "-D", self.dir + "/data"], stdout=log, stderr=log,
                                            preexec_fn=die_with_parent, **self.how())
        end = time.monotonic() + self.patience
        ready = [self.bin + "/pg_isready", "-q", "-h", self.dir, "-U", USER, "-d", "postgres"]
        while subprocess.run(ready, check=False, **self.how()).returncode:
            if self.process.poll() is not None or time.monotonic() > end:
                self.stop()
                with open(self.dir + "/log", encoding="utf-8", errors="replace") as log:
                    raise RuntimeError("postgres did not start: " + log.read()[-2000:])
            time.sleep(0.05)

    def stop(self):
        """At once, as if it had crashed."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGQUIT)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process = None

    def database(self, name):
        """Makes an empty database; its URL."""
        self.run("createdb", "-h", self.dir, "-U", USER, name)
        return f"postgresql:///{name}?host={self.dir}&user={USER}"


def new_database(url):
    """Another empty database of the server that url is of; its URL."""
    name, host = f"brig_{os.getpid()}_{time.monotonic_ns()}", re.search(r"[?&]host=([^&]*)", url).group(1)
    subprocess.run([bin_dir() + "/createdb", "-h", host, "-U", USER, name], check=True, stdin=subprocess.DEVNULL,
                   capture_output=True, timeout=60)
    return f"postgresql:///{name}?host={host}&user={USER}"


def main():
    with Server() as server:
        return subprocess.run(sys.argv[1:], env={**os.environ, "BRIG_TEST_PG_URL": server.url}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
