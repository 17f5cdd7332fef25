#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the fuzzers with libFuzzer and the address and undefined sanitizers, and runs each from its corpus.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

BUILD=${VENEER_FUZZ_BUILD:-build-fuzz}
FOUND=${VENEER_FUZZ_FOUND:-$BUILD/found}

usage()
{
	cat <<-END
	usage: contrib/fuzz.sh [SECONDS] [TARGET...]
	  SECONDS  for each target; without it 60
	  TARGET   as in tests/fuzz/meson.build; without any, all
	An input that breaks a target is kept in $FOUND, and the status is 1. VENEER_FUZZ_XML names a file
	for the results in JUnit's form.
	END
}

# All sanitizers' reports end the run; a single input may take twenty seconds, on a machine that is busy
# with other things, and a GiB.
OPTIONS=(-close_fd_mask=2 -timeout=20 -rss_limit_mb=1024 -max_len=8192 -print_final_stats=1 -verbosity=1)

build()
{
	if [ ! -e "$BUILD/build.ninja" ]; then
		CC=clang meson setup "$BUILD" ${CI:+-Dwerror=true} -Dfuzz=true -Db_sanitize=address,undefined -Db_lundef=false >/dev/null
	fi
	ninja --quiet -C "$BUILD"
}

targets()
{
	find tests/fuzz -name 'fuzz_*.c' -printf '%f\n' | sed 's/^fuzz_//; s/\.c$//' | sort
}

# fuzz NAME SECONDS: what it finds new to execute stays in the build directory, for the next run.
fuzz()
{
	local name=$1 seconds=$2 log=$BUILD/fuzz-$1.log grown=$BUILD/corpus/$1

	mkdir -p "$grown" "$FOUND" "$BUILD/tmp"
	TMPDIR=$(test -w /dev/shm && echo /dev/shm || echo "$BUILD/tmp") \
	UBSAN_OPTIONS=halt_on_error=1:abort_on_error=1:print_stacktrace=1 \
		"$BUILD/tests/fuzz/fuzz_$name" "${OPTIONS[@]}" -max_total_time="$seconds" \
		-artifact_prefix="$FOUND/$name-" "$grown" "tests/fuzz/corpus/$name" </dev/null >"$log" 2>&1
}

# report NAME STATUS: one line, and what the sanitizer said.
report()
{
	local runs
	runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$BUILD/fuzz-$1.log")
	if [ "$2" = 0 ]; then
		printf 'fuzz: %-12s %10s inputs\n' "$1" "$runs"
	else
		printf 'fuzz: %-12s FAILED, its input is in %s\n' "$1" "$FOUND"
		tail -n 40 "$BUILD/fuzz-$1.log"
	fi
}

main()
{
	local seconds=60 name status failed=0 cases="" names

	case "${1:-}" in
	-h | --help) usage; exit 0 ;;
	"" | *[!0-9]*) ;;
	*) seconds=$1; shift ;;
	esac
	if ! command -v clang >/dev/null; then
		echo "fuzz: there is no clang: the unit suite runs every corpus without it" >&2
		exit 77
	fi
	build
	names=("$@")
	[ $# -gt 0 ] || mapfile -t names < <(targets)
	for name in "${names[@]}"; do
		status=0
		fuzz "$name" "$seconds" || status=$?
		report "$name" "$status"
		cases+="<testcase classname=\"fuzz\" name=\"$name\">"
		if [ "$status" != 0 ]; then
			failed=$((failed + 1))
			cases+="<failure/>"
		fi
		cases+="</testcase>"
	done
	if [ -n "${VENEER_FUZZ_XML:-}" ]; then
		echo "<testsuite name=\"fuzz\">$cases</testsuite>" >"$VENEER_FUZZ_XML"
	fi
	[ "$failed" = 0 ]
}

main "$@"
