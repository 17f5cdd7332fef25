# SPDX-License-Identifier: Apache-2.0
"""The questions of doc/PERFORMANCE.md, and the rows and the plot that answer each."""

from collections import namedtuple

# key      names its place in the text, and its plot
# rows     (label, "scenario", metric): a line of the table and, without a picture, a panel of bars each
# picture  a scenario's plot that answers it better than bars
# caption  what the plot shows, for readers that do not see it
Question = namedtuple("Question", "key rows caption picture", defaults=(None,))

# Those that a reader compares; README's table has no plain directory.
COLUMNS = ("overlayfs", "veneer", "fuse-overlayfs", "fuse-overlayfs-2")
ALL_COLUMNS = ("native", *COLUMNS)

QUESTIONS = (
    Question("first-change", (
        ("first 4 KiB written into a file of 4K", "hpmapper/cow/4K", "open+pwrite+close"),
        ("first 4 KiB written into a file of 1M", "hpmapper/cow/1M", "open+pwrite+close"),
        ("first 4 KiB written into a file of 1G", "hpmapper/cow/1G", "open+pwrite+close"),
        ("the upper's bytes after it, file of 4K", "hpmapper/cow/4K", "open+pwrite+close upper bytes"),
        ("the upper's bytes after it, file of 1G", "hpmapper/cow/1G", "open+pwrite+close upper bytes"),
        ("`chown -R` of 30,000 files of 32 KiB", "real/chown/large", "time")),
        "the first change, by the size of the file", "hpmapper-cow"),
    Question("long-writing", (
        ("4 KiB writes at random, 256M, 4 at once", "own/long/writes, 256M, 4 at once", "rate"),
        ("4 KiB writes at random, 4G, 4 at once", "own/long/writes, 4G, 4 at once", "rate"),
        ("oltp of filebench", "hpmapper/filebench/oltp", "rate"),
        ("oltp of filebench, cloud volume", "hpmapper/filebench/oltp, cloud volume", "rate"),
        ("pgbench, 1 GB in a lower layer", "real/pgbench", "all transactions"),
        ("pgbench, later transactions", "real/pgbench", "later transactions")),
        "work done a second by programs that write"),
    Question("names", (
        ("`ls -lR` of 30,000 files, new mount", "meta/walk/ls -lR", "first"),
        ("`ls -lR` of 30,000 files, again", "meta/walk/ls -lR", "warm"),
        ("`git status`, new mount", "meta/walk/git status", "first"),
        ("`tar c` of 30,000 files, again", "meta/walk/tar c", "warm"),
        ("20,000 files unpacked by tar", "meta/files/tar x", "time"),
        ("17,000 lower files removed", "meta/files/rm -rf", "time")),
        "seconds of walks, unpacking and removing"),
    Question("memory", (
        ("copies of a file that 64 views read", "hpmapper/siblings/one file", "copies"),
        ("copies of three files that 16 views change and read", "hpmapper/siblings/changed files", "copies"),
        ("64 starts: page cache", "hpmapper/containers/programs", "page cache"),
        ("64 starts that write: page cache", "hpmapper/containers/programs that write", "page cache"),
        ("64 starts: memory of the servers", "hpmapper/containers/programs", "servers"),
        ("30 layers that change 1 % of 64 MiB each, on disk", "tarasov/layers/30", "bytes of all layers")),
        "copies, page cache, servers and disk"),
    Question("start", (
        ("a container by podman, run to removed", "real/start/podman", "time"),
        ("a container by docker, run to removed", "real/start/docker", "time"),
        ("one more mount, beside eight", "hpmapper/siblings/one more", "mount"),
        ("`podman build` of ten steps", "real/build", "time"),
        ("`podman commit` after a change of 4 KiB", "real/commit/4K-changed", "time"),
        ("first program from a slow device, 1 view", "hpmapper/throttled/1", "time")),
        "containers, mounts, builds and commits"),
    Question("many-at-once", (
        ("64 starts", "hpmapper/containers/programs", "time"),
        ("YCSB A on PostgreSQL, 8 containers", "xu/database/8", "A throughput"),
        ("16 containers, 300 random 4 KiB reads of a lower file each", "tarasov/files/sf-reads", "completion"),
        ("16 containers, 300 random 4 KiB writes to a lower file each", "tarasov/files/sf-writes", "completion"),
        ("compilation in 8 containers", "tarasov/jobs/compile/8", "time"),
        ("upgrade in 8 containers", "tarasov/jobs/upgrade/8", "time")),
        "8, 16 and 64 containers that work at once"),
    Question("reads", (
        ("reading a warm lower file", "meta/reads/sequential", "warm"),
        ("4 KiB at random of a warm lower file", "meta/reads/random 4K", "warm"),
        ("open, read 4 KiB, close, warm", "meta/reads/open+read4K+close", "warm"),
        ("open, read 4 KiB, close, cold", "meta/reads/open+read4K+close", "cold"),
        ("4 KiB at random of a file in 30 layers", "tarasov/layers/30", "random 4K"),
        ("all of a file in 30 layers, 64 MiB", "tarasov/layers/30", "whole")),
        "reads and opens of lower files"),
)

# The rows of README. Each is a headline of its scenario.
DECIDING = (
    ("first write of 4 KiB, file of 4 KiB", "hpmapper/cow/4K", "open+pwrite+close"),
    ("first write of 4 KiB, file of 1 GiB", "hpmapper/cow/1G", "open+pwrite+close"),
    ("64 containers: page cache", "hpmapper/containers/programs", "page cache"),
    ("64 containers, each changes a file of 8 MiB: page cache",
     "hpmapper/containers/programs that write", "page cache"),
    ("`tar x` of 20,000 files", "meta/files/tar x", "time"),
    ("read of a warm lower file", "meta/reads/sequential", "warm"),
    ("pgbench, 1 GB in a lower layer", "real/pgbench", "all transactions"),
    ("oltp of filebench, fast disk", "hpmapper/filebench/oltp", "rate"),
    ("`podman build` of ten steps", "real/build", "time"),
    ("pause when the server is killed, 16 mounts", "own/death/16 mounts", "pause"),
)
