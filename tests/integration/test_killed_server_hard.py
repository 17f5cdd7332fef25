# SPDX-License-Identifier: Apache-2.0
"""The server dies, and what comes after it does not have it easy."""
import os
import signal
import subprocess

import pytest

from support.content import MIB, blob
from support.places import Place
from support.server import wait_until

LIMIT_S = 90


# ---- a file system below that does not answer ----

@pytest.mark.standalone("one of the mounts is stopped")
@pytest.mark.parametrize("deaths", [1, 2])
def test_a_lower_that_hangs_holds_up_only_its_own_mount(stack, shared, deaths):
    (stack.lower() / "f").write_bytes(blob(MIB))
    below = stack.mount("timeout=0")
    places = [Place(stack, f"p{k}", [below if k in (0, 3) else stack.lower()]) for k in range(6)]
    mounts = [place.mount(stack, shared) for place in places]
    before = len(shared.log)
    os.kill(stack.pid, signal.SIGSTOP)
    try:
        for _ in range(deaths):
            shared.kill_server()
            for k in (1, 2, 4, 5):
                (mounts[k] / "own").write_bytes(b"%d" % k)
                assert (mounts[k] / "own").read_bytes() == b"%d" % k and (mounts[k] / "f").read_bytes() == blob(MIB)
        # the others hang: nobody has said that all is done
        assert "going on with" not in shared.log[before:]
        assert shared.count() == 6
        waiting = subprocess.Popen(["cat", mounts[0] / "f"], stdout=subprocess.PIPE)
    finally:
        os.kill(stack.pid, signal.SIGCONT)
    assert waiting.communicate(timeout=LIMIT_S)[0] == blob(MIB)
    assert wait_until(lambda: "going on with 6 mounts" in shared.log[before:], LIMIT_S)
    assert (mounts[3] / "f").read_bytes() == blob(MIB)
