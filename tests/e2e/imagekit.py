# SPDX-License-Identifier: Apache-2.0
"""Images made by the tests themselves: layers as tar bytes, an OCI layout, a `docker save` archive. The programs in
them are the host's own, with the libraries that they need."""

import base64
import functools
import gzip
import hashlib
import http.server
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import threading

PROGRAMS = ("sh", "cat", "stat", "env", "ls", "id", "touch", "rm", "sleep", "true", "mkdir", "chmod", "ln")


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def entry(name, data=None, mode=0o644, uid=0, gid=0, kind=None, link=""):
    """One member of a layer: a file with data, a directory without, or what kind says."""
    info = tarfile.TarInfo(name)
    info.mode, info.uid, info.gid, info.linkname = mode, uid, gid, link
    info.type = kind or (tarfile.REGTYPE if data is not None else tarfile.DIRTYPE)
    info.mtime = 1700000000
    if data is not None:
        info.size = len(data)
    return info, data


def tar(*entries):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for info, data in entries:
            archive.addfile(info, io.BytesIO(data) if data is not None else None)
    return out.getvalue()


def read(path):
    with open(path, "rb") as f:
        return f.read()


@functools.lru_cache
def base_entries():
    """Programs of the host and their libraries, in the places where they are looked for."""
    found, entries = {}, []
    for program in PROGRAMS:
        path = os.path.realpath(shutil.which(program))
        found["bin/" + program] = path
        listed = subprocess.run(["ldd", path], stdout=subprocess.PIPE, check=True).stdout.decode()
        for library in re.findall(r"(/\S+)", listed):
            found[library.lstrip("/")] = os.path.realpath(library)
    directories = {"tmp", "etc", "workspace", "home", "home/user", "proc", "sys", "dev", "run", "var", "var/tmp"}
    for name in found:
        while "/" in name:
            name = name.rsplit("/", 1)[0]
            directories.add(name)
    for name in sorted(directories):
        entries.append(entry(name, mode=0o1777 if name in ("tmp", "var/tmp") else 0o755))
    for name, path in found.items():
        entries.append(entry(name, read(path), 0o755))
    entries.append(entry("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n"))
    entries.append(entry("etc/group", b"root:x:0:\nuser:x:1000:\n"))
    return tuple(entries)


@functools.lru_cache
def base_layer():
    return tar(*base_entries())


class Image:
    """layers: tars, lowest first. config: members of the image's `config`."""

    def __init__(self, *layers, config=None, compress=True, arch="amd64"):
        self.layers = layers
        self.blobs = [gzip.compress(l, 1, mtime=0) if compress else l for l in layers]
        self.kind = "application/vnd.oci.image.layer.v1.tar" + ("+gzip" if compress else "")
        self.diff_ids = [digest(l) for l in layers]
        self.config = json.dumps({"architecture": arch, "os": "linux", "config": config or {},
                                  "rootfs": {"type": "layers", "diff_ids": self.diff_ids}}).encode()

    def chain_ids(self):
        ids = []
        for diff_id in self.diff_ids:
            ids.append(diff_id if not ids else digest(f"{ids[-1]} {diff_id}".encode()))
        return [i.removeprefix("sha256:") for i in ids]

    def manifest(self):
        return json.dumps({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest(self.config),
                       "size": len(self.config)},
            "layers": [{"mediaType": self.kind, "digest": digest(b), "size": len(b)} for b in self.blobs]}).encode()

    def index(self, name=None):
        manifest = self.manifest()
        return json.dumps({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [{"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest(manifest),
                           "size": len(manifest), "platform": {"os": "linux", "architecture": "amd64"},
                           "annotations": {"org.opencontainers.image.ref.name": name} if name else {}}]}).encode()

    def oci(self, name=None, change=None):
        """An OCI layout as a tar. change(files) may spoil it: a dict of name and bytes."""
        files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": self.index(name)}
        for data in (self.manifest(), self.config, *self.blobs):
            files["blobs/sha256/" + digest(data).removeprefix("sha256:")] = data
        if change:
            change(files)
        return tar(*(entry(n, d) for n, d in files.items()))

    def docker(self, tag="test/image:1", link=False):
        """What an older `docker save` writes; link: equal layers are links, as some writers have it."""
        name = digest(self.config).removeprefix("sha256:") + ".json"
        members, names, seen = [entry(name, self.config)], [], {}
        for layer in self.layers:
            at = f"{len(names):064x}/layer.tar"
            if link and layer in seen:
                members.append(entry(at, kind=tarfile.SYMTYPE, link="../" + seen[layer]))
            else:
                members.append(entry(at, layer))
            seen[layer] = at
            names.append(at)
        members.append(entry("manifest.json", json.dumps([{"Config": name, "RepoTags": [tag],
                                                           "Layers": names}]).encode()))
        return tar(*members)


class Registry:
    """A registry on loopback that has one repository. tags: name -> Image. Options spoil its answers."""

    def __init__(self, login=None, repository="test/image"):
        self.tags, self.login, self.repository = {}, login, repository
        self.asked = []  # (path, Range) of every request for a blob
        self.change = {}  # digest -> other bytes
        self.hold = None  # an Event: blobs stop in their middle until it is set
        registry = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                registry.answer(self)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.host = f"127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def close(self):
        if self.hold:
            self.hold.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def reply(self, handler, status, body=b"", kind="application/json", **fields):
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(body)))
        for name, value in fields.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    def answer(self, handler):
        if self.login:
            want = "Basic " + base64.b64encode(":".join(self.login).encode()).decode()
            if handler.headers.get("Authorization") != want:
                self.reply(handler, 401, b'{"errors":[]}', WWW_Authenticate='Basic realm="test"')
                return
        if handler.path == "/v2/":
            self.reply(handler, 200, b"{}")
            return
        found = re.fullmatch(f"/v2/{self.repository}/(manifests|blobs)/(.+)", handler.path)
        image = self.tags.get(found[2]) if found and found[1] == "manifests" else None
        if image:
            self.reply(handler, 200, image.manifest(), "application/vnd.oci.image.manifest.v1+json",
                       Docker_Content_Digest=digest(image.manifest()))
            return
        for image in self.tags.values():
            for data in (image.config, *image.blobs):
                if found and digest(data) == found[2]:
                    self.blob(handler, self.change.get(found[2], data))
                    return
        self.reply(handler, 404, b'{"errors":[{"code":"MANIFEST_UNKNOWN"}]}')

    def blob(self, handler, data):
        self.asked.append((handler.path, handler.headers.get("Range")))
        part = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
        at = int(part[1]) if part else 0
        handler.send_response(206 if part else 200)
        if part:
            handler.send_header("Content-Range", f"bytes {at}-{len(data) - 1}/{len(data)}")
        handler.send_header("Content-Length", str(len(data) - at))
        handler.end_headers()
        half = at + (len(data) - at) // 2
        try:
            handler.wfile.write(data[at:half])
            handler.wfile.flush()
            if self.hold and len(data) > 65536:
                self.hold.wait()
            handler.wfile.write(data[half:])
        except OSError:
            pass  # the client has left
