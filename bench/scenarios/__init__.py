# SPDX-License-Identifier: Apache-2.0
"""Every scenario of the bench, in the order of the report."""

from . import (hpmapper_containers, hpmapper_cow, hpmapper_filebench, hpmapper_lookup,
               hpmapper_memory, hpmapper_siblings, hpmapper_streams, hpmapper_throttled)
from . import meta_bigdir, meta_files, meta_reads, meta_walk

EVERY = [
    hpmapper_cow.CowLatency(),
    hpmapper_siblings.Siblings(),
    hpmapper_containers.Containers(),
    hpmapper_throttled.Throttled(),
    hpmapper_memory.Memory(),
    hpmapper_lookup.Lookup(),
    hpmapper_streams.Streams(),
    hpmapper_filebench.Filebench(),
    meta_walk.Walk(),
    meta_files.Files(),
    meta_reads.Reads(),
    meta_bigdir.BigDir(),
]
