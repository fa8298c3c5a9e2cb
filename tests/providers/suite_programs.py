# SPDX-License-Identifier: Apache-2.0
"""Programs, terminals, shells, files, ports and tools, on every provider: the checks, and what each must see.

self.box is a sandbox that the checks of this file leave as it was."""

import base64
import io
import json
import tarfile

from helpers import wait_until
from rows import row

SERVER = """
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        text = self.path.encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(text)))
        self.end_headers()
        self.wfile.write(text)
    def log_message(self, *a):
        pass
http.server.ThreadingHTTPServer(('127.0.0.1', 8080), Handler).serve_forever()
"""
STAT = "import os; s = os.stat('data'); print(s.st_uid, s.st_size); os.unlink('data')"


class Programs:
    @row("what a program writes to stdout and stderr, and its status", ["out\n", "err\n", 7, "exited"])
    def test_output(self):
        done = self.d.sh(self.box, "echo out; echo err >&2; exit 7")
        return [done["stdout"], done["stderr"], done["outcome"]["exit_code"], done["outcome"]["cause"]]

    @row("a program is `user` with the id 1000, in `/workspace`, on a host with the sandbox's name",
         ["1000", "user", "/workspace", True])
    def test_identity(self):
        said = self.d.sh(self.box, "id -u; id -un; pwd; uname -n")["stdout"].split("\n")
        return [*said[:3], said[3] == self.box]

    @row("environment and working directory of a program", "value /tmp\n")
    def test_environment(self):
        return self.d.sh(self.box, "echo $NAME $PWD", env={"NAME": "value"}, cwd="/tmp")["stdout"]

    @row("1 MB on stdin arrives", "1000000\n")
    def test_stdin(self):
        return self.d.run(self.box, "wc", "-c", stdin="x" * 1000000)["stdout"]

    @row("a program that a signal ends", ["signalled", 11])
    def test_signal(self):
        end = self.d.sh(self.box, "kill -SEGV $$")["outcome"]
        return [end["cause"], end["signal"]]

    @row("a program that does not exist", ["exited", 127])
    def test_no_program(self):
        end = self.d.run(self.box, "/no/such")["outcome"]
        return [end["cause"], end["exit_code"]]

    @row("a process in the background: its output as a stream of events, a signal, its end",
         [["begin", "stdout", "end"], "ready\n", "signalled", 15])
    def test_background(self):
        path = self.start("sh", "-c", "echo ready; exec sleep 1000")
        kinds, text, end = [], "", None
        events = self.d.events(f"{path}/output?follow=1")
        for kind, _, data in events:
            kinds.append(kind)
            if kind == "stdout":
                text += json.loads(data)["data"]
                self.asked("POST", f"{path}/signal", {"signal": "TERM"})
            if kind == "end":
                end = json.loads(data)["outcome"]
                break
        events.close()
        return [kinds, text, end["cause"], end["signal"]]

    @row("what a killed process has started ends with it", "up\nup\n")
    def test_kill_takes_all(self):
        self.d.sh(self.box, "mkfifo held")
        reader = self.start("cat", "held")  # ends when nobody has it open for writing
        path = self.start("sh", "-c", "setsid sh -c 'echo up; exec sleep 1000' > held & "
                                      "setsid sh -c 'echo up; exec sleep 1000' > held & wait")
        wait_until("both run", lambda: self.output(reader) == "up\nup\n")
        self.asked("DELETE", path)
        self.asked("GET", f"{reader}/wait")
        self.d.sh(self.box, "rm held")
        return self.output(reader)

    def output(self, path):
        return self.d.ask("GET", f"{path}/output?stream=stdout&follow=0",
                          headers={"Accept": "application/octet-stream"}).body.decode()

    @row("a terminal: its size changes, and another client goes on where the first left",
         [True, True, 7])
    def test_terminal(self):
        path = self.start("sh", tty=True, rows=24, cols=80)
        first = self.d.websocket(f"{path}/attach")
        first.send(json.dumps({"type": "resize", "rows": 50, "cols": 132}))
        first.send(b"stty size; echo mark-$((40+2))\n")
        seen = self.until(first, b"mark-42")
        first.close()
        second = self.d.websocket(f"{path}/attach")
        again = self.until(second, b"mark-42")
        second.send(b"exit 7\n")
        while True:
            opcode, data = second.receive()
            if opcode == 1 and json.loads(data)["type"] == "end":
                second.close()
                return [b"50 132" in seen, b"50 132" in again,
                        json.loads(data)["receipt"]["outcome"]["exit_code"]]

    @staticmethod
    def until(socket, text):
        seen = b""
        while text not in seen:
            opcode, data = socket.receive()
            seen += data[9:] if opcode == 2 else b""
        return seen

    @row("a shell that stays keeps its variables and its directory; a command that takes too long ends alone",
         ["kept\n", "/tmp", True, "early\n", "kept\n"])
    def test_shell(self):
        number = self.asked("POST", f"/v1/sandboxes/{self.box}/shells", {})["number"]

        def run(command, **members):
            return self.asked("POST", f"/v1/sandboxes/{self.box}/shells/{number}/run", {"command": command, **members})

        run("cd /tmp; X=kept")
        first = run("echo $X")
        late = run("echo early; sleep 1000", timeout=2)
        last = run("echo $X")
        self.asked("DELETE", f"/v1/sandboxes/{self.box}/shells/{number}")
        return [first["stdout"], first["cwd"], late["timed_out"], late["stdout"], last["stdout"]]

    def start(self, *argv, **members):
        started = self.asked("POST", f"/v1/sandboxes/{self.box}/processes", {"argv": list(argv), **members})
        path = f"/v1/sandboxes/{self.box}/processes/{started['number']}"
        self.addCleanup(self.d.ask, "DELETE", path)
        return path


class Files:
    def path(self, rest):
        return f"/v1/sandboxes/{self.box}/files{rest}"

    @row("a file in and out, a range of it, its owner inside", [True, "3456", "1000 300000\n"])
    def test_file(self):
        data = b"0123456789" * 30000
        self.asked("PUT", self.path("?path=/workspace/data"), data)
        part = self.d.ask("GET", self.path("?path=/workspace/data"), headers={"Range": "bytes=3-6"})
        return [self.d.ask("GET", self.path("?path=/workspace/data")).body == data, part.body.decode(),
                self.d.run(self.box, "python3", "-c", STAT)["stdout"]]

    @row("directories: made, listed, moved, removed", [["deep", "deep/a"], "file", 404])
    def test_directories(self):
        self.asked("POST", self.path("/mkdir"), {"path": "dir/deep", "parents": True})
        self.asked("PUT", self.path("?path=dir/deep/b"), b"x")
        self.asked("POST", self.path("/move"), {"from": "dir/deep/b", "to": "dir/deep/a"})
        listed = self.asked("GET", self.path("/list?path=dir&depth=2"))["entries"]
        kind = self.asked("GET", self.path("/stat?path=dir/deep/a"))["type"]
        self.asked("DELETE", self.path("?path=dir&recursive=1"))
        names = sorted(entry["path"].removeprefix("/workspace/dir/") for entry in listed)
        return [names, kind, self.d.ask("GET", self.path("/stat?path=dir")).status]

    @row("a tree in and out as an archive", ["text\n", ["./", "inner/", "inner/file"]])
    def test_tar(self):
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            info = tarfile.TarInfo("inner/file")
            info.size = 5
            tar.addfile(info, io.BytesIO(b"text\n"))
        self.asked("POST", self.path("/mkdir"), {"path": "tree"})
        self.asked("PUT", self.path("/tar?path=tree"), archive.getvalue())
        said = self.d.sh(self.box, "cat tree/inner/file")["stdout"]
        back = self.d.ask("GET", self.path("/tar?path=tree")).body
        self.d.sh(self.box, "rm -r tree")
        with tarfile.open(fileobj=io.BytesIO(back)) as tar:
            return [said, sorted(m.name + "/" * m.isdir() for m in tar.getmembers())]

    @row("a link that leads out of a confined sandbox's directory is not followed", [400, 400, 200])
    def test_confined(self):
        box = self.make(confine="workdir")
        self.d.sh(box, "ln -s /etc out; echo x > here")
        return [self.d.ask("GET", f"/v1/sandboxes/{box}/files?path={path}").status
                for path in ("/etc/passwd", "out/passwd", "here")]

    @row("changes of files as a stream of events", ["create", "modify", "move", "remove"])
    def test_watch(self):
        self.asked("POST", self.path("/mkdir"), {"path": "watched"})
        events = self.d.events(self.path("/watch?path=watched&recursive=1"))
        self.d.sh(self.box, "cd watched; echo x > file; mv file moved; rm moved; cd ..; rmdir watched")
        seen = []
        for kind, _, data in events:
            if json.loads(data)["path"] in ("file", "moved") and kind not in seen:
                seen.append(kind)
            if kind == "remove":
                break
        events.close()
        return seen


class Ports:
    @row("a port that a program listens on is listed; a preview reaches it by key and by token, and nobody without",
         [[8080], "/by/key", "/by/token", 401])
    def test_preview(self):
        self.asked("PUT", f"/v1/sandboxes/{self.box}/files?path=server.py", SERVER.encode())
        started = self.asked("POST", f"/v1/sandboxes/{self.box}/processes", {"argv": ["python3", "server.py"]})
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{self.box}/processes/{started['number']}")
        ports = f"/v1/sandboxes/{self.box}/ports"
        wait_until("it listens", lambda: self.asked("GET", ports)["ports"])
        listed = sorted({p["port"] for p in self.asked("GET", ports)["ports"]})
        proxy = f"/v1/sandboxes/{self.box}/proxy/8080"
        token = self.asked("POST", f"{ports}/8080/token", {"expires": 60})["token"]
        return [listed, self.d.ask("GET", f"{proxy}/by/key", tcp=True, key=self.d.key()).body.decode(),
                self.d.ask("GET", f"{proxy}/by/token?brig_token={token}", tcp=True).body.decode(),
                self.d.ask("GET", f"{proxy}/", tcp=True).status]


class Tools:
    def tool(self, **members):
        ran = self.run_once(**members)
        receipt = ran["receipt"]
        return [ran["stdout"], receipt["provider"] == self.provider, receipt["outcome"]["cause"]]

    @row("a run of Python", ["3\n", True, "exited"])
    def test_python(self):
        return self.tool(language="python", code="print(1 + 2)")

    @row("a run of JavaScript", ["3\n", True, "exited"])
    def test_javascript(self):
        return self.tool(language="javascript", code="console.log(1 + 2)")

    @row("a run of bash", ["3\n", True, "exited"])
    def test_bash(self):
        return self.tool(language="bash", code="echo $((1 + 2))")

    @row("files that a run gets, and files that it gives back", "given to it")
    def test_files_of_a_run(self):
        answer = self.run_once(command="cat in.txt > out.txt; echo -n ' to it' >> out.txt",
                               files=[{"path": "in.txt", "content": "given"}], collect=["out.txt"])
        found = answer["files"][0]
        return base64.b64decode(found["base64"]).decode() if "base64" in found else found.get("content", found)

