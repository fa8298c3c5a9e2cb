# SPDX-License-Identifier: Apache-2.0
"""Group "hostile images": archives that try to leave the root, to forge what the overlay believes, to use the machine
up or to be two things at once. Each is refused with one exact line, or comes to one exact tree."""

import contextlib
import gzip
import os
import stat
import subprocess
import unittest
import zlib

from layerkit import (END, LAYER, LayerTest, base256, diff_id, file, folder, hardlink, header, kind_of, long_name,
                      octal, padded, pax, pax_of, symlink)

DAMAGED = "not tar, damaged or cut off at byte"


class Names(LayerTest):
    def test_I01_dot_dot(self):
        for name in (b"../x", b"a/../../x", b"a/..", b"..", b"a/../b", b"/../x"):
            self.refused(file(name) + END, f"{name.decode()}: a path that leaves the root")

    def test_I02_dot_dot_in_a_long_name(self):
        self.refused(long_name(b"../x") + file(b"y") + END, "../x: a path that leaves the root")
        self.refused(pax(path=b"a/../../x") + file(b"y") + END, "a/../../x: a path that leaves the root")

    def test_I03_dot_dot_in_the_prefix(self):
        self.refused(file(b"x", prefix=b"../..") + END, "../../x: a path that leaves the root")

    def test_I04_absolute(self):
        done = self.made(file(b"/etc/shadow", b"in") + END, ["etc", "etc/shadow"])
        self.assertEqual(done.data("etc/shadow"), b"in")

    def test_I05_slashes_and_dots(self):
        self.made(file(b"//.//a/././/b") + END, ["a", "a/b"])

    def test_I06_no_name(self):
        self.refused(file(b"") + END, "the archive: a member without a name")
        self.refused(pax(path=b"a\0b") + file(b"y") + END, "a: a name with a byte that is zero")

    def test_I07_newlines_and_control_bytes(self):
        name = b"a\nb\x1b[31m\x7f"
        done = self.made(file(name) + END, [name.decode()])
        self.assertEqual(done.result["files"], 1)
        self.refused(file(b"../" + name) + END, "../a\\x0ab\\x1b[31m\\x7f: a path that leaves the root")

    def test_I08_not_utf8(self):
        done = self.made(file(b"\xff\xfe") + END, [os.fsdecode(b"\xff\xfe")])
        self.assertEqual(done.status, 0)

    def test_I09_longest_names(self):
        name = b"n" * 255
        self.made(file(name[:100], prefix=b"") + long_name(name) + file(b"x") + END,
                  [name[:100].decode(), name.decode()])
        self.refused(long_name(b"n" * 256) + file(b"x") + END,
                     "n" * 140 + "...: a name of more than 255 bytes, or a path of more than 4095")
        self.refused(long_name(b"d" * 256 + b"/x") + file(b"x") + END,
                     "d" * 140 + "...: a name of more than 255 bytes, or a path of more than 4095")

    def test_I10_paths_of_4_KiB(self):
        path = b"/".join([b"d" * 250] * 17)
        self.refused(long_name(path) + file(b"x") + END, "the archive: a path of more than 4095 bytes")
        self.refused(pax(path=path) + file(b"x") + END, "the archive: a path of more than 4095 bytes")

    def test_I11_depth(self):
        path = b"/".join([b"d"] * 257)
        self.made(long_name(path) + file(b"x") + END, ["/".join(["d"] * n) for n in range(1, 258)])
        self.refused(long_name(b"e/" * 258 + b"e") + file(b"x") + END,
                     "e/" * 70 + "...: it is more than 256 directories deep")

    def test_I12_below_a_file(self):
        self.refused(file(b"a") + file(b"a/b") + END, "a/b: it lies below something that is no directory")
        self.refused(header(b"f", b"6") + file(b"f/b") + END, "f/b: it lies below something that is no directory")


class Links(LayerTest):
    def test_I13_write_through_a_link(self):
        """A link is followed inside the root, as in a chroot, and the host's file stays."""
        os.mkdir(f"{self.top}/outside")
        target = f"{self.top}/outside".encode()
        done = self.made(symlink(b"l", target) + file(b"l/x", b"in") + END,
                         ["l", *["/".join(f"{self.top}/outside/x".split("/")[1:n]) for n in range(
                             2, len(f"{self.top}/outside/x".split("/")) + 1)]])
        self.assertEqual(os.listdir(f"{self.top}/outside"), [])
        self.assertEqual(done.data(f"{self.top}/outside/x"[1:]), b"in")

    def test_I14_write_through_dot_dot(self):
        done = self.made(symlink(b"l", b"../../../../../../..") + file(b"l/x", b"in") + END, ["l", "x"])
        self.assertEqual(done.data("x"), b"in")

    def test_I15_write_onto_a_link(self):
        """A file replaces the link; what the link points to stays."""
        with open(f"{self.top}/victim", "wb") as f:
            f.write(b"host")
        done = self.made(symlink(b"l", f"{self.top}/victim".encode()) + file(b"l", b"in") + END, ["l"])
        self.assertEqual(done.data("l"), b"in")
        self.assertEqual(kind_of(done.tree["l"]), stat.S_IFREG)
        with open(f"{self.top}/victim", "rb") as f:
            self.assertEqual(f.read(), b"host")

    def test_I16_a_directory_over_a_link(self):
        done = self.made(folder(b"t") + symlink(b"l", b"t") + folder(b"l", mode=0o700) + file(b"l/x") + END,
                         ["l", "l/x", "t"])
        self.assertEqual(kind_of(done.tree["l"]), stat.S_IFDIR)

    def test_I17_loops(self):
        line = "a/x: a loop of symbolic links is on its way"
        self.refused(symlink(b"a", b"b") + symlink(b"b", b"a") + file(b"a/x") + END, line)
        self.refused(symlink(b"a", b"a") + file(b"a/x") + END, line)
        self.refused(symlink(b"a", b"a/a/a") + file(b"a/x") + END, line)

    def test_I18_a_link_that_grows(self):
        grow = b"/".join([b"d"] * 40)
        self.refused(symlink(b"a", b"a/" + grow) + file(b"a/x") + END,
                     "a/x: a loop of symbolic links is on its way")

    def test_I19_a_symlink_without_target(self):
        self.refused(symlink(b"a", b"") + END, "a: a link without a target, or a name that names nothing")

    def test_I20_hard_link_outside(self):
        self.refused(hardlink(b"a", b"../../etc/passwd") + END, "a: a hard link that leaves the root")

    def test_I21_hard_link_to_the_hosts_file(self):
        self.refused(hardlink(b"a", b"/etc/passwd") + END, "a: a hard link to something that is not there")

    def test_I22_hard_link_through_a_link(self):
        with open(f"{self.top}/victim", "wb") as f:
            f.write(b"host")
        self.refused(symlink(b"l", self.top.encode()) + hardlink(b"a", b"l/victim") + END,
                     "a: a hard link to something that is not there")

    def test_I23_hard_link_to_a_link(self):
        """The link itself gets a second name; it is not followed."""
        done = self.made(symlink(b"l", b"/etc/passwd") + hardlink(b"a", b"l") + file(b"a2") + END, ["a", "a2", "l"])
        self.assertEqual(kind_of(done.tree["a"]), stat.S_IFLNK)
        self.assertEqual(done.tree["a"]["ino"], done.tree["l"]["ino"])

    def test_I24_write_through_a_hard_link_to_a_link(self):
        with open(f"{self.top}/victim", "wb") as f:
            f.write(b"host")
        self.made(symlink(b"l", f"{self.top}/victim".encode()) + hardlink(b"a", b"l") + file(b"a", b"in") + END,
                  ["a", "l"])
        with open(f"{self.top}/victim", "rb") as f:
            self.assertEqual(f.read(), b"host")

    def test_I25_hard_link_to_a_directory(self):
        self.refused(folder(b"d") + hardlink(b"a", b"d") + END, "a: a hard link to a directory")

    def test_I26_hard_link_to_itself(self):
        self.refused(hardlink(b"a", b"a") + END, "a: a hard link to something that is not there")
        done = self.made(file(b"a", b"1") + hardlink(b"a", b"a") + END, ["a"])
        self.assertEqual(done.data("a"), b"1")

    def test_I27_the_target_of_a_hard_link_is_replaced(self):
        """The second name keeps the content, and the new file is another one."""
        done = self.made(file(b"a", b"1") + hardlink(b"b", b"a") + file(b"a", b"2") + END, ["a", "b"])
        self.assertEqual((done.data("a"), done.data("b")), (b"2", b"1"))


class Doubles(LayerTest):
    def test_I28_the_last_one_wins(self):
        done = self.made(file(b"a", b"long content", mode=0o777) + file(b"a", b"x", mode=0o600) + END, ["a"])
        self.assertEqual(done.data("a"), b"x")
        self.assertEqual(done.tree["a"]["mode"] & 0o7777, 0o600)

    def test_I29_a_file_over_a_directory(self):
        self.made(folder(b"a") + file(b"a/b/c") + file(b"a") + END, ["a"])

    def test_I30_a_directory_over_a_file(self):
        self.made(file(b"a") + folder(b"a") + file(b"a/b") + END, ["a", "a/b"])

    def test_I31_a_directory_becomes_a_link_under_its_files(self):
        """The times of directories are set last: not through a link that has taken the place of one."""
        os.mkdir(f"{self.top}/outside")
        os.mkdir(f"{self.top}/outside/b")
        os.utime(f"{self.top}/outside/b", ns=(5, 5))
        self.made(folder(b"a", mtime=7) + folder(b"a/b", mtime=7) + symlink(b"a", f"{self.top}/outside".encode())
                  + END, ["a"])
        self.assertEqual(os.stat(f"{self.top}/outside/b").st_mtime_ns, 5)

    def test_I32_the_root_is_no_file(self):
        for member in (file(b"."), symlink(b"./", b"x"), header(b".", b"6"), hardlink(b"/", b"x")):
            self.refused(member + END, "the archive: a member without a name")
        done = self.made(folder(b"./", mode=0o711, mtime=9) + END, [])
        self.assertEqual((done.tree[""]["mode"] & 0o7777, done.tree[""]["mtime"]), (0o711, 9 * 10**9))


class Kinds(LayerTest):
    def test_I33_device_nodes(self):
        done = self.made(header(b"null", b"3", tail=b"") + header(b"sda", b"4") + file(b"x") + END, ["x"])
        self.assertEqual(done.result["dropped"]["devices"], 2)

    def test_I34_forged_whiteouts(self):
        """A device 0:0 would hide what a layer below has."""
        self.lower(file(b"a", b"low") + END)
        done = self.made(header(b"a", b"3") + header(b"b", b"3") + END, ["a"])
        self.assertEqual(done.data("a"), b"low")
        self.assertEqual(done.result["dropped"]["devices"], 2)

    def test_I35_set_id_bits_are_modes_and_nothing_else(self):
        done = self.made(file(b"a", b"x", mode=0o6755) + folder(b"d", mode=0o3777) + END, ["a", "d"])
        self.assertEqual(done.tree["a"]["mode"] & 0o7777, 0o6755)
        self.assertEqual(done.tree["d"]["mode"] & 0o7777, 0o3777)

    def test_I36_unknown_kinds(self):
        for kind in b"DMNVAZs":
            self.refused(file(b"a", kind=bytes([kind])) + END, "a: a kind of member that a layer does not have")

    def test_I37_owners_beyond_the_range(self):
        for owner, line in (({"uid": 65536}, "65536:0"), ({"gid": 99999}, "0:99999")):
            self.refused(file(b"a", **owner) + END, f"a: owner {line}: ids are at most 65535")
        for raw, line in (({"uid": base256(1 << 32, 8)}, "4294967296:0"), ({"gid": base256(-1, 8)}, "0:-1")):
            raw = {"uid": octal(0, 8), "gid": octal(0, 8), **raw}
            name = b"a"
            block = header(name, size=0)
            for field, at in (("uid", 108), ("gid", 116)):
                block = block[:at] + raw[field] + block[at + 8:]
            block = block[:148] + b"%06o\0 " % sum(block[:148] + b" " * 8 + block[156:]) + block[156:]
            self.refused(block + END, f"a: owner {line}: ids are at most 65535")
        self.refused(pax(uid=b"70000") + file(b"a") + END, "a: owner 70000:0: ids are at most 65535")

    def test_I38_the_last_owner(self):
        """With one id nobody else can own a file, and the archive is taken all the same."""
        done = self.made(file(b"a", uid=65535, gid=65535) + END, ["a"])
        owner = (0, 0) if self.plain else (65535, 65535)
        self.assertEqual((done.tree["a"]["uid"], done.tree["a"]["gid"]), owner)


class Attributes(LayerTest):
    def test_I39_forged_attributes(self):
        records = {b"SCHILY.xattr." + key: b"y" for key in (
            b"user.overlay.opaque", b"user.overlay.redirect", b"user.overlay.metacopy", b"user.overlay.whiteout",
            b"trusted.overlay.opaque", b"trusted.x", b"security.selinux", b"system.nfs4_acl", b"security.capability",
            b"user.kept")}
        done = self.made(pax_of(records) + folder(b"d") + pax_of(records) + file(b"f") + END, ["d", "f"])
        for name in ("d", "f"):
            self.assertEqual(done.upper[name]["xattrs"].get("user.kept"), b"y".hex())
            self.assertLessEqual(set(done.upper[name]["xattrs"]), {"user.kept"})
        self.assertEqual(done.result["dropped"], {"devices": 0, "capabilities": 2, "xattrs": 16, "whiteouts": 0})

    def test_I40_attributes_too_large(self):
        line = "the archive: extended attributes of more than 131072 bytes, or more than 16384 pieces"
        self.refused(pax_of({b"SCHILY.xattr.user.x": b"x" * (1 << 17)}) + file(b"f") + END, line)
        self.refused(pax_of({b"SCHILY.xattr.user." + b"x" * 260: b"x"}) + file(b"f") + END, line)
        self.refused(pax_of({b"comment": b"x" * (1 << 20)}) + file(b"f") + END,
                     "the archive: a PAX header of more than 1048576 bytes")

    def test_I41_a_list_that_is_none(self):
        data = pax_of({b"SCHILY.xattr.system.posix_acl_access": b"\2\0\0\0x"}) + file(b"f") + END
        if not self.plain:
            self.refused(data, "f: extended attribute system.posix_acl_access: Invalid argument")
        else:
            self.made(data, ["f"])


class Whiteouts(LayerTest):
    def test_I42_names_that_name_nothing(self):
        for name in (b".wh.", b".wh..", b".wh...", b"d/.wh."):
            self.refused(folder(b"d") + file(name) + END, f"{name.decode()}: a whiteout that names nothing")

    def test_I43_below_a_whiteout(self):
        self.refused(file(b".wh.d/x") + END, ".wh.d/x: it lies below a whiteout")
        self.refused(folder(b"a/.wh.d/e") + END, "a/.wh.d/e: it lies below a whiteout")

    def test_I44_aufs(self):
        done = self.made(folder(b".wh..wh.plnk") + file(b".wh..wh.plnk/1.2") + file(b".wh..wh.aufs") + END, [])
        self.assertEqual(done.result["dropped"]["whiteouts"], 3)

    def test_I45_of_nothing(self):
        done = self.made(file(b".wh.a") + file(b"no/such/.wh.a") + file(b"none/.wh..wh..opq") + END, [])
        self.assertEqual(done.result["dropped"]["whiteouts"], 3)

    def test_I46_not_of_its_own(self):
        self.lower(folder(b"d") + file(b"d/low") + file(b"a", b"low") + END)
        for order in ((0, 1, 2, 3), (3, 2, 1, 0), (1, 0, 3, 2)):
            parts = [file(b"a", b"own"), file(b".wh.a"), file(b"d/own", b"own"), file(b".wh.d")]
            done = self.made(b"".join(parts[i] for i in order) + END, ["a", "d", "d/own"])
            self.assertEqual((done.data("a"), done.data("d/own")), (b"own", b"own"))
            self.make("upper")
            self.make("work")

    def test_I47_opaque_before_and_after(self):
        self.lower(folder(b"d") + file(b"d/a", b"low") + file(b"d/s/b") + file(b"d/s/t/c") + END)
        members = file(b"d/a", b"own") + file(b"d/s/own", b"own")
        for data in (file(b"d/.wh..wh..opq") + members, members + file(b"d/.wh..wh..opq")):
            done = self.made(data + END, ["d", "d/a", "d/s", "d/s/own"])
            self.assertEqual(done.data("d/a"), b"own")
            self.make("upper")
            self.make("work")

    def test_I48_through_a_link(self):
        """Below a link there is nothing that a whiteout could mean: /usr/lib of the layer below stays."""
        self.lower(folder(b"usr") + file(b"usr/lib/x") + symlink(b"lib", b"usr/lib") + END)
        self.made(file(b"lib/.wh.x") + file(b"lib/.wh..wh..opq") + END, ["lib", "usr", "usr/lib", "usr/lib/x"])

    def test_I49_outside(self):
        os.mkdir(f"{self.top}/outside")
        with open(f"{self.top}/outside/x", "wb"):
            pass
        link = symlink(b"l", f"{self.top}/outside".encode())
        self.made(link + file(b"l/.wh.x") + file(b"l/.wh..wh..opq") + file(b".wh..wh..opq") + END, ["l"])
        self.assertEqual(os.listdir(f"{self.top}/outside"), ["x"])

    def test_I50_then_made_again(self):
        self.lower(folder(b"d") + file(b"d/a", b"low") + END)
        done = self.made(file(b".wh.d") + folder(b"d", mode=0o700) + file(b"d/b") + END, ["d", "d/b"])
        self.assertEqual(done.tree["d"]["mode"] & 0o777, 0o700)

    def test_I51_of_all(self):
        self.lower(folder(b"d") + file(b"d/e/f/g") + file(b"a") + symlink(b"l", b"/") + END)
        self.made(file(b".wh..wh..opq") + file(b"new") + END, ["new"])


class Damage(LayerTest):
    def test_I52_bad_checksum(self):
        self.refused(file(b"a", sum=b"000000\0 ") + END, f"the archive: {DAMAGED} 512")
        self.refused(b"x" * 2048, f"the archive: {DAMAGED} 512")

    def test_I53_cut_off(self):
        whole = file(b"a", b"x" * 1000) + END
        self.refused(whole[:700], f"a: {DAMAGED} 700")
        self.refused(whole[:300], f"the archive: {DAMAGED} 300")
        self.refused(whole[:1536], "the archive: it has no end after byte 1536")
        self.refused(b"", "the archive: it has no end after byte 0")
        self.made(whole[:1536], ["a"], "--diff-id", diff_id(whole[:1536]))

    def test_I54_sizes_that_are_none(self):
        def size(field):
            block = header(b"a")
            block = block[:124] + field + block[136:]
            return block[:148] + b"%06o\0 " % sum(block[:148] + b" " * 8 + block[156:]) + block[156:]
        self.refused(size(base256(-1, 12)) + END, f"the archive: {DAMAGED} 512")
        self.refused(size(b"99999999999\0") + END, f"the archive: {DAMAGED} 512")
        self.refused(size(base256(1 << 62, 12)) + END, "a: with it the files of the layer are more than 68719476736 "
                                                       "bytes")

    def test_I55_pax_lies(self):
        for text in (b"11 size=-1\n", b"29 size=99999999999999999999\n", b"999 path=x\n", b"11 path=x\n" * 2,
                     b"0 a=b\n", b"x", b"8 path\n\n"):
            self.refused(file(b"p", text, kind=b"x") + file(b"a") + END, f"the archive: {DAMAGED} {512 + len(text)}")
        self.refused(pax(size=b"1000000") + file(b"a", b"x" * 10) + END, f"a: {DAMAGED} 3072")

    def test_I56_two_headers_for_one(self):
        self.refused(pax(path=b"a") + pax(path=b"b") + file(b"c") + END, f"the archive: {DAMAGED} 1536")
        self.refused(long_name(b"a") + long_name(b"b") + file(b"c") + END, f"the archive: {DAMAGED} 1536")
        self.refused(long_name(b"a") + pax(path=b"b") + file(b"c") + END, f"the archive: {DAMAGED} 2560")

    def test_I57_global_headers(self):
        self.refused(pax(b"g", path=b"a") + file(b"b") + END, f"the archive: {DAMAGED} {512 + len('9 path=a') + 1}")
        self.refused(pax(b"g", GNU__sparse__size=b"1") + file(b"b") + END,
                     "the archive: a kind of member that a layer does not have")
        self.made(pax(b"g", comment=b"x", SCHILY__xattr__user__x=b"y") + file(b"b") + END, ["b"])

    def test_I58_content_where_none_belongs(self):
        self.refused(header(b"d", b"5", size=512) + bytes(512) + END, f"d: {DAMAGED} 512")
        self.refused(header(b"s", b"2", size=512, link=b"x") + bytes(512) + END, f"s: {DAMAGED} 512")
        self.made(file(b"a") + hardlink(b"h", b"a", size=12345) + END, ["a", "h"])

    def test_I59_garbage_behind_the_end(self):
        data = file(b"a") + END + b"\x01garbage" * 999 + file(b"../x")
        self.made(data, ["a"], "--diff-id", diff_id(data))
        data = gzip.compress(file(b"a") + END)
        self.refused(data + b"garbage", "the gzip stream: other bytes follow its end")
        self.made(data + bytes(100), ["a"])

    def test_I60_an_extension_for_nobody(self):
        self.refused(pax(path=b"a") + END, f"the archive: {DAMAGED} 1536")
        self.refused(pax(path=b"a"), f"the archive: {DAMAGED} 1024")

    def test_I61_another_archive(self):
        data = file(b"a") + END
        other = diff_id(b"other")
        self.refused(data, f"the archive: its hash is {diff_id(data)[:23]}..., not {other[:23]}...", "--diff-id", other)


class Sparse(LayerTest):
    def sparse(self, text, data=b"", size=b"100"):
        return (pax(GNU__sparse__major=b"1", GNU__sparse__minor=b"0", GNU__sparse__name=b"s",
                    GNU__sparse__realsize=size) + file(b"GNUSparseFile.0/s", padded(text) + data) + END)

    def test_I62_maps_that_lie(self):
        for text, data in ((b"1\n0\n10\n", b"x" * 9),  # less than it says
                           (b"1\n0\n10\n", b"x" * 11),  # more
                           (b"1\n95\n10\n", b"x" * 10),  # past the end
                           (b"2\n10\n10\n15\n10\n", b"x" * 20),  # over each other
                           (b"2\n50\n10\n0\n10\n", b"x" * 20),  # backwards
                           (b"1\n9223372036854775807\n10\n", b"x" * 10),
                           (b"1\n18446744073709551615\n10\n", b"x" * 10),
                           (b"x\n", b""), (b"\n", b""), (b"3\n0\n", b""), (b"-1\n0\n1\n", b"x")):
            done = self.unpack(self.sparse(text, data), look=False)
            self.assertRegex(done.err, rf"^s: {DAMAGED} \d+\n$", text)
        self.refused(self.sparse(b"99999\n"), "s: extended attributes of more than 131072 bytes, or more than 16384 "
                                              "pieces")

    def test_I63_a_file_of_an_exabyte(self):
        self.refused(self.sparse(b"0\n", size=b"%d" % (1 << 60)),
                     "s: with it the files of the layer are more than 68719476736 bytes")

    def test_I64_gnus_own_map(self):
        tail = (octal(0, 12) + octal(10, 12) + octal(4096, 12) + octal(10, 12)).ljust(96, b"\0") + b"\0" + octal(
            8192, 12)
        done = self.made(file(b"s", b"a" * 20, kind=b"S", magic=b"ustar  \0", tail=tail) + END, ["s"])
        self.assertEqual(done.data("s"), b"a" * 10 + bytes(4086) + b"a" * 10 + bytes(4086))
        self.refused(file(b"s", b"a" * 21, kind=b"S", magic=b"ustar  \0", tail=tail) + END, f"s: {DAMAGED} 512")
        endless = tail[:96] + b"\1" + tail[97:]
        more = (octal(8192, 12) + octal(0, 12)) * 21
        self.refused(file(b"s", b"", kind=b"S", magic=b"ustar  \0", tail=endless)
                     + (more + b"\1").ljust(512, b"\0") * 1000 + END,
                     "s: extended attributes of more than 131072 bytes, or more than 16384 pieces")


class Bombs(LayerTest):
    def test_I65_ten_million_members(self):
        """Refused by the bound while they come; the rest is not read."""
        block, told = header(b"n", b"3") * 1000, 0
        with subprocess.Popen([LAYER, "unpack", *self.rights, "-", f"{self.top}/upper"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as proc:
            with contextlib.suppress(BrokenPipeError):
                for _ in range(10_000):
                    os.write(proc.stdin.fileno(), block)
                    told += 1000
            err = proc.stderr.read()
        self.assertEqual((proc.returncode, err), (1, b"n: with it the layer has more than 1000000 members\n"))
        self.assertLess(told, 1_100_000)

    def test_I66_members_as_told(self):
        self.refused(file(b"a") + file(b"b") + file(b"c") + END, "c: with it the layer has more than 2 members",
                     "--max-files", "2")

    def test_I67_bytes_as_told(self):
        self.refused(header(b"a", size=5000) + END, "a: with it the files of the layer are more than 4999 bytes",
                     "--max-bytes", "4999")
        self.refused(gzip.compress(file(b"a", b"") + END + bytes(600000)),
                     "the archive: it unpacks to more than 300000 bytes", "--max-bytes", "300000")

    def test_I68_a_gzip_bomb(self):
        packer = zlib.compressobj(1, zlib.DEFLATED, 31)
        zeroes = (packer.compress(bytes(1 << 20)) for _ in range(300))
        data = packer.compress(file(b"a") + END) + b"".join(zeroes) + packer.flush()
        self.refused(data, "the archive: it unpacks to more than 200 times its size", "--max-ratio", "200")

    def test_I69_a_zstd_bomb(self):
        with open(f"{self.top}/zeroes", "wb") as f:
            f.write(file(b"a") + END)
            f.truncate(300 << 20)
        data = subprocess.run(["zstd", "-q", "-c", f"{self.top}/zeroes"], capture_output=True, check=True).stdout
        self.refused(data, "the archive: it unpacks to more than 250 times its size")

    def test_I70_a_window_that_nobody_has(self):
        """A frame that asks for 2 GiB of memory."""
        frame = b"\x28\xb5\x2f\xfd" + b"\x00" + bytes([(31 - 10) << 3]) + b"\x01\x00\x00"
        self.refused(frame, "the zstd stream: Frame requires too much memory for decoding")

    def test_I71_damaged_and_cut_streams(self):
        whole = gzip.compress(file(b"a", os.urandom(5000)) + END)
        self.refused(whole[:3000], "the gzip stream: it is cut off")
        self.refused(whole[:-1], "the gzip stream: it is cut off")
        self.refused(whole[:2000] + b"\xff" * 500 + whole[2500:], "the gzip stream: it is damaged")
        self.refused(whole[:-8] + b"\0" * 8, "the gzip stream: it is damaged")

    def test_I72_other_formats(self):
        for magic, name in ((b"\xfd7zXZ\0", "xz"), (b"BZh9", "bzip2"), (b"\x04\x22\x4d\x18", "lz4")):
            self.refused(magic + bytes(600), f"{self.top}/blob: it is compressed with {name}; gzip and zstd are "
                                             "supported")


class RootlessLinks(Links):
    plain = True


class RootlessDoubles(Doubles):
    plain = True


class RootlessKinds(Kinds):
    plain = True


class RootlessAttributes(Attributes):
    plain = True


class RootlessWhiteouts(Whiteouts):
    plain = True


if __name__ == "__main__":
    unittest.main()
