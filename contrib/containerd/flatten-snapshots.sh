#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes every snapshot of containerd's fuse-overlayfs snapshotter one of plain files (veneer flatten), so that
# fuse-overlayfs can take over. No container may run.
set -euo pipefail

VENEER=${VENEER:-veneer}
SNAPSHOTTER=${SNAPSHOTTER:-fuse-overlayfs}
VIEW=veneer-flatten-$$

usage()
{
	cat <<-END
	usage: veneer-flatten-snapshots [--dry-run] [NAMESPACE...]
	  NAMESPACE   of containerd; all of them if none is named
	  --dry-run   say which snapshots have partial files and what completing them takes; change nothing
	environment: VENEER, the program (now $VENEER); SNAPSHOTTER (now $SNAPSHOTTER)
	Can be stopped at any moment and run again. Exit status: 0; 1 when a snapshot was left as it is.
	END
}

# snapshots NAMESPACE COMMAND...
snapshots()
{
	ctr -n "$1" snapshots --snapshotter "$SNAPSHOTTER" "${@:2}"
}

# active_options NAMESPACE NAME: how it is mounted; nothing where it has none below it.
active_options()
{
	snapshots "$1" mounts / "$2" | grep -o 'workdir=[^ ]*' || :
}

# committed_options NAMESPACE NAME: the same of one that is complete, as if it were still written to.
committed_options()
{
	snapshots "$1" view --target / "$VIEW" "$2" | sed -n 's/.*lowerdir=\([^: ]*\):\([^ ,]*\).*/upperdir=\1,lowerdir=\2/p' ||
		return
	# To containerd it is garbage, which may have been collected; where it is there still, the next view says so.
	snapshots "$1" rm "$VIEW" 2>/dev/null || :
}

# number KEY: of what veneer du --json printed.
number()
{
	sed -n "s/.*\"$1\": \([0-9]*\).*/\1/p"
}

# describe NAME UPPER
describe()
{
	local json partial data whole

	json=$("$VENEER" du --quiet --json "$2") || return
	partial=$(number partial_files <<<"$json")
	data=$(number data_bytes <<<"$json")
	whole=$(number whole_bytes <<<"$json")
	if [ "$partial" -gt 0 ]; then
		echo "$1: partial files: $partial, bytes to bring in: $((whole - data))"
	fi
}

# flatten_one NAME OPTIONS
flatten_one()
{
	local upper=${2##*upperdir=}

	if [ -n "$dry_run" ]; then
		describe "$1" "${upper%%,*}"
	else
		"$VENEER" flatten --quiet -o "$2"
	fi
}

# flatten_kind NAMESPACE KIND FUNCTION
flatten_kind()
{
	local name options

	for name in $(snapshots "$1" ls | awk -v kind="$2" '$NF == kind { print $1 }'); do
		options=$("$3" "$1" "$name")
		if [ -z "$options" ]; then
			continue
		elif flatten_one "$name" "$options"; then
			done=$((done + 1))
		else
			echo "flatten-snapshots: $name of $1 is left as it is" >&2
			failed=$((failed + 1))
		fi
	done
}

main()
{
	local namespace namespaces done=0 failed=0 dry_run=''

	if [ "${1:-}" = --dry-run ]; then
		dry_run=1
		shift
	fi
	case ${1:-} in
	-h | --help) usage; exit 0 ;;
	-*) usage >&2; exit 2 ;;
	'') mapfile -t namespaces < <(ctr namespaces ls -q); set -- "${namespaces[@]}" ;;
	esac
	for namespace; do
		flatten_kind "$namespace" Committed committed_options
		flatten_kind "$namespace" Active active_options
	done
	if [ -n "$dry_run" ]; then
		echo "flatten-snapshots: $done snapshots were looked at, nothing is changed"
	else
		echo "flatten-snapshots: $done snapshots are plain files$([ $failed = 0 ] || echo ", $failed are not")"
	fi
	[ $failed = 0 ]
}

main "$@"
