#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes two archives: the sources, and for any Linux of this architecture the program with all that it needs linked in, its
# pages, completions and units. From the same sources and compiler come the same bytes.
set -euo pipefail
umask 022
cd "$(dirname "$(readlink -f "$0")")/.."

BUILD=build-static

usage()
{
	cat <<-END
	usage: contrib/release.sh [DIRECTORY]
	  writes veneer-VERSION.tar.gz (the sources), veneer-VERSION-ARCHITECTURE-linux.tar.gz and SHA256SUMS
	  into DIRECTORY (default: dist)
	environment: SOURCE_DATE_EPOCH, the time of all files in it (default: the day in CHANGELOG.md)
	             VENEER_FUSE_PREFIX, where contrib/setup.sh installed libfuse
	END
}

die()
{
	echo "release: $*" >&2
	exit 1
}

# Always in the same place beneath the sources, whose names the compiler may write down.
build()
{
	local options=(--buildtype=release -Db_lto=true -Dstatic=true -Dtests=false --prefix=/usr/local --libdir=lib
		-Dman=enabled -Dcompletions=enabled -Dinstall_units=enabled
		-Dinstall_fuse_overlayfs=true -Dinstall_mount_veneer=true -Dmount_helper_dir=/usr/local/sbin)

	[ -z "${VENEER_FUSE_PREFIX:-}" ] || options+=("-Dfuse_prefix=$VENEER_FUSE_PREFIX")
	rm -rf "$BUILD"
	meson setup "$BUILD" "${options[@]}" >"$scratch/log" 2>&1 || { cat "$scratch/log" >&2; die "meson failed"; }
	ninja --quiet -C "$BUILD"
	DESTDIR=$scratch/root meson install -C "$BUILD" --no-rebuild --strip --quiet
}

write_readme()
{
	cat <<-END
	veneer $version for Linux on $arch

	A union file system for containers. The program needs nothing but a kernel with FUSE; without privileges also
	fusermount3, of the package fuse3 of any distribution. To install it for everybody, as root:

	    tar -C /usr/local --strip-components=1 --no-same-owner -xzf $name.tar.gz
	    ln -s /usr/local/sbin/*mount.* /sbin/      # for mount -t veneer, and for umount

	To use it from here:

	    bin/veneer --help
	    man -l share/man/man1/veneer.1

	bin/fuse-overlayfs is the same program, by the name that Docker and containerd look for: leave it out where another
	fuse-overlayfs is wanted. To be removed again are the files below; share/doc/veneer has the licence, and what changed.
	"veneer server --metrics" is left out: "veneer stats --prometheus" says the same. So is "veneer diff --tar".
	The program was linked with libfuse, glibc and liburing (LGPL-2.1), jansson and xxhash, which its sources
	let everybody do anew.

	SHA-256 of the files:

	END
	(cd "$tree" && find . -type f -printf '%P\n' | LC_ALL=C sort | xargs -d '\n' sha256sum)
}

pack()
{
	local doc=$tree/share/doc/veneer

	mv "$scratch/root/usr/local" "$tree"
	for helper in "$tree"/sbin/*; do
		ln -sfn ../bin/veneer "$helper"
	done
	mkdir -p "$doc"
	cp LICENSE CHANGELOG.md "$doc"
	write_readme >"$scratch/README"
	mv "$scratch/README" "$doc/README"
	chmod -R u=rwX,go=rX "$tree"
	archive "$scratch" "$name"
}

# archive DIRECTORY NAME: NAME in it as NAME.tar.gz, the same bytes each time.
archive()
{
	tar -C "$1" --format=ustar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
		-cf - "$2" | gzip -9n >"$out/$2.tar.gz"
	echo "$out/$2.tar.gz"
}

# What git knows; of a tree without git all but what was built.
source_files()
{
	git ls-files -z 2>/dev/null || find . \( -name '.git' -o -path './build*' -o -path './dist' -o -name __pycache__ \) -prune -o \
		-type f -printf '%P\0'
}

pack_sources()
{
	mkdir "$scratch/veneer-$version"
	source_files | xargs -0 cp --parents --no-dereference --preserve=mode -t "$scratch/veneer-$version"
	chmod -R u=rwX,go=rX "$scratch/veneer-$version"
	archive "$scratch" "veneer-$version"
}

case "${1:-}" in
-h | --help) usage; exit 0 ;;
-*) usage >&2; exit 2 ;;
esac
version=$(sed -n "s/^  version: '\(.*\)',$/\1/p" meson.build)
[ -n "$version" ] || die "meson.build names no version"
arch=$(uname -m)
name=veneer-$version-$arch-linux
day=$(sed -n "s/^## \[$version\] - \(.*\)$/\1/p" CHANGELOG.md)
: "${SOURCE_DATE_EPOCH:=$(date -u -d "${day:?CHANGELOG.md does not have $version}" +%s)}"
export SOURCE_DATE_EPOCH LC_ALL=C
mkdir -p "${1:-dist}"
out=$(readlink -f "${1:-dist}")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
tree=$scratch/$name
pack_sources
build
pack
(cd "$out" && sha256sum "veneer-$version.tar.gz" "$name.tar.gz" >SHA256SUMS)
