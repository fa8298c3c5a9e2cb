# SPDX-License-Identifier: Apache-2.0
"""Archives made byte by byte, and brig-layer over a merged view: an overlay in a mount namespace of its own."""

import base64
import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

LAYER = f"{os.environ.get('BRIG_LIBEXEC_DIR', '/usr/local/libexec/brig')}/brig-layer"
IS_ROOT = os.geteuid() == 0
END = bytes(1024)
PATIENCE = 120
PLAIN_ID = 54321  # nobody's


# ---- archives -------------------------------------------------------------------------------------------------------


def octal(value, width):
    return b"%0*o\0" % (width - 1, value)


def base256(value, width):
    return bytes([0xff if value < 0 else 0x80]) + (value & (1 << 8 * (width - 1)) - 1).to_bytes(width - 1, "big")


def header(name, kind=b"0", size=0, mode=0o644, uid=0, gid=0, mtime=1000, link=b"", magic=b"ustar\x0000", prefix=b"",
           **raw):
    """A header block; raw: fields as bytes that replace what would stand there, and `sum` for the checksum."""
    fields = {"mode": octal(mode, 8), "uid": octal(uid, 8), "gid": octal(gid, 8), "size": octal(size, 12),
              "mtime": octal(mtime, 12), **raw}
    block = (name.ljust(100, b"\0") + fields["mode"] + fields["uid"] + fields["gid"] + fields["size"]
             + fields["mtime"] + b" " * 8 + kind + link.ljust(100, b"\0") + magic.ljust(8, b"\0")
             + bytes(80) + prefix.ljust(155, b"\0"))[:512].ljust(512, b"\0")
    if "tail" in raw:
        block = block[:386] + raw["tail"].ljust(126, b"\0")
    return block[:148] + raw.get("sum", b"%06o\0 " % sum(block)) + block[156:]


def padded(data):
    return data + bytes(-len(data) % 512)


def file(name, data=b"", **kw):
    return header(name, **{"size": len(data), **kw}) + padded(data)


def folder(name, **kw):
    return header(name, b"5", **{"mode": 0o755, **kw})


def symlink(name, target, **kw):
    return header(name, b"2", link=target, mode=0o777, **kw)


def hardlink(name, target, **kw):
    return header(name, b"1", link=target, **kw)


def pax(kind=b"x", **records):
    """A PAX header; the keys have double underscores in place of dots."""
    return pax_of({k.replace("__", ".").encode(): v for k, v in records.items()}, kind)


def pax_of(records, kind=b"x"):
    text = b""
    for key, value in records.items():
        rest = b" " + key + b"=" + value + b"\n"
        length = len(rest) + 1
        while len(b"%d" % length) + len(rest) != length:
            length = len(b"%d" % length) + len(rest)
        text += b"%d" % length + rest
    return file(b"PaxHeaders/x", text, kind=kind)


def long_name(name, kind=b"L"):
    return file(b"././@LongLink", name + b"\0", kind=kind)


# ---- trees ----------------------------------------------------------------------------------------------------------

# What runs in the namespace: mounts, calls the program, and says how the merged view and the upper directory look.
INSIDE = r"""
import base64, json, os, stat, subprocess, sys
spec = json.loads(sys.argv[1])
top, target = spec["top"], spec["top"] + "/upper"
if spec["lowers"]:
    target = top + "/merged"
    lowers = ":".join(f"{top}/{name}" for name in reversed(spec["lowers"]))
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o",
                    f"userxattr,lowerdir={lowers},upperdir={top}/upper,workdir={top}/work", target], check=True)
done = subprocess.run([w.replace("@", target) for w in spec["argv"]], capture_output=True, check=False)

def look(path):
    st = os.lstat(path)
    entry = {"mode": st.st_mode, "uid": st.st_uid, "gid": st.st_gid, "mtime": st.st_mtime_ns, "ino": st.st_ino,
             "nlink": st.st_nlink, "size": st.st_size, "blocks": st.st_blocks}
    if stat.S_ISREG(st.st_mode):
        with open(path, "rb") as f:
            entry["data"] = base64.b64encode(f.read(1 << 20)).decode()
    elif stat.S_ISLNK(st.st_mode):
        entry["data"] = base64.b64encode(os.fsencode(os.readlink(path))).decode()
    names = [n for n in os.listxattr(path, follow_symlinks=False)] if not stat.S_ISLNK(st.st_mode) else []
    entry["xattrs"] = {n: os.getxattr(path, n, follow_symlinks=False).hex() for n in names}
    return entry

def tree(top):
    found = {"": look(top)}
    for where, folders, files in os.walk(top):
        for name in folders + files:
            path = os.path.join(where, name)
            found[os.path.relpath(path, top)] = look(path)
    return found

text = lambda b: b.decode("utf-8", "surrogateescape")
print(json.dumps({"status": done.returncode, "out": text(done.stdout), "err": text(done.stderr),
                  "tree": tree(target) if spec["look"] else {}, "upper": tree(top + "/upper") if spec["look"] else {}}))
"""


class Done:
    """How brig-layer ended, and what it made: tree[path] of the merged view, upper[path] of the layer itself."""

    def __init__(self, told):
        self.status, self.out, self.err = told["status"], told["out"], told["err"]
        self.tree, self.upper = told["tree"], told["upper"]

    @property
    def result(self):
        return json.loads(self.out.splitlines()[-1])

    def names(self):
        return sorted(name for name in self.tree if name)

    def data(self, path):
        return base64.b64decode(self.tree[path]["data"])


class LayerTest(unittest.TestCase):
    """As root; with `plain` as a user who has one id: in a user namespace that maps no other."""

    LIMIT_SECONDS = 120
    plain = not IS_ROOT

    def setUp(self):
        self.top = tempfile.mkdtemp(prefix="layer-")
        self.addCleanup(self.clean)
        self.lowers = []
        self.rights = ["--one-id"] if self.plain else []
        if self.plain and IS_ROOT:
            os.chown(self.top, PLAIN_ID, PLAIN_ID)
        for name in ("upper", "work", "merged"):
            self.make(name)

    def clean(self):
        subprocess.run(["chmod", "-R", "u+rwx", self.top], capture_output=True, check=False)
        shutil.rmtree(self.top)

    def make(self, name):
        """A new and empty directory of the user's."""
        path = f"{self.top}/{name}"
        if os.path.exists(path):
            subprocess.run(["chmod", "-R", "u+rwx", path], capture_output=True, check=False)
            shutil.rmtree(path)
        os.mkdir(path)
        if self.plain and IS_ROOT:
            os.chown(path, PLAIN_ID, PLAIN_ID)

    def space(self):
        drop = ["setpriv", f"--reuid={PLAIN_ID}", f"--regid={PLAIN_ID}", "--clear-groups"]
        return [*(drop if self.plain and IS_ROOT else []), "unshare", *(["-r"] if self.plain else []), "-m"]

    def inside(self, argv, look=True):
        spec = {"top": self.top, "lowers": self.lowers, "argv": argv, "look": look}
        done = subprocess.run([*self.space(), sys.executable, "-I", "-c", INSIDE, json.dumps(spec)],
                              capture_output=True, timeout=PATIENCE, check=False)
        if done.returncode != 0:
            raise AssertionError(done.stderr.decode("utf-8", "replace"))
        return Done(json.loads(done.stdout))

    def blob(self, data, name="blob"):
        path = f"{self.top}/{name}"
        with open(path, "wb") as f:
            for piece in [data] if isinstance(data, bytes) else data:
                f.write(piece)
        return path

    def unpack(self, data, *options, look=True):
        return self.inside([LAYER, "unpack", *self.rights, *options, self.blob(data), "@"], look)

    def lower(self, data):
        """Makes a layer from an archive, below those that come."""
        done = self.unpack(data)
        self.assertEqual(done.err, "")
        name = f"layer{len(self.lowers)}"
        os.rename(f"{self.top}/upper", f"{self.top}/{name}")
        self.make("upper")
        self.make("work")
        self.lowers.append(name)

    def refused(self, data, line, *options):
        done = self.unpack(data, *options, look=False)
        self.assertEqual((done.status, done.err), (1, line + "\n"))

    def made(self, data, names, *options):
        done = self.unpack(data, *options)
        self.assertEqual((done.status, done.err), (0, ""))
        self.assertEqual(done.names(), sorted(names))
        return done


def diff_id(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def kind_of(entry):
    return stat.S_IFMT(entry["mode"])
