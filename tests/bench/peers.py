# SPDX-License-Identifier: Apache-2.0
"""What the service is measured against: a Docker engine and an nginx of our own, on private sockets, data and ports.

Both end with their `close()`, and leave nothing: the engine's mounts are in a mount namespace of its own, its cgroups
below one parent that is removed.  The image is this machine's /bin/true and /bin/sleep with their libraries; no
registry is asked.
"""

import shutil
import socket
import subprocess
import time

import enginekit
from enginekit import START_SECONDS, Missing, end

IMAGE = """set -e; cd /; \
tar -chf "$1/image.tar" bin/true bin/sleep $(ldd bin/true bin/sleep | grep -o '/lib[^ ]*' | sort -u | sed 's,^/,,')
exec docker -H "$2" import "$1/image.tar" brig-bench"""


class Docker(enginekit.Engine):
    """A private engine with an image, and one container that sleeps."""

    def __init__(self, directory):
        super().__init__(directory)
        try:
            subprocess.run(["sh", "-c", IMAGE, "sh", str(directory), self.host], check=True, capture_output=True)
            self.container = self.docker("run", "-d", "--network", "none", "brig-bench", "/bin/sleep",
                                         "1000000").strip()
        except BaseException:
            self.close()
            raise

    def run(self):
        self.docker("run", "--rm", "--network", "none", "brig-bench", "/bin/true")

    def exec(self):
        self.docker("exec", self.container, "/bin/true")


NGINX_CONF = """daemon off; worker_processes 1; pid {dir}/nginx.pid; error_log {dir}/nginx.err crit;
events {{ worker_connections 1024; }}
http {{ access_log off; keepalive_requests 100000000; keepalive_timeout 75s;
client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/fastcgi; \
uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;
server {{ listen 127.0.0.1:{port}; location / {{ default_type text/plain; return 200 "ok\\n"; }} }} }}
"""


class Nginx:
    """One worker, no log, the same answer and the same keep-alive as /healthz; pinned to one CPU."""

    def __init__(self, directory, cpu):
        if not shutil.which("nginx") or not shutil.which("wrk"):
            raise Missing("nginx and wrk are not installed")
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        conf = directory / "nginx.conf"
        conf.write_text(NGINX_CONF.format(dir=directory, port=self.port), encoding="ascii")
        self.process = subprocess.Popen(["taskset", "-c", str(cpu), "nginx", "-c", str(conf)], stdin=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise Missing("nginx does not start here") from None
                time.sleep(0.05)

    def close(self):
        end(self.process)


def wrk(cpu, url, seconds, connections=64):
    """Requests per second; any answer but 200 and any socket error is an error."""
    out = subprocess.run(["taskset", "-c", str(cpu), "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", url],
                         check=True, text=True, capture_output=True).stdout
    if "Non-2xx" in out or "Socket errors" in out:
        raise RuntimeError(f"wrk {url}: {out}")
    return float(next(line.split()[1] for line in out.splitlines() if line.startswith("Requests/sec")))


class Mitmproxy:
    """mitmdump before one HTTPS server, as its reverse: the client speaks to it as it would to the server. modify: what
    --modify-headers takes."""

    def __init__(self, directory, cpu, upstream, ca, modify):
        if not shutil.which("mitmdump"):
            raise Missing("there is no mitmdump (Debian: mitmproxy)")
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        home = directory / "mitmproxy"
        self.authority = str(home / "mitmproxy-ca-cert.pem")
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", "taskset", "-c", str(cpu), "mitmdump", "-q", "--mode",
             f"reverse:https://127.0.0.1:{upstream}", "--listen-host", "127.0.0.1", "--listen-port",
             str(self.port), "--set", f"confdir={home}", "--set", f"ssl_verify_upstream_trusted_ca={ca}", "--set",
             "keep_host_header=true", "--modify-headers",
             modify], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={"PATH": "/usr/bin:/bin", "HOME": str(directory), "LC_ALL": "C.UTF-8"})
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.close()
                    raise Missing("mitmdump does not start") from None
                time.sleep(0.1)

    def close(self):
        end(self.process)
