# SPDX-License-Identifier: Apache-2.0
"""Wheels made by tests, and whether this host can install them."""

import hashlib
import io
import os
import shutil
import subprocess
import tarfile
import zipfile

from jailkit import PATH

PYTHON = "/usr/bin/python3"


def has(*argv):
    return subprocess.run(argv, capture_output=True, check=False, env={"PATH": PATH}).returncode == 0


HAS_PIP = has(PYTHON, "-I", "-m", "pip", "--version") and has(PYTHON, "-I", "-c", "import venv")
HAS_NPM = shutil.which("npm", path=PATH) is not None


def wheel(where, name, version, requires=(), text=None):
    about = f"{name}-{version}.dist-info/"
    files = {f"{name}.py": text or f"said = '{name} {version}'\n",
             about + "METADATA": f"Metadata-Version: 2.1\nName: {name}\n"
             f"Version: {version}\n" + "".join(f"Requires-Dist: {r}\n" for r in requires),
             about + "WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    path = f"{where}/{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as z:
        for file, data in files.items():
            z.writestr(zipfile.ZipInfo(file), data)
        z.writestr(zipfile.ZipInfo(about + "RECORD"), "".join(f"{n},,\n" for n in [*files, about + "RECORD"]))
    os.chmod(path, 0o644)
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def sdist(where, name, backend):
    """A source distribution that another package of the directory builds."""
    with tarfile.open(f"{where}/{name}-1.0.tar.gz", "w:gz") as tar:
        for file, text in (("pyproject.toml",
                            f"[build-system]\nrequires = ['{backend}']\nbuild-backend = '{backend}'\n"),
                           ("PKG-INFO", f"Metadata-Version: 1.0\nName: {name}\nVersion: 1.0\n")):
            entry = tarfile.TarInfo(f"{name}-1.0/{file}")
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    os.chmod(f"{where}/{name}-1.0.tar.gz", 0o644)
