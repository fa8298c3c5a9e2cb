# SPDX-License-Identifier: Apache-2.0
"""Runs with a network in a host of the library, beside a brig-egress that refuses, dies or says nothing
(drivers/rogue_egress.c)."""

import json
import os

from helpers import PATIENCE, wait_until
from jailkit import BUILD, PREFIX, JailTest
from test_library import library_path


def driver(name):
    return next((p for p in (f"{PREFIX}/tests/e2e/{name}", f"{BUILD}/tests/e2e/{name}") if os.path.exists(p)), name)


class Rogue(JailTest):
    LIMIT_SECONDS = 120

    @staticmethod
    def real():
        return os.environ.get("BRIG_LIBEXEC_DIR") or next(d for d, _, files in os.walk(PREFIX or BUILD)
                                                          if {"brig-init", "brig-spawner"} <= set(files))

    def helpers(self, name, egress):
        """A helper directory with this brig-egress, or none."""
        where, real = self.w.mkdir(f"{name}-{self.id().rsplit('.', 1)[-1]}"), self.real()
        for program in ("brig-init", "brig-spawner"):
            os.symlink(os.path.abspath(f"{real}/{program}"), f"{where}/{program}")
        if egress:
            os.symlink(os.path.abspath(egress), f"{where}/brig-egress")
        return where

    def host(self, word, helpers=None):
        helpers, bare = helpers or self.helpers("rogue", driver("rogue_egress")), self.helpers("bare", None)
        process = self.w.popen(driver("network_host"), word, bare,
                               env={"LD_LIBRARY_PATH": library_path(), "BRIG_LIBEXEC_DIR": helpers})
        status, out, err = self.w.finish(process, 2 * PATIENCE)
        self.assertEqual((status, err), (0, b""), err.decode())
        wait_until("the end of brig-egress", lambda: not self.w.processes("brig-egress", "rogue_egress"))
        return out

    def test_every_allocation_fails_once(self):
        helpers, n, good = self.helpers("rogue", driver("rogue_egress")), 1, 0
        while good < 5:
            status, out, err = self.w.finish(self.w.popen(driver("alloc_host"), str(n), "network",
                                                          env={"BRIG_LIBEXEC_DIR": helpers}))
            self.assertIn((status, err), ((0, b""), (125, b"")), (n, out))
            self.assertTrue(out == b"ok\n" if status == 0 else out.startswith(b"refused: "), (n, out))
            good, n = good + 1 if status == 0 else 0, n + 1
            self.w.assert_clean()
        self.assertGreater(n, 25)

    def test_counts_are_in_the_receipt(self):
        receipt = json.loads(self.host("counted"))
        self.assertEqual(receipt["network"]["policy"], "learn")
        self.assertEqual([r.get("domain") for r in receipt["network"]["learned"]["rules"]], ["one.test", "two.test"])


for _word in ("refused dies dies_under_others mute cancelled left_alone rules missing pooled terminal "
              "started_at_the_end").split():
    setattr(Rogue, f"test_{_word}", lambda self, word=_word: self.assertEqual(self.host(word), b""))


for _word in "left_alone pooled terminal cancelled".split():
    setattr(Rogue, f"test_{_word}_beside_the_real_one", lambda self,
            word=_word: self.assertEqual(self.host(word, self.real()), b""))
