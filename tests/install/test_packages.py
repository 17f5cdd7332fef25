# SPDX-License-Identifier: Apache-2.0
"""Packages: that they are made, and what installing, using and removing them does to a clean Debian."""
import os
import re
import shutil

import pytest

from cleanroot import Root
from conftest import pages_for_callers, run
from support.repository import REPOSITORY, copy_sources

SPEC = REPOSITORY / "contrib/rpm/veneer.spec"
MACROS = REPOSITORY / "tests/install/macros.fedora"


def tool(name):
    return pytest.mark.skipif(not shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin"), reason=f"there is no {name}")


@pytest.mark.parametrize("name", ["debian/control", "contrib/rpm/veneer.spec", "contrib/alpine/APKBUILD"])
def test_a_package_names_no_address_that_was_made_up(name):
    """RFC 2606 has names that are nobody's: good for a maintainer that a format demands, not for a page to visit."""
    named = re.findall(r"^(?:Homepage|Vcs-\w+|URL|url)\s*[:=]\s*(.*)$", (REPOSITORY / name).read_text(), re.M)
    assert not [address for address in named if re.search(r"\.(?:example|invalid|test|localhost)\b|\bexample\.", address)]


# ---- RPM, Alpine ----

@tool("rpmspec")
def test_rpm_understands_the_spec():
    named = run("rpmspec", "-q", "--qf", "%{name}: %{license} %{provides}\n", SPEC)
    assert re.search(r"^veneer: Apache-2.0", named, re.M) and re.search(r"^veneer-fuse-overlayfs: .*fuse-overlayfs", named, re.M)
    expanded = run("rpmspec", "-P", SPEC)
    for option in re.findall(r"-D(\w+)=", expanded):
        assert option in known_options() | {"b_lto"}, option


@tool("rpmlint")
def test_rpmlint_finds_nothing():
    said = run("rpmlint", "-r", SPEC.with_suffix(".rpmlintrc"), SPEC)
    assert " 0 errors, 0 warnings" in said, said


def known_options():
    return set(re.findall(r"^option\('(\w+)'", (REPOSITORY / "meson_options.txt").read_text(), re.M))


def test_a_shell_understands_the_apkbuild():
    shown = run("sh", "-euc", """
        . "$1"
        for f in build check package fuse_overlayfs; do type $f >/dev/null; done
        echo "$pkgname $license $arch $pkgdesc"; echo $subpackages""", "sh", REPOSITORY / "contrib/alpine/APKBUILD", cwd="/")
    assert shown.startswith("veneer Apache-2.0 ") and "veneer-fuse-overlayfs:fuse_overlayfs:noarch" in shown
    for option in re.findall(r"-D(\w+)=", (REPOSITORY / "contrib/alpine/APKBUILD").read_text()):
        assert option in known_options() | {"b_lto"}, option


def test_an_apk_is_packed_as_the_apkbuild_says(unpacked, scratch):
    """package() and what moves files out of it, with the tree that meson installs; abuild itself is Alpine's."""
    staged = scratch / "apk"
    (staged / "usr").mkdir(parents=True)
    run("cp", "-a", f"{unpacked}/.", staged / "usr")
    moved = run("sh", "-euc", """
        . "$1"; pkgdir=$2
        meson() { :; }
        amove() { mv "$pkgdir/$1" "$pkgdir.moved"; }
        package; fuse_overlayfs; ls -l "$pkgdir.moved"; echo "$depends" """, "sh", REPOSITORY / "contrib/alpine/APKBUILD", staged)
    assert "-> veneer" in moved and "!fuse-overlayfs" in moved
    assert (staged / "usr/bin/veneer").exists() and not (staged / "usr/bin/fuse-overlayfs").exists()


@pytest.mark.slow
def test_an_apk_is_built_as_the_apkbuild_says(scratch):
    """build(), check() and package() by a shell, with what they call; abuild alone is not there."""
    sources = copy_sources(scratch / "apk-sources")
    own_fuse = os.environ.get("VENEER_FUSE_PREFIX", "/usr/local/lib/veneer/fuse3") + "/lib/pkgconfig"
    said = run("sh", "-euc", """
        . contrib/alpine/APKBUILD; pkgdir=$1
        amove() { mkdir -p "$pkgdir.moved/${1%/*}"; mv "$pkgdir/$1" "$pkgdir.moved/$1"; }
        build; check; package; fuse_overlayfs
        cd "$pkgdir"; find . ! -type d | sort; "$pkgdir/usr/bin/veneer" --version""", "sh", scratch / "apk-packed", cwd=sources,
        env={**os.environ, "PKG_CONFIG_PATH": own_fuse})
    names = set(re.findall(r"^\./(.*)$", said, re.M))
    assert {"usr/bin/veneer", "sbin/mount.veneer", "sbin/umount.fuse.fuse-overlayfs", "usr/share/man/man1/veneer.1"} <= names
    assert not [name for name in names if "systemd" in name or name.startswith(("usr/local", "etc"))], names
    assert not [name for name in names if name.endswith(("bin/fuse-overlayfs", "completions/fuse-overlayfs"))], names
    assert said.count("(veneer)") == 2


@pytest.fixture(scope="session")
def rpms(scratch):
    """Built here of this tree, as Fedora's macros have it done where rpm knows none. Whether what Fedora calls its packages is there
    is not asked: on this machine nothing is."""
    if not shutil.which("rpmbuild"):
        pytest.skip("there is no rpmbuild")
    top = scratch / "rpm"
    (top / "SOURCES").mkdir(parents=True)
    version = run("rpmspec", "-q", "--srpm", "--qf", "%{version}", SPEC)
    copy_sources(top / f"veneer-{version}")
    run("tar", "-C", top, "-czf", top / f"SOURCES/veneer-{version}.tar.gz", f"veneer-{version}")
    macros = [] if run("rpm", "--eval", "%meson") != "%meson\n" else [f"--load={MACROS}"]
    own_fuse = os.environ.get("VENEER_FUSE_PREFIX", "/usr/local/lib/veneer/fuse3") + "/lib/pkgconfig"
    run("rpmbuild", "-bb", "--nodeps", *macros, "--define", f"_topdir {top}", SPEC, env={**os.environ, "PKG_CONFIG_PATH": own_fuse})
    return top / "RPMS"


def contents(rpms, name):
    return set(run("rpm", "-qpl", next(rpms.glob(f"*/{name}"))).splitlines())


@pytest.mark.slow
def test_an_rpm_has_what_meson_installs(rpms, unpacked):
    """As the archive has it, but for where pages about the program lie."""
    ours, other = contents(rpms, "veneer-[0-9]*.rpm"), contents(rpms, "veneer-fuse-overlayfs-*.rpm")
    installed = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_symlink() or path.is_file()}
    wanted = {f"/usr/{name}" for name in installed if not name.startswith("share/doc/")}
    assert wanted <= ours | other and not ours & other
    assert {name.rpartition("/")[2] for name in other} == {"fuse-overlayfs", "fuse-overlayfs.1"}
    assert {"LICENSE", "README.md", "CHANGELOG.md"} <= {name.rpartition("/")[2] for name in ours}
    assert {f"/usr/{name}" for name in pages_for_callers()} <= ours
    about = run("rpm", "-qp", "--provides", "--conflicts", *rpms.glob("*/veneer-fuse-overlayfs-*.rpm"))
    assert "fuse-overlayfs = 1." in about


@pytest.mark.slow
@pytest.mark.parametrize("suite", ["bookworm"])
def test_rpms_are_installed_used_and_erased(rpms, root):
    """By rpm, in a root whose libraries are Debian's."""
    for package in rpms.glob("*/*.rpm"):
        shutil.copy(package, root.given)
    said = root.run(_SNAPSHOT + _USE + r"""
        cd /mnt/given
        apt-get -q update >/dev/null
        apt-get -q -y install --no-install-recommends rpm fuse3 libjansson4 liburing2 libxxhash0 >/dev/null
        rpm --initdb
        # What packages share is that of Fedora's package filesystem; rpm leaves it.
        mkdir -p /usr/share/{man/man{1,5,8},fish/vendor_completions.d,zsh/site-functions,licenses} /usr/lib/systemd/{system,user}
        snapshot /tmp/before /tmp
        rpm -i --nodeps veneer-[0-9]*.rpm
        rpm -V --nodeps veneer
        veneer --version | head -1
        use
        as_user
        rpm -i --nodeps veneer-fuse-overlayfs-*.rpm
        echo "=== in place: $(fuse-overlayfs --version 2>&1 | grep fuse-overlayfs:)"
        try fuse-overlayfs -o $OPTIONS /disk/merged
        veneer -o lowerdir=/disk/lower /disk/merged
        rpm -e veneer-fuse-overlayfs veneer
        # What is mounted goes on without the package.
        cmp /disk/merged/file /disk/before; umount /disk/merged
        snapshot /tmp/after /tmp
        echo "=== left:"
        diff /tmp/before /tmp/after | grep -v -e '^[0-9]' -e '^> /run/mount ' -e '^> /run/veneer' || :
        """)
    assert re.search(r"=== in place: .*\(veneer\)", said), said
    assert said.partition("=== left:\n")[2] == "", said


# ---- Debian ----

def build_dependencies():
    return re.search(r"^Build-Depends: (.*?)\n\S", (REPOSITORY / "debian/control").read_text(), re.M | re.S)[1]


def test_debian_knows_every_library_that_meson_wants():
    """A library that is new in meson.build has to be in debian/control, in the spec and in the APKBUILD."""
    text = (REPOSITORY / "meson.build").read_text()
    wanted = set(re.findall(r"\bdependency\('([\w.-]+)'", text)) | set(
        re.findall(r"'([\w.-]+)'", re.search(r"foreach name : \[(.*?)\]", text, re.S)[1]))
    wanted -= {"threads"}
    assert {"fuse3", "jansson", "liburing"} <= wanted
    for name in wanted:
        bare = name.removeprefix("lib").rstrip("0123456789")
        for file in ["debian/control", "contrib/rpm/veneer.spec", "contrib/alpine/APKBUILD", "contrib/setup.sh"]:
            assert bare in (REPOSITORY / file).read_text(), f"{file} lacks {name}"


@pytest.mark.slow
@tool("lintian")
def test_lintian_finds_nothing(packages):
    said = run("lintian", "--allow-root", "--fail-on", "error,warning", "--tag-display-limit", "0", next(packages.glob("*.changes")))
    assert not re.search(r"^[EW]:", said, re.M), said


@pytest.mark.slow
def test_a_deb_has_the_pages_for_callers(packages):
    """Under their names, so that the links among them lead somewhere: none is compressed."""
    (package,) = packages.glob("veneer_*.deb")
    listed = run("dpkg-deb", "--contents", package).splitlines()
    names = {re.sub(r" -> .*", "", line).split(" ./")[1]: line for line in listed}
    assert {f"usr/{name}" for name in pages_for_callers()} <= set(names)
    assert {"usr/share/doc/veneer/README.md", "usr/share/doc/veneer/CHANGELOG.md"} <= set(names)
    for script in ("podman/flatten-store", "containerd/flatten-snapshots"):
        leads_to = names[f"usr/share/doc/veneer/contrib/{script}.sh"].partition(" -> ")[2]
        assert leads_to == f"../../../../../bin/veneer-{script.partition('/')[2]}"


@pytest.mark.slow
def test_the_source_package_has_all_sources_and_nothing_built(packages):
    listed = run("tar", "-tJf", next(packages.glob("veneer_*.tar.xz"))).splitlines()
    names = {name.partition("/")[2] for name in listed if not name.endswith("/")}
    here = {str(path.relative_to(packages / "veneer")) for path in (packages / "veneer/src").rglob("*.c")}
    assert here <= names and "meson.build" in names
    assert not [name for name in names if name.startswith(("build", ".git/", "obj-")) or name.endswith((".o", ".pyc"))]


@pytest.fixture
def root(scratch, suite):
    if os.geteuid() != 0:
        pytest.skip("a root is entered as root")
    made = Root(suite, scratch / f"root-{suite}")
    yield made
    shutil.rmtree(made.directory)


# What is there; not what apt, dpkg and mount(8) note of their own work.
_SNAPSHOT = r"""
snapshot() {
	find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /mnt -o -path /disk -o -path /tmp -o -path /var/lib/dpkg \
		-o -path /var/lib/apt -o -path /var/cache -o -path /var/log \) -prune -o -print | sort >"$1"
	find /run /etc -printf '%p %l\n' | sort >>"$1"
	cp -L /etc/shells /etc/passwd /etc/group "$2"
}
"""

_USE = r"""
try() {
	rm -rf /disk/*; mkdir -p /disk/lower /disk/upper /disk/work /disk/merged
	head -c 1M /dev/urandom >/disk/lower/file; cp /disk/lower/file /disk/before
	"$@"
	printf changed | dd of=/disk/merged/file conv=notrunc bs=1 seek=5000 status=none
	echo new >/disk/merged/new
	[ "$(dd if=/disk/merged/file bs=1 skip=5000 count=7 status=none)" = changed ]
	umount /disk/merged
	cmp /disk/before /disk/lower/file
	[ "$(cat /disk/upper/new)" = new ]
	[ "$(stat -c %b /disk/upper/file)" -lt 512 ]
}
OPTIONS=lowerdir=/disk/lower,upperdir=/disk/upper,workdir=/disk/work,prefetch=read
use() {
	try veneer -o $OPTIONS /disk/merged
	try mount -t veneer veneer /disk/merged -o $OPTIONS
	echo "veneer /disk/merged veneer $OPTIONS,noauto 0 0" >/tmp/fstab
	try mount -T /tmp/fstab /disk/merged
	ls /run/veneer/*.sock
	veneer stats --json >/dev/null
}
as_user() {
	rm -rf /disk/*; chmod 1777 /disk
	setpriv --reuid=nobody --regid=nogroup --clear-groups env HOME=/tmp/home VENEER_STATE_DIR= bash -euc '
		mkdir -p /disk/l /disk/u /disk/w /disk/m; echo hi >/disk/l/f
		veneer -o lowerdir=/disk/l,upperdir=/disk/u,workdir=/disk/w,standalone /disk/m
		echo ho >>/disk/m/f; fusermount3 -u /disk/m; grep -q ho /disk/u/f'
}
"""


@pytest.mark.slow
@pytest.mark.parametrize("suite", ["bookworm"])
def test_installed_used_and_purged_in_a_clean_debian(packages, root):
    for package in packages.glob("*.deb"):
        shutil.copy(package, root.given)
    said = root.run(_SNAPSHOT + _USE + r"""
        cd /mnt/given
        apt-get -q update >/dev/null
        needs=$(dpkg-deb -f veneer_*.deb Depends | tr ',' '\n' | sed 's/(.*//')
        apt-get -q -y install --no-install-recommends $needs >/dev/null
        snapshot /tmp/before /tmp
        dpkg -i veneer_*.deb
        dpkg -L veneer | grep -q /usr/share/man/man1/veneer.1.gz || grep -q path-exclude -r /etc/dpkg
        use
        as_user
        ls /var/lib/veneer
        veneer -o lowerdir=/disk/l /disk/m
        dpkg -P veneer
        # What is mounted goes on without the package.
        cat /disk/m/f; umount /disk/m
        snapshot /tmp/after /tmp
        echo "=== left:"
        diff /tmp/before /tmp/after | grep -v -e '^[0-9]' -e '^> /run/mount ' || :
        """)
    assert "profile.lock" in said
    assert said.partition("=== left:\n")[2] == "", said


@pytest.mark.slow
@pytest.mark.parametrize("suite", ["bookworm"])
def test_beside_fuse_overlayfs_and_in_its_place(packages, root):
    for package in packages.glob("*.deb"):
        shutil.copy(package, root.given)
    said = root.run(_USE + r"""
        cd /mnt/given
        apt-get -q update >/dev/null
        apt-get -q -y install --no-install-recommends fuse-overlayfs ./veneer_*.deb ./veneer-doc_*.deb >/dev/null
        echo "=== beside: $(fuse-overlayfs --version 2>&1 | grep fuse-overlayfs:)"
        veneer --version | head -1
        apt-get -q -y install --no-install-recommends ./veneer-fuse-overlayfs_*.deb
        echo "=== in place: $(fuse-overlayfs --version 2>&1 | grep fuse-overlayfs:)"
        try fuse-overlayfs -o $OPTIONS /disk/merged
        dpkg -s fuse-overlayfs 2>&1 | grep -i status || :
        # Packages that depend on it are content.
        apt-get -q -y install --no-install-recommends podman >/dev/null
        echo "=== still: $(fuse-overlayfs --version 2>&1 | grep fuse-overlayfs:)"
        apt-get -q -y install --no-install-recommends fuse-overlayfs >/dev/null
        echo "=== back: $(fuse-overlayfs --version 2>&1 | grep fuse-overlayfs:)"
        dpkg -s veneer | grep ^Status
        dpkg --audit; apt-get check
        """)
    assert re.search(r"=== beside: fuse-overlayfs: version 1", said)
    assert re.search(r"=== in place: .*\(veneer\)", said) and re.search(r"=== still: .*\(veneer\)", said)
    assert re.search(r"=== back: fuse-overlayfs: version 1", said)
    assert "trying to overwrite" not in said


@pytest.mark.slow
@pytest.mark.parametrize("suite", ["trixie"])
def test_built_and_used_where_libfuse_is_new_enough(root):
    """From Build-Depends alone, with the distribution's libfuse."""
    copy_sources(root.given / "veneer")
    root.run(_USE + r"""
        apt-get -q update >/dev/null
        cp -r /mnt/given/veneer /tmp/veneer; cd /tmp/veneer
        apt-get -q -y build-dep --no-install-recommends . >/dev/null
        apt-get -q -y install --no-install-recommends dpkg-dev >/dev/null
        dpkg-buildpackage -us -uc >/tmp/log 2>&1 || { tail -80 /tmp/log; exit 1; }
        cd ..
        apt-get -q -y install --no-install-recommends ./veneer_*.deb ./veneer-fuse-overlayfs_*.deb >/dev/null
        ldd /usr/bin/veneer | grep libfuse3
        use
        as_user
        try fuse-overlayfs -o $OPTIONS /disk/merged
        dpkg -P veneer-fuse-overlayfs veneer
        ! command -v veneer
        for left in /usr/bin/fuse-overlayfs /sbin/mount.veneer /etc/veneer /var/lib/veneer /run/veneer; do [ ! -e $left ]; done
        """)
