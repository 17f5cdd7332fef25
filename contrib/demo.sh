#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds, and writes 4 KiB into a 1 GiB file of a union over /usr/share:
# once through veneer and once through the kernel's overlayfs. Leaves nothing behind.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

PROGRAM=${VENEER_BIN:-build-release/veneer}
FILE_MIB=${VENEER_DEMO_MIB:-1024}
# The server is gone with the demonstration, and needs no control group of its own.
export VENEER_CGROUP=
NAME=disk.img

if [ "$(id -u)" != 0 ]; then
	exec sudo --preserve-env=VENEER_BIN,VENEER_DEMO_MIB -- "$0" "$@"
fi

die()
{
	echo "demo: $*" >&2
	exit 1
}

scratch=
cleanup()
{
	local m

	[ -n "$scratch" ] || return 0
	for m in "$scratch"/{veneer,overlayfs}/merged; do
		if mountpoint -q "$m"; then
			umount "$m" || umount -l "$m" || :
		fi
	done
	rm -rf --one-file-system "$scratch"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

build()
{
	contrib/setup.sh
	[ -z "${VENEER_BIN:-}" ] || return 0
	if [ ! -e build-release/build.ninja ]; then
		meson setup build-release --buildtype=release -Db_lto=true >/dev/null
	fi
	ninja --quiet -C build-release veneer
}

# On a disk: a tmpfs would make the copying look cheaper than it is.
prepare()
{
	local free_mib

	scratch=$(mktemp -d -p /var/tmp veneer-demo.XXXXXX)
	free_mib=$(($(stat -f -c '%a * %S' "$scratch") / 1048576))
	[ "$free_mib" -gt $((FILE_MIB * 2 + 64)) ] ||
		die "/var/tmp has $free_mib MiB free, too few (a smaller file: VENEER_DEMO_MIB=100)"
	mkdir -p "$scratch"/image "$scratch"/{veneer,overlayfs}/{upper,work,merged}
	echo "demo: making a file of $FILE_MIB MiB"
	head -c "${FILE_MIB}M" /dev/urandom >"$scratch/image/$NAME"
	sync -f "$scratch"
	sum_before=$(cksum <"$scratch/image/$NAME")
}

mount_options()
{
	echo "lowerdir=$scratch/image:/usr/share,upperdir=$scratch/$1/upper,workdir=$scratch/$1/work"
}

upper_bytes()
{
	du -s --block-size=1 "$scratch/$1/upper" | cut -f1
}

# The shell itself opens and writes, so that no program's start is counted.
write_block()
{
	local file="$scratch/$1/merged/$NAME" begin end

	begin=${EPOCHREALTIME/[.,]/}
	exec {fd}<>"$file"
	printf '%4096s' "written by the demo" >&"$fd"
	exec {fd}>&-
	end=${EPOCHREALTIME/[.,]/}
	took_us=$((end - begin))
}

try_union()
{
	local before after

	sync -f "$scratch"
	before=$(upper_bytes "$1")
	write_block "$1"
	after=$(upper_bytes "$1")
	awk -v name="$2" -v us=$took_us -v bytes=$((after - before)) 'BEGIN {
		printf "  %-20s %12.2f ms %14.0f KiB\n", name, us / 1000, bytes / 1024
	}'
}

verify()
{
	if [ -n "$has_overlayfs" ]; then
		cmp "$scratch/veneer/merged/$NAME" "$scratch/overlayfs/merged/$NAME" ||
			die "the two unions differ"
		echo "demo: the file reads the same through both, byte by byte"
	fi
	[ "$(cksum <"$scratch/image/$NAME")" = "$sum_before" ] || die "the lower file has changed"
	echo "demo: the lower file is as it was"
}

main()
{
	build
	prepare
	"$PROGRAM" -o "$(mount_options veneer)" "$scratch/veneer/merged" || die "could not mount"
	has_overlayfs=1
	mount -t overlay overlay -o "$(mount_options overlayfs)" "$scratch/overlayfs/merged" 2>/dev/null ||
		has_overlayfs=
	echo "demo: a union over /usr/share and the file; 4 KiB written into it through"
	echo
	printf '  %-20s %12s    %14s\n' "" "took" "upper grew by"
	try_union veneer veneer
	if [ -n "$has_overlayfs" ]; then
		try_union overlayfs "kernel overlayfs"
	else
		echo "  kernel overlayfs     cannot be mounted here"
	fi
	echo
	verify
}

main "$@"
