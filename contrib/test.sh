#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds, tests, and closes with 'N passed, N failed, N skipped'.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

PYTHON=/usr/bin/python3
PART_LIMIT_S=${VENEER_PART_LIMIT_S:-3000}
# As many failures of a part are looked at once more, see once_more.
UNSTEADY_MAX=3

usage()
{
	cat <<-END
	usage: contrib/test.sh [PART...]
	  core         each behaviour once, in the default mode: lint, unit, mounts by a shared server (a quarter of them as an
	               ordinary user), a power cut, killed servers, Podman; without arguments this
	  full         every part below but slow
	  lint         the rules of the house that a program can check, and that it sees each violation
	  minimal      a build by clang without the optional parts: unit tests, what a mount does beside them, Podman
	  unit         the modules by themselves, and every fuzzer's corpus
	  sim          the core of the server against a made-up disk and kernel: seeds for 45 s, and planted faults
	  arm64        a build for arm64, and the tests of formats and block copies in an emulator
	  asan         unit and integration again with the address and undefined sanitizers
	  tsan         unit and what is concurrent again with the thread sanitizer
	  integration  mounts by a shared server
	  rootless     mounts of an ordinary user in a user namespace, and of one without (root only)
	  modes        a server for each mount, mounts that share one superblock, mounts that keep writes
	  howto        what README, doc/howto and the manual say; their commands pasted (root only)
	  callers      Podman, Buildah and Docker on top (root only)
	  crash        what power cuts leave of the upper (root only)
	  fault        system calls and allocations that fail (root only)
	  soak         64 mounts under load and deaths; mounts whose ground is taken away (root only)
	  fuzz         libFuzzer on every decoder, five for a minute, the others some seconds (VENEER_FUZZ_S: for each)
	  bench        the benchmark's own parts, and a short run of it (root only)
	  install      what is installed: archive, packages, completions, manual pages, mount(8) (root only)
	  slow         what the parts above leave out because it takes minutes
	  all          every part
	Up to $UNSTEADY_MAX failed tests of a part (not of unit, crash and fault) run once more by themselves. One that passes
	then is printed as unsteady, with its first failure, and counts as passed: it is a fault, of the test or of veneer.
	END
}

say()
{
	echo "test: $*"
}

# What is started here ends with what started it.
export VENEER_CGROUP=${VENEER_CGROUP-}

TARGETS=()
results=$(mktemp -d)
# The runs of another user (_USER in tests/support/rootless.py) write in a directory of his: in one for everybody
# names that we write, as root, could be links by then.
TEST_USER=12345
if [ "$(id -u)" = 0 ]; then
	chmod 0711 "$results"
	install -d -m 0700 -o "$TEST_USER" -g "$TEST_USER" "$results/user"
fi
lanes=()
trap 'stop_lanes; rm -rf "$results"' EXIT

stop_lanes()
{
	local lane

	for lane in "${lanes[@]}"; do
		kill -- "-${lane%%:*}" 2>/dev/null || :
	done
}

# part NAME COMMAND...: runs it under a time limit and leaves its exit status for the tally.
part()
{
	local name=$1 status=0 start=$SECONDS

	shift
	say "$name"
	timeout --foreground -s INT -k 60 "$PART_LIMIT_S" "$@" </dev/null || status=$?
	say "$name took $((SECONDS - start)) s"
	echo "$status" >"$results/$name.rc"
	return "$status"
}

# build DIRECTORY MESON-ARGUMENT...: all, or what TARGETS names.
build()
{
	local dir=$1

	shift
	if [ -n "${CI:-}" ]; then
		set -- "$@" -Dwerror=true
	fi
	if [ -e "$dir/build.ninja" ]; then
		set -- "$@" --reconfigure
	fi
	meson setup "$dir" "$@" >"$results/log-$dir" || { cat "$results/log-$dir"; return 1; }
	ninja --quiet -C "$dir" "${TARGETS[@]}"
}

# built NAME ...: as build, and a build that fails is a failed part.
built()
{
	local name=build-$1

	shift
	build "$@" || { echo 1 >"$results/$name.rc"; return 1; }
}

# Once: lanes of CI must not configure one directory at the same time.
build_plain()
{
	if [ ! -e "$results/plain.built" ]; then
		built plain build && touch "$results/plain.built"
	fi
}

build_asan()
{
	built asan build-asan -Db_sanitize=address,undefined
}

# meson_part NAME SUITE DIRECTORY [MESON-TEST-ARGUMENT...]: each test has VENEER_TEST_TIMES times its time, as in a build that is slow.
meson_part()
{
	local name=$1 suite=$2 dir=$3

	shift 3
	rm -f "$dir"/meson-logs/testlog*.json
	part "$name" meson test -C "$dir" --suite "$suite" --print-errorlogs \
		${VENEER_TEST_TIMES:+--timeout-multiplier "$VENEER_TEST_TIMES"} "$@" || :
	cat "$dir"/meson-logs/testlog*.json >"$results/$name.json" 2>/dev/null || :
}

# place_of PYTEST-ARGUMENT...: where such a run writes.
place_of()
{
	if [ "$(id -u)" = 0 ] && { is_in --rootless "$@" || is_in --plain "$@"; }; then
		echo "$results/user"
	else
		echo "$results"
	fi
}

# read_there FILE: a file of a run. In that user's directory any name may be a link or a pipe: read as he may, for ten seconds, and
# so much at most.
read_there()
{
	if [ "${1#"$results/user/"}" = "$1" ]; then
		cat "$1"
	else
		timeout 10 setpriv --reuid "$TEST_USER" --regid "$TEST_USER" --clear-groups cat "$1" | head -c 67108864
	fi
}

# bring FILE: from that user's directory to ours.
bring()
{
	read_there "$1" >"$results/${1##*/}" 2>/dev/null || rm -f "$results/${1##*/}"
}

# run_pytest NAME PYTEST-ARGUMENT...: a part that finds no test fails (of those named -slow some have none).
run_pytest()
{
	local name=$1 status=0 place file

	shift
	place=$(place_of "$@")
	part "$name" "$PYTHON" -m pytest -q -rs -o cache_dir="$place/$name.cache" --junitxml="$place/$name.xml" "$@" || status=$?
	if [ "$status" = 1 ]; then
		once_more "$name" "$place" "$@"
	fi
	if [ "$place" != "$results" ]; then
		for file in "$place/$name".{xml,again} "$place"/sanitizer.*; do
			[ ! -e "$file" ] || bring "$file"
		done
	fi
}

# Two processors that build, mount and kill for half an hour are now and then late for a test that waits for something.
# What cuts power or fails calls is the same each time, and is not asked twice.
once_more()
{
	local name=$1 place=$2 failed

	shift 2
	failed=$(read_there "$place/$name.cache/v/cache/lastfailed" 2>/dev/null |
		"$PYTHON" -c 'import json, sys; print(len(json.load(sys.stdin)))' 2>/dev/null) || return 0
	case "$name" in
	crash* | fault*) return 0 ;;
	esac
	if [ "$failed" -le "$UNSTEADY_MAX" ]; then
		timeout --foreground -s INT -k 60 "$PART_LIMIT_S" "$PYTHON" -m pytest -q -rs \
			-o cache_dir="$place/$name.cache" --last-failed --last-failed-no-failures=none \
			--junitxml="$place/$name.again" "$@" </dev/null || :
	fi
}

# Where it matters that the server has no privileges at all: a mode binds it (owner_mode, create, link, rename, unlink,
# open_files, truncate, setattr, times, lower_changed, promote, check), whiteouts are files (whiteout, layers, lookup), few
# attributes can be set (xattr), fusermount3 mounts (command_line, mount_refused, subcommands); and every call by type and mode
# (posix_table). The rest is slow.
PLAIN_FILES=(owner_mode create link rename unlink open_files truncate setattr times lower_changed promote check whiteout layers
	lookup xattr command_line mount_refused subcommands posix_table)

# What tells most of mounts that share one superblock, beside what is about just that.
SHARE_FILES=(concurrency differential hard_links identity layers open_files posix_table rename setattr truncate unlink whiteout
	write xattr)

# What writeback=on makes otherwise; test_writeback.py runs with the others, too.
WRITEBACK_FILES=(bad_input copy_on_write copy_range differential direct fallocate fsync mmap open_files seek setid times
	truncate write writeback)

# Its tests seed one violation of each rule.
test_lint()
{
	build_plain || return 0
	part lint "$PYTHON" contrib/lint/lint.py --build build --xml "$results/lint.xml" || :
	run_pytest lint-rules tests/lint
}

test_unit()
{
	build_plain && meson_part unit unit build
}

# Without the optional parts. What a mount does beside them, in its default mode and under Podman. By clang, so that it sees the
# unit tests and main as well; the part fuzz has it compile the optional parts.
MINIMAL_FILES=(copy_on_write hard_links layers rename truncate unlink whiteout write xattr)

test_sim()
{
	build_plain && meson_part sim sim build
}

# Behaviour that privileges change; the others run as root. What takes long by itself is in tests/integration/not_core.txt.
CORE_ROOTLESS=(owner_mode create setattr setid times lookup xattr whiteout layers posix_table copy_reference truncate rename link unlink
	hard_links open_files snapshot clone branch send)

# Other modes and parameters belong to the other parts. What a part of the same run does whole is left to it.
test_core()
{
	local rootless=("${CORE_ROOTLESS[@]/#/tests/integration/test_}") file others=()

	rootless=("${rootless[@]/%/.py}")
	build_plain || return 0
	for file in tests/integration/test_*.py; do
		is_in "$file" "${rootless[@]}" || others+=("$file")
	done
	run_pytest core --core "${others[@]}" -m "not slow and not large"
	[ "$(id -u)" = 0 ] || return 0
	run_pytest core-rootless --core "${rootless[@]}" -m "not slow and not large" --rootless
	is_in crash "${PARTS[@]}" ||
		run_pytest crash-core tests/crash/test_power_cut.py -m "not slow" -k "test_random_writes_with_fsync and sent"
	is_in callers "${PARTS[@]}" || VENEER_BIN_DIR=$PWD/build \
		run_pytest callers-core tests/callers/test_podman.py -m "not slow" -k test_containers_of_one_image_are_apart
}

test_minimal()
{
	local files=("${MINIMAL_FILES[@]/#/tests/integration/test_}")

	CC=$(command -v clang || echo cc) built minimal build-minimal -Dprefetch=disabled -Dsharedsb=disabled -Dmetrics=disabled -Darchive=disabled || return 0
	part minimal-libraries bash -c '! ldd build-minimal/veneer | grep -E "archive|microhttpd"' || :
	meson_part unit-minimal unit build-minimal
	VENEER_BIN=$PWD/build-minimal/veneer run_pytest integration-minimal "${files[@]/%/.py}" -m "not slow and not large"
	if [ "$(id -u)" = 0 ]; then
		VENEER_BIN_DIR=$PWD/build-minimal run_pytest callers-minimal tests/callers/test_podman.py -m "not slow"
	fi
}

# What concerns bytes, their order and atomics. An emulator lacks io_uring, ptrace and much of what else the unit tests call.
ARM64_TESTS=(blkmap clock cow format handoff_message htab intent_log journal lock_table mapcopy mapcrash mapfile
	mapfile_load mode_xattr mount_record origin_xattr partial_xattr read record run salvage snapshot supervisor_state table wire xino)

test_arm64()
{
	local prefix=${VENEER_ARM64_PREFIX:-/usr/local/lib/veneer/arm64} TARGETS=("${ARM64_TESTS[@]/#/tests/unit/test_}")

	if ! contrib/setup.sh --arm64; then
		say "arm64: left out, there is nothing here to build it with"
		return 0
	fi
	built arm64 build-arm64 --cross-file "$prefix/cross.ini" -Dfuse_prefix="$prefix/usr" -Dcompletions=disabled || return 0
	meson_part unit-arm64 unit build-arm64 "${ARM64_TESTS[@]}"
}

# asan_part NAME PYTEST-ARGUMENT...
asan_part()
{
	local name=$1 place

	shift
	place=$(place_of "$@")
	VENEER_BIN=$PWD/build-asan/veneer \
	ASAN_OPTIONS=detect_leaks=1:abort_on_error=1:log_path=$place/sanitizer \
	LSAN_OPTIONS=suppressions=$PWD/tests/lsan.supp:print_suppressions=0 \
	UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1:log_path=$place/sanitizer \
		run_pytest "$name" tests/integration -m "not slow and not large" "$@"
}

test_asan()
{
	build_asan || return 0
	meson_part unit-asan unit build-asan --setup asan
	asan_part integration-asan --once
}

build_tsan()
{
	built tsan build-tsan -Db_sanitize=thread
}

# tsan_part NAME PYTEST-ARGUMENT...: reports go to the servers' logs, which tests look at; a server has no other place. What it
# makes by clone(2) is no fork in the sanitizer's sense.
tsan_part()
{
	local name=$1

	shift
	VENEER_BIN=$PWD/build-tsan/veneer \
	TSAN_OPTIONS=second_deadlock_stack=1:die_after_fork=0 \
		run_pytest "$name" "$@"
}

# Its corpora and what has one thread are left out.
test_tsan()
{
	build_tsan || return 0
	meson_part unit-tsan unit build-tsan --setup tsan --no-suite fuzz --no-suite traced
	tsan_part concurrency-tsan tests/integration/test_concurrency.py --mode=standalone -m "not slow and not large"
	tsan_part concurrency-tsan-server tests/integration/test_concurrency.py -m "not slow and not large"
}

# Each test with all its parameters. The other modes run each test once; with all parameters they belong to the part slow. What the
# core of the same run has done is not done again.
test_integration()
{
	build_plain && run_pytest integration tests/integration -m "not slow" --beside --without "$results/core.xml"
}

test_rootless()
{
	local plain_files=("${PLAIN_FILES[@]/#/tests/integration/test_}")

	if [ "$(id -u)" != 0 ]; then
		say "rootless: left out, namespaces are prepared as root"
		return 0
	fi
	build_plain || return 0
	run_pytest integration-rootless tests/integration --rootless --once -m "not slow" --without "$results/user/core-rootless.xml"
	run_pytest integration-plain --plain --mode=standalone "${plain_files[@]/%/.py}" --once -m "not slow and not large"
}

test_modes()
{
	local share_files=("${SHARE_FILES[@]/#/tests/integration/test_}")
	local writeback_files=("${WRITEBACK_FILES[@]/#/tests/integration/test_}")

	build_plain || return 0
	run_pytest standalone tests/integration --mode=standalone --once -m "not slow"
	if [ "$(id -u)" = 0 ]; then
		run_pytest share-rootless "${share_files[@]/%/.py}" --once -m "not slow and not large" --share --rootless
		run_pytest writeback-rootless "${writeback_files[@]/%/.py}" --once -m "not slow and not large" --writeback --rootless
	fi
}

test_callers()
{
	if [ "$(id -u)" != 0 ]; then
		say "callers: left out, the container engines are started as root"
	else
		build_plain && run_pytest callers tests/callers -m "not slow" --beside
	fi
}

test_howto()
{
	if [ "$(id -u)" != 0 ]; then
		say "howto: left out, pages are tried as root"
	else
		build_plain && run_pytest howto tests/howto -m "not slow"
	fi
}

test_crash()
{
	if [ "$(id -u)" != 0 ]; then
		say "crash: left out, file systems are made and mounted as root"
	else
		build_plain && run_pytest crash tests/crash -m "not slow"
	fi
}

test_fault()
{
	if [ "$(id -u)" != 0 ]; then
		say "fault: left out, its mounts are made as root"
	else
		build_plain && run_pytest fault tests/fault -m "not slow"
	fi
}

test_soak()
{
	if [ "$(id -u)" != 0 ]; then
		say "soak: left out, disks are made and memory is limited as root"
	else
		build_plain && run_pytest soak tests/soak -m "not slow" -s
	fi
}

# Decoders of what others may have written: a file of a layer, a mark on one, a command line, a profile, a message.
FUZZ_LONGER=(mapfile partial_xattr options profile wire)

# fuzz_part NAME SECONDS [TARGET...]
fuzz_part()
{
	local name=$1

	shift
	if ! command -v clang >/dev/null; then
		say "$name: left out, there is no clang; the unit part has run every corpus"
	else
		# A fuzzer takes all that it gets: the tests beside it come first.
		part "$name" nice -n 10 env VENEER_FUZZ_XML="$results/$name.xml" contrib/fuzz.sh "$@" || :
	fi
}

test_fuzz()
{
	local file target others=()

	for file in tests/fuzz/fuzz_*.c; do
		target=${file##*/fuzz_}
		target=${target%.c}
		is_in "$target" "${FUZZ_LONGER[@]}" || others+=("$target")
	done
	fuzz_part fuzz-longer "${VENEER_FUZZ_S:-60}" "${FUZZ_LONGER[@]}"
	fuzz_part fuzz "${VENEER_FUZZ_S:-4}" "${others[@]}"
}

test_bench()
{
	build_plain && run_pytest bench tests/bench
}

test_install()
{
	if [ "$(id -u)" != 0 ]; then
		say "install: left out, mount(8) is asked as root"
	else
		build_plain && run_pytest install tests/install -m "not slow"
	fi
}

test_slow()
{
	# A part's limit is too short for tests of hours: each call that fails, ten thousand power cuts, an hour for each
	# fuzzer. What hangs still ends: there is a day.
	local PART_LIMIT_S=${VENEER_PART_LIMIT_S:-86400} mode

	build_plain || return 0
	meson_part slow slow build
	run_pytest integration-slow tests/integration --mode=standalone -m slow
	run_pytest integration-all tests/integration --mode=standalone -m "not slow"
	if [ "$(id -u)" != 0 ]; then
		run_pytest server-all tests/integration -m "not slow"
	else
		run_pytest integration-slow-rootless tests/integration --mode=standalone --rootless -m slow
		for mode in "" --rootless --plain; do
			run_pytest "server-all$mode" tests/integration -m "not slow" $mode
			run_pytest "writeback-all$mode" tests/integration -m "not slow" --writeback $mode
			[ -z "$mode" ] || run_pytest "integration-all$mode" tests/integration --mode=standalone -m "not slow" $mode
			# It takes privileges, if only those of a user namespace.
			[ "$mode" = --plain ] || run_pytest "share-all$mode" tests/integration -m "not slow" --share $mode
		done
		if build_asan; then
			asan_part integration-asan-rootless --mode=standalone --rootless
			asan_part integration-asan-server
			asan_part integration-asan-share --share --rootless
		fi
		run_pytest callers-slow tests/callers -m slow
		run_pytest howto-slow tests/howto -m slow
		run_pytest crash-slow tests/crash -m slow
		run_pytest fault-slow tests/fault -m slow
		run_pytest install-slow tests/install -m slow
		run_pytest soak-slow tests/soak -m slow -s
	fi
	fuzz_part fuzz-slow "${VENEER_FUZZ_S:-3600}"
	if build_tsan; then
		tsan_part server-tsan tests/integration/test_server.py -m "not slow and not large"
		tsan_part integration-tsan tests/integration --mode=standalone --ignore tests/integration/test_server.py -m "not slow and not large"
	fi
}

# The parts of each string run one after the other, beside those of the other string and beside the rest: one part leaves a
# processor idle where it waits. What they print comes at the end.
BESIDE=("asan soak" "lint minimal callers howto crash fault fuzz" "tsan modes rootless bench install")

CORE_PARTS=(lint unit core)
FULL_PARTS=(lint unit sim minimal arm64 asan tsan integration rootless modes howto callers crash fault soak fuzz bench install)
# All that this run does.
PARTS=()

# is_in WORD WORD...
is_in()
{
	local word=$1

	shift
	[[ " $* " = *" $word "* ]]
}

# start_lanes PART...: leaves what they were not given in rest.
start_lanes()
{
	local lane p mine beside

	rest=("$@")
	read -ra beside <<<"${BESIDE[*]}"
	lanes=()
	if [ "$(id -u)" != 0 ] || [ $# -lt 3 ]; then
		return 0
	fi
	build_plain || return 0
	for lane in "${BESIDE[@]}"; do
		mine=()
		for p in "$@"; do
			if is_in "$p" "$lane"; then
				mine+=("$p")
			fi
		done
		if [ ${#mine[@]} -gt 0 ]; then
			# as a job: else what it starts would ignore SIGINT
			set -m
			run_parts "${mine[@]}" >"$results/lane-${mine[0]}" 2>&1 &
			set +m
			lanes+=("$!:$results/lane-${mine[0]}")
		fi
	done
	rest=()
	for p in "$@"; do
		if ! is_in "$p" "${beside[@]}"; then
			rest+=("$p")
		fi
	done
}

collect_lanes()
{
	local lane

	for lane in "${lanes[@]}"; do
		wait "${lane%%:*}" || :
		cat "${lane#*:}"
	done
	lanes=()
}

run_parts()
{
	local p

	for p in "$@"; do
		"test_$p" || :
	done
}

# Each part once, in the order of the words.
choose_parts()
{
	local word p words

	for word in "$@"; do
		case "$word" in
		core) words=("${CORE_PARTS[@]}") ;;
		full) words=("${FULL_PARTS[@]}") ;;
		all) words=(core "${FULL_PARTS[@]}" slow) ;;
		slow) words=(slow) ;;
		-h | --help) usage; exit 0 ;;
		*)
			is_in "$word" "${FULL_PARTS[@]}" || { usage >&2; exit 2; }
			words=("$word")
			;;
		esac
		for p in "${words[@]}"; do
			is_in "$p" "${PARTS[@]}" || PARTS+=("$p")
		done
	done
}

# What they need is installed.
prepare()
{
	local p needs=(--core)

	for p in "${PARTS[@]}"; do
		is_in "$p" "${CORE_PARTS[@]}" || needs=(--tests)
	done
	if [ "${needs[*]}" = --core ]; then
		BESIDE=("lint unit")
	fi
	if is_in slow "${PARTS[@]}"; then
		needs+=(--slow)
	fi
	contrib/setup.sh "${needs[@]}"
}

# Ticks of all processors since the machine started: all, and idle ones.
ticks()
{
	awk '/^cpu / { print $2 + $3 + $4 + $5 + $6 + $7 + $8 + $9, $5 + $6 }' /proc/stat
}

main()
{
	local before now

	choose_parts "${@:-core}"
	prepare
	read -ra before <<<"$(ticks)"
	start_lanes "${PARTS[@]}"
	run_parts "${rest[@]}"
	collect_lanes
	read -ra now <<<"$(ticks)"
	say "after ${SECONDS} s; processors were idle for $((100 * (now[1] - before[1]) / (now[0] - before[0] + 1))) % of it"
	"$PYTHON" tests/tally.py "$results"
}

main "$@"
