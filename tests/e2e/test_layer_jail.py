# SPDX-License-Identifier: Apache-2.0
"""brig-layer where it belongs: as root inside of a sandbox, with the filter, Landlock and seven capabilities, it makes
layers of archives; sandboxes run on them, and what those change is written as a layer again."""

import json
import os
import shutil
import unittest

import test_jail_layers as jail
from jailkit import needs_root
from layerkit import END, LAYER, diff_id, file, folder, hardlink, header, pax_of, symlink

setUpModule = jail.setUpModule

ONE = (folder(b"d", uid=33, gid=34, mode=0o2775, mtime=77) + file(b"d/set-id", b"x", mode=0o6755, uid=33, gid=34)
       + file(b"d/gone") + folder(b"o") + file(b"o/low") + file(b"o/own") + symlink(b"link", b"d")
       + header(b"fifo", b"6", uid=65535) + header(b"null", b"3")
       + pax_of({b"SCHILY.xattr.user.k": b"v", b"SCHILY.xattr.security.capability": b"x"}) + file(b"attr") + END)
TWO = (hardlink(b"hard", b"d/set-id") + file(b"link/through", b"2") + file(b"o/own", b"2") + file(b"o/.wh..wh..opq")
       + file(b"d/.wh.gone") + END)


class Jailed:
    def archive(self, name, data):
        with open(f"{self.shared}/{name}", "wb") as f:
            f.write(data)
        os.chmod(f"{self.shared}/{name}", 0o644)

    def unpack(self, host, data, below=()):
        """Makes a layer of an archive as the service does, and gives its name and what was said."""
        new, name = jail.new_name(diff_id(data)[7:]), diff_id(data)[7:]
        self.archive("blob", data)
        self.assertEqual(self.layer(host, "make", new), "ok")
        words = [f"template={','.join(below)}"] if below else []
        self.create(host, new, f"new_layer={new}", "root=1", f"ro={self.shared}:/image", *words)
        said = self.sh(host, new, f"/image/brig-layer unpack --diff-id {diff_id(data)} /image/blob /layer 2>&1")
        self.end(host, new)
        self.assertEqual(self.layer(host, "commit", new, name), "ok")
        return name, json.loads(said.splitlines()[-1])

    def test_layers_of_archives(self):
        self.shared = self.w.mkdir("image")
        self.addCleanup(shutil.rmtree, self.shared)
        os.chmod(self.shared, 0o755)
        shutil.copy(LAYER, f"{self.shared}/brig-layer")
        self.respawn(BRIG_BIND_ROOTS=self.shared)
        host = self.host()
        names = [self.base(host)]
        one, said = self.unpack(host, ONE, names)
        self.assertEqual(said["dropped"], {"devices": 1, "capabilities": 1, "xattrs": 0, "whiteouts": 0})
        names.append(one)
        names.append(self.unpack(host, TWO, names)[0])
        self.create(host, "a", f"template={','.join(names)}", "root=1", "writable=1", "raw_upper=1",
                    f"ro={self.shared}:/image")
        self.assertEqual(
            self.sh(host, "a", "cd /; stat -c '%n %a %u:%g %h' d d/set-id hard fifo; stat -c %Y d; ls d o;"
                    " cat o/own d/through"),
            "d 2775 33:34 1\nd/set-id 6755 33:34 2\nhard 6755 33:34 2\nfifo 644 65535:0 1\n77\n"
            "d:\nset-id\nthrough\no:\nown\n22")
        written = self.sh(host, "a", "cd /; echo new >d/new; rm d/through; rm -r o; mkdir o; chown 7:8 o;"
                          " /image/brig-layer diff /.brig/upper >/dev/shm/diff &&"
                          " /image/brig-layer index /dev/shm/diff")
        self.assertEqual([json.loads(line)["name"] for line in written.splitlines()],
                         ["d", "d/new", "d/.wh.through", "o", "o/.wh..wh..opq"])
        self.end(host, "a")


class JailedAsRoot(Jailed, jail.LayerTest):
    pass


@needs_root
class JailedWithSubids(Jailed, jail.LayerTest):
    make_world = jail.RootsWithSubids.make_world


if __name__ == "__main__":
    unittest.main()
