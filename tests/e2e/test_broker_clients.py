# SPDX-License-Identifier: Apache-2.0
"""The broker and unmodified clients: each trusts the sandbox's authority by its usual way, sends its placeholder, and
the upstream gets the value.

Clients that are not there are skipped; botocore and requests are looked for in BRIG_PYTHON too (an interpreter of a
virtual environment).
"""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

from brokerkit import HOST, PATIENCE, Broker, Upstream, World, reply
from test_broker import BEARER, TOKEN, echo

PYTHON = os.environ.get("BRIG_PYTHON", sys.executable)
KEY_ID, SECRET, SESSION = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "session/token+of=some/length=="


def has_module(name):
    return subprocess.run([PYTHON, "-c", f"import {name}"], stderr=subprocess.DEVNULL, check=False).returncode == 0


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


class Base(unittest.TestCase):
    """Everything is https://localhost:PORT, so that no client needs to be told where that is."""

    @classmethod
    def setUpClass(cls):
        cls.temp = tempfile.TemporaryDirectory()
        cls.world = World(cls.temp.name)
        cls.certificate = cls.world.certificate("localhost", HOST)

    @classmethod
    def tearDownClass(cls):
        cls.temp.cleanup()

    def start(self, answer=echo, value=TOKEN, rule=None):
        self.upstream = Upstream(self.certificate, answer)
        self.addCleanup(self.upstream.close)
        port = free_port()
        self.broker = Broker(self.world, self.upstream.port,
                             {"TOKEN": (value, {**(rule or BEARER), "hosts": [f"localhost:{port}", f"{HOST}:{port}"]})},
                             port=port, listen=port)
        self.addCleanup(self.broker.close)
        self.mark = self.broker.placeholders["TOKEN"]
        self.url = f"https://localhost:{port}"
        self.ca = str(self.broker.authority)

    def run_client(self, argv, **env):
        """With nothing of the developer's own about certificates and proxies."""
        env = {"PATH": os.environ["PATH"], "HOME": self.temp.name, **env}
        done = subprocess.run(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=2 * PATIENCE + 300,
                              check=False, cwd=self.temp.name)
        self.assertEqual(done.returncode, 0,
                         done.stderr.decode()[-2000:] + done.stdout.decode()[-500:] + str(self.broker.lines))
        return done.stdout.decode()

    def check(self, out):
        self.assertEqual(self.upstream.requests[-1].get("Authorization"), f"Bearer {TOKEN}")
        self.assertIn(self.mark, out)
        self.assertNotIn(TOKEN, out)


class Clients(Base):
    def test_curl(self):
        self.start()
        self.check(self.run_client(["curl", "-sS", "--cacert", self.ca, "-H", f"Authorization: Bearer {self.mark}",
                                    self.url + "/x"]))
        self.check(self.run_client(["curl", "-sS", "--compressed", "-d", "a=b", "-H",
                                    f"Authorization: Bearer {self.mark}", self.url + "/x"], SSL_CERT_FILE=self.ca))

    @unittest.skipUnless(shutil.which("wget"), "no wget")
    def test_wget(self):
        self.start()
        self.check(self.run_client(["wget", "-qO-", f"--ca-certificate={self.ca}", "--header",
                                    f"Authorization: Bearer {self.mark}", self.url + "/x"]))

    def test_urllib(self):
        self.start()
        program = ("import sys, urllib.request as u; r = u.Request(sys.argv[1], headers={'Authorization': 'Bearer ' + "
                   "sys.argv[2]});"
                   "print(u.build_opener(u.ProxyHandler({})).open(r).read().decode())")
        self.check(self.run_client([sys.executable, "-c", program, self.url, self.mark], SSL_CERT_FILE=self.ca))

    def test_python_strict(self):
        self.start()
        program = ("import ssl, sys, urllib.request as u; c = ssl.create_default_context(); c.verify_flags |= "
                   "ssl.VERIFY_X509_STRICT;"
                   "r = u.Request(sys.argv[1], headers={'Authorization': 'Bearer ' + sys.argv[2]});"
                   "print(u.build_opener(u.ProxyHandler({}), u.HTTPSHandler(context=c)).open(r).read().decode())")
        self.check(self.run_client([sys.executable, "-c", program, self.url, self.mark], SSL_CERT_FILE=self.ca))

    @unittest.skipUnless(has_module("requests"), "no requests")
    def test_requests(self):
        self.start()
        program = ("import requests, sys; s = requests.Session(); s.trust_env = True\n"
                   "for _ in range(3): r = s.get(sys.argv[1], headers={'Authorization': 'Bearer ' + sys.argv[2]}); "
                   "r.raise_for_status()\n"
                   "print(r.text)")
        self.check(self.run_client([PYTHON, "-c", program, self.url, self.mark], REQUESTS_CA_BUNDLE=self.ca))
        self.assertEqual(self.upstream.connections, 1)

    @unittest.skipUnless(shutil.which("node"), "no node")
    def test_node(self):
        self.start()
        program = ("const h = require('https'); h.get(process.argv[1], {headers: {Authorization: 'Bearer ' + "
                   "process.argv[2]}}, r => {"
                   "let t = ''; r.on('data', d => t += d); r.on('end', () => console.log(t)); });")
        self.check(self.run_client(["node", "-e", program, self.url, self.mark], NODE_EXTRA_CA_CERTS=self.ca))
        program = ("typeof fetch == 'undefined' ? process.exit(9) : fetch(process.argv[1], {headers: {Authorization: "
                   "'Bearer ' + process.argv[2]}})"
                   ".then(r => r.text()).then(t => console.log(t))")
        self.check(self.run_client(["node", "-e", program, self.url, self.mark], NODE_EXTRA_CA_CERTS=self.ca))

    @unittest.skipUnless(shutil.which("go"), "no go")
    def test_go(self):
        self.start()
        source = pathlib.Path(self.temp.name, "main.go")
        source.write_text('package main\nimport ("fmt"; "io"; "net/http"; "os")\nfunc main() {\n'
                          ' r, _ := http.NewRequest("GET", os.Args[1], nil)\n'
                          ' r.Header.Set("Authorization", "Bearer "+os.Args[2])\n a, err := http.DefaultClient.Do(r)\n'
                          ' if err != nil { panic(err) }\n'
                          ' b, _ := io.ReadAll(a.Body)\n fmt.Println(string(b))\n}\n', encoding="utf-8")
        # net/http takes minutes to compile
        cache = subprocess.run(["go", "env", "GOCACHE"], check=True, stdout=subprocess.PIPE).stdout.decode().strip()
        home = {"GOCACHE": cache, "GO111MODULE": "off", "GOFLAGS": ""}
        self.check(self.run_client(["go", "run", str(source), self.url, self.mark], SSL_CERT_FILE=self.ca, **home))

    @unittest.skipUnless(shutil.which("java") and shutil.which("keytool"), "no Java")
    def test_java(self):
        self.start()
        # without a dot in the name Java sends no server_name
        url = self.url.replace("localhost", HOST)
        hosts = pathlib.Path(self.temp.name, "hosts")
        hosts.write_text(f"127.0.0.1 {HOST}\n", encoding="ascii")
        source, store = pathlib.Path(self.temp.name, "Main.java"), os.path.join(self.temp.name, "trust.p12")
        source.write_text('import java.net.*;\n'
                          'public class Main { public static void main(String[] a) throws Exception {\n'
                          ' var c = (HttpURLConnection) URI.create(a[0]).toURL().openConnection(); '
                          'c.setRequestProperty("Authorization", "Bearer " + a[1]);\n'
                          ' System.out.println(new String(c.getInputStream().readAllBytes())); } }\n', encoding="utf-8")
        self.run_client(["keytool", "-importcert", "-noprompt", "-alias", "brig", "-file", self.ca, "-keystore", store,
                         "-storepass", "changeit", "-storetype", "PKCS12"])
        self.check(self.run_client(["java", f"-Djdk.net.hosts.file={hosts}", str(source), url, self.mark],
                                   JAVA_TOOL_OPTIONS=f"-Djavax.net.ssl.trustStore={store} "
                                   "-Djavax.net.ssl.trustStorePassword=changeit"))

    def test_the_authority_is_good_for_its_hosts_only(self):
        self.start()
        out = subprocess.run(["openssl", "x509", "-in", self.ca, "-noout", "-text"], check=True,
                             stdout=subprocess.PIPE).stdout.decode()
        for line in ("Subject: CN = brig sandbox authority ", "CA:TRUE, pathlen:0", "Name Constraints: critical",
                     "DNS:localhost", "Certificate Sign"):
            self.assertIn(line, out)


SIGN = """
import json, sys
import botocore.session
from botocore.config import Config
url, ca, mark, service = sys.argv[1:5]
s = botocore.session.get_session()
c = s.create_client(service, region_name="eu-west-1", endpoint_url=url, verify=ca, aws_access_key_id=mark, \
aws_secret_access_key=mark,
                    aws_session_token="anything", config=Config(retries={"max_attempts": 0}, \
s3={"addressing_style": "path"}))
calls = {"sts": lambda: c.get_caller_identity(),
         "dynamodb": lambda: c.put_item(TableName="table", Item={"k": {"S": "v" * 5000}}),
         "s3": lambda: (c.put_object(Bucket="b", Key="a b/\\u00e4+~*.txt", Body=b"x" * 200000, Metadata={"a": "b"}),
                        c.list_objects_v2(Bucket="b", Prefix="x y&z=/", Delimiter="/"))}
try:
    calls[service]()
except botocore.exceptions.ClientError as e:
    print(e)
"""

VERIFY = """
import json, sys
from botocore.auth import SigV4Auth, S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
import botocore.auth, datetime
key, secret, token, service, host = sys.argv[1:6]
r = json.load(sys.stdin)
fields = {k.lower(): v for k, v in r["fields"]}
given = fields["authorization"]
signed = given.split("SignedHeaders=")[1].split(",")[0].split(";")
request = AWSRequest(method=r["method"], url="https://" + host + r["target"], data=r["body"].encode("latin-1"), \
headers={k: fields[k] for k in signed if k != "host"})
request.context["timestamp"] = fields["x-amz-date"]
auth = (S3SigV4Auth if service == "s3" else SigV4Auth)(Credentials(key, secret, token or None), service, "eu-west-1")
canonical = auth.canonical_request(request)
assert canonical.split("\\n")[-2] == ";".join(signed), canonical
want = auth.signature(auth.string_to_sign(request, canonical), request)
assert given.endswith("Signature=" + want), (given, want, canonical)
assert given.startswith("AWS4-HMAC-SHA256 Credential=" + key + "/"), given
"""


@unittest.skipUnless(has_module("botocore"), "no botocore")
class Aws(Base):
    def sign(self, service, value, token):
        self.start(lambda request:
                   reply(b"{}" if "json" in request.get("Content-Type", "") else
                         b"<GetCallerIdentityResponse><GetCallerIdentityResult/></GetCallerIdentityResponse>"), value,
                   {"kind": "aws-sigv4"})
        self.run_client([PYTHON, "-c", SIGN, self.url, self.ca, self.mark, service], AWS_EC2_METADATA_DISABLED="true")
        self.assertTrue(self.upstream.requests)
        for request in self.upstream.requests:
            self.assertNotIn(self.mark, str(request.fields))
            self.assertEqual(request.get("X-Amz-Security-Token"), token)
            record = {"method": request.method, "target": request.target, "fields": request.fields,
                      "body": request.body.decode("latin-1")}
            done = subprocess.run([PYTHON, "-c", VERIFY, KEY_ID, SECRET, token or "", service, request.get("Host")],
                                  input=json.dumps(record).encode(),
                                  stderr=subprocess.PIPE, timeout=2 * PATIENCE, check=False)
            self.assertEqual(done.returncode, 0, done.stderr.decode()[-3000:])
        self.broker.wait("event ALLOWED dialled=1 secret=TOKEN")
        self.assertEqual(self.broker.scan(SECRET), 0)

    def test_services(self):
        for service in ("sts", "dynamodb", "s3"):
            for token in (None, SESSION):
                with self.subTest(service, token=token):
                    self.sign(service, f"{KEY_ID}:{SECRET}" + (f":{token}" if token else ""), token)


class AwsRefusals(Base):
    def test_what_cannot_be_signed_again(self):
        self.start(value=f"{KEY_ID}:{SECRET}", rule={"kind": "aws-sigv4"})
        scope = f"{self.mark}/20150830/us-east-1/s3/aws4_request"
        good = f"Authorization: AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host;x-amz-date, Signature=00"
        cases = {f"/x?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={scope.replace('/', '%2F')}&X-Amz-Signature=00":
                 [],
                 "/no-date": [good], "/day": [good, "X-Amz-Date: 20160830T123600Z"],
                 "/chunks": [good, "X-Amz-Date: 20150830T123600Z",
                             "X-Amz-Content-Sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD"],
                 "/ecdsa": [good.replace("HMAC-SHA256 ", "ECDSA-P256-SHA256 ", 1), "X-Amz-Date: 20150830T123600Z"]}
        for target, fields in cases.items():
            with self.subTest(target):
                argv = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--cacert", self.ca]
                for field in fields:
                    argv += ["-H", field]
                self.assertEqual(self.run_client([*argv, self.url + target]), "403")
        self.assertEqual(self.upstream.requests, [])


if __name__ == "__main__":
    unittest.main()
