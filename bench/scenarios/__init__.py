# SPDX-License-Identifier: Apache-2.0
"""Every scenario of the bench, in the order of the report."""

from . import (hpmapper_containers, hpmapper_cow, hpmapper_filebench, hpmapper_keeper,
               hpmapper_lookup, hpmapper_memory, hpmapper_promotion, hpmapper_siblings, hpmapper_streams,
               hpmapper_throttled)
from . import dpso_accuracy, dpso_idle, dpso_start, dpso_trace
from . import xu_backing, xu_database, xu_fio, xu_sweep, xu_volume
from . import tarasov_device, tarasov_files, tarasov_jobs, tarasov_layers
from . import real_build, real_chown, real_commit, real_databases, real_install, real_pgbench, real_sqlite
from . import real_start
from . import meta_bigdir, meta_files, meta_reads, meta_walk
from . import own_branch, own_clone, own_death, own_diff, own_long, own_send, own_share, own_snapshots, own_waking
from . import own_watching

EVERY = [
    hpmapper_cow.CowLatency(),
    hpmapper_siblings.Siblings(),
    hpmapper_containers.Containers(),
    hpmapper_throttled.Throttled(),
    hpmapper_memory.Memory(),
    hpmapper_keeper.Keeper(),
    hpmapper_lookup.Lookup(),
    hpmapper_promotion.Promotion(),
    hpmapper_streams.Streams(),
    hpmapper_filebench.Filebench(),
    dpso_idle.Idle(),
    dpso_trace.Trace(),
    dpso_accuracy.Accuracy(),
    dpso_start.Start(),
    dpso_start.Recording(),
    xu_fio.FioMatrix(),
    xu_sweep.Sweep(),
    xu_backing.Backing(),
    xu_volume.Volume(),
    xu_database.Database(),
    tarasov_files.Files(),
    tarasov_layers.Layers(),
    tarasov_device.Device(),
    tarasov_jobs.Jobs(),
    real_pgbench.Pgbench(),
    real_sqlite.Sqlite(),
    real_databases.Databases(),
    real_chown.Chown(),
    real_commit.Commit(),
    real_build.Build(),
    real_start.Start(),
    real_install.Install(),
    meta_walk.Walk(),
    meta_files.Files(),
    meta_reads.Reads(),
    meta_bigdir.BigDir(),
    own_death.Death(),
    own_diff.Diff(),
    own_branch.Branch(),
    own_snapshots.Snapshots(),
    own_send.Send(),
    own_clone.Clones(),
    own_share.Share(),
    own_long.Long(),
    own_waking.Waking(),
    own_watching.Watching(),
]
