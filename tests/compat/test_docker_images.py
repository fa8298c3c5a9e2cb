# SPDX-License-Identifier: Apache-2.0
"""Images go both ways between brig and a real Docker engine (a private one, tests/bench/peers.py): what `docker save`
writes is loaded, what brig exports is loaded and run by Docker, and one Dockerfile gives the same tree in both."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e"), str(HERE.parent / "bench")]

import peers  # noqa: E402  pylint: disable=wrong-import-position
import treekit  # noqa: E402  pylint: disable=wrong-import-position
from helpers import BRIG  # noqa: E402  pylint: disable=wrong-import-position
from imagekit import base_layer, tar, entry  # noqa: E402  pylint: disable=wrong-import-position
from service import ServiceTest  # noqa: E402  pylint: disable=wrong-import-position

SAVED = """FROM base
COPY one /one
COPY two /dir/two
"""


class DockerTest(ServiceTest):
    LIMIT_SECONDS = 300

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        temp = tempfile.TemporaryDirectory(prefix="brig-docker-")
        cls.addClassCleanup(temp.cleanup)
        cls.dir = pathlib.Path(temp.name)
        (cls.dir / "engine").mkdir()
        cls.engine = peers.Docker(cls.dir / "engine")
        cls.addClassCleanup(cls.engine.close)
        (cls.dir / "base.tar").write_bytes(base_layer())
        cls.engine.docker("import", "--change", "ENV PATH=/bin", str(cls.dir / "base.tar"), "base")
        answer = cls.d.ask("POST", "/v1/templates/load?name=base", cls.saved("base"),
                           headers={"Content-Type": "application/x-tar"})
        assert answer.status == 200 and "template" in json.loads(answer.body.splitlines()[-1]), answer

    @classmethod
    def saved(cls, name):
        return subprocess.run(["docker", "-H", cls.engine.host, "save", name], check=True, capture_output=True).stdout

    def context(self, dockerfile, **files):
        """A directory with a Dockerfile; files: name -> (text, mode). In a name, __ stands for a slash."""
        where = pathlib.Path(tempfile.mkdtemp(prefix="context-", dir=self.dir))
        for name, (text, mode) in {"Dockerfile": (dockerfile, 0o644), **files}.items():
            path = where / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
            path.chmod(mode)
        return where

    def docker_build(self, where, name):
        done = subprocess.run(["docker", "-H", self.engine.host, "build", "--network", "none", "-t", name, str(where)],
                              env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(self.dir),
                                   "DOCKER_BUILDKIT": "1"},
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def store_tree(self, name):
        found = self.d.ask("GET", f"/v1/templates/{name}").json
        return treekit.of_store(os.path.join(self.d.dir, "state"), [layer["id"] for layer in found["layers"]]), found

    def brig(self, *words):
        done = subprocess.run([BRIG, *words], env={**self.d.env, "PATH": "/usr/bin:/bin"}, capture_output=True,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return done.stdout


class Saved(DockerTest):
    def test_what_docker_saves_is_loaded_with_the_same_tree(self):
        self.docker_build(self.context(SAVED, one=("1\n", 0o640), two=("2\n", 0o755)), "saved:1")
        archive = self.saved("saved:1")
        answer = self.d.ask("POST", "/v1/templates/load", archive, headers={"Content-Type": "application/x-tar"})
        made = json.loads(answer.body.splitlines()[-1])["template"]
        self.assertEqual((made["name"], len(made["layers"])), ("saved:1", 3))
        tree, _ = self.store_tree("saved:1")
        theirs, config = treekit.of_archive(archive)
        self.assertIn("dir/two", theirs)
        self.assertEqual(treekit.differences(tree, theirs), [])
        self.assertEqual(made["image"]["env"], config["Env"])
        sandbox = self.sandbox(template="saved:1")
        self.assertEqual(self.d.sh(sandbox, "cat /dir/two")["stdout"], "2\n")


DOCKERFILE = """ARG BASE=base
FROM base AS first
RUN mkdir /made && echo stage > /made/file && chmod 600 /made/file && ln -s file /made/link

FROM ${BASE}
ARG WHO=nobody
ENV WHO=$WHO LATE="a b"
LABEL who=$WHO
RUN echo "hello $WHO" > /hello && chmod 640 /hello && echo tmp > /tmp/kept && mkdir -p /home/user/x
WORKDIR /app/deep
COPY --chown=33:44 src ./src/
COPY --chmod=750 run.sh /usr/local/bin/
COPY src/a src/b* /several/
ADD tree.tar /unpacked/
COPY --from=first /made /made
USER 1000:1000
RUN touch /tmp/by-user && echo x > /tmp/x && chmod 4755 /tmp/x
USER root
RUN rm -r /home/user /hello && mkdir -p /x/y && ln -s ../etc /x/link && ln /made/file /x/hard && rm -r /app/deep/src/d
RUN ["/bin/sh", "-c", "mkdir /made && echo again > /made/other || echo was there > /x/seen"]
RUN rm -r /several && mkdir -m 2775 /several && touch -d @5 /several/new
EXPOSE 80 53/udp
VOLUME /data
STOPSIGNAL SIGINT
ENTRYPOINT ["/usr/local/bin/run.sh"]
CMD ["one", "two"]
"""


class Built(DockerTest):
    def test_one_dockerfile_gives_the_same_tree_and_configuration(self):
        archive = tar(entry("top", mode=0o711, uid=5, gid=6), entry("top/file", b"in the archive\n", 0o604, 7, 8),
                      entry("other", b"2\n", 0o4755, 0, 0))
        where = self.context(DOCKERFILE, src__a=("a\n", 0o644), src__b1=("b1\n", 0o600), src__b2=("b2\n", 0o755),
                             src__d__e=("e\n", 0o644), src__ignored=("no\n", 0o644),
                             **{"run.sh": ("#!/bin/sh\necho ran \"$@\" $WHO\n", 0o644), "tree.tar": (archive, 0o644),
                                ".dockerignore": ("src/ign*\n# words\n", 0o644)})
        os.symlink("a", where / "src" / "link")
        self.docker_build(where, "built:1")
        self.brig("template", "build", "-t", "built:1", "--net", "none", str(where))
        tree, found = self.store_tree("built:1")
        theirs, config = treekit.of_archive(self.saved("built:1"))
        self.assertEqual(treekit.differences(tree, theirs), [])
        self.assertIn("unpacked/top/file", tree)
        image = found["image"]
        self.assertEqual(
            (image["env"], image["user"], image["workdir"], image["entrypoint"], image["cmd"], image["stop_signal"]),
            (config["Env"], config["User"], config["WorkingDir"], config["Entrypoint"], config["Cmd"],
             config["StopSignal"]))
        self.assertEqual((sorted(image["exposed_ports"]), image["volumes"], image["labels"]),
                         (sorted(config["ExposedPorts"]), sorted(config["Volumes"]), config["Labels"]))


class Exported(DockerTest):
    def test_docker_loads_and_runs_what_brig_exports(self):
        made = json.loads(self.d.ask("POST", "/v1/templates/load?name=mine:2", self.saved("base"),
                                     headers={"Content-Type": "application/x-tar"}).body.splitlines()[-1])
        self.assertIn("template", made)
        path = self.dir / "mine.tar"
        self.brig("template", "export", "mine:2", "--format", "docker", "-o", str(path))
        self.assertIn("mine:2", self.engine.docker("load", "-i", str(path)))
        self.assertEqual(self.engine.docker("run", "--rm", "--network", "none", "mine:2", "/bin/sh", "-c",
                                            "echo $PATH; stat -c '%a %u %g' /etc/passwd"), "/bin\n644 0 0\n")
        tree, _ = self.store_tree("mine:2")
        theirs, _ = treekit.of_archive(self.saved("mine:2"))
        self.assertEqual(treekit.differences(tree, theirs), [])
