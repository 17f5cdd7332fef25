# SPDX-License-Identifier: Apache-2.0
"""Every call by type of file, layer, caller, mode and error: the same results and the same attributes after it as in an
ordinary directory."""
import re

import pytest

from support.posixcases import TABLES, some
from support.posixtable import Table
from support.rootless import mode
from support.server import shares_pages

_BATCH = 1000
_ASKED_FOR_NOTHING = r"^(chown to nobody else|fchown) .*: (ctime of .* before, a directory now|result: .*'EPERM'\))$"
_BY_DESCRIPTOR = r"^f(chmod|chown) of .*('ESTALE'|(mode|ctime) of d/)"
# With passthrough alone.
_BY_STRANGERS = r"^fchown of (file|big) of [246]\d+ .*, (upper|copied), by (member|other): (mode of|ctime of .* now, a directory before)"


def _expected():
    """What may differ, and why."""
    pairs = [(r"^rename 4 ", "RENAME_WHITEOUT is refused, as by overlayfs (the manual, LIMITS)"),
             (_ASKED_FOR_NOTHING, "chown(2) with neither id sends an empty request, which is what comes before a write, too")]
    if shares_pages():
        pairs.append((_BY_DESCRIPTOR, "a lower file is not changed by a descriptor that reads it (doc/SHARING.md)"))
    if mode() == "root":
        pairs.append((_BY_STRANGERS, "a fault, not mended: the empty request looks like a write past the server while the file is open"))
    return [(re.compile(pattern), reason) for pattern, reason in pairs]


def _compare(stack, plain, cases):
    table = Table(stack, plain, cases, _expected())
    table.run()
    shown = "\n  ".join(table.problems[:40])
    assert not table.problems, f"{len(table.problems)} differences:\n  {shown}"


@pytest.mark.writethrough("the kernel keeps the times")
def test_calls_do_what_they_do_in_an_ordinary_directory(stack, plain):
    _compare(stack, plain, [case for cases, share in TABLES.values() for case in some(cases(), share)])


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("batch", range(19))
def test_all_calls_do_what_they_do_in_an_ordinary_directory(stack, plain, name, batch):
    cases = list(TABLES[name][0]())[batch * _BATCH:(batch + 1) * _BATCH]
    if not cases:
        pytest.skip("there are no more of them")
    _compare(stack, plain, cases)
