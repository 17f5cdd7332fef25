# SPDX-License-Identifier: Apache-2.0
"""Every scenario of the bench, in the order of the report."""

from . import hpmapper_cow

EVERY = [
    hpmapper_cow.CowLatency(),
]
