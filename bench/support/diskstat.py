# SPDX-License-Identifier: Apache-2.0
"""What a block device has transferred, by the kernel's count."""

import os

SECTOR = 512


def traffic(device):
    """(bytes read, bytes written) so far, of a block device "MAJOR:MINOR"."""
    with open(f"/sys/dev/block/{device}/stat", encoding="ascii") as f:
        seen = f.read().split()
    return int(seen[2]) * SECTOR, int(seen[6]) * SECTOR


class Counter:
    """Bytes since it was made. Writes of before are brought to the disk first."""

    def __init__(self, device):
        os.sync()
        self.device, self.start = device, traffic(device)

    def read(self):
        return traffic(self.device)[0] - self.start[0]

    def written(self):
        """Including what is still in memory."""
        os.sync()
        return traffic(self.device)[1] - self.start[1]
