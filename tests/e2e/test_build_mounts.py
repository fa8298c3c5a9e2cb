# SPDX-License-Identifier: Apache-2.0
"""RUN --mount in builds: what is mounted is not part of the layer, and secrets are nowhere but in the step."""

import os
import subprocess
import unittest

from buildkit import BuildTest

SECRET = "s3cret-value-of-the-test"


class Mounts(BuildTest):
    def test_what_is_mounted_is_not_in_the_layer(self):
        self.base()
        made, log = self.built("FROM base\nRUN --mount=type=tmpfs,target=/scratch,size=1m"
                               " --mount=type=cache,target=/cache echo x > /scratch/x && echo y > /cache/y &&"
                               " cat /scratch/x /cache/y && echo z > /z\n")
        self.assertEqual(self.output(log), "x\ny\n")
        self.assertEqual(made["layers"][-1]["bytes"], 2)
        self.assertEqual(self.sh("built", "cat /z; ls -d /scratch /cache 2>/dev/null"), "z\n")

    def test_a_tmpfs_is_full_before_memory_is(self):
        self.base()
        size = "stat -f -c '%b %S' /scratch"
        for limits, most in (({"memory": "64m"}, 32 << 20), ({}, 256 << 20)):
            _, log = self.built(f"FROM base\nRUN --mount=type=tmpfs,target=/scratch {size} # {most}\n", limits=limits)
            blocks, unit = self.output(log).split()
            self.assertEqual(int(blocks) * int(unit), most)

    def test_secrets_are_nowhere_else(self):
        self.base()
        text = ("FROM base\nRUN --mount=type=secret,id=token,required=true"
                " --mount=type=secret,id=other,env=OTHER,mode=0440 stat -c '%a %u' /run/secrets/token;"
                ' [ "$(cat /run/secrets/token)" = "$OTHER" ] && echo same\n'
                "RUN ls /run/secrets 2>/dev/null; echo none${OTHER}\n")
        made, log = self.built(text, secrets={"token": SECRET, "other": SECRET})
        self.assertEqual(self.output(log), "400 0\nsame\nnone\n")
        self.assertEqual(len(made["layers"]), 2)
        # The value is no part of the key, and without one the cache does not help a step that has to run.
        _, log = self.built(text, secrets={"token": "another", "other": "another"})
        self.assertEqual(len(self.cached(log)), 2)
        found = subprocess.run(["grep", "-rlaF", SECRET, os.path.join(self.d.dir, "state")], stdout=subprocess.PIPE,
                               check=False).stdout.decode()
        self.assertEqual(found, "")
        self.assertNotIn(SECRET, self.d.text())
        self.refused_build("FROM base\nRUN --mount=type=secret,id=gone,required=true true\n",
                           "line 2: RUN: the secret gone was not given")

    def test_refusals(self):
        self.base()
        for flag, message in (("type=bind,target=/x", "--mount=type=bind: expected tmpfs, cache or secret; COPY"),
                              ("target=/x", "--mount: type=bind, the default, is not supported"),
                              ("type=ssh", "--mount=type=ssh: expected tmpfs, cache or secret"),
                              ("type=tmpfs", "--mount: expected target=, an absolute path"),
                              ("type=tmpfs,target=/", "--mount: expected target=, an absolute path"),
                              ("type=secret", "--mount=type=secret: expected an id"),
                              ("type=secret,id=x,target=/root/x", "target must be a file in /run/secrets"),
                              ("type=tmpfs,target=/x,size=many", "--mount: size=many: not such a value"),
                              ("type=cache,target=/x,from=base", "--mount: from is not supported")):
            with self.subTest(flag=flag):
                self.refused_build(f"FROM base\nRUN --mount={flag} true\n", message)


if __name__ == "__main__":
    unittest.main()
