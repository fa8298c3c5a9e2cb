# SPDX-License-Identifier: Apache-2.0
"""The runtimes of runtimes/ without a sandbox and without a daemon: an interpreter, a socket pair on its descriptor 3,
one request."""

import concurrent.futures
import functools
import hmac
import json
import os
import pathlib
import re
import select
import socket
import struct
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATIENCE = 120


@functools.lru_cache(None)
def texts():
    listed = json.loads((ROOT / "runtimes/texts.json").read_text(encoding="utf-8"))
    return {name: "".join((ROOT / "runtimes" / one).read_text(encoding="utf-8") for one in files) for name,
            files in listed.items()}


def argv(language):
    """What runtime_argv() of src/pool/pool_runtime.c has; test_argv_is_the_services() compares."""
    text = texts()
    if language == "python":
        return ["/usr/bin/python3", "-I", "-S", "-B", "-X", "utf8", "-c", text["python_core"], text["python_values"],
                text["python_schema"]]
    if language in ("javascript", "typescript"):
        return ["/usr/bin/node", "--experimental-vm-modules", "--experimental-import-meta-resolve", "--no-warnings",
                "-e", text["node"]]
    return ["/bin/bash", "--norc", "--noprofile", "-c", text["bash"], "brig"]


class Answer(dict):
    """The payload; .stdout and .stderr as text; .raw is None when there was no answer. .keyed: the code fits."""

    stdout = stderr = ""
    raw = None
    keyed = False
    returncode = None

    @property
    def error(self):
        return "%s: %s" % (self["error"]["type"], self["error"]["message"]) if self.get("error") else None


class Child:
    def __init__(self, language="python", command=None, env=None):
        self.ours, theirs = socket.socketpair()
        self.out, self.err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        # 3 may be one of our own here: the child gets the channel there in any case
        self.process = subprocess.Popen(command or argv(language), stdin=subprocess.DEVNULL, stdout=self.out,
                                        stderr=self.err, env=env or {"PATH": "/usr/bin:/bin", "OURS": "1"},
                                        close_fds=False,
                                        preexec_fn=lambda: os.dup2(theirs.fileno(), 3, inheritable=True))
        theirs.close()
        self.ready = json.loads(self.frame() or b"null")

    def exactly(self, count):
        data = b""
        while len(data) < count:
            if not select.select([self.ours], [], [], PATIENCE)[0]:
                raise AssertionError("no frame came")
            try:
                piece = self.ours.recv(min(count - len(data), 1 << 20))
            except ConnectionResetError:
                piece = b""
            if not piece:
                return None
            data += piece
        return data

    def frame(self):
        head = self.exactly(4)
        return None if head is None else self.exactly(struct.unpack("<I", head)[0])

    def ask(self, request):
        key = os.urandom(32)
        data = json.dumps({"v": 1, "key": key.hex(), "kind": "tool", "language": "python", "name": None, "source": "",
                           "args": {}, "schema": None, "env": {}, "cwd": "/tmp",
                           "agent_id": None, "result_max": 16777216, "site": None, **request}).encode()
        self.ours.sendall(struct.pack("<I", len(data)) + data)
        frame = self.frame()
        answer = Answer()
        if frame is not None:
            code, _, payload = frame.partition(b"\n")
            answer.keyed = hmac.compare_digest(code, hmac.new(key, payload, "sha256").hexdigest().encode())
            answer.raw = payload.decode("utf-8")
            answer.update(json.loads(answer.raw))
        if frame is not None:
            self.ours.shutdown(socket.SHUT_WR)  # a zygote's child waits to be killed, or for this
        answer.returncode = self.process.wait(PATIENCE)
        answer.stdout, answer.stderr = self.text(self.out), self.text(self.err)
        answer.more = self.frame() is not None
        self.ours.close()
        return answer

    @staticmethod
    def text(file):
        with file:
            file.seek(0)
            return file.read().decode("utf-8", "surrogateescape")


def run(source="", language="python", **request):
    answer = Child(language).ask({"source": source, "language": language, **request})
    if answer.raw is not None and not answer.keyed:
        raise AssertionError("the answer's code does not fit")
    return answer


def many(requests, language="python"):
    """[(source, {…})] -> answers, some at a time: starting an interpreter is most of each."""
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda one: run(one[0], language, **one[1]), requests))


def section(title):
    text = (ROOT / "docs/TOOLS.md").read_text(encoding="utf-8")
    hit = re.search(rf"^(#+) {re.escape(title)}$", text, re.M)
    rest = text[hit.end():]
    end = re.search(rf"^#{{1,{len(hit.group(1))}}} ", rest, re.M)
    return rest[: end.start()] if end else rest


def rows(title, heads):
    """The rows of the table of a section of docs/TOOLS.md that has these column heads: cells as they stand."""
    found, inside = [], False
    for line in section(title).splitlines():
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells == heads:
            inside = True
        elif not cells:
            inside = False
        elif inside and not set(line) <= set("|- "):
            found.append(cells)
    if not found:
        raise AssertionError(f"docs/TOOLS.md, {title}: no table {heads}")
    return found


def code(cell):
    """The first words in backquotes."""
    hit = re.match(r"`([^`]*)`", cell)
    return hit.group(1) if hit else None
