# SPDX-License-Identifier: Apache-2.0
"""Trees as they stand when all layers are applied, to be compared file by file: from the layers of a `docker save`
archive, and from the layers in the store of a service."""

import hashlib
import io
import json
import os
import stat
import tarfile


def hashed(data):
    return hashlib.sha256(data).hexdigest()


def below(tree, path):
    return [name for name in tree if name == path or name.startswith(path + "/")]


def apply_tar(tree, data):
    """One layer over a tree: {path: (kind, mode, uid, gid, what)}. Whiteouts count for what was there before."""
    made, hidden = {}, []
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            path = os.path.normpath("/" + member.name).lstrip("/")
            where, _, name = path.rpartition("/")
            if name == ".wh..wh..opq":
                hidden += [n for n in below(tree, where) if n != where]
            elif name.startswith(".wh."):
                hidden += below(tree, f"{where}/{name[4:]}".lstrip("/"))
            elif member.islnk():
                source = os.path.normpath("/" + member.linkname).lstrip("/")
                made[path] = made.get(source) or tree[source]
            else:
                what = (hashed(archive.extractfile(member).read()) if member.isreg() else
                        member.linkname if member.issym() else "")
                kind = "file" if member.isreg() else "link" if member.issym() else "dir" if member.isdir() else "other"
                made[path] = (kind, 0 if kind == "link" else member.mode & 0o7777, member.uid, member.gid, what)
    for name in hidden:
        tree.pop(name, None)
    for path, entry in made.items():
        if entry[0] != "dir":
            for name in below(tree, path):
                del tree[name]
        tree[path] = entry
    tree.pop("", None)


def of_archive(data):
    """The tree of a `docker save` archive of one image, and its configuration."""
    tree = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        listed = json.loads(archive.extractfile("manifest.json").read())[0]
        for layer in listed["Layers"]:
            apply_tar(tree, archive.extractfile(layer).read())
        return tree, json.loads(archive.extractfile(listed["Config"]).read())["config"]


def apply_directory(tree, top):
    """The upper directory of an overlay, as the store of layers has it."""
    for where, directories, files in os.walk(top):
        inside = os.path.relpath(where, top).removeprefix(".").lstrip("/")
        if inside and "user.overlay.opaque" in os.listxattr(where):
            for name in below(tree, inside):
                del tree[name]
        for name in directories + files:
            real, path = os.path.join(where, name), f"{inside}/{name}".lstrip("/")
            found = os.lstat(real)
            if stat.S_ISCHR(found.st_mode) and found.st_rdev == 0:
                for gone in below(tree, path):
                    del tree[gone]
                continue
            kind = ("file" if stat.S_ISREG(found.st_mode) else "link" if stat.S_ISLNK(found.st_mode) else
                    "dir" if stat.S_ISDIR(found.st_mode) else "other")
            if kind != "dir":
                for gone in below(tree, path):
                    del tree[gone]
            what = ""
            if kind == "file":
                with open(real, "rb") as f:
                    what = hashed(f.read())
            elif kind == "link":
                what = os.readlink(real)
            tree[path] = (kind, 0 if kind == "link" else stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid, what)


def of_store(state, layers):
    tree = {}
    for layer in layers:
        apply_directory(tree, os.path.join(state, "templates", "layers", layer))
    return tree


def differences(ours, theirs):
    """Lines that say what differs, in a fixed order."""
    return [f"{path}: ours {ours.get(path)}, theirs {theirs.get(path)}"
            for path in sorted(set(ours) | set(theirs)) if ours.get(path) != theirs.get(path)]
