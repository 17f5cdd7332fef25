# SPDX-License-Identifier: Apache-2.0
"""Every scenario of the bench, in the order of the report."""

from . import (hpmapper_containers, hpmapper_cow, hpmapper_memory, hpmapper_siblings,
               hpmapper_throttled)
from . import meta_bigdir, meta_files, meta_reads, meta_walk

EVERY = [
    hpmapper_cow.CowLatency(),
    hpmapper_siblings.Siblings(),
    hpmapper_containers.Containers(),
    hpmapper_throttled.Throttled(),
    hpmapper_memory.Memory(),
    meta_walk.Walk(),
    meta_files.Files(),
    meta_reads.Reads(),
    meta_bigdir.BigDir(),
]
