#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes every layer of a store of Podman, Buildah, CRI-O or Docker one of plain files (veneer flatten), so that
# fuse-overlayfs or the kernel's overlayfs can take over. No container may run.
set -euo pipefail

VENEER=${VENEER:-veneer}

usage()
{
	cat <<-END
	usage: veneer-flatten-store [--dry-run] [--native] STORE
	  STORE      /var/lib/containers/storage/overlay, /var/lib/docker/fuse-overlayfs,
	             or without root: podman unshare veneer-flatten-store ~/.local/share/containers/storage/overlay
	  --dry-run  say which layers have partial files and what completing them takes; change nothing
	  --native   when all layers are plain, remove .has-mount-program, which keeps Podman
	             from the kernel's overlayfs
	environment: VENEER, the program (now $VENEER)
	Can be stopped at any moment and run again. Exit status: 0; 1 when a layer was left as it is.
	END
}

# In a list of mount options.
escaped()
{
	local name=${1//\\/\\\\}

	name=${name//,/\\,}
	printf '%s' "${name//:/\\:}"
}

# halves_of LAYER: adds its directory, and those it goes on in where an engine has shifted its owners: diff1, diff2 ...
halves_of()
{
	local n=1

	stack+=("$1/diff")
	while [ -d "$1/diff$n" ]; do
		stack+=("$1/diff$n")
		n=$((n + 1))
	done
}

# stack_of LAYER: sets stack, its own directories and all below, the topmost first; own is how many are its own.
stack_of()
{
	local link links=() top

	stack=()
	halves_of "$1"
	own=${#stack[@]}
	if [ -s "$1/lower" ]; then
		IFS=: read -r -a links <"$1/lower" || :
	fi
	for link in "${links[@]}"; do
		top=$(readlink -e "$store/$link") || { echo "flatten-store: $1: there is no $link" >&2; return 1; }
		halves_of "${top%/diff}"
	done
	if [ -d "$1/empty" ]; then
		stack+=("$1/empty")
	fi
}

# number KEY: of what veneer du --json printed.
number()
{
	sed -n "s/.*\"$1\": \([0-9]*\).*/\1/p"
}

# describe_directory DIRECTORY
describe_directory()
{
	local json partial data whole

	json=$("$VENEER" du --quiet --json "$1") || return
	partial=$(number partial_files <<<"$json")
	data=$(number data_bytes <<<"$json")
	whole=$(number whole_bytes <<<"$json")
	if [ "$partial" -gt 0 ]; then
		echo "$1: partial files: $partial, bytes to bring in: $((whole - data))"
	fi
}

# flatten_directory I: of the stack, with those below it.
flatten_directory()
{
	local lowers='' lower

	if [ -n "$dry_run" ]; then
		describe_directory "${stack[$1]}"
		return
	fi

	for lower in "${stack[@]:$1 + 1}"; do
		lowers+=${lowers:+:}$(escaped "$lower")
	done
	[ -z "$lowers" ] || "$VENEER" flatten --quiet -o "lowerdir=$lowers,upperdir=$(escaped "${stack[$1]}")"
}

flatten_layer()
{
	local i stack own

	stack_of "$1" || return 1
	for ((i = 0; i < own; i++)); do
		flatten_directory "$i" || { echo "flatten-store: $1 is left as it is" >&2; return 1; }
	done
}

# Podman writes it when a mount program is configured, and asks it before storage.conf.
settle_mark()
{
	local mark=$store/.has-mount-program

	[ -e "$mark" ] || return 0
	if [ -n "$native" ]; then
		rm "$mark"
	else
		echo "flatten-store: Podman takes the kernel's overlayfs only without $mark: --native removes it"
	fi
}

main()
{
	local layer done=0 failed=0 native='' dry_run=''

	while :; do
		case ${1:-} in
		--native) native=1 ;;
		--dry-run) dry_run=1 ;;
		--help | -h) usage; exit 0 ;;
		*) break ;;
		esac
		shift
	done
	if [ $# != 1 ] || [[ $1 = -* ]]; then
		usage >&2
		exit 2
	fi
	store=$(readlink -e "$1") && [ -d "$store/l" ] ||
		{ echo "flatten-store: $1 is no store: it has no directory l" >&2; exit 2; }
	for layer in "$store"/*/; do
		layer=${layer%/}
		[ -d "$layer/diff" ] || continue
		if flatten_layer "$layer"; then
			done=$((done + 1))
		else
			failed=$((failed + 1))
		fi
	done
	if [ -n "$dry_run" ]; then
		echo "flatten-store: $done layers were looked at, nothing is changed"
	else
		echo "flatten-store: $done layers are plain files$([ $failed = 0 ] || echo ", $failed are not")"
		[ $failed != 0 ] || settle_mark
	fi
	[ $failed = 0 ]
}

main "$@"
