# SPDX-License-Identifier: Apache-2.0
"""The Debian package on a machine that systemd has booted: the units as an administrator uses them, and a server of which no unit
knows. tests/integration/test_systemd.py has the rest, under a manager that is not the first process."""
import os
import shutil

import pytest

from cleanroot import Root

pytestmark = pytest.mark.slow

# The socket of the package is where programs of the host look; this machine's process namespace has another number.
_PREPARED = r"""
dpkg -i /mnt/given/veneer_*.deb >/dev/null
! systemctl is-enabled --quiet veneer.socket && ! systemctl is-active --quiet veneer.socket
number() { stat -Lc %i /proc/self/ns/$1; }
mkdir -p /etc/systemd/system/veneer.socket.d
printf '[Socket]\nListenSequentialPacket=\nListenSequentialPacket=/run/veneer/%s-%s.sock\n' $(number user) $(number pid) \
	>/etc/systemd/system/veneer.socket.d/here.conf
systemctl daemon-reload

# place NAME: with a file of 1 MiB below
place() { mkdir -p /disk/$1/{lower,upper,work,merged}; head -c 1M /dev/zero | tr '\0' a >/disk/$1/lower/file; }
options() { echo lowerdir=/disk/$1/lower,upperdir=/disk/$1/upper,workdir=/disk/$1/work; }
use() {
	printf changed | dd of=/disk/$1/merged/file conv=notrunc bs=1 seek=5000 status=none
	[ "$(dd if=/disk/$1/merged/file bs=1 skip=4999 count=9 status=none)" = achangeda ]
	echo new >/disk/$1/merged/new; rm /disk/$1/merged/new
}
until_true() { for i in $(seq 200); do ! "$@" || return 0; sleep 0.05; done; return 1; }
# container NAME: a unit that mounts, and stays
container() {
	systemd-run --quiet --unit=$1 ${apart:+--setenv=VENEER_CGROUP=$apart} bash -c "veneer -o $(options $1) /disk/$1/merged; exec sleep infinity"
	until_true mountpoint -q /disk/$1/merged
}
server() { veneer stats --json | sed -n 's/^ *"pid": \([0-9]*\).*/\1/p' | head -1; }
group() { sed -n 's/^0:://p' /proc/$1/cgroup; }
for name in first second third fourth; do place $name; done
"""

_MOUNTED = r"""
container first
mount -t veneer veneer /disk/second/merged -o $(options second)
use first; use second
"""

# The unit that started the server ends, and then the server is killed.
_LIVE_ON = r"""
systemctl stop first
use first; use second
before=$(server)
kill -KILL $before
use first; use second
[ "$(server)" != $before ]
"""


@pytest.fixture
def machine(packages, scratch):
    if os.geteuid() != 0:
        pytest.skip("a root is entered as root")
    made = Root("bookworm", scratch / "booted")
    shutil.copy(next(packages.glob("veneer_*.deb")), made.given)
    made.run(r"""
        apt-get -q update >/dev/null
        needs=$(dpkg-deb -f /mnt/given/veneer_*.deb Depends | tr ',' '\n' | sed 's/(.*//')
        apt-get -q -y install --no-install-recommends systemd $needs >/dev/null
        """)
    yield made
    shutil.rmtree(made.directory)


def test_units_of_the_package_on_a_booted_machine(machine):
    said = machine.boot(_PREPARED + r"""
        systemctl enable --now veneer.socket
        ! systemctl is-active --quiet veneer.service
        """ + _MOUNTED + r"""
        systemctl is-active veneer.service
        [ "$(group $(server))" = /veneer.slice/veneer.service ]
        """ + _LIVE_ON + r"""
        systemctl is-active veneer.service
        [ "$(group $(server))" = /veneer.slice/veneer.service ]

        # Stopped, it serves what it has; the socket starts the next one for a new client.
        systemctl stop veneer.service veneer.socket
        use first; use second
        systemctl start veneer.socket
        container third
        use first; use second; use third
        systemctl is-active veneer.service

        # All in its group are killed, also the first server: its mounts give errors, and a new client is served.
        systemctl kill --kill-whom=all --signal=KILL veneer.service
        for name in first second third; do ! stat /disk/$name/merged/file 2>/dev/null; done
        container fourth
        use fourth
        systemctl stop fourth
        use fourth
        veneer umount /disk/{first,second,third,fourth}/merged
        for name in first second third; do [ "$(stat -c %s /disk/$name/upper/file)" = 1048576 ]; done
        dpkg -r veneer
        ! systemctl is-active --quiet veneer.socket
        echo all done
        """)
    assert said.rstrip().endswith("all done"), said


def test_without_the_units_a_server_goes_where_it_is_told(machine):
    """By itself it stays where it was started: under systemd the groups of root are systemd's."""
    said = machine.boot(_PREPARED + "apart=/apart\n" + _MOUNTED + r"""
        [ "$(group $(server))" = /apart ]
        """ + _LIVE_ON + r"""
        [ "$(group $(server))" = /apart ]
        umount /disk/first/merged /disk/second/merged
        echo all done
        """)
    assert said.rstrip().endswith("all done"), said
