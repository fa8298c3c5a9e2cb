# SPDX-License-Identifier: Apache-2.0
"""Debian's own registry (docker-registry) on loopback with a directory of its own, and images for it by umoci and
skopeo."""

import json
import os
import socket
import ssl
import subprocess
import urllib.error
import urllib.request

from helpers import wait_until

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
USER, PASSWORD = "me", "pass:word"


def tool(*argv):
    """Runs a tool of the host; what it says is part of the failure."""
    done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(argv)}: {done.stderr}")
    return done.stdout


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


def make_layout(where, name, arch="amd64"):
    """An OCI layout with one image of two layers; returns "LAYOUT:NAME"."""
    layout = f"{where}/{name}"
    image = f"{layout}:{name}"
    tool("umoci", "init", "--layout", layout)
    tool("umoci", "new", "--image", image)
    for i in (1, 2):
        source = f"{where}/{name}-file{i}"
        with open(source, "w", encoding="ascii") as f:
            f.write(f"{name} {arch} {i}\n" * 1000)
        tool("umoci", "insert", "--rootless", "--image", image, source, f"/file{i}")
    tool("umoci", "config", "--image", image, "--architecture", arch, "--os", "linux", "--config.env", f"NAME={name}",
         "--config.workingdir", "/work")
    return image


class Registry:
    def __init__(self, where, login=False, tls=False):
        self.where, self.login, self.tls = where, login, tls
        self.port = free_port()
        self.host = f"127.0.0.1:{self.port}"
        os.makedirs(f"{where}/data")
        http, auth = f"http:\n  addr: {self.host}\n", ""
        if tls:
            self.ca = f"{where}/ca.pem"
            tool("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days",
                 "30", "-subj", "/CN=registry", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout",
                 f"{where}/key.pem", "-out", self.ca)
            http += f"  tls:\n    certificate: {self.ca}\n    key: {where}/key.pem\n"
        if login:
            line = tool("perl", "-e", "print crypt($ARGV[0], q{$2y$05$abcdefghijklmnopqrstuu})", PASSWORD)
            with open(f"{where}/htpasswd", "w", encoding="ascii") as f:
                f.write(f"{USER}:{line}\n")
            auth = f"auth:\n  htpasswd:\n    realm: here\n    path: {where}/htpasswd\n"
        with open(f"{where}/config.yml", "w", encoding="ascii") as f:
            f.write("version: 0.1\nlog:\n  level: error\n  accesslog:\n    disabled: true\n"
                    f"storage:\n  filesystem:\n    rootdirectory: {where}/data\n{http}{auth}")
        self.log = open(f"{where}/log", "wb")
        self.process = subprocess.Popen(["docker-registry", "serve", f"{where}/config.yml"], stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=self.log)
        try:
            wait_until("the registry answers", self.answers)
        except BaseException:
            self.close()
            raise

    def close(self):
        self.process.kill()
        self.process.wait()
        self.log.close()

    def request(self, path, data=None, kind=None):
        scheme = "https" if self.tls else "http"
        context = ssl.create_default_context(cafile=self.ca) if self.tls else None
        ask = urllib.request.Request(f"{scheme}://{self.host}{path}", data=data, method="PUT" if data else "GET")
        if kind:
            ask.add_header("Content-Type", kind)
        return urllib.request.urlopen(ask, context=context)

    def answers(self):
        if self.process.poll() is not None:
            with open(f"{self.where}/log", encoding="utf-8") as f:
                raise AssertionError(f"docker-registry ended: {f.read()}")
        try:
            self.request("/v2/").close()
        except urllib.error.HTTPError as e:
            return e.code == 401
        except OSError:
            return False
        return True

    def push(self, image, name):
        """From "LAYOUT:NAME"; returns the digest of the manifest."""
        more = ["--dest-creds", f"{USER}:{PASSWORD}"] if self.login else []
        if self.tls:
            os.makedirs(f"{self.where}/certs", exist_ok=True)
            with open(self.ca, "rb") as f, open(f"{self.where}/certs/ca.crt", "wb") as to:
                to.write(f.read())
            more += ["--dest-cert-dir", f"{self.where}/certs"]
        else:
            more += ["--dest-tls-verify=false"]
        digest = f"{self.where}/digest"
        tool("skopeo", "copy", "--insecure-policy", "--digestfile", digest, *more, f"oci:{image}",
             f"docker://{self.host}/{name}")
        with open(digest, encoding="ascii") as f:
            return f.read().strip()

    def manifest(self, path):
        """(type, text) of a manifest: "NAME/manifests/TAG"."""
        ask = urllib.request.Request(f"http://{self.host}/v2/{path}", headers={"Accept": f"{MANIFEST}, {INDEX}"})
        with urllib.request.urlopen(ask) as answer:
            return answer.headers["Content-Type"], answer.read()

    def push_index(self, name, tag, platforms):
        """An index over manifests that are in the repository: [(digest, os, arch, variant or None)]."""
        entries = []
        for digest, system, arch, variant in platforms:
            kind, text = self.manifest(f"{name}/manifests/{digest}")
            platform = {"os": system, "architecture": arch, **({"variant": variant} if variant else {})}
            entries.append({"mediaType": kind, "digest": digest, "size": len(text), "platform": platform})
        body = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).encode()
        self.request(f"/v2/{name}/manifests/{tag}", body, INDEX).close()
