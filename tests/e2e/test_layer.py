# SPDX-License-Identifier: Apache-2.0
"""brig-layer: layers of honest images come out as they were packed, and go in again."""

import gzip
import io
import json
import os
import socket
import stat
import struct
import subprocess
import tarfile
import unittest

from layerkit import (END, LAYER, LayerTest, diff_id, file, folder, hardlink, header, kind_of, pax, pax_of,
                      symlink)

ACL = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *e) for e in (
    (1, 6, 0xffffffff), (2, 4, 1000), (4, 4, 0xffffffff), (16, 4, 0xffffffff), (32, 0, 0xffffffff)))


def zstd(data):
    return subprocess.run(["zstd", "-q", "-c"], input=data, capture_output=True, check=True).stdout


class Unpack(LayerTest):
    def test_everything_is_kept(self):
        data = (folder(b"d", mode=0o1777, mtime=5) + pax(mtime=b"1234.5") + file(b"d/f", b"abc", mode=0o751, uid=7,
                                                                                   gid=8)
                + symlink(b"l", b"../d", uid=9, gid=10) + hardlink(b"h", b"d/f") + header(b"p", b"6", mode=0o620)
                + pax_of({b"SCHILY.xattr.user.k": b"v\0\n"}) + file(b"x") + END)
        done = self.made(data, ["d", "d/f", "l", "h", "p", "x"])
        tree = done.tree
        self.assertEqual(tree["d"]["mode"] & 0o7777, 0o1777)
        self.assertEqual(tree["d"]["mtime"], 5 * 10**9)
        self.assertEqual(tree["d/f"]["mtime"], 1234500000000)
        self.assertEqual((tree["d/f"]["mode"] & 0o7777, done.data("d/f")), (0o751, b"abc"))
        self.assertEqual(tree["h"]["ino"], tree["d/f"]["ino"])
        self.assertEqual(done.data("l"), b"../d")
        self.assertEqual((kind_of(tree["p"]), tree["p"]["mode"] & 0o777), (stat.S_IFIFO, 0o620))
        self.assertEqual(tree["x"]["xattrs"], {"user.k": b"v\0\n".hex()})
        if not self.plain:
            self.assertEqual([(tree[n]["uid"], tree[n]["gid"]) for n in ("d/f", "l", "x")], [(7, 8), (9, 10), (0, 0)])
        self.assertEqual(done.result, {
            "diff_id": diff_id(data), "format": "tar", "stream": len(data), "bytes": 3, "files": 6,
            "dropped": {"devices": 0, "capabilities": 0, "xattrs": 0, "whiteouts": 0}})

    def test_formats(self):
        plain = file(b"a", os.urandom(300000)) + folder(b"d") + END
        half = len(plain) // 2
        for data, name in ((plain, "tar"), (gzip.compress(plain), "gzip"), (zstd(plain), "zstd"),
                           (gzip.compress(plain[:half]) + gzip.compress(plain[half:]), "gzip"),
                           (b"\x50\x2a\x4d\x18\x04\0\0\0abcd" + zstd(plain[:half]) + zstd(plain[half:]), "zstd")):
            done = self.made(data, ["a", "d"], "--diff-id", diff_id(plain), "--format", name)
            self.assertEqual((done.data("a"), done.result["format"]), (plain[512:300512], name))
        self.refused(gzip.compress(plain), f"{self.top}/blob: it is gzip and not tar", "--format", "tar")

    def test_a_part_of_a_blob(self):
        """As `docker save` has its layers: in the middle of another archive."""
        layer = gzip.compress(file(b"a", b"x") + END)
        outer = file(b"1/layer.tar", layer) + file(b"manifest.json", b"[]") + END
        self.made(outer, ["a"], "--offset", "512", "--size", str(len(layer)))
        self.refused(outer, f"{self.top}/blob: it ends before --offset and --size say", "--offset", "512", "--size",
                     str(len(outer)))

    def test_pythons_and_gnus_archives(self):
        os.makedirs(f"{self.top}/in/" + "long" * 40 + "/" + "name" * 40)
        with open(f"{self.top}/in/hole", "wb") as f:
            f.seek(1 << 20)
            f.write(b"x" * 10)
            f.truncate(3 << 20)
        names = ["hole", "long" * 40, "long" * 40 + "/" + "name" * 40]
        for form in (["--format=gnu"], ["--format=pax", "--sparse-version=0.0"],
                     ["--format=pax", "--sparse-version=0.1"], ["--format=pax", "--sparse-version=1.0"],
                     ["--format=v7"]):
            tree = [] if "--format=v7" not in form else ["hole"]
            data = subprocess.run(["tar", "-C", f"{self.top}/in", "-S" if tree == [] else "-b1", *form, "-cf", "-",
                                   *(tree or ["."])], capture_output=True, check=True).stdout
            done = self.made(data, tree or names)
            self.assertEqual(done.tree["hole"]["size"], 3 << 20)
            self.assertEqual(done.data("hole"), bytes(1 << 20))
            if not tree:
                self.assertLess(done.tree["hole"]["blocks"], 200)
            self.make("upper")

    def test_standard_input(self):
        data = file(b"a") + END
        done = subprocess.run([LAYER, "unpack", *self.rights, "-", f"{self.top}/upper"], input=data,
                              capture_output=True, check=False)
        self.assertEqual((done.returncode, done.stderr, os.listdir(f"{self.top}/upper")), (0, b"", ["a"]))

    def test_directories_that_lock(self):
        """What lies in a directory that nobody may write to is made all the same; its mode is set at the end."""
        done = self.made(folder(b"d", mode=0o500) + folder(b"d/e", mode=0) + file(b"d/e/f", mode=0) + END,
                         ["d", "d/e", "d/e/f"])
        self.assertEqual([done.tree[n]["mode"] & 0o7777 for n in ("d", "d/e", "d/e/f")], [0o500, 0, 0])

    def test_access_lists(self):
        if self.plain:
            self.skipTest("an access list names several ids, and a plain user has one")
        records = {b"SCHILY.xattr.system.posix_acl_access": ACL, b"SCHILY.xattr.system.posix_acl_default": ACL}
        done = self.made(pax_of(records) + folder(b"d", mode=0o2740) + file(b"d/f", mode=0o644, gid=5) + folder(b"d/e")
                         + pax_of(records) + file(b"f", mode=0o640) + END, ["d", "d/e", "d/f", "f"])
        self.assertEqual(done.tree["d"]["xattrs"], {"system.posix_acl_access": ACL.hex(),
                                                    "system.posix_acl_default": ACL.hex()})
        self.assertEqual(done.tree["f"]["xattrs"], {"system.posix_acl_access": ACL.hex()})
        # what lies in a directory with a default list or a set-group-id bit has what the archive says
        self.assertEqual(done.tree["d/f"]["xattrs"], {})
        self.assertEqual((done.tree["d/f"]["mode"] & 0o7777, done.tree["d/f"]["gid"]), (0o644, 5))
        self.assertEqual((done.tree["d/e"]["mode"] & 0o7777, done.tree["d/e"]["gid"]), (0o755, 0))


class RootlessUnpack(Unpack):
    plain = True
    test_access_lists = None  # they name several ids


class Merged(LayerTest):
    def test_over_lower_layers(self):
        self.lower(folder(b"usr", mode=0o711, mtime=50) + folder(b"usr/lib", mode=0o2775, uid=0, gid=0, mtime=60)
                   + file(b"usr/lib/x", b"low") + symlink(b"lib", b"usr/lib") + file(b"data", b"1") + END)
        self.lower(file(b"second", b"2") + END)
        done = self.made(file(b"lib/y", b"new") + hardlink(b"usr/z", b"lib/x") + file(b"data", b"3") + END,
                         ["data", "lib", "second", "usr", "usr/lib", "usr/lib/x", "usr/lib/y", "usr/z"])
        # /lib is followed, and the directories that the layer does not name keep what they have
        self.assertEqual((done.data("usr/lib/y"), done.data("usr/z"), done.data("data")), (b"new", b"low", b"3"))
        self.assertEqual(done.upper["usr/z"]["ino"], done.upper["usr/lib/x"]["ino"])
        self.assertEqual([(done.tree[n]["mode"] & 0o7777, done.tree[n]["mtime"] // 10**9) for n in ("usr", "usr/lib")],
                         [(0o711, 50), (0o2775, 60)])
        self.assertNotIn("second", done.upper)

    def test_whiteouts_are_the_overlays(self):
        self.lower(folder(b"d") + file(b"d/a") + file(b"d/b") + file(b"e/f/g") + END)
        done = self.made(file(b"d/.wh.a") + file(b".wh.e") + END, ["d", "d/b"])
        for name in ("d/a", "e"):
            self.assertEqual(kind_of(done.upper[name]), stat.S_IFCHR)
        self.assertEqual(done.result["dropped"]["whiteouts"], 0)

    def test_a_directory_changes_one_below(self):
        self.lower(folder(b"d", mode=0o700) + file(b"d/a", b"low") + END)
        done = self.made(folder(b"d", mode=0o755, mtime=99) + END, ["d", "d/a"])
        self.assertEqual((done.tree["d"]["mode"] & 0o777, done.tree["d"]["mtime"]), (0o755, 99 * 10**9))

    def test_kinds_change(self):
        self.lower(folder(b"d") + file(b"d/a/b") + file(b"f") + symlink(b"l", b"d") + END)
        done = self.made(file(b"d", b"x") + folder(b"f") + file(b"f/in") + folder(b"l") + END, ["d", "f", "f/in", "l"])
        self.assertEqual(kind_of(done.tree["l"]), stat.S_IFDIR)


class RootlessMerged(Merged):
    plain = True


class Write(LayerTest):
    def members(self, data):
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            return {m.name: m for m in tar}

    def run_on(self, verb, path):
        done = subprocess.run([LAYER, verb, path], capture_output=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        return done.stdout

    def test_a_diff_unpacks_to_the_same(self):
        """Layer by layer: what a sandbox changed, written as a layer and unpacked over the same layers below."""
        self.lower(folder(b"d") + file(b"d/a", b"low") + file(b"gone/x") + file(b"o/1") + file(b"o/2") + END)
        first = self.made(
            file(b"d/b", b"new") + file(b".wh.gone") + file(b".wh.o") + folder(b"o", mode=0o711) + file(b"o/3")
            + hardlink(b"h", b"d/b") + symlink(b"l", b"x" * 90) + header(b"p", b"6") + pax_of(
                {b"SCHILY.xattr.user.k": b"v"}) + file(b"k") + END, ["d", "d/a", "d/b", "h", "k", "l", "o", "o/3", "p"])
        data = self.run_on("diff", f"{self.top}/upper")
        self.assertEqual(data, self.run_on("diff", f"{self.top}/upper"))
        self.assertEqual(list(self.members(data)), ["d", "d/b", ".wh.gone", "h", "k", "l", "o", "o/.wh..wh..opq", "o/3",
                                                    "p"])
        os.rename(f"{self.top}/upper", f"{self.top}/upper.old")
        os.rename(f"{self.top}/work", f"{self.top}/work.old")
        self.make("upper")
        self.make("work")
        again = self.made(data, first.names())
        for name, entry in first.tree.items():
            for key in ("mode", "uid", "gid", "nlink", "size", "xattrs", "data", "mtime"):
                # the size of a directory is the file system's own
                if (name or key != "mtime") and (key not in ("nlink", "size") or stat.S_ISREG(entry["mode"])):
                    self.assertEqual(again.tree[name].get(key), entry.get(key), (name, key))

    def test_holes_stay(self):
        with open(f"{self.top}/upper/hole", "wb") as f:
            f.truncate(64 << 20)
            f.seek(5 << 20)
            f.write(b"data")
        with open(f"{self.top}/upper/empty", "wb") as f:
            f.truncate(64 << 20)
        data = self.run_on("pack", f"{self.top}/upper")
        self.assertLess(len(data), 100_000)
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            self.assertEqual({m.name: m.size for m in tar}, {"hole": 64 << 20, "empty": 64 << 20})
            content = tar.extractfile("hole")
            content.seek(5 << 20)
            self.assertEqual(content.read(5), b"data\0")
        self.make("upper")
        done = self.made(data, ["hole", "empty"])
        self.assertEqual(done.tree["hole"]["size"], 64 << 20)
        self.assertLess(done.tree["hole"]["blocks"], 1000)

    def test_what_is_left_out(self):
        os.mkdir(f"{self.top}/upper/d")
        os.setxattr(f"{self.top}/upper/d", "user.overlay.origin", b"x")
        os.setxattr(f"{self.top}/upper/d", "user.b", b"2")
        os.setxattr(f"{self.top}/upper/d", "user.a", b"1")
        with open(f"{self.top}/upper/w", "wb"):
            pass
        os.setxattr(f"{self.top}/upper/w", "user.overlay.whiteout", b"")
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(f"{self.top}/upper/s")
        members = self.members(self.run_on("diff", f"{self.top}/upper"))
        self.assertEqual(list(members), ["d", ".wh.w"])
        self.assertEqual([k for k in members["d"].pax_headers if "xattr" in k], ["SCHILY.xattr.user.a",
                                                                                 "SCHILY.xattr.user.b"])
        self.assertEqual(list(self.members(self.run_on("pack", f"{self.top}/upper"))), ["d", "w"])

    def test_names_that_would_be_whiteouts(self):
        with open(f"{self.top}/upper/.wh.x", "wb"):
            pass
        done = subprocess.run([LAYER, "diff", f"{self.top}/upper"], capture_output=True, check=False)
        line = b".wh.x: layers use names with .wh. for what was removed\n"
        self.assertEqual((done.returncode, done.stderr), (1, line))


class Store(LayerTest):
    members, run_on = Write.members, Write.run_on

    """The store of a sandbox as a layer (jail/store_mount.c has its directories)."""

    def test_the_root_and_the_places(self):
        store = f"{self.top}/upper"
        for name in ("upper/root/etc", "upper/root/home/other", "upper/root/home/user", "upper/root/dev/x",
                     "upper/root/run/y", "upper/root/var/tmp/z", "upper/usr/own", "work", "home/deep", "tmp", "vartmp",
                     "workspace", "run/p", "shm/p"):
            os.makedirs(f"{store}/{name}")
        for name in ("upper/root/etc/gone", "workspace/w"):
            with open(f"{store}/{name}", "wb"):
                pass
            os.setxattr(f"{store}/{name}", "user.overlay.whiteout", b"")
        os.setxattr(f"{store}/upper/root/etc", "user.overlay.opaque", b"y")
        os.setxattr(f"{store}/workspace", "user.overlay.opaque", b"y")
        os.chmod(f"{store}/tmp", 0o1777)
        members = self.members(self.run_on("store", store))
        # Beside the root, a mark of the overlay is nothing but an attribute that somebody has set.
        self.assertEqual(list(members), ["etc", "etc/.wh..wh..opq", "etc/.wh.gone", "home", "home/other", "var",
                                         "home/user", "home/user/deep", "tmp", "var/tmp", "workspace", "workspace/w"])
        self.assertEqual((members["tmp"].mode, members["workspace"].mode), (0o1777, 0o755))
        os.rename(f"{store}/upper", f"{store}/none")  # of a root that cannot be written
        self.assertEqual(list(self.members(self.run_on("store", store)))[:2], ["home/user", "home/user/deep"])


class Index(LayerTest):
    def test_members_and_their_places(self):
        data = (folder(b"1") + file(b"1/layer.tar", b"l" * 200000) + symlink(b"2", b"1/layer.tar")
                + pax(path=b"3/" + b"n" * 150) + file(b"x", b"abc") + END)
        done = subprocess.run([LAYER, "index", self.blob(data)], capture_output=True, text=True, check=True)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([(m["name"], m["type"], m["size"], m.get("link")) for m in lines], [
            ("1", "dir", 0, None), ("1/layer.tar", "file", 200000, None), ("2", "symlink", 0, "1/layer.tar"),
            ("3/" + "n" * 150, "file", 3, None)])
        self.assertEqual(data[lines[3]["offset"]:][:3], b"abc")
        self.assertEqual(data[lines[1]["offset"]:][:200000], b"l" * 200000)

    def index_fails(self, data, line, *options):
        done = subprocess.run([LAYER, "index", *options, self.blob(data)], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (1, line + "\n"))

    def test_refusals(self):
        blob = f"{self.top}/blob"
        self.index_fails(gzip.compress(file(b"a") + END),
                         f"{blob}: it is compressed with gzip; `brig-layer plain` unpacks it first")
        self.index_fails(zstd(file(b"a") + END),
                         f"{blob}: it is compressed with zstd; `brig-layer plain` unpacks it first")
        self.index_fails(header(b"a", size=1 << 30) + END, "a: it is longer than what is left of the archive")
        self.index_fails(END, f"{blob}: an archive without members")
        self.index_fails(file(b"a") * 3 + END, "a: with it the archive has more than 2 members", "--max-files", "2")
        self.index_fails(file(b"../a") + END, "../a: a path that leaves the root")

    def test_plain(self):
        data = file(b"a", os.urandom(700000)) + END
        for packed in (data, gzip.compress(data), zstd(data)):
            done = subprocess.run([LAYER, "plain", self.blob(packed)], capture_output=True, check=True)
            self.assertEqual(done.stdout, data)
        done = subprocess.run([LAYER, "plain", "--max-bytes", "700000", self.blob(packed)], capture_output=True,
                              check=False)
        self.assertEqual((done.returncode, done.stderr), (1, b"the archive: it unpacks to more than 700000 bytes\n"))


class Words(LayerTest):
    def test_command_lines(self):
        usage = "usage: brig-layer unpack|diff|store|pack|index|plain|copy|mkdir|packages [OPTION VALUE]... PATH..."
        for words, line in (
                ([], usage), (["x"], usage), (["unpack", "a"], usage), (["diff", "a", "b"], usage),
                (["copy", "a", "b", "/c"], usage), (["mkdir", "a"], usage),
                (["unpack", "--x", "a", "b"], "brig-layer unpack has no option --x"),
                (["diff", "--size", "1", "a"], "brig-layer diff has no option --size"),
                (["unpack", "--", "a", "b"], "brig-layer unpack has no option --"),
                (["unpack", "--size"], "--size needs a value"),
                (["unpack", "--size", "-1", "a", "b"], "--size -1: a number of at least 0"),
                (["unpack", "--max-ratio", "0", "a", "b"], "--max-ratio 0: a number of at least 1"),
                (["unpack", "--diff-id", "sha256:x", "a", "b"],
                 "--diff-id sha256:x: sha256: and 64 hexadecimal digits"),
                (["unpack", "--format", "xz", "a", "b"], "--format xz: tar, gzip or zstd"),
                (["unpack", "--size", "1", "-", "b"], "--offset and --size need a file, not the standard input"),
                (["unpack", "/no/such", self.top], "/no/such: No such file or directory"),
                (["unpack", self.top, self.top], f"{self.top}: Is a directory"),
                (["diff", "/no/such"], "/no/such: No such file or directory")):
            done = subprocess.run([LAYER, *words], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (1, line + "\n"), words)


if __name__ == "__main__":
    unittest.main()
