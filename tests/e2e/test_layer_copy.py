# SPDX-License-Identifier: Apache-2.0
"""brig-layer makes the layers of COPY, ADD and WORKDIR: what comes out of them over an image is what BuildKit gives."""

import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import stat
import subprocess
import tarfile
import unittest

from layerkit import END, LAYER, LayerTest, file, folder, hardlink, header, kind_of, pax, pax_of, symlink

EMPTY = bytes(1024)
CONTEXT = (folder(b"app", mode=0o750, mtime=70) + file(b"app/main.py", b"main", mode=0o755, uid=500, gid=501, mtime=71)
           + folder(b"app/lib", mode=0o700, mtime=72) + file(b"app/lib/a.py", b"a") + file(b"app/lib/a.txt", b"t")
           + symlink(b"app/link", b"lib/a.py") + file(b"one.txt", b"1") + file(b"two.txt", b"2")
           + symlink(b"alias", b"one.txt") + symlink(b"dirs", b"app/lib") + END)


def zstd(data):
    return subprocess.run(["zstd", "-q", "-c"], input=data, capture_output=True, check=True).stdout


def members(data):
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {m.name: m for m in tar}


class CopyTest(LayerTest):
    def setUp(self):
        super().setUp()
        self.image = b""

    def based_on(self, data):
        """The image that DEST is in."""
        self.lower(data + END)

    def view(self):
        if self.lowers:
            return f"{self.top}/{self.lowers[0]}"
        return f"{self.top}/upper"

    def run_layer(self, *words):
        return subprocess.run([LAYER, *words], capture_output=True, check=False, timeout=60)

    def copy(self, *words, context=CONTEXT):
        """The layer's tar. Words: options, then DEST and sources."""
        at = next(i for i, word in enumerate(words) if word.startswith("/"))
        return self.run_layer("copy", *words[:at], self.blob(context, "context"), self.view(), *words[at:])

    def copied(self, *words, context=CONTEXT):
        done = self.copy(*words, context=context)
        self.assertEqual((done.returncode, done.stderr), (0, b""), words)
        return done.stdout

    def names(self, *words, context=CONTEXT):
        return list(members(self.copied(*words, context=context)))

    def fails(self, line, *words, context=CONTEXT):
        done = self.copy(*words, context=context)
        self.assertEqual((done.returncode, done.stderr.decode("utf-8", "replace")), (1, line + "\n"), words)

    def over(self, layer):
        """What the image is with the layer on top."""
        done = self.unpack(layer)
        self.assertEqual((done.status, done.err), (0, ""))
        return done


class Copy(CopyTest):
    def test_a_file_to_a_name_and_into_a_directory(self):
        self.based_on(folder(b"etc") + file(b"etc/old", b"old"))
        for words, expected in ((("/new", "one.txt"), ["new"]), (("/a/b/c", "one.txt"), ["a", "a/b", "a/b/c"]),
                                (("/a/b/", "one.txt"), ["a", "a/b", "a/b/one.txt"]),
                                (("/etc", "one.txt"), ["etc/one.txt"]),
                                (("/etc/old", "one.txt"), ["etc/old"]), (("/etc/.", "/one.txt"), ["etc/one.txt"]),
                                (("/", "./app/../one.txt"), ["one.txt"]),
                                (("/etc/", "../../one.txt"), ["etc/one.txt"])):
            self.assertEqual(self.names(*words), expected, words)
        done = self.over(self.copied("/etc/old", "one.txt"))
        self.assertEqual(done.data("etc/old"), b"1")

    def test_a_directory_is_what_is_in_it(self):
        """DEST itself is new and plain; what is below keeps modes and times, and belongs to root."""
        layer = members(self.copied("/srv/app", "app"))
        self.assertEqual(list(layer), ["srv", "srv/app", "srv/app/lib", "srv/app/lib/a.py", "srv/app/lib/a.txt",
                                       "srv/app/link", "srv/app/main.py"])
        self.assertEqual([(layer[n].mode, layer[n].uid, layer[n].gid) for n in ("srv", "srv/app", "srv/app/lib",
                                                                               "srv/app/main.py")],
                         [(0o755, 0, 0), (0o755, 0, 0), (0o700, 0, 0), (0o755, 0, 0)])
        self.assertEqual((layer["srv/app/main.py"].mtime, layer["srv/app/lib"].mtime, layer["srv/app/link"].linkname),
                         (71, 72, "lib/a.py"))
        self.assertEqual(self.names("/", "app/."), ["lib", "lib/a.py", "lib/a.txt", "link", "main.py"])
        self.assertEqual(len(self.names("/x/", ".")), 11)

    def test_owners_and_modes(self):
        self.based_on(folder(b"etc") + file(b"etc/passwd", b"root:x:0:0::/:\nbad\nweb:x:33:34::/srv:/bin/sh\n")
                      + file(b"etc/group", b"root:x:0:\nstaff:x:50:a,b\n"))
        for owner, expected in (("7", (7, 7)), ("7:8", (7, 8)), ("web", (33, 34)), ("web:staff", (33, 50)),
                                ("7:staff", (7, 50)), ("65535:0", (65535, 0))):
            layer = members(self.copied("--chown", owner, "/n/", "app"))
            self.assertEqual({(m.uid, m.gid) for m in layer.values()}, {expected}, owner)
        layer = members(self.copied("--keep-owner", "/n/", "app"))
        self.assertEqual([(layer[n].uid, layer[n].gid) for n in ("n", "n/main.py")], [(0, 0), (500, 501)])
        layer = members(self.copied("--chmod", "0640", "/n/", "app"))
        self.assertEqual({n: layer[n].mode for n in ("n", "n/lib", "n/main.py", "n/link")},
                         {"n": 0o755, "n/lib": 0o640, "n/main.py": 0o640, "n/link": 0o777})
        for words, line in ((("--chown", "nobody"), "--chown: the image's /etc/passwd has no nobody"),
                            (("--chown", "7:wheel"), "--chown: the image's /etc/group has no wheel"),
                            (("--chown", "bad"), "--chown: the image's /etc/passwd has no bad"),
                            (("--chown", "65536"), "--chown 65536: ids are at most 65535"),
                            (("--chown", "99999999999"), "--chown 99999999999: ids are at most 65535"),
                            (("--chown", ""), "--chown: USER[:GROUP], names or numbers"),
                            (("--chown", "1:"), "--chown: USER[:GROUP], names or numbers"),
                            (("--chmod", "8"), "--chmod 8: an octal number of at most 07777"),
                            (("--chmod", "17777"), "--chmod 17777: an octal number of at most 07777")):
            self.fails(line, *words, "/n/", "app")

    def test_users_of_an_image_without_files_of_names(self):
        self.fails("--chown: the image's /etc/passwd has no web", "--chown", "web", "/n/", "app")
        self.assertEqual(members(self.copied("--chown", "5", "/n", "one.txt"))["n"].uid, 5)

    def test_patterns(self):
        for words, expected in ((("/d/", "*.txt"), ["d", "d/one.txt", "d/two.txt"]),
                                (("/d/", "o?e.txt"), ["d", "d/one.txt"]),
                                (("/d/", "[n-o]ne.*", "app/*/a.py"), ["d", "d/one.txt", "d/a.py"]),
                                (("/d/", "ap*"), ["d", "d/lib", "d/lib/a.py", "d/lib/a.txt", "d/link", "d/main.py"]),
                                (("/f", "t*.txt"), ["f"]), (("/d/", "one.txt", "no*such"), ["d", "d/one.txt"]),
                                (("/d/", "\\one.txt"), ["d", "d/one.txt"]), (("/d/", "dirs/*.py"), ["d", "d/a.py"])):
            self.assertEqual(self.names(*words), expected, words)
        odd = file(b"a*b", b"star") + file(b"axb") + END
        self.assertEqual(self.names("/d/", "a\\*b", context=odd), ["d", "d/a*b"])
        for words, line in ((("/d/", "no*"), "no*: no file matches it"), (("/d/", "a/*"), "a/*: no file matches it"),
                            (("/d/", "nothing"), "nothing: there is no such file"),
                            (("/d/", "app/main.py/x"), "app/main.py/x: there is no such file"),
                            (("/d/", "[a"), "[a: the pattern is malformed"),
                            (("/d", "one.txt", "two.txt"), "/d: with several sources it must end with /"),
                            (("/d", "*.txt"), "/d: with a pattern of several files it must end with /")):
            self.fails(line, *words)

    def test_links_of_the_context(self):
        """A source is followed, what is below it is not."""
        self.assertEqual(self.names("/d/", "alias"), ["d", "d/alias"])
        layer = members(self.copied("/d/", "alias", "dirs"))
        self.assertEqual([(n, m.type) for n, m in layer.items()],
                         [("d", tarfile.DIRTYPE), ("d/alias", tarfile.REGTYPE), ("d/a.py", tarfile.REGTYPE),
                          ("d/a.txt", tarfile.REGTYPE)])
        self.assertEqual(self.names("/d/", "dirs/a.py"), ["d", "d/a.py"])
        out = symlink(b"up", b"../../../../app") + symlink(b"abs", b"/app") + file(b"app/x", b"in") + symlink(
            b"loop", b"loop") + symlink(b"gone", b"nothing") + END
        for name in ("up", "abs", "u*", "abs/x"):
            self.assertEqual(self.names("/d/", name, context=out), ["d", "d/x"])
        self.fails("loop: a loop of symbolic links is on its way", "/d/", "loop", context=out)
        self.fails("gone: there is no such file", "/d/", "gone", context=out)
        self.fails("gone: the link leads nowhere", "/d/", "g*", context=out)

    def test_hard_links_of_the_context_stay(self):
        context = file(b"a/f", b"data", mode=0o640) + hardlink(b"a/g", b"a/f") + hardlink(b"b/h", b"a/g") + END
        layer = members(self.copied("/d/", "a", "b", context=context))
        self.assertEqual([(n, m.type, m.linkname) for n, m in layer.items() if n != "d"],
                         [("d/f", tarfile.REGTYPE, ""), ("d/g", tarfile.LNKTYPE, "d/f"), ("d/h", tarfile.REGTYPE, "")])
        self.assertEqual(layer["d/h"].mode, 0o640)
        self.assertEqual(self.names("/g", "a/g", context=context), ["g"])

    def test_links_of_the_image(self):
        """DEST is followed inside the image; below it a link is replaced, or in the way of a directory."""
        self.based_on(folder(b"usr/lib") + symlink(b"lib", b"usr/lib") + symlink(b"out", b"/../../tmp/x")
                      + symlink(b"up", b"..") + symlink(b"root", b"/") + symlink(b"to", b"usr/file") + file(b"usr/file")
                      + symlink(b"usr/lib/one.txt", b"/etc/shadow") + symlink(b"usr/lib/lib", b"/")
                      + symlink(b"loop", b"loop"))
        for words, expected in ((("/lib/", "two.txt"), ["usr/lib/two.txt"]),
                                (("/lib/x/y", "two.txt"), ["usr/lib/x", "usr/lib/x/y"]),
                                (("/out", "one.txt"), ["tmp", "tmp/x"]), (("/up/", "one.txt"), ["one.txt"]),
                                (("/root/", "one.txt"), ["one.txt"]), (("/root/lib/../..", "one.txt"), ["one.txt"]),
                                (("/to", "one.txt"), ["usr/file"]), (("/lib/", "one.txt"), ["usr/lib/one.txt"])):
            self.assertEqual(self.names(*words), expected, words)
        done = self.over(self.copied("/lib/", "one.txt"))
        self.assertEqual((kind_of(done.tree["usr/lib/one.txt"]), done.data("usr/lib/one.txt")), (stat.S_IFREG, b"1"))
        for words, line in ((("/lib/", "app"), "usr/lib/lib: a directory cannot replace what is no directory"),
                            (("/loop/x", "one.txt"), "/loop/x: a loop of symbolic links is on its way"),
                            (("/to/", "one.txt"), "usr/file: it is no directory"),
                            (("/to/x", "one.txt"), "/to/x: it lies below something that is no directory"),
                            (("/to", "app"), "usr/file: it is no directory")):
            self.fails(line, *words)

    def test_what_cannot_replace_what(self):
        self.based_on(folder(b"d/lib") + folder(b"d/one.txt") + file(b"d/x/f"))
        self.fails("d/one.txt: a file cannot replace a directory", "/d/", "one.txt")
        context = file(b"a/x", b"file") + file(b"b/x/y", b"dir") + file(b"c/x", b"other") + END
        self.fails("n/x: a directory cannot replace what is no directory", "/n/", "a", "b", context=context)
        self.fails("n/x: a file cannot replace a directory", "/n/", "b", "a", context=context)
        done = self.over(self.copied("/n/", "a", "c", context=context))
        self.assertEqual(done.data("n/x"), b"other")

    def test_exclude(self):
        for words, expected in ((("--exclude", "*.txt", "/d/", "*.txt", "app"), ["d", "d/lib", "d/lib/a.py",
                                                                                 "d/lib/a.txt",
                                                                             "d/link", "d/main.py"]),
                                (("--exclude", "**/*.txt", "--exclude", "link", "/d/", "app"),
                                 ["d", "d/lib", "d/lib/a.py", "d/main.py"]),
                                (("--exclude", "lib", "/d/", "app"), ["d", "d/link", "d/main.py"]),
                                (("--exclude", "lib", "--exclude", "!lib/a.py", "/d/", "app"),
                                 ["d", "d/lib", "d/lib/a.py", "d/link", "d/main.py"]),
                                (("--exclude", "one*", "/f", "one.txt"), [])):
            self.assertEqual(self.names(*words), expected, words)
        self.fails("[: the pattern is malformed", "--exclude", "[", "/d/", "app")

    def test_attributes_holes_and_pipes(self):
        at = 1 << 20
        holes = pax(GNU__sparse__major=b"1", GNU__sparse__minor=b"0", GNU__sparse__name=b"hole",
                    GNU__sparse__realsize=b"%d" % (2 * at)) + file(
                        b"x", (b"1\n%d\n4\n" % at).ljust(512, b"\0") + b"data")
        context = pax_of({b"SCHILY.xattr.user.k": b"v"}) + file(b"f", b"x") + holes + header(b"p", b"6") + END
        done = self.over(self.copied("/d/", ".", context=context))
        self.assertEqual(done.tree["d/f"]["xattrs"], {"user.k": b"v".hex()})
        self.assertEqual((done.tree["d/hole"]["size"], kind_of(done.tree["d/p"])), (2 * at, stat.S_IFIFO))
        self.assertLess(done.tree["d/hole"]["blocks"], 100)

    def test_the_same_twice_gives_the_same_bytes(self):
        self.assertEqual(self.copied("/d/", "."), self.copied("/d/", "."))

    def test_names_that_come_twice(self):
        context = file(b"f", b"1") + file(b"f", b"22") + END
        self.assertEqual(members(self.copied("/f", "f", context=context))["f"].size, 2)

    def test_an_empty_context(self):
        self.assertEqual(self.names("/d/", ".", context=END), ["d"])
        self.based_on(folder(b"d"))
        self.assertEqual(self.copied("/d/", ".", context=END), EMPTY)


class Add(CopyTest):
    """`copy --archives`: a source that is an archive is unpacked into DEST."""

    INNER = (folder(b"lib", mode=0o711, uid=5, gid=6) + file(b"lib/x.so", b"so", mode=0o640, uid=7, gid=8, mtime=77)
             + hardlink(b"lib/y.so", b"lib/x.so") + symlink(b"l", b"lib") + header(b"null", b"3")
             + pax_of({b"SCHILY.xattr.user.k": b"v"}) + file(b"deep/er/f", b"f") + END)

    def packed(self):
        yield b"a.tar", self.INNER
        yield b"a.tar.gz", gzip.compress(self.INNER)
        yield b"a.tar.zst", zstd(self.INNER)
        yield b"a.tar.xz", lzma.compress(self.INNER)
        yield b"a.tar.bz2", bz2.compress(self.INNER)
        yield b"two", bz2.compress(self.INNER[:1000]) + bz2.compress(self.INNER[1000:])
        yield b"streams", lzma.compress(self.INNER[:1000]) + lzma.compress(self.INNER[1000:])

    def test_formats(self):
        names = ["d", "d/lib", "d/lib/x.so", "d/lib/y.so", "d/l", "d/deep", "d/deep/er", "d/deep/er/f"]
        for name, data in self.packed():
            layer = members(self.copied("--archives", "/d", name.decode(), context=file(name, data) + END))
            self.assertEqual(list(layer), names, name)
            self.assertEqual([(layer[n].uid, layer[n].gid, layer[n].mode) for n in ("d", "d/lib", "d/lib/x.so")],
                             [(0, 0, 0o755), (5, 6, 0o711), (7, 8, 0o640)])
            self.assertEqual((layer["d/lib/y.so"].linkname, layer["d/l"].linkname), ("d/lib/x.so", "lib"))
        layer = members(self.copied("--archives", "--chown", "3:4", "/d/", "a", context=file(b"a", self.INNER) + END))
        self.assertEqual({(m.uid, m.gid) for m in layer.values()}, {(3, 4)})
        done = self.over(self.copied("--archives", "/d/", "*", context=file(b"a.tar", self.INNER) + file(b"b") + END))
        self.assertEqual((done.data("d/lib/y.so"), done.tree["d/deep/er/f"]["xattrs"]), (b"so", {"user.k": b"v".hex()}))
        self.assertIn("d/b", done.tree)

    def test_what_is_no_archive_is_copied(self):
        for data in (b"", b"text", gzip.compress(b"text"), lzma.compress(b"text"), bz2.compress(b"x" * 5000), b"BZh",
                     b"\x1f\x8b", zstd(b""), bytes(2000), b"\x04\x22\x4d\x18lz4"):
            layer = self.copied("--archives", "/d/", "f", context=file(b"f", data) + END)
            with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
                self.assertEqual(tar.extractfile("d/f").read(), data)
        inner = file(b"in/a.tar", self.INNER) + END
        self.assertEqual(self.names("--archives", "/d/", "in", context=inner), ["d", "d/a.tar"])
        self.assertEqual(self.names("/d/", "in/a.tar", context=inner), ["d", "d/a.tar"])

    def test_links_of_the_image_are_followed_inside_dest(self):
        self.based_on(folder(b"r/usr/lib") + symlink(b"r/lib", b"/usr/lib") + symlink(b"r/up", b"../../..")
                      + folder(b"usr"))
        context = file(b"a", folder(b"lib") + file(b"lib/x") + file(b"up/y") + END) + END
        self.assertEqual(self.names("--archives", "/r/", "a", context=context), ["r/usr/lib", "r/usr/lib/x", "r/y"])

    def test_refusals(self):
        for inner, line in (
                (symlink(b"l", b"/etc") + file(b"l/x") + END, "d/l: it is no directory"),
                (file(b"f") + file(b"../x") + END, "../x: a path that leaves the root"),
                (file(b"f") + file(b"d/.wh.x") + END, "d/.wh.x: layers use names with .wh. for what was removed"),
                (file(b"f", uid=70000) + END, "f: owner 70000:0: ids are at most 65535"),
                (file(b"f") + header(b"g", size=99999), "g: not tar, damaged or cut off at byte 1024"),
                (file(b"f") + hardlink(b"h", b"../../etc/shadow") + END, "h: a hard link that leaves the root")):
            self.fails(line, "--archives", "/d/", "a", context=file(b"a", inner) + END)
        bomb = b"".join(file(b"%d" % i) for i in range(200)) + END
        self.fails("100: with it the archives have more than 100 members", "--archives", "--max-files", "100", "/d/",
                   "a", context=file(b"a", gzip.compress(bomb)) + END)
        self.fails("the archive: it unpacks to more than 600000 bytes", "--archives", "--max-bytes", "600000", "/d/",
                   "a", context=file(b"a", lzma.compress(file(b"z", bytes(1 << 20)) + END)) + END)
        cut = lzma.compress(file(b"z", os.urandom(1 << 20)) + END)[:600000]
        self.fails("the xz stream: it is cut off", "--archives", "/d/", "a", context=file(b"a", cut) + END)


class Mkdir(CopyTest):
    def test_what_is_missing(self):
        self.based_on(folder(b"a", mode=0o700) + symlink(b"l", b"a/b") + file(b"f") + symlink(b"r", b"/")
                      + file(b"etc/passwd", b"web:x:33:34::/:\n"))
        for path, expected in (("/", []), ("/a", []), ("/a/b/c", ["a/b", "a/b/c"]), ("/l/x/", ["a/b", "a/b/x"]),
                               ("/r/n/../m", ["m"])):
            done = self.run_layer("mkdir", "--chown", "web", "--mtime", "99", self.view(), path)
            self.assertEqual((done.returncode, done.stderr), (0, b""))
            layer = members(done.stdout)
            self.assertEqual(list(layer), expected, path)
            self.assertEqual({(m.mode, m.uid, m.gid, m.mtime) for m in layer.values()},
                             {(0o755, 33, 34, 99)} if expected else set())
            self.assertEqual(done.stdout == EMPTY, not expected)
        for path, line in (("/f", b"f: it is no directory\n"), ("x", b"x: the path in the image must begin with /\n"),
                           ("/f/x", b"/f/x: it lies below something that is no directory\n"),
                           ("/a/.wh.x", b"a/.wh.x: layers use names with .wh. for what was removed\n")):
            done = self.run_layer("mkdir", self.view(), path)
            self.assertEqual((done.returncode, done.stderr), (1, line))


class Only(CopyTest):
    """`pack --only`: what COPY --from copies from another stage."""

    def setUp(self):
        super().setUp()
        self.lower(folder(b"usr/lib", mode=0o711) + file(b"usr/lib/x.so", b"x", uid=0) + file(b"usr/lib/y.txt")
                   + symlink(b"lib", b"usr/lib") + symlink(b"bin/sh", b"/lib/x.so") + symlink(b"usr/gone", b"nothing")
                   + file(b"etc/conf", b"c") + hardlink(b"etc/same", b"etc/conf") + END)

    def pack(self, *patterns):
        done = self.run_layer("pack", *[w for p in patterns for w in ("--only", p)], self.view())
        return done

    def test_paths(self):
        for patterns, expected in (
                (("/etc",), ["etc", "etc/conf", "etc/same"]),
                (("/lib/x.so",), ["lib", "usr", "usr/lib", "usr/lib/x.so"]),
                (("/bin/sh",), ["bin", "bin/sh", "lib", "usr", "usr/lib", "usr/lib/x.so"]),
                (("/lib/*.txt", "/etc/conf"), ["etc", "etc/conf", "lib", "usr", "usr/lib", "usr/lib/y.txt"]),
                (("/u*",), ["usr", "usr/gone", "usr/lib", "usr/lib/x.so", "usr/lib/y.txt"]), (("/no*",), []),
                (("/usr/*/x*",), ["usr", "usr/lib", "usr/lib/x.so"])):
            done = self.pack(*patterns)
            self.assertEqual((done.returncode, done.stderr), (0, b""))
            self.assertEqual(list(members(done.stdout)), expected, patterns)
        self.assertEqual(len(members(self.pack("/").stdout)), 11)
        for pattern, line in (("/no", b"no: there is no such file\n"), ("/usr/gone",
b"usr/gone: there is no such file\n"),
                              ("/[", b"/[: the pattern is malformed\n")):
            done = self.pack(pattern)
            self.assertEqual((done.returncode, done.stderr), (1, line))

    def test_patterns_are_bounded(self):
        done = self.pack("/" + "/".join(["*"] * 300))
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"a pattern of more than 256 directories", done.stderr)

    def test_what_is_packed_can_be_copied(self):
        for sources, expected in ((["/bin/sh"], ["d", "d/sh"]), (["/lib"], ["d", "d/x.so", "d/y.txt"]),
                                  (["/etc"], ["d", "d/conf", "d/same"]), (["/lib/*.so"], ["d", "d/x.so"])):
            packed = self.pack(*sources).stdout
            layer = members(self.copied("--keep-owner", "/d/", *sources, context=packed))
            self.assertEqual(list(layer), expected)
        self.assertTrue(layer["d/x.so"].isfile())


class Hash(LayerTest):
    def test_lines(self):
        data = (folder(b"d", mode=0o711, uid=3, gid=4, mtime=9) + file(b"d/f", b"x" * 200000) + file(b"e")
                + symlink(b"l", b"d/f") + pax_of({b"SCHILY.xattr.user.k": b"v"}) + file(b"k", b"1") + END)
        done = subprocess.run([LAYER, "index", "--hash", self.blob(data)], capture_output=True, text=True, check=True)
        lines = {m["name"]: m for m in map(json.loads, done.stdout.splitlines())}
        self.assertEqual([lines["d"][k] for k in ("type", "mode", "uid", "gid", "mtime")], ["dir", 0o711, 3, 4, 9])
        self.assertEqual([lines[n].get("sha256") for n in ("d", "d/f", "e", "l", "k")],
                         [None, hashlib.sha256(b"x" * 200000).hexdigest(), hashlib.sha256(b"").hexdigest(), None,
                          hashlib.sha256(b"1").hexdigest()])
        self.assertEqual([len(lines[n].get("xattrs", "")) for n in ("e", "k")], [0, 64])
        self.assertEqual(data[lines["d/f"]["offset"]:][:200000], b"x" * 200000)
        done = subprocess.run([LAYER, "index", "--hash", self.blob(END)], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "")


class Hostile(CopyTest):
    """A context comes from a stranger, and so does the image: the exact refusals."""

    def test_contexts(self):
        for context, line in (
                (file(b"../x") + END, "../x: a path that leaves the root"),
                (file(b"a/../../x") + END, "a/../../x: a path that leaves the root"),
                (symlink(b"l", b"/etc") + file(b"l/x") + END, "l/x: it lies below something that is no directory"),
                (file(b"f") + file(b"f/x") + END, "f/x: it lies below something that is no directory"),
                (file(b"d/x") + symlink(b"d", b"/etc") + END, "d: it has the name of a directory"),
                (header(b"dev", b"3") + END, "dev: a device cannot be copied"),
                (header(b"d/blk", b"4") + END, "d/blk: a device cannot be copied"),
                (hardlink(b"h", b"nothing") + END, "h: a hard link to something that is not there"),
                (hardlink(b"h", b"../../etc/shadow") + END, "h: a hard link that leaves the root"),
                (hardlink(b"a", b"b") + hardlink(b"b", b"a") + END, "a: a hard link to something that is not there"),
                (folder(b"d") + hardlink(b"h", b"d") + END, "h: a hard link to a directory"),
                (file(b".wh.x") + END, ".wh.x: layers use names with .wh. for what was removed"),
                (file(b"d/.wh..wh..opq") + END, "d/.wh..wh..opq: layers use names with .wh. for what was removed"),
                (folder(b".wh.d") + file(b".wh.d/f") + END,
                 ".wh.d: layers use names with .wh. for what was removed"),
                (file(b"a\n{}") + symlink(b"a\n{}/b", b"x") + END,
                 "a\\x0a{}/b: it lies below something that is no directory"),
                (pax(path=b"n" * 256) + file(b"x") + END, "n" * 140 + "...: a name of more than 255 bytes"),
                (pax(path=b"d/" * 260 + b"f") + file(b"x") + END,
                 "d/" * 70 + "...: it is more than 256 directories deep"),
                (header(b"f", size=1 << 30) + END, "f: it is longer than what is left of the archive"),
                (b"\x1f\x8b" + bytes(600),
                 f"{self.top}/context: it is compressed with gzip; `brig-layer plain` unpacks it first")):
            self.fails(line, "/", ".", context=context)

    def test_owners_that_a_sandbox_has_not(self):
        context = file(b"f", uid=65536) + END
        self.fails("f: owner 65536:0: ids are at most 65535", "--keep-owner", "/", ".", context=context)
        self.assertEqual(self.names("/", ".", context=context), ["f"])

    def test_names_with_newlines(self):
        self.assertEqual(self.names("/", ".", context=file(b"a\nb") + END), ["a\nb"])
        self.fails("no\\x0a: there is no such file", "/", "no\n", context=file(b"a\nb") + END)

    def test_ten_thousand_entries(self):
        context = b"".join(file(b"d/%05d" % i) for i in range(10000)) + END
        self.assertEqual(len(self.names("/n/", "d", context=context)), 10001)
        self.assertEqual(self.names("/n/", "d/0999?", context=context), ["n", *(f"n/0999{i}" for i in range(10))])
        self.fails("d/00100: with it the archive has more than 100 members", "--max-files", "100", "/n/", "d",
                   context=context)

    def test_long_paths(self):
        deep = pax(path=b"/".join([b"d" * 200] * 20)) + file(b"x") + END
        self.fails("d" * 140 + "...: with DEST its path has more than 4095 bytes", "/" + "y" * 200 + "/", ".",
                   context=deep)

    def test_an_image_that_lies_about_users(self):
        for passwd in (file(b"etc/passwd", b"web:x:99999999999:1::/:\nweb:x:70000:1::/:\n"), folder(b"etc/passwd"),
                       symlink(b"etc/passwd", b"/proc/self/mem"), header(b"etc/passwd", b"6"),
                       symlink(b"etc/passwd", b"/../../../etc/passwd")):
            self.make("upper")
            self.make("layer0")
            self.lowers = []
            self.based_on(passwd)
            done = self.copy("--chown", "web", "/x", "one.txt")
            self.assertEqual(done.returncode, 1)
            self.assertIn(done.stderr, (b"--chown: the image's /etc/passwd has no web\n", b"--chown 70000: ids are at "
                                        b"most 65535\n", b"/etc/passwd: a loop of symbolic links is on its way\n"))


if __name__ == "__main__":
    unittest.main()
