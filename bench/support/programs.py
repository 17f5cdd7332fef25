# SPDX-License-Identifier: Apache-2.0
"""The bench's own programs, which the build makes of bench/programs."""

import os

from . import host

BUILD = os.path.join(host.TOP, "build")


def path(name):
    """Of that program, built when it is not there."""
    found = os.path.join(BUILD, "bench", name)
    if not os.path.exists(found):
        if not os.path.exists(os.path.join(BUILD, "build.ninja")):
            host.run("meson", "setup", BUILD, host.TOP)
        host.run("ninja", "--quiet", "-C", BUILD, "bench/" + name)
    return found
