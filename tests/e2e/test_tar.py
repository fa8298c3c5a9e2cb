# SPDX-License-Identifier: Apache-2.0
"""Trees as tar, through the file worker: what GNU tar and Python make is read, what we make they read, and nothing
hostile gets out of the destination (attacks D04, R19, F43)."""

import collections
import contextlib
import ctypes
import hashlib
import io
import os
import shutil
import socket
import stat
import struct
import subprocess
import sys
import tarfile
import tempfile
import unittest

from fileskit import CONFINE, TAR_GET, TAR_PUT, Failed, Worker, no_openat2

ODD_NAMES = [b"-rf", b"new\nline", b"\xff\xfe\x80", "ünï".encode(), b"n" * 255, b" ", b"a\\b", b"...", b"*"]


def member(name, kind=tarfile.REGTYPE, content=None, **how):
    info = tarfile.TarInfo(name)
    info.type = kind
    info.size = len(content) if content is not None else 0
    for key, value in how.items():
        setattr(info, key, value)
    return info, content


def archive(*members, fmt=tarfile.PAX_FORMAT, **how):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=fmt, **how) as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content) if content is not None else None)
    return out.getvalue()


def look(top):
    """What a tree is, down to nanoseconds; hard links by who they are equal to."""
    found, inodes = {}, {}
    for folder, dirs, names in os.walk(os.fsencode(top)):
        for name in dirs + names:
            path = os.path.join(folder, name)
            st = os.lstat(path)
            key = os.path.relpath(path, os.fsencode(top))
            what = [stat.S_IFMT(st.st_mode), stat.S_IMODE(st.st_mode), st.st_mtime_ns]
            if stat.S_ISREG(st.st_mode):
                with open(path, "rb") as f:
                    what += [st.st_size, hashlib.sha256(f.read()).hexdigest()]
                if st.st_nlink > 1:
                    inodes.setdefault(st.st_ino, []).append(key)
            elif stat.S_ISLNK(st.st_mode):
                what.append(os.readlink(path))
            found[key] = what
    return found, sorted(sorted(names) for names in inodes.values())


class Tar(unittest.TestCase):
    FILTER = None

    def setUp(self):
        self.top = tempfile.mkdtemp(prefix="brig-tar-")
        self.addCleanup(shutil.rmtree, self.top)
        self.addCleanup(subprocess.run, ["chmod", "-R", "u+rwx", self.top], check=True)
        self.worker = Worker(self.top, preexec_fn=self.FILTER)
        self.addCleanup(self.worker.close)
        self.dst = os.path.join(self.top, "dst")
        os.mkdir(self.dst)

    def refuses(self, name, data, **limits):
        with self.assertRaises(Failed) as raised:
            self.worker.tar_put("dst", data, **limits)
        self.assertEqual(raised.exception.name, name)

    def make_tree(self):
        src = os.path.join(self.top, "src")
        os.makedirs(src + "/empty")
        os.makedirs(src + "/" + "/".join(["deep" * 10] * 20))
        for i, name in enumerate(ODD_NAMES):
            with open(os.path.join(os.fsencode(src), name), "wb") as f:
                f.write(os.urandom(i * 700))
            os.chmod(os.path.join(os.fsencode(src), name), 0o400 + i)
        for size in (0, 1, 511, 512, 513, 65535, 65536, 65537, 3 << 20):
            with open(f"{src}/size-{size}", "wb") as f:
                f.write(os.urandom(size))
        os.mkdir(src + "/closed")
        with open(src + "/closed/in", "w", encoding="ascii") as f:
            f.write("in")
        os.symlink("../" * 30 + "x" * 200, src + "/long-link")
        os.symlink("size-1", src + "/short-link")
        os.mkdir(src + "/zlinks")
        os.link(src + "/size-513", src + "/zlinks/same")
        os.link(src + "/size-513", src + "/zlinks/same-too")
        os.mkfifo(src + "/fifo", 0o640)
        os.utime(src + "/size-1", ns=(5, 1234567890123456789))
        os.utime(src + "/size-0", ns=(5, -1500000000))
        os.chmod(src + "/closed", 0o555)
        os.utime(src + "/empty", ns=(7, 987654321))
        return src

    # ---- round trips

    def test_our_own(self):
        src = self.make_tree()
        data = self.worker.tar_get("src")
        self.worker.tar_put("dst", data)
        self.assertEqual(look(src), look(self.dst))

    def test_gnu_tar_reads_ours(self):
        src = self.make_tree()
        data = self.worker.tar_get("src")
        done = subprocess.run(["tar", "-xpf", "-", "-C", self.dst], input=data, capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([line for line in done.stderr.splitlines() if b"implausibly old" not in line], [])
        self.assertEqual(look(src), look(self.dst))

    def test_python_reads_ours(self):
        src = self.make_tree()
        data = self.worker.tar_get("src")
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            names = {os.fsencode(m.name) for m in tar}
            tar.extractall(self.dst,
                           **({"filter": "fully_trusted"} if hasattr(tarfile, "fully_trusted_filter") else {}))
        self.assertEqual(names - {b"."}, set(look(src)[0]))
        ours, links = look(src)
        theirs, their_links = look(self.dst)
        # Python's clock is a float, and it does not set that of a link
        for entry in (*ours.values(), *theirs.values()):
            entry[2] = 0 if stat.S_ISLNK(entry[0]) else round(entry[2] / 1e9, 3)
        self.assertEqual((ours, links), (theirs, their_links))

    def test_we_read_theirs(self):
        src = self.make_tree()
        want = look(src)
        for fmt in ("gnu", "posix", "oldgnu"):
            with self.subTest(fmt=fmt):
                data = subprocess.run(["tar", f"--format={fmt}", "-cf", "-", "-C", src, "."], capture_output=True,
                                      check=True).stdout
                self.worker.mkdir(f"gnu-{fmt}")
                self.worker.tar_put(f"gnu-{fmt}", data)
                got = look(os.path.join(self.top, f"gnu-{fmt}"))
                if fmt != "posix":  # whole seconds
                    for entry in (*want[0].values(), *got[0].values()):
                        entry[2] //= 10**9
                self.assertEqual(want, got)
                want = look(src)

    def test_old_formats(self):
        for fmt in ("ustar", "v7"):
            data = subprocess.run(["tar", f"--format={fmt}", "--exclude=dst", "-cf", "-", "-C", "/etc", "passwd",
                                   "skel"],
                                  capture_output=True, check=True).stdout
            self.worker.mkdir(fmt)
            self.worker.tar_put(fmt, data)
            with open("/etc/passwd", "rb") as a, open(f"{self.top}/{fmt}/passwd", "rb") as b:
                self.assertEqual(a.read(), b.read())

    def test_python_formats(self):
        long = "d/" * 90 + "file"
        for fmt in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
            self.worker.tar_put("dst", archive(member(long, content=b"x"),
                                               member("l", tarfile.SYMTYPE, linkname="y" * 300), fmt=fmt))
            self.assertTrue(os.path.isfile(f"{self.dst}/{long}"))
            self.assertEqual(os.readlink(f"{self.dst}/l"), "y" * 300)

    def test_a_large_sparse_file(self):
        """More than eight GiB need a PAX size; the header is looked at, the rest is thrown away."""
        with open(f"{self.top}/huge", "wb") as f:
            f.truncate((9 << 30) + 7)
        request = self.worker.start(TAR_GET, "huge")
        while not self.worker.calls[request].data:
            self.worker.take()
        data = bytes(self.worker.calls[request].data)
        self.worker.send(22, request)
        self.worker.finish(request)
        info = tarfile.TarFile(fileobj=io.BytesIO(data[:1536] + bytes(512))).next()
        self.assertEqual((info.name, info.size), ("huge", (9 << 30) + 7))

    def test_one_file_and_missing_ones(self):
        with open(f"{self.top}/one", "wb") as f:
            f.write(b"1")
        with tarfile.open(fileobj=io.BytesIO(self.worker.tar_get("one"))) as tar:
            self.assertEqual(tar.getnames(), ["one"])
        with self.assertRaisesRegex(Failed, "ENOENT"):
            self.worker.tar_get("none")
        with self.assertRaisesRegex(Failed, "ENOENT"):
            self.worker.tar_put("none", archive())
        with self.assertRaisesRegex(Failed, "ENOTDIR"):
            self.worker.tar_put("one", archive())

    def test_special_files_do_not_block(self):
        src = os.path.join(self.top, "src")
        os.mkdir(src)
        os.mkfifo(src + "/fifo")
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(src + "/sock")
            os.symlink("nowhere", src + "/dangling")
            with tarfile.open(fileobj=io.BytesIO(self.worker.tar_get("src"))) as tar:
                self.assertEqual({m.name: m.type for m in tar}, {".": b"5", "fifo": b"6", "dangling": b"2"})

    def test_a_file_that_shrinks(self):
        """What was promised comes, as zeroes, and the answer says that it is not the file."""
        with open(f"{self.top}/shrinks", "wb") as f:
            f.write(b"x" * (8 << 20))
        request = self.worker.start(TAR_GET, "shrinks")
        while not self.worker.calls[request].data:
            self.worker.take()
        os.truncate(f"{self.top}/shrinks", 100)
        result = self.worker.finish(request)
        self.assertEqual(result.errnum, 116)  # ESTALE
        with tarfile.open(fileobj=io.BytesIO(bytes(result.data))) as tar:
            self.assertEqual(tar.next().size, 8 << 20)
            self.assertIsNone(tar.next())

    def test_what_cannot_be_read_is_told(self):
        src = os.path.join(self.top, "src")
        os.makedirs(src + "/closed")
        for name in ("closed/in", "one", "two", "zero"):
            with open(f"{src}/{name}", "w", encoding="ascii"):
                pass
        os.link(src + "/one", src + "/other")  # neither may be a link to one that is not there
        os.chmod(src + "/one", 0)
        os.chmod(src + "/closed", 0)

        def without_rights():
            if self.FILTER:
                self.FILTER()
            for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
                ctypes.CDLL(None).prctl(24, capability)

        with Worker(self.top, preexec_fn=without_rights) as worker:
            result = worker.finish(worker.start(TAR_GET, "src"))
        self.assertEqual(result.errnum, 13)  # EACCES
        with tarfile.open(fileobj=io.BytesIO(bytes(result.data))) as tar:
            self.assertEqual(sorted(tar.getnames()), [".", "closed", "two", "zero"])

    # ---- extraction

    def test_modes_times_and_what_is_replaced(self):
        os.mkdir(self.dst + "/kept")
        with open(self.dst + "/kept/file", "w", encoding="ascii") as f:
            f.write("old")
        os.link(self.dst + "/kept/file", self.top + "/outside")
        # a file of ours: a worker that follows the link writes to it
        with open(self.top + "/canary", "w", encoding="ascii") as f:
            f.write("untouched")
        os.symlink(self.top + "/canary", self.dst + "/link")
        done = self.worker.tar_put("dst", archive(
            member("kept", tarfile.DIRTYPE, mode=0o2750, mtime=1000),
            member("kept/file", content=b"new", mode=0o6755, mtime=2000),
            member("link", content=b"a file now", mode=0o600),
            member(".", tarfile.DIRTYPE, mode=0o000, mtime=1)))
        self.assertEqual(done, (4, 13))
        st = os.stat(self.dst + "/kept")
        self.assertEqual((stat.S_IMODE(st.st_mode), st.st_mtime), (0o750, 1000))
        st = os.stat(self.dst + "/kept/file")
        self.assertEqual((stat.S_IMODE(st.st_mode), st.st_mtime, st.st_nlink), (0o755, 2000, 1))
        with open(self.top + "/outside", encoding="ascii") as f:
            self.assertEqual(f.read(), "old")  # not written through the other name
        self.assertFalse(os.path.islink(self.dst + "/link"))
        with open(self.top + "/canary", encoding="ascii") as f:
            self.assertEqual(f.read(), "untouched")
        self.assertEqual(stat.S_IMODE(os.stat(self.dst).st_mode), 0o755)

    def test_files_and_directories_in_each_others_way(self):
        os.mkdir(self.dst + "/dir")
        self.refuses("EISDIR", archive(member("dir", content=b"x")))
        with open(self.dst + "/file", "w", encoding="ascii"):
            pass
        self.worker.tar_put("dst", archive(member("file", tarfile.DIRTYPE)))
        self.assertTrue(os.path.isdir(self.dst + "/file"))
        with open(self.dst + "/plain", "w", encoding="ascii"):
            pass
        self.refuses("ENOTDIR", archive(member("plain/x", content=b"x")))

    def test_limits(self):
        many = archive(*(member(f"m{i}", content=b"12345") for i in range(10)))
        self.refuses("EFBIG", many, most_members=9)
        self.assertEqual(len(os.listdir(self.dst)), 9)
        self.refuses("EFBIG", many, most_bytes=49)
        self.assertEqual(self.worker.tar_put("dst", many, most_members=10, most_bytes=50), (10, 50))
        bomb = bytearray(archive(member("bomb", content=b"")))
        bomb[124:136] = struct.pack(">BxxxQ", 0x80, 1 << 62)
        bomb[148:156] = b" " * 8
        bomb[148:156] = b"%06o\0 " % sum(bomb[:512])
        self.refuses("EFBIG", bytes(bomb), most_bytes=1 << 40)
        self.assertFalse(os.path.exists(self.dst + "/bomb"))

    def test_a_million_members(self):
        block = archive(member("m", content=b""), fmt=tarfile.USTAR_FORMAT)[:512]
        request = self.worker.start(TAR_PUT, "dst", struct.pack("<QQ", 1 << 40, 1000))
        self.worker.upload(request, block * 1000000)
        result = self.worker.calls.get(request)
        if result.errnum == 0:
            result = self.worker.finish(request)
        self.assertEqual(result.errnum, 27)  # EFBIG
        self.assertEqual(os.listdir(self.dst), ["m"])

    # ---- programs that change the tree meanwhile

    def swap(self, one, other):
        """Exchanges two names without a pause, in a process of its own, until the test ends."""
        code = ("import ctypes, sys\nlibc = ctypes.CDLL(None)\na, b = (p.encode() for p in sys.argv[1:])\n"
                "while True: libc.renameat2(-100, a, -100, b, 2)")
        proc = subprocess.Popen([sys.executable, "-c", code, one, other])
        self.addCleanup(proc.wait)
        self.addCleanup(proc.kill)

    def test_extraction_beside_a_swapper(self):
        outside = os.path.join(self.top, "outside")
        os.makedirs(outside)
        os.mkdir(self.dst + "/door")
        os.symlink("../outside", self.dst + "/link")
        data = archive(*(member(f"door/{i}", content=b"x") for i in range(50)),
                       member("door/deep/er/file", content=b"x"))
        self.swap(self.dst + "/door", self.dst + "/link")
        ends = collections.Counter()
        for i in range(20000):
            try:
                self.worker.tar_put("dst", data)
                ends["done"] += 1
            except Failed as failed:
                ends[failed.name] += 1
            self.assertEqual(os.listdir(outside), [])
            if i >= 100 and ends["ELOOP"]:  # on a busy machine the swapper may not have had a turn by then
                break
        # ENOTDIR: a link when it was opened, a directory again when the worker looked why that failed
        self.assertLessEqual(set(ends), {"done", "ELOOP", "ENOENT", "EEXIST", "ENOTDIR"})
        self.assertGreater(ends["ELOOP"], 0, ends)

    def test_removal_beside_a_swapper(self):
        outside = os.path.join(self.top, "outside")
        os.makedirs(outside + "/deep")
        with open(outside + "/deep/kept", "w", encoding="ascii"):
            pass
        victim = os.path.join(self.top, "victim")
        self.swap(victim + "/door", victim + "/link")
        for _ in range(100):
            with contextlib.suppress(FileExistsError):  # it is there, and was swapped when makedirs() looked
                os.makedirs(victim + "/door/deep", exist_ok=True)
            for i in range(20):
                with contextlib.suppress(OSError), open(f"{victim}/door/deep/{i}", "x", encoding="ascii"):
                    pass
            with contextlib.suppress(OSError):
                os.symlink("../outside", victim + "/link")
            with contextlib.suppress(Failed):
                self.worker.remove("victim", 1)
            self.assertTrue(os.path.exists(outside + "/deep/kept"))

    # ---- hostile archives

    def test_names_that_lead_out(self):
        for name in ("../out", "a/../../out", "..", "/../out"):
            self.refuses("EINVAL", archive(member(name, content=b"x")))
            self.refuses("EINVAL", archive(member("ok", pax_headers={"path": name}, content=b"x")))
            self.refuses("EINVAL", archive(member("h", tarfile.LNKTYPE, linkname=name)))
        self.worker.tar_put("dst", archive(member("/etc/absolute", content=b"x")))
        self.assertTrue(os.path.isfile(self.dst + "/etc/absolute"))
        self.assertEqual(sorted(os.listdir(self.top)), ["dst"])

    def test_symlink_then_write(self):
        os.mkdir(self.top + "/outside")
        for target in ("../outside", self.top + "/outside", "/etc", "."):
            for inside in ("link/file", "link/deep/file"):
                self.refuses("ELOOP",
                             archive(member("link", tarfile.SYMTYPE, linkname=target), member(inside, content=b"x")))
        self.refuses("ELOOP",
                     archive(member("link", tarfile.SYMTYPE, linkname="../outside"), member("link/d", tarfile.DIRTYPE)))
        self.refuses("ELOOP", archive(member("link", tarfile.SYMTYPE, linkname="../outside"), member("f", content=b"x"),
                                      member("link/hard", tarfile.LNKTYPE, linkname="f")))
        self.assertEqual(os.listdir(self.top + "/outside"), [])

    def test_hard_links_stay_inside(self):
        with open(self.top + "/secret", "w", encoding="ascii") as f:
            f.write("secret")
        os.symlink("..", self.dst + "/up")
        self.refuses("ELOOP", archive(member("h", tarfile.LNKTYPE, linkname="up/secret")))
        self.refuses("ENOENT", archive(member("h", tarfile.LNKTYPE, linkname="/etc/passwd")))
        self.refuses("EINVAL", archive(member("f", content=b"x"), member("f", tarfile.LNKTYPE, linkname="f")))
        with open(self.dst + "/f", "rb") as f:
            self.assertEqual(f.read(), b"x")
        # A symlink gets a second name, not what it points to; a file that follows replaces it.
        self.worker.tar_put("dst", archive(member("s", tarfile.SYMTYPE, linkname="../secret"),
                                           member("h", tarfile.LNKTYPE, linkname="s"),
                                           member("h", content=b"mine")))
        with open(self.top + "/secret", encoding="ascii") as f:
            self.assertEqual(f.read(), "secret")

    def test_devices_and_unknown_types(self):
        for kind in (tarfile.CHRTYPE, tarfile.BLKTYPE):
            self.refuses("EPERM", archive(member("ok", content=b""), member("null", kind, devmajor=1, devminor=3)))
        self.refuses("ENOTSUP", archive(member("s", pax_headers={"GNU.sparse.major": "1"}, content=b"x")))
        with open(f"{self.top}/sparse", "wb") as f:
            f.truncate(1 << 20)
            f.write(b"x")
        for fmt in ("gnu", "posix"):
            data = subprocess.run(["tar", "-S", f"--format={fmt}", "-cf", "-", "-C", self.top, "sparse"],
                                  capture_output=True, check=True).stdout
            self.refuses("ENOTSUP", data)
        self.assertEqual(os.listdir(self.dst), ["ok"])

    def test_broken_archives(self):
        good = archive(member("a", content=b"a" * 1000), member("b", content=b"b" * 100000))
        for cut in (0, 100, 512, 600, 1536, 2000, 60000):
            self.refuses("EBADMSG", good[:cut])
            self.assertNotIn("b", os.listdir(self.dst))
        bad = bytearray(good)
        bad[0] ^= 1
        self.refuses("EBADMSG", bytes(bad))
        self.refuses("EBADMSG", b"PK\x03\x04" + bytes(2000))
        self.refuses("EBADMSG", b"\x1f\x8b\x08" + os.urandom(2000))
        self.assertEqual(os.listdir(self.dst), ["a"])  # what was whole stays

    def test_cancelled_in_the_middle(self):
        good = archive(member("a", content=b"a"), member("b", content=b"b" * 100000))
        request = self.worker.start(TAR_PUT, "dst", struct.pack("<QQ", 1 << 40, 1 << 40))
        self.worker.send(17, request, good[:60000])
        self.worker.send(22, request)
        self.assertEqual(self.worker.finish(request).errnum, 125)  # ECANCELED
        self.assertEqual(os.listdir(self.dst), ["a"])

    def test_confined(self):
        os.symlink("/etc", self.dst + "/etc")
        with self.assertRaisesRegex(Failed, "EXDEV"):
            self.worker.tar_put("dst/etc", archive(member("x", content=b"x")), flags=CONFINE)
        with self.assertRaisesRegex(Failed, "EXDEV"):
            self.worker.tar_get("dst/etc", flags=CONFINE)


class TarByHand(Tar):
    """All of it again where the kernel does not resolve paths for us."""

    FILTER = staticmethod(no_openat2)


if __name__ == "__main__":
    unittest.main()
