# SPDX-License-Identifier: Apache-2.0
"""fio on unions of ext4, XFS and btrfs."""

from support.measures import AtMost, ByDriver

from .xu_fio import LIMIT, Matrix

KINDS = ("", "-xfs", "-btrfs")


class Backing(Matrix):
    """Xu et al., backing file systems: ext4, XFS and btrfs below the unions

    The paper runs its fio matrix on raw devices, ext4, XFS and btrfs. Here each file system is on
    a loop device on one disk, and carries a plain directory ("upper" only), a kernel overlayfs and
    a veneer, at the high load of 4 jobs at depth 8 with O_DIRECT. "lower" and "upper" are as in xu/fio: the
    writing jobs of "lower" pay for the copying up, which on XFS with reflink is cheap for
    overlayfs and on btrfs as well."""

    name = "xu/backing"
    question = "Does the file system below make a difference?"
    drivers = tuple(what + kind for kind in KINDS for what in ("native", "overlayfs", "veneer"))
    quick_drivers = tuple(what + kind for kind in KINDS for what in ("overlayfs", "veneer"))
    ways = quick_ways = (("direct", "high"),)
    seconds = 2.6, 1.9

    def cells(self, quick):
        return ["lower"] if quick else list(self.places)

    def has(self, place, driver):
        # Changed in place, a file is what "upper" names.
        return place == "upper" or not driver.startswith("native")

    def measures(self):
        return [ByDriver("veneer" + kind, AtMost(
                    self.row(place, way, load), p, "overlayfs" + kind,
                    1 if self.is_fresh(place, p) and not kind else LIMIT,
                    close=True, must=not (self.is_fresh(place, p) and kind)))
                for kind in KINDS for place, way, load, p in self.rows()]
