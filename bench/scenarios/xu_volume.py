# SPDX-License-Identifier: Apache-2.0
"""A data volume against the drivers."""

from support.measures import AtMost

from .xu_fio import LIMIT, READS, Matrix

VOLUME_LIMIT = 1.05


class Volume(Matrix):
    """Xu et al., data volume against storage driver

    In the paper a data volume beats every storage driver, so data is better kept out of the
    image's tree. Here the volume is a plain directory, bind-mounted, and the drivers are given a
    file of the image that is only read ("lower"), and one all of which was overwritten ("upper"):
    with neither is there anything left to copy, and veneer means to be within 5 % of the volume.
    O_DIRECT and through a warm page cache, one job at depth 1, as latency shows most there."""

    name = "xu/volume"
    question = "Is an upper file as fast as a data volume?"
    drivers = quick_drivers = "volume", "overlayfs", "veneer", "fuse-overlayfs-2"
    ways = (("direct", "low"), ("buffered", "low"))
    quick_ways = (("direct", "low"),)
    ms = 290, 90
    seconds = 3.5, 1.8

    def patterns(self, place):
        return READS if place == "lower" else super().patterns(place)

    def cells(self, quick):
        return ["upper"] if quick else list(self.places)

    def measures(self):
        out = []
        for place, way, load, p in self.rows():
            row = self.row(place, way, load)
            out += [AtMost(row, p, "volume", VOLUME_LIMIT, close=True),
                    AtMost(row, p, "overlayfs", LIMIT, close=True)]
            # A peer that reads with its own page cache beats the device, and so any passthrough.
            out.append(AtMost(row, p, "fuse-overlayfs-2", 1, close=True, must=way == "buffered"))
        return out
