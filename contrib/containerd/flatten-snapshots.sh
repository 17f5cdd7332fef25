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
	usage: flatten-snapshots.sh [NAMESPACE...]
	  NAMESPACE   of containerd; all of them if none is named
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

# flatten_kind NAMESPACE KIND FUNCTION
flatten_kind()
{
	local name options

	for name in $(snapshots "$1" ls | awk -v kind="$2" '$NF == kind { print $1 }'); do
		options=$("$3" "$1" "$name")
		if [ -z "$options" ]; then
			continue
		elif "$VENEER" flatten --quiet -o "$options"; then
			done=$((done + 1))
		else
			echo "flatten-snapshots: $name of $1 is left as it is" >&2
			failed=$((failed + 1))
		fi
	done
}

main()
{
	local namespace done=0 failed=0

	case ${1:-} in
	-*) usage >&2; exit 2 ;;
	'') set -- $(ctr namespaces ls -q) ;;
	esac
	for namespace; do
		flatten_kind "$namespace" Committed committed_options
		flatten_kind "$namespace" Active active_options
	done
	echo "flatten-snapshots: $done snapshots are plain files$([ $failed = 0 ] || echo ", $failed are not")"
	[ $failed = 0 ]
}

main "$@"
