# SPDX-License-Identifier: Apache-2.0
"""Unmodified real clients through the gate, as root and as a plain user: what people run in sandboxes needs no setting,
and real servers are its peers (nginx with HTTP/2, dnsmasq, a git repository, a Python index, an npm registry). Then the
README's story of a secret, by the commands a reader would type, and the preset `packages` with the indexes that this
machine is configured for, where those answer.

Clients and servers that are not installed are skipped.
"""

import base64
import hashlib
import importlib.util
import io
import json
import os
import re
import shutil
import socket
import subprocess
import tarfile
import unittest
import zipfile

from helpers import BRIG, PATIENCE, environment, wait_until
from internet import PUBLIC, Internet, Pages
from jailkit import IS_ROOT, PATH, PLAIN_ID, SH, JailTest, World
from service import Daemon

NET = None
SHELF, NGINX, DNSMASQ = "203.0.113.20", "203.0.113.30", "203.0.113.54"
BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
PROXY = "198.18.0.1:3128"
CURL = "curl -sS --max-time 20 "
PYTHON = ("/usr/bin/python3", "-I", "-c")
TOKEN = "tok-5f2b9e77c1-the-real-one"


def needs(*programs):
    missing = [p for p in programs if not shutil.which(p, path=PATH)]
    return unittest.skipIf(missing, f"no {' '.join(missing)}")


def gate_environment():
    return {k: v for k, v in NET.environment().items() if k.startswith("BRIG_GATE_")}


# ---- the world of it ------------------------------------------------------------------------------------------------


class Shelf(Pages):
    """Serves Internet.shelf: path -> (type, bytes)."""

    def do_GET(self):
        path = self.path.split("?")[0]
        self.server.internet.seen.append((self.command, self.headers.get("Host"), self.path, dict(self.headers), b""))
        kind, said = self.server.internet.shelf.get(path, (None, b"not there\n"))
        self.send_response(200 if kind else 404)
        self.send_header("Content-Type", kind or "text/plain")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(said)

    do_HEAD = do_GET


def git_repository(shelf):
    """One commit, as plain files below /repo.git/: what git calls dumb HTTP."""
    work, bare = f"{NET.dir}/work", f"{NET.dir}/repo.git"
    who = {"PATH": PATH, "HOME": NET.dir,
           "GIT_CONFIG_NOSYSTEM": "1"} | {f"GIT_{a}_{b}": "t@t" for a in ("AUTHOR", "COMMITTER")
                                          for b in ("NAME", "EMAIL")}

    def git(*args):
        subprocess.run(["git", *args], check=True, capture_output=True, env=who, timeout=PATIENCE)

    git("init", "-q", "-b", "main", work)
    with open(f"{work}/hello", "w", encoding="ascii") as f:
        f.write("from a repository\n")
    git("-C", work, "add", "hello")
    git("-C", work, "commit", "-q", "-m", "one")
    git("clone", "-q", "--bare", work, bare)
    git("-C", bare, "update-server-info")
    for where, _, names in os.walk(bare):
        for name in names:
            path = os.path.join(where, name)
            with open(path, "rb") as f:
                shelf["/repo.git/" + os.path.relpath(path, bare)] = ("application/octet-stream", f.read())


def python_index(shelf):
    """PEP 503 with one wheel, made by hand."""
    wheel, about = io.BytesIO(), "brigtest-1.0.dist-info/"
    files = {"brigtest.py": "said = 'from a wheel'\n",
             about + "METADATA": "Metadata-Version: 2.1\nName: brigtest\nVersion: 1.0\n",
             about + "WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    with zipfile.ZipFile(wheel, "w") as z:
        for name, text in files.items():
            z.writestr(name, text)
        z.writestr(about + "RECORD", "".join(f"{n},,\n" for n in [*files, about + "RECORD"]))
    name, data = "brigtest-1.0-py3-none-any.whl", wheel.getvalue()
    page = (f'<!DOCTYPE html><html><body><a '
            f'href="../../wheels/{name}#sha256={hashlib.sha256(data).hexdigest()}">{name}</a></body></html>')
    shelf["/simple/brigtest/"] = ("text/html", page.encode())
    shelf[f"/wheels/{name}"] = ("application/octet-stream", data)


def npm_registry(shelf):
    package = {"name": "brigtest", "version": "1.0.0", "main": "index.js"}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, text in (("package.json", json.dumps(package)), ("index.js", "module.exports = 'from a registry'\n")):
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    data, url = packed.getvalue(), "https://shelf.test/brigtest/-/brigtest-1.0.0.tgz"
    package["dist"] = {"tarball": url, "shasum": hashlib.sha1(data).hexdigest(),
                       "integrity": "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()}
    about = {"name": "brigtest", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": package}}
    shelf["/brigtest"] = ("application/json", json.dumps(about).encode())
    shelf["/brigtest/-/brigtest-1.0.0.tgz"] = ("application/octet-stream", data)


def requests_library():
    """A directory with requests and what it needs, from wherever this interpreter has it; None if it has none."""
    where = f"{NET.dir}/site"
    for name in ("requests", "urllib3", "idna", "certifi", "charset_normalizer"):
        found = importlib.util.find_spec(name)
        if not found or not found.submodule_search_locations:
            return None
        if not os.path.exists(f"{where}/{name}"):
            shutil.copytree(found.submodule_search_locations[0], f"{where}/{name}",
                            ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    return where


def setUpModule():
    global NET
    if not IS_ROOT:
        raise unittest.SkipTest("needs root to make network namespaces")
    NET = Internet().usual()
    unittest.addModuleCleanup(NET.close)
    for address in (SHELF, NGINX, DNSMASQ):
        NET.there.run("ip", "addr", "add", f"{address}/24", "dev", "world0")
    NET.zone.update({"shelf.test": [SHELF], "nginx.test": [NGINX]})
    NET.shelf = {}
    NET.web(SHELF, 443, "shelf", "shelf.test", handler=Shelf)


def end(process):
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def start_nginx():
    """A real server, with HTTP/2; it ends with the module."""
    where = f"{NET.dir}/nginx"
    if os.path.exists(where):
        return
    os.mkdir(where)
    certificate, key = NET.authority.certificate("nginx.test")
    with open(f"{where}/large", "wb") as f:
        f.write(b"0123456789abcdef" * (3 << 16))
    temp = " ".join(f"{n}_temp_path {where}/{n};" for n in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    with open(f"{where}/nginx.conf", "w", encoding="utf-8") as f:
        f.write(f"""daemon off; master_process off; pid {where}/pid; error_log {where}/error.log;
events {{ worker_connections 64; }}
http {{ access_log off; {temp}
  server {{ listen {NGINX}:80; listen {NGINX}:443 ssl http2; server_name nginx.test; ssl_certificate {certificate}; \
ssl_certificate_key {key};
    root {where}; location = / {{ default_type text/plain; return 200 "$server_protocol $host\\n"; }} }} }}
""")
    process = NET.there.popen("nginx", "-p", where, "-c", f"{where}/nginx.conf", stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              env={"PATH": PATH})
    unittest.addModuleCleanup(end, process)
    wait_until("nginx", lambda: reaches(NGINX, 443))


def reaches(address, port):
    def look():
        with socket.socket() as s:
            s.settimeout(PATIENCE)
            return s.connect_ex((address, port)) == 0

    return NET.here.inside(look)


# ---- clients --------------------------------------------------------------------------------------------------------


class Clients:
    """Mixed into each kind of caller. In these runs the bundle inside is the test's own authority, where the system
    keeps its bundle."""

    LIMIT_SECONDS = 120
    NODE = ("-e", f"NODE_EXTRA_CA_CERTS={BUNDLE}", "-c", "2")

    def setUp(self):
        del NET.asked[:], NET.seen[:]

    def inside(self, *args, status=(0,), env=None):
        """What the program of `brig run ARGS` wrote to stdout."""
        done = NET.here.inside(lambda: self.w.run(*args, env=env or gate_environment()))
        self.assertIn(done.returncode, status, (done.stdout[-1000:], done.stderr[-2000:]))
        return done.stdout.decode()

    def sh(self, script, *flags, allow="allowed.test", status=(0,)):
        return self.inside("--allow", allow, *flags, *SH, "set -e\n" + script, status=status)

    def python(self, script, *flags, status=(0,)):
        return self.inside("--allow", "allowed.test", *flags, "--", *PYTHON, script, status=status)

    def lines(self, count, host="allowed.test", path="/x"):
        return f"allowed GET {host} {path}\n" * count

    # ---- curl and wget ----

    @needs("curl")
    def test_curl(self):
        said = self.sh("".join(f"{CURL}{how}://allowed.test/x\n" for how in ("http", "https", "-4 https", "-6 https",
                                                                             "--http1.1 https", "--tls-max 1.2 https")))
        self.assertEqual(said, self.lines(6))

    @needs("curl")
    def test_curl_keeps_its_connection(self):
        """Many requests, bodies both ways, redirects, a large download whose end is the end."""
        said = self.sh(f"""head -c 300000 /dev/zero | tr '\\0' u >body
for u in http https; do
  {CURL}--data-binary @body $u://allowed.test/echo | sha256sum
  {CURL}-T body -H 'Transfer-Encoding: chunked' $u://allowed.test/echo | sha256sum
  {CURL}$u://allowed.test/bytes/2000000 | wc -c
  {CURL}-L "$u://allowed.test/redirect?to=$u://allowed.test/x"
  {CURL}-w '%{{num_connects}}\\n' $u://allowed.test/x $u://allowed.test/x
done""")
        digest = hashlib.sha256(b"u" * 300000).hexdigest() + "  -\n"
        self.assertEqual(said,
                         (digest * 2 + "2000000\n" + self.lines(1) + self.lines(1) + "1\n" + self.lines(1) + "0\n") * 2)

    @needs("curl")
    def test_curl_by_proxy(self):
        ways = [f"-x http://{PROXY}", f"-x socks5h://{PROXY}", f"-x socks5://{PROXY}",
                f"--proxytunnel -x http://{PROXY}"]
        said = self.sh("".join(f"{CURL}{way} {url}://allowed.test/x\n" for way in ways for url in ("http", "https")))
        self.assertEqual(said, self.lines(len(ways) * 2))
        refused = self.sh("".join(f"{CURL}-o /dev/null {way} https://other.test/ 2>/dev/null || echo $?\n"
                                  for way in ways))
        self.assertEqual(refused.split()[0], "56")  # 403 in answer to CONNECT
        self.assertEqual(refused.split()[1], "97")  # refused by SOCKS
        self.assertEqual(len(refused.split()), len(ways), refused)
        self.assertFalse([q for q in NET.asked if q[0] == "other.test"])

    @needs("wget")
    def test_wget(self):
        said = self.sh(f"""for u in http https; do wget -qO- -T 20 -t 1 $u://allowed.test/x; done
wget -qO- -T 20 -t 1 -e use_proxy=yes -e https_proxy=http://{PROXY} https://allowed.test/x
wget -qO- -T 20 -t 1 https://other.test/ || echo $?""")
        self.assertEqual(said, self.lines(3) + "4\n")  # 4: it found no such host
        self.assertFalse([q for q in NET.asked if q[0] == "other.test"])

    @needs("openssl")
    def test_openssl(self):
        ask = ("printf 'GET /x HTTP/1.1\\r\\nHost: allowed.test\\r\\nConnection: close\\r\\n\\r\\n' | timeout 20 "
               "openssl s_client -quiet -verify_return_error ")
        said = self.sh(f"{ask} -connect allowed.test:443 2>/dev/null | tail -n 1\n"
                       f"{ask} -connect allowed.test:443 -servername other.test 2>/dev/null || echo cut\n"
                       f"{ask} -connect allowed.test:443 -noservername 2>/dev/null || echo cut\n")
        self.assertEqual(said, self.lines(1) + "cut\ncut\n")

    # ---- Python ----

    def test_urllib(self):
        script = """import os, urllib.request as r
for u in ('http', 'https'): print(r.urlopen(u + '://allowed.test/x', timeout=20).read().decode(), end='')
os.environ['https_proxy'] = 'http://%s'
print(r.urlopen('https://allowed.test/x', timeout=20).read().decode(), end='')
try: r.urlopen('http://other.test/', timeout=20)
except r.HTTPError as why: print(why.code)
except r.URLError as why: print(type(why.reason).__name__)
""" % PROXY
        self.assertEqual(self.python(script), self.lines(3) + "gaierror\n")

    def test_http_client(self):
        script = """import http.client as h, hashlib
for c in (h.HTTPConnection('allowed.test', timeout=20), h.HTTPSConnection('allowed.test', timeout=20)):
    for n in range(20): c.request('GET', '/x'); a = c.getresponse(); b = a.read(); assert a.status == 200
    print(b.decode(), end='')
    c.request('POST', '/echo', iter([b'part'] * 5000), encode_chunked=True, headers={'Transfer-Encoding': 'chunked'})
    print(len(c.getresponse().read()))
    c.request('HEAD', '/x'); a = c.getresponse(); print(a.status, len(a.read()))
"""
        self.assertEqual(self.python(script), (self.lines(1) + "20000\n200 0\n") * 2)
        self.assertEqual(len([s for s in NET.seen if s[2] == "/x"]), 42)

    def test_asyncio(self):
        script = """import asyncio, ssl
async def one(port, **how):
    r, w = await asyncio.open_connection('allowed.test', port, happy_eyeballs_delay=0.25, **how)
    w.write(b'GET /x HTTP/1.1\\r\\nHost: allowed.test\\r\\nConnection: close\\r\\n\\r\\n'); await w.drain()
    said = await r.read(); w.close()
    return said.rsplit(b'\\r\\n\\r\\n', 1)[1].decode()
async def main():
    c = ssl.create_default_context()
    print(''.join(await asyncio.wait_for(asyncio.gather(*(one(443, ssl=c) for _ in range(10)), \
*(one(80) for _ in range(10))), 25)), end='')
asyncio.run(main())
"""
        self.assertEqual(self.python(script), self.lines(20))

    def test_requests(self):
        where = requests_library()
        if not where:
            self.skipTest("no requests")
        script = """import sys; sys.path.insert(0, '/opt/site')
import requests
s = requests.Session()
for u in ('http', 'https', 'https'): print(s.get(u + '://allowed.test/x', timeout=20).text, end='')
print(len(s.post('https://allowed.test/echo', data=b'p' * 100000, timeout=20).content))
try: s.get('https://other.test/', timeout=20)
except requests.ConnectionError as why: print('refused')
"""
        said = self.python(script, "-v", f"{where}:/opt/site:ro", "-e", f"REQUESTS_CA_BUNDLE={BUNDLE}")
        self.assertEqual(said, self.lines(3) + "100000\nrefused\n")

    # ---- Node ----

    @needs("node")
    def test_node(self):
        script = """const get = (m, u) => new Promise((y, n) => require(m).get(u, r => { let t = ''; r.on('data', \
d => t += d); r.on('end', () => y(t)); }).on('error', n));
(async () => {
  for (const u of ['http', 'https']) process.stdout.write(await get(u, u + '://allowed.test/x'));
  for (const u of ['http', 'https', 'https']) process.stdout.write(await (await fetch(u + '://allowed.test/x')).text());
  const body = 'p'.repeat(100000);
  console.log((await (await fetch('https://allowed.test/echo', {method: 'POST', body})).text()).length);
  await fetch('https://other.test/').then(() => console.log('reached'), e => console.log(e.cause.code));
})();"""
        said = self.inside("--allow", "allowed.test", *self.NODE, "--", "node", "-e", script)
        self.assertRegex(said, re.escape(self.lines(5)) + "100000\n(ENOTFOUND|EAI_AGAIN)\n")

    # ---- what installs things ----

    @needs("git")
    def test_git(self):
        git_repository_once()
        clone = "git clone -q https://shelf.test/repo.git"
        said = self.sh(f"{clone} a && cat a/hello\ngit -C a fetch -q\n"
                       f"https_proxy=socks5h://{PROXY} {clone} b && cat b/hello\n"
                       "git clone -q https://other.test/repo.git c 2>&1 || echo $?", allow="shelf.test")
        self.assertTrue(said.startswith("from a repository\n" * 2), said)
        self.assertIn("Could not resolve host: other.test", said)
        self.assertTrue(said.endswith("128\n"), said)

    @needs("pip3")
    def test_pip(self):
        python_index(NET.shelf)
        said = self.sh("/usr/bin/python3 -m pip install -q --no-cache-dir --disable-pip-version-check --index-url "
                       "https://shelf.test/simple/ --target t brigtest >&2\n"
                       "PYTHONPATH=t /usr/bin/python3 -c 'import brigtest; print(brigtest.said)'", allow="shelf.test")
        self.assertEqual(said, "from a wheel\n")

    @needs("npm")
    def test_npm(self):
        npm_registry(NET.shelf)
        said = self.sh("npm install --no-audit --no-fund --no-update-notifier --registry https://shelf.test/ brigtest "
                       ">&2\nnode -p 'require(\"brigtest\")'",
                       *self.NODE, allow="shelf.test")
        self.assertEqual(said, "from a registry\n")

    def test_packages(self):
        """The preset is what this host's clients are configured for, by environment and by file, and no other host;
        credentials stay outside."""
        python_index(NET.shelf)
        ask = (f"{CURL}-o /dev/null -w '%{{http_code}}\\n' https://shelf.test/simple/brigtest/ || echo $?\n"
               f"{CURL}http://allowed.test/x || echo $?")
        flags = ("--net", "packages", *SH, ask)
        self.assertEqual(self.inside(*flags), "000\n6\n6\n")
        for name in ("PIP_INDEX_URL", "UV_INDEX_URL", "npm_config_registry"):
            self.assertEqual(self.inside(*flags,
                                         env={**gate_environment(), name: "https://me:pass@shelf.test/simple/"}),
                             "200\n6\n", name)
        path = self.w.file(".npmrc", "registry=https://shelf.test/\n")
        self.addCleanup(os.unlink, path)
        self.assertEqual(self.inside(*flags), "200\n6\n")
        self.assertFalse([s for s in NET.seen if "Authorization" in s[3]])

    # ---- real servers ----

    @needs("nginx", "curl")
    def test_nginx(self):
        start_nginx()
        said = self.sh(f"""{CURL}--http2 -w '%{{http_version}}\\n' https://nginx.test/
{CURL}--http1.1 -w '%{{http_version}}\\n' https://nginx.test/
{CURL}-w '%{{http_version}}\\n' http://nginx.test/
{CURL}--http2 --parallel --parallel-immediate -o a https://nginx.test/large -o b https://nginx.test/large -o c \
https://nginx.test/large
cat a b c | sha256sum
{CURL}-r 1000-1999 http://nginx.test/large | wc -c
head -c 5000 a >d; {CURL}-C - -o d https://nginx.test/large; cmp a d && echo same""", allow="nginx.test")
        large = hashlib.sha256(b"0123456789abcdef" * (9 << 16)).hexdigest() + "  -\n"
        self.assertEqual(said, "HTTP/2.0 nginx.test\n2\nHTTP/1.1 nginx.test\n1.1\n"
                         "HTTP/1.1 nginx.test\n1.1\n" + large + "1000\nsame\n")

    @needs("nginx", "node")
    def test_node_speaks_http2(self):
        start_nginx()
        script = """const s = require('http2').connect('https://nginx.test'), r = s.request({':path': '/'});
r.on('data', d => process.stdout.write(d)); r.on('end', () => s.close()); r.end();"""
        said = self.inside("--allow", "nginx.test", *self.NODE, "--", "node", "-e", script)
        self.assertEqual(said, "HTTP/2.0 nginx.test\n")

    @needs("dnsmasq", "curl")
    def test_dnsmasq(self):
        """A resolver that somebody else wrote: addresses of both families, a chain of names, and what it does not
        know."""
        process = NET.there.popen("dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv",
                                  "--no-hosts", "--user=root", "--pid-file=", "--bind-interfaces",
                                  f"--listen-address={DNSMASQ}", "--except-interface=lo",
                                  f"--host-record=allowed.test,{PUBLIC},2001:db8:77::10",
                                  "--cname=www.allowed.test,allowed.test", stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={"PATH": PATH})
        self.addCleanup(end, process)
        wait_until("dnsmasq", lambda: reaches(DNSMASQ, 53))
        env = {**gate_environment(), "BRIG_GATE_RESOLVERS": f"{DNSMASQ}#53"}
        script = (f"{CURL}https://allowed.test/x; {CURL}https://www.allowed.test/x; {CURL}-o /dev/null -w "
                  f"'%{{http_code}}' http://gone.allowed.test/ || true")
        said = self.inside("--allow", "allowed.test", "--allow", "*.allowed.test", *SH, script, env=env)
        self.assertEqual(NET.asked, [])
        self.assertRegex(said, re.escape(self.lines(1) + self.lines(1, "www.allowed.test")) + "(000|403|502)")


def git_repository_once():
    if "/repo.git/HEAD" not in NET.shelf:
        git_repository(NET.shelf)


class Root(Clients, JailTest):
    pass


class Rootless(Clients, JailTest):
    # Without cgroups the limit is on address space, of which V8 reserves much more than it uses.
    NODE = (*Clients.NODE, "-m", "64g")

    @classmethod
    def make_world(cls):
        return World(PLAIN_ID, PLAIN_ID)


# ---- a secret, as the README tells it -------------------------------------------------------------------------------


class Story:
    """By the commands alone, against a daemon of each kind of user. NET.seen is what really arrived."""

    USER = None
    MEMORY = "1g"
    LIMIT_SECONDS = 120

    @classmethod
    def setUpClass(cls):
        keys = f"{NET.dir}/keys-{cls.__name__}"
        with open(keys, "wb") as f:
            os.chown(keys, cls.USER or 0, cls.USER or 0)
            cls.command("secret", "keygen", stdout=f, env=environment())
        cls.daemon = NET.here.inside(lambda: Daemon(env={**gate_environment(), "BRIG_SECRETS_KEY_FILE": keys},
                                                    user=cls.USER))
        cls.addClassCleanup(cls.daemon.close)
        cls.brig("secret", "set", "API_TOKEN", "--broker",
                 "host=allowed.test,host=shelf.test,header=Authorization,format=Bearer %s", stdin=TOKEN + "\n")
        cls.box = cls.brig("create", "-q", "-m", cls.MEMORY, "-c", "2", "--allow", "allowed.test", "--allow",
                           "other.test", "--allow", "shelf.test", "--secret", "API_TOKEN").strip()

    @classmethod
    def command(cls, *words, stdin="", env=None, stdout=subprocess.PIPE):
        env = cls.daemon.env if env is None else env
        who = {} if cls.USER is None else {"user": cls.USER, "group": cls.USER, "extra_groups": []}
        done = subprocess.run([BRIG, *words], input=stdin.encode(), stdout=stdout, stderr=subprocess.PIPE,
                              timeout=2 * PATIENCE, check=False, env=env, cwd="/", **who)
        if done.returncode != 0:
            raise AssertionError(f"brig {words}: {done.returncode} {done.stdout!r} {done.stderr!r}")
        return done

    @classmethod
    def brig(cls, *words, **how):
        return cls.command(*words, **how).stdout.decode()

    def sh(self, script):
        """What it says, which never has the value in it."""
        done = self.command("exec", self.box, "--", "sh", "-c", "set -e\n" + script)
        self.assertNotIn(TOKEN.encode(), done.stdout + done.stderr)
        return done.stdout.decode()

    def setUp(self):
        del NET.asked[:], NET.seen[:]
        self.mark = self.sh("echo $API_TOKEN").strip()
        self.assertRegex(self.mark, "^brig-secret-[0-9a-f]{32}$")

    def sent(self, host):
        return [{k.lower(): v for k, v in headers.items()}.get("authorization") for _, name, _, headers,
                _ in NET.seen if name == host]

    def audit(self, action):
        lines = [json.loads(line) for line in self.brig("audit", "show", "--action", action, "-o", "json").splitlines()]
        return [line for line in lines if line["object"] == self.box]

    def test_it_is_used_and_not_seen(self):
        used = len(self.audit("secret.use"))
        said = self.sh('curl -sS --max-time 20 -H "Authorization: Bearer $API_TOKEN" https://allowed.test/echo')
        # the server sent the value back, and it became the placeholder
        self.assertIn(f"Authorization: Bearer {self.mark}\n", said)
        self.assertEqual(self.sent("allowed.test"), [f"Bearer {TOKEN}"])
        everything = self.sh("set +e; env; for p in /proc/[0-9]*; do tr '\\0' '\\n' <$p/environ; tr '\\0' ' ' "
                             "<$p/cmdline; done 2>/dev/null; cat /workspace/* 2>/dev/null; true")
        self.assertIn(self.mark, everything)
        self.assertNotIn(TOKEN, everything)
        wait_until("its use is in the audit log", lambda: len(self.audit("secret.use")) > used)
        event = self.audit("secret.use")[-1]
        self.assertIn("allowed.test", event["detail"])
        self.assertIn("API_TOKEN", event["detail"])
        self.assertNotIn(TOKEN, self.brig("audit", "export") + self.brig("inspect", self.box)
                         + self.brig("secret", "ls", "-o", "json") + self.daemon.text())

    def test_another_host_gets_the_placeholder(self):
        before = len(self.audit("secret.foreign"))
        said = self.sh('curl -sS --max-time 20 -H "Authorization: Bearer $API_TOKEN" https://other.test/echo')
        self.assertIn(self.mark, said)
        self.assertEqual(self.sent("other.test"), [f"Bearer {self.mark}"])
        # TLS to a host that the secret does not name is not opened: what is inside cannot be seen. Plain HTTP can.
        self.assertEqual(len(self.audit("secret.foreign")), before)
        self.sh('curl -sS --max-time 20 -H "Authorization: Bearer $API_TOKEN" http://other.test/echo')
        self.assertEqual(self.sent("other.test"), [f"Bearer {self.mark}"] * 2)
        wait_until("that is in the audit log", lambda: len(self.audit("secret.foreign")) > before)
        self.assertIn("other.test", self.audit("secret.foreign")[-1]["detail"])

    def test_nothing_goes_out_in_the_clear(self):
        said = self.sh('curl -sS --max-time 20 -H "Authorization: Bearer $API_TOKEN" http://allowed.test/echo || true')
        self.assertNotIn(TOKEN, said)
        self.assertNotIn(f"Bearer {TOKEN}", self.sent("allowed.test"))

    # ---- clients trust the sandbox's authority without a flag ----

    @needs("wget")
    def test_wget(self):
        self.assertIn(
            self.mark,
            self.sh('wget -qO- -T 20 -t 1 --header "Authorization: Bearer $API_TOKEN" https://allowed.test/echo'))
        self.assertEqual(self.sent("allowed.test"), [f"Bearer {TOKEN}"])

    def test_python(self):
        self.sh("cat >a.py <<'END'\nimport os, urllib.request as r\n"
                "h = {'Authorization': 'Bearer ' + os.environ['API_TOKEN']}\n"
                "print(r.urlopen(r.Request('https://allowed.test/echo', headers=h), timeout=20).read().decode())\nEND\n"
                "/usr/bin/python3 a.py")
        self.assertEqual(self.sent("allowed.test"), [f"Bearer {TOKEN}"])

    def test_requests(self):
        where = requests_library()
        if not where:
            self.skipTest("no requests")
        self.brig("cp", where, f"{self.box}:/workspace/")
        self.sh("cat >b.py <<'END'\nimport os, requests\ns = requests.Session()\n"
                "s.headers['Authorization'] = 'Bearer ' + os.environ['API_TOKEN']\n"
                "for _ in range(3): print(s.get('https://allowed.test/echo', timeout=20).text)\nEND\n"
                "PYTHONPATH=site /usr/bin/python3 b.py")
        self.assertEqual(self.sent("allowed.test"), [f"Bearer {TOKEN}"] * 3)

    @needs("node")
    def test_node(self):
        self.sh("""cat >c.js <<'END'
const headers = {Authorization: 'Bearer ' + process.env.API_TOKEN};
fetch('https://allowed.test/echo', {headers}).then(r => r.text()).then(t => { console.log(t);
  require('https').get('https://allowed.test/echo', {headers}, r => r.pipe(process.stdout)); });
END
node c.js""")
        self.assertEqual(self.sent("allowed.test"), [f"Bearer {TOKEN}"] * 2)

    @needs("git")
    def test_git(self):
        git_repository_once()
        self.assertEqual(self.sh('rm -rf r; git -c "http.extraHeader=Authorization: Bearer $API_TOKEN" clone -q '
                                 'https://shelf.test/repo.git r; cat r/hello'),
                         "from a repository\n")
        self.assertEqual(set(self.sent("shelf.test")), {f"Bearer {TOKEN}"})

    @needs("npm")
    def test_npm(self):
        npm_registry(NET.shelf)
        said = self.sh(
            "mkdir -p n; cd n; echo \"//shelf.test/:_authToken=$API_TOKEN\" >~/.npmrc; echo '{}' >package.json\n"
                       "npm install --no-audit --no-fund --no-update-notifier --registry https://shelf.test/ brigtest "
            ">&2; node -p 'require(\"brigtest\")'")
        self.assertEqual(said, "from a registry\n")
        self.assertEqual(set(self.sent("shelf.test")), {f"Bearer {TOKEN}"})

    @needs("pip3")
    def test_pip(self):
        """With a password in its index's URL: another secret, and a sandbox of its own."""
        python_index(NET.shelf)
        self.brig("secret", "set", "INDEX_PASSWORD", "--broker", "host=shelf.test,basic=password", stdin=TOKEN)
        said = self.brig("run", "--allow", "shelf.test", "--secret", "INDEX_PASSWORD", "-m", self.MEMORY, *SH,
                         'set -e; /usr/bin/python3 -m pip install -q --no-cache-dir --target t --index-url '
                         '"https://me:$INDEX_PASSWORD@shelf.test/simple/" brigtest >&2\n'
                         "PYTHONPATH=t /usr/bin/python3 -c 'import brigtest; print(brigtest.said)'")
        self.assertEqual(said, "from a wheel\n")
        self.assertEqual(set(self.sent("shelf.test")), {"Basic " + base64.b64encode(f"me:{TOKEN}".encode()).decode()})


class RootStory(Story, unittest.TestCase):
    pass


class RootlessStory(Story, unittest.TestCase):
    USER = PLAIN_ID
    MEMORY = "64g"


# ---- this machine's package indexes ---------------------------------------------------------------------------------


class Packages(unittest.TestCase):
    """In the machine's own network, by its own configuration: only where an index answers the same question outside.
    Its name is nobody's business here."""

    LIMIT_SECONDS = 180
    SMALL = "idna"  # a package that is pure Python and small

    def outside(self, *argv):
        """Whether the host's own client reaches its index, as it is configured."""
        try:
            return subprocess.run(argv, capture_output=True, timeout=15, check=False, cwd="/",
                                  stdin=subprocess.DEVNULL).returncode == 0
        except subprocess.TimeoutExpired:
            return False

    def run_in(self, *words, variables=()):
        """With those settings of the client's that are in variables: brig takes none along, and the index may be set
        there."""
        flags = [f for n in variables if n in os.environ for f in ("-e", f"{n}={os.environ[n]}")]
        env = environment(**{n: os.environ[n] for n in variables if n in os.environ})
        done = subprocess.run([BRIG, "run", "--local", "--net", "packages", "-c", "2", *flags, "--", *words],
                              capture_output=True, timeout=120, check=False, env=env, cwd="/")
        self.assertEqual(done.returncode, 0, re.sub(rb"//[^/ ]+", b"//...", done.stderr[-2000:]))
        return done.stdout.decode()

    @needs("pip3")
    def test_pip(self):
        get = ["/usr/bin/python3", "-m", "pip", "download", "-q", "--no-deps", "--no-cache-dir", "--retries", "0",
               "--timeout", "10"]
        index = subprocess.run(["/usr/bin/python3", "-m", "pip", "config", "get", "global.index-url"],
                               capture_output=True, text=True, timeout=PATIENCE, check=False, cwd="/")
        more = ["--index-url", index.stdout.strip()] if index.returncode == 0 else []
        if not self.outside("env", "-u", "PIP_FIND_LINKS", "-u", "PIP_NO_INDEX", *get, *more, "-d", f"{NET.dir}/wheels",
                            self.SMALL):
            self.skipTest("the configured Python index does not answer")
        said = self.run_in("/bin/sh", "-c", '"$@" >&2; ls', "sh", *get, *more, self.SMALL,
                           variables=("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST"))
        self.assertTrue(said.startswith(self.SMALL), said)

    @needs("npm")
    def test_npm(self):
        view = ["npm", "view", "--no-update-notifier", "--fetch-retries=0", "--fetch-timeout=10000"]
        registry = subprocess.run(["npm", "config", "get", "registry"], capture_output=True, text=True,
                                  timeout=PATIENCE, check=False, cwd="/").stdout.strip()
        view += ["--registry", registry, "is-odd", "name"]
        if not self.outside(*view):
            self.skipTest("the configured npm registry does not answer")
        self.assertIn("is-odd", self.run_in("env", f"NODE_EXTRA_CA_CERTS={BUNDLE}", *view,
                                            variables=("npm_config_registry", "NPM_CONFIG_REGISTRY")))
