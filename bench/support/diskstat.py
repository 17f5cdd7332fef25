# SPDX-License-Identifier: Apache-2.0
"""What a block device has transferred, by the kernel's count."""

import os

SECTOR = 512


class Counter:
    """Bytes since it was made. Writes of before are brought to the disk first."""

    def __init__(self, device):
        os.sync()
        self.device = device
        self.start = self._now()

    def _now(self):
        with open(f"/sys/dev/block/{self.device}/stat", encoding="ascii") as f:
            fields = f.read().split()
        return int(fields[2]) * SECTOR, int(fields[6]) * SECTOR

    def read(self):
        return self._now()[0] - self.start[0]

    def written(self):
        """Including what is still in memory."""
        os.sync()
        return self._now()[1] - self.start[1]
