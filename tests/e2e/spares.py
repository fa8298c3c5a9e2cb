# SPDX-License-Identifier: Apache-2.0
"""The /etc that brig makes for its sandboxes (src/host/etc_cache.c), from one service of the tests to the next.

It is some eight hundred files, made once for each cache directory. Every service of the tests has a cache directory of
its own, and making those files was most of what its start cost. So a service that has ended leaves its /etc here, and
the next one finds it in its cache, as a service does that was there before. brig goes by the name, which is a hash of
what the files were made from: one that is out of date it makes anew. What the first start does is tested where no spare
is: in test_service_start.py and test_jail_callers.py.

BRIG_TEST_SPARES is the directory; without it, every service makes its own.
"""

import contextlib
import os
import re
import secrets

PLACE = os.environ.get("BRIG_TEST_SPARES")
NAME = re.compile(r"etc-[0-9a-f]{16}")


def take(cache, user=None, group=None):
    """Puts a spare into the cache directory of a service to come, if there is one of its user's."""
    if not PLACE:
        return
    owner = os.geteuid() if user is None else user
    for name in os.listdir(PLACE):
        kept, whose, _ = name.split(".")
        if int(whose) != owner:
            continue
        if not os.path.exists(cache):
            os.mkdir(cache)
            os.chmod(cache, 0o755 if owner == 0 else 0o700)
            os.chown(cache, owner, -1 if group is None else group)
        with contextlib.suppress(FileNotFoundError):  # another lane was faster
            os.rename(f"{PLACE}/{name}", f"{cache}/{kept}")
            return


def give(cache):
    """Takes the /etc of a service that has ended."""
    if not PLACE or not os.path.isdir(cache):
        return
    for name in filter(NAME.fullmatch, os.listdir(cache)):
        with contextlib.suppress(OSError):  # the service was on another file system
            path = os.path.join(cache, name)
            os.rename(path, f"{PLACE}/{name}.{os.stat(path).st_uid}.{secrets.token_hex(8)}")
