#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs what building (with --tests testing, with --bench measuring) veneer takes on Debian 12 or newer.
# Quick when nothing is missing; says what it does otherwise.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

FUSE_MIN=3.17
FUSE_SUITE=trixie
FUSE_PREFIX=${VENEER_FUSE_PREFIX:-/usr/local/lib/veneer/fuse3}
MUSL_PREFIX=${VENEER_MUSL_PREFIX:-/usr/local/lib/veneer/musl}
ARM64_PREFIX=${VENEER_ARM64_PREFIX:-/usr/local/lib/veneer/arm64}
LINT_PREFIX=${VENEER_LINT_PREFIX:-/usr/local/lib/veneer/lint}
# /etc/mtab is a link into /proc everywhere; as a file it would cost a run of mount(8) for each mount.
FUSE_OPTIONS=(-Dexamples=false -Dtests=false -Dutils=false -Duseroot=false -Dc_args=-DIGNORE_MTAB)

BUILD_PACKAGES=(gcc libc6-dev meson ninja-build pkgconf liburing-dev libxxhash-dev libjansson-dev libmicrohttpd-dev libarchive-dev nettle-dev lowdown fuse3)
CORE_PACKAGES=(
	libcmocka-dev python3 python3-pytest python3-yaml attr acl strace procps util-linux mount passwd make e2fsprogs git
	busybox-static libcap2-bin uidmap podman conmon crun clang python3-venv shellcheck universal-ctags
)
TEST_PACKAGES=(
	python3-matplotlib xfsprogs btrfs-progs fio stress-ng sqlite3 python3-prometheus-client curl tmux systemd
	buildah docker.io containerd runc slirp4netns fuse-overlayfs skopeo docker-registry
	man-db groff-base binutils fish zsh rpm debootstrap postgresql mkdocs mkdocs-material chromium faketime
)
# A hundred and thirty with those that they need.
SLOW_PACKAGES=(llvm debhelper dpkg-dev lintian rpmlint containernetworking-plugins iproute2)
BENCH_PACKAGES=(python3 python3-matplotlib e2fsprogs xfsprogs btrfs-progs dmsetup fio sqlite3 git podman crun docker.io
	fuse-overlayfs postgresql mariadb-server-core mariadb-client-core sysbench rocksdb-tools make dpkg-dev python3-pip busybox-static stress-ng)

# Of arm64, into a directory of their own; with all that these depend on.
ARM64_PACKAGES=(libc6-dev liburing-dev libxxhash-dev libjansson-dev libmicrohttpd-dev libarchive-dev nettle-dev libcmocka-dev)

# Of the cargo that builds fuse-overlayfs 2, which has no package.
CARGO_MIN=1.85

usage()
{
	cat <<-END
	usage: contrib/setup.sh [--core] [--tests] [--slow] [--bench] [--musl] [--arm64]
	  --core    also install what \`contrib/test.sh\` uses without arguments
	  --tests   also install what all tests use
	  --slow    also install what those of the part slow use beside that
	  --bench   also install what the benchmarks use beside that
	  --musl    also build what a program with musl in it is linked with, into $MUSL_PREFIX
	  --arm64   also get what a program for arm64 is linked with, into $ARM64_PREFIX, and what runs it here
	environment: VENEER_FUSE_PREFIX, where a libfuse built here is installed
	             (now $FUSE_PREFIX; meson's -Dfuse_prefix must name the same)
	             VENEER_LINT_PREFIX, where --core puts the tools of contrib/lint/requirements.txt
	             (now $LINT_PREFIX; contrib/lint/lint.py must be given the same)
	             VENEER_MUSL_PREFIX, likewise for --musl, where cross.ini is for meson setup --cross-file
	             VENEER_ARM64_PREFIX, likewise for --arm64; meson's -Dfuse_prefix is its usr
	END
}

say()
{
	echo "setup: $*"
}

die()
{
	echo "setup: $*" >&2
	exit 1
}

as_root()
{
	if [ "$(id -u)" = 0 ]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo -- "$@"
	else
		die "needs root to run: $*"
	fi
}

apt_get()
{
	local try

	for try in 1 2 3 4; do
		if as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y \
			-o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 "$@" </dev/null; then
			return 0
		fi
		[ "$try" = 4 ] || { say "apt-get $1 failed, trying again"; sleep $((try * 5)); }
	done
	return 1
}

is_installed()
{
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

lists_updated=
update_lists()
{
	if [ -z "$lists_updated" ]; then
		say "updating the package lists"
		apt_get update >/dev/null || die "apt-get update failed"
		lists_updated=1
	fi
}

install_missing()
{
	local p missing=()

	for p in "$@"; do
		is_installed "$p" || missing+=("$p")
	done
	[ ${#missing[@]} -gt 0 ] || return 0
	update_lists
	say "installing ${missing[*]}"
	apt_get install --no-install-recommends "${missing[@]}" >/dev/null ||
		die "could not install ${missing[*]}"
}

# Debian 13 has the client of docker.io in a package of its own.
install_docker_client()
{
	command -v docker >/dev/null || install_missing docker-cli
}

# The sanitizer and fuzzer runtimes live in a package named after clang's major version.
install_clang_runtime()
{
	install_missing "libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev"
}

# clang-format, clang-tidy, ruff and codespell of Debian differ from release to release, and find other things: pip has each version.
provide_lint()
{
	local wanted=contrib/lint/requirements.txt log

	if cmp -s "$wanted" "$LINT_PREFIX/requirements.txt"; then
		return 0
	fi
	say "installing clang-format, clang-tidy, codespell and ruff into $LINT_PREFIX"
	log=$(as_root /usr/bin/python3 -m venv --clear "$LINT_PREFIX" 2>&1 &&
		as_root "$LINT_PREFIX/bin/pip" install -q --disable-pip-version-check -r "$wanted" 2>&1 &&
		as_root cp "$wanted" "$LINT_PREFIX/requirements.txt" 2>&1) ||
		{ printf '%s\n' "$log" >&2; say "without them the part lint fails"; }
}

system_fuse_serves()
{
	pkg-config --atleast-version=$FUSE_MIN fuse3 2>/dev/null
}

own_fuse_serves()
{
	[ -e "$FUSE_PREFIX/lib/libfuse3.a" ] &&
		[ "$(cat "$FUSE_PREFIX/options" 2>/dev/null)" = "${FUSE_OPTIONS[*]}" ] && PKG_CONFIG_LIBDIR="$FUSE_PREFIX/lib/pkgconfig" \
		pkg-config --atleast-version=$FUSE_MIN fuse3 2>/dev/null
}

candidate_of()
{
	apt-cache policy "$1" | sed -n 's/^ *Candidate: *//p'
}

# Prints the machine's own Debian source, as a deb-src line or stanza of FUSE_SUITE.
# A mirror, a proxy or a key configured for this machine is thereby kept.
deb_src_stanza()
{
	local f

	for f in /etc/apt/sources.list.d/*.sources; do
		[ -e "$f" ] || continue
		awk -v suite="$FUSE_SUITE" '
			function flush_stanza() {
				if (uris != "" && is_deb && !is_disabled) {
					print "Types: deb-src\n" uris "\nSuites: " suite "\nComponents: main"
					if (key != "")
						print key
					found = 1
					exit
				}
				uris = key = field = ""
				is_deb = is_disabled = 0
			}
			/^[ \t]*$/ { flush_stanza(); next }
			/^#/ { next }
			/^[ \t]/ { if (field == "key") key = key "\n" $0; next }
			{ field = "" }
			/^Types:/ { is_deb = / deb( |$)/ }
			/^Enabled: *no/ { is_disabled = 1 }
			/^URIs:.*debian/ && !/debian-security/ { uris = $0 }
			/^Signed-By:/ { key = $0; field = "key" }
			END { if (!found) flush_stanza() }
		' "$f" | grep . && return 0
	done
	return 1
}

deb_src_line()
{
	{ cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null || :; } |
		grep -v debian-security |
		sed -nE "s#^deb +(\[[^]]*\] +)?([^ ]*debian[^ ]*) .*#deb-src \1\2 $FUSE_SUITE main#p" |
		sed -n 1p | grep .
}

write_private_sources()
{
	local dir=$1

	if deb_src_stanza >"$dir/veneer.sources"; then
		echo "$dir/veneer.sources"
	elif deb_src_line >"$dir/veneer.list"; then
		echo "$dir/veneer.list"
	else
		return 1
	fi
}

scratch=
cleanup()
{
	[ -z "$scratch" ] || rm -rf "$scratch"
}
trap cleanup EXIT

# fetch_sources PACKAGE...: of FUSE_SUITE, into $scratch/src.
fetch_sources()
{
	local sources source_options

	install_missing dpkg-dev
	[ -n "$scratch" ] || scratch=$(mktemp -d)
	chmod 755 "$scratch"
	mkdir -p "$scratch/lists/partial" "$scratch/cache/archives/partial" "$scratch/src"
	sources=$(write_private_sources "$scratch") ||
		die "found no Debian package source in /etc/apt to take sources from"
	# Sandboxed, apt could not write into a directory of root's.
	source_options=(
		-o "Dir::Etc::sourcelist=$sources" -o Dir::Etc::sourceparts=/dev/null
		-o "Dir::State::lists=$scratch/lists" -o "Dir::Cache=$scratch/cache"
		-o APT::Sandbox::User=root
	)
	say "fetching the source of $* from $FUSE_SUITE"
	apt_get "${source_options[@]}" update >/dev/null ||
		die "could not read $FUSE_SUITE's package lists"
	(cd "$scratch/src" && apt_get "${source_options[@]}" source "$@" >/dev/null) ||
		die "could not fetch the source packages of $*"
}

source_tree()
{
	find "$scratch/src" -mindepth 1 -maxdepth 1 -type d -name "$1-*"
}

# Debian 12 has libfuse 3.14; the source package of the release after it builds there unchanged.
build_fuse()
{
	fetch_sources fuse3
	say "building libfuse into $FUSE_PREFIX"
	# An absolute bindir is where the library looks for fusermount3; nothing is installed there.
	{
		meson setup "$scratch/build" "$(source_tree fuse3)" \
			--prefix="$FUSE_PREFIX" --libdir=lib --bindir=/usr/bin \
			--buildtype=release --default-library=static \
			"${FUSE_OPTIONS[@]}" &&
		ninja -C "$scratch/build" &&
		as_root meson install -C "$scratch/build" --no-rebuild &&
		echo "${FUSE_OPTIONS[*]}" | as_root tee "$FUSE_PREFIX/options"
	} >"$scratch/log" 2>&1 || { tail -30 "$scratch/log" >&2; die "building libfuse failed"; }
	own_fuse_serves || die "libfuse was built, but $FUSE_PREFIX lacks version $FUSE_MIN"
}

# ---- musl ----

# write_pc NAME LIBRARY TREE: for what has a script that makes one only where it is installed.
write_pc()
{
	printf 'Name: %s\nDescription: for musl\nVersion: %s\nLibs: -L%s/lib -l%s\nCflags: -I%s/include\n' \
		"$1" "$(basename "$3" | sed 's/.*-//')" "$MUSL_PREFIX" "$2" "$MUSL_PREFIX" >"$stage/lib/pkgconfig/$1.pc"
}

# For meson setup --cross-file; $1 is where the libraries and headers lie.
write_cross_file()
{
	cat <<-END
	[binaries]
	c = 'musl-gcc'
	ar = 'ar'
	strip = 'strip'
	pkgconfig = 'pkg-config'
	[built-in options]
	c_args = ['-isystem', '$1/include']
	c_link_args = ['-L$1/lib']
	[properties]
	needs_exe_wrapper = false
	pkg_config_libdir = '$1/lib/pkgconfig'
	[host_machine]
	system = 'linux'
	cpu_family = '$(uname -m)'
	cpu = '$(uname -m)'
	endian = 'little'
	END
}

# What the kernel declares is the same whatever the libc.
stage_kernel_headers()
{
	cp -r /usr/include/linux /usr/include/asm-generic /usr/include/mtd "$stage/include/" &&
		cp -rL "/usr/include/$(gcc -print-multiarch)/asm" "$stage/include/"
}

stage_xxhash()
{
	local tree

	tree=$(source_tree xxhash)
	(cd "$tree" && "${musl_cc[@]}" -c xxhash.c && ar rcs "$stage/lib/libxxhash.a" xxhash.o && cp xxhash.h xxh3.h "$stage/include/") &&
		write_pc libxxhash xxhash "$tree"
}

stage_liburing()
{
	(cd "$(source_tree liburing)" && ./configure --cc=musl-gcc --prefix="$MUSL_PREFIX" &&
		make -C src install ENABLE_SHARED=0 CFLAGS="-O2 -fPIC -D_GNU_SOURCE -isystem $stage/include" DESTDIR="$scratch/root" &&
		make liburing.pc && cp liburing.pc "$stage/lib/pkgconfig/")
}

stage_jansson()
{
	(cd "$(source_tree jansson)" && autoreconf -fi &&
		./configure CC="${musl_cc[*]}" --host="$(uname -m)-linux-musl" --disable-shared --prefix="$MUSL_PREFIX" &&
		make -C src install DESTDIR="$scratch/root" && make install-pkgconfigDATA DESTDIR="$scratch/root")
}

stage_fuse()
{
	write_cross_file "$stage" >"$scratch/cross.ini" &&
		meson setup "$scratch/build-musl" "$(source_tree fuse3)" --cross-file "$scratch/cross.ini" --prefix="$MUSL_PREFIX" \
			--libdir=lib --bindir=/usr/bin --buildtype=release --default-library=static "${FUSE_OPTIONS[@]}" &&
		ninja -C "$scratch/build-musl" && DESTDIR="$scratch/root" meson install -C "$scratch/build-musl" --no-rebuild
}

provide_musl()
{
	local stage part

	[ ! -e "$MUSL_PREFIX/cross.ini" ] || return 0
	install_missing musl-tools tcl autoconf automake libtool make
	fetch_sources fuse3 jansson liburing xxhash
	stage=$scratch/root$MUSL_PREFIX
	musl_cc=(musl-gcc -O2 -fPIC -isystem "$stage/include")
	mkdir -p "$stage/include" "$stage/lib/pkgconfig"
	say "building libraries with musl into $MUSL_PREFIX"
	for part in kernel_headers xxhash liburing jansson fuse; do
		"stage_$part" >"$scratch/log" 2>&1 || { tail -30 "$scratch/log" >&2; die "building for musl failed: $part"; }
	done
	write_cross_file "$MUSL_PREFIX" >"$stage/cross.ini"
	as_root mkdir -p "$MUSL_PREFIX"
	as_root cp -r --no-preserve=ownership "$stage/." "$MUSL_PREFIX"
}

# ---- arm64 ----

# $1 is where the root of Debian's arm64 packages lies.
write_arm64_cross_file()
{
	cat <<-END
	[binaries]
	c = 'aarch64-linux-gnu-gcc'
	ar = 'aarch64-linux-gnu-ar'
	strip = 'aarch64-linux-gnu-strip'
	pkgconfig = 'pkg-config'
	exe_wrapper = ['qemu-aarch64-static', '-L', '$1']
	[built-in options]
	c_args = ['--sysroot=$1']
	c_link_args = ['--sysroot=$1']
	[properties]
	sys_root = '$1'
	pkg_config_libdir = '$1/usr/lib/aarch64-linux-gnu/pkgconfig'
	[host_machine]
	system = 'linux'
	cpu_family = 'aarch64'
	cpu = 'aarch64'
	endian = 'little'
	END
}

# Unpacked and not installed: dpkg of this machine learns of no other architecture.
unpack_arm64()
{
	local apt=$scratch/apt-arm64 options deb link

	mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
	: >"$apt/status"
	options=(
		-o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root
		-o "Dir::State=$apt" -o "Dir::State::status=$apt/status" -o "Dir::Cache=$apt/cache"
	)
	apt_get "${options[@]}" update &&
		apt_get "${options[@]}" --no-install-recommends --download-only install "${ARM64_PACKAGES[@]}" || return 1
	for deb in "$apt"/cache/archives/*.deb; do
		dpkg-deb -x "$deb" "$stage" || return 1
	done
	find "$stage" -type l -lname '/*' -print0 | while IFS= read -rd '' link; do
		ln -sfnr "$stage$(readlink "$link")" "$link"
	done
}

# An option c_args takes the place of the cross file's.
build_arm64_fuse()
{
	write_arm64_cross_file "$stage" >"$scratch/cross.ini" &&
		meson setup "$scratch/build-arm64" "$(source_tree fuse3)" --cross-file "$scratch/cross.ini" --prefix=/usr --libdir=lib \
			--bindir=/usr/bin --buildtype=release --default-library=static "${FUSE_OPTIONS[@]/#-Dc_args=/-Dc_args=--sysroot=$stage }" &&
		ninja -C "$scratch/build-arm64" && DESTDIR="$stage" meson install -C "$scratch/build-arm64" --no-rebuild
}

provide_arm64()
{
	local stage part

	install_missing gcc-aarch64-linux-gnu qemu-user-static
	[ ! -e "$ARM64_PREFIX/cross.ini" ] || return 0
	fetch_sources fuse3
	stage=$scratch/arm64
	mkdir "$stage"
	say "getting libraries for arm64 into $ARM64_PREFIX"
	for part in unpack_arm64 build_arm64_fuse; do
		"$part" >"$scratch/log" 2>&1 || { tail -30 "$scratch/log" >&2; die "getting libraries for arm64 failed: $part"; }
	done
	write_arm64_cross_file "$ARM64_PREFIX" >"$stage/cross.ini"
	as_root mkdir -p "$ARM64_PREFIX"
	as_root cp -r --no-preserve=ownership "$stage/." "$ARM64_PREFIX"
}

has_second_fuse_overlayfs()
{
	[ -x "${XDG_CACHE_HOME:-$HOME/.cache}/veneer-bench/fuse-overlayfs-2/bin/fuse-overlayfs" ]
}

# Where it cannot be had, one peer is missing from the comparison, and that is all.
provide_cargo()
{
	local p version

	if has_second_fuse_overlayfs || command -v cargo >/dev/null || [ -x "$HOME/.cargo/bin/cargo" ]; then
		return 0
	fi
	update_lists
	# Debian keeps a second one, new enough for browsers.
	for p in cargo cargo-web; do
		version=$(candidate_of $p)
		# To dpkg "(none)" is more than any.
		if [[ $version == [0-9]* ]] && dpkg --compare-versions "$version" ge $CARGO_MIN; then
			(install_missing $p) || say "without cargo, fuse-overlayfs 2 is left out"
			return 0
		fi
	done
	say "Debian's cargo is $(candidate_of cargo) and fuse-overlayfs 2 takes $CARGO_MIN: it is left out"
}

provide_fuse()
{
	if system_fuse_serves || own_fuse_serves; then
		return 0
	fi
	update_lists
	if dpkg --compare-versions "$(candidate_of libfuse3-dev)" ge $FUSE_MIN; then
		install_missing libfuse3-dev
	else
		build_fuse
	fi
}

main()
{
	local arg with_core='' with_tests='' with_slow='' with_bench='' with_musl='' with_arm64=''

	for arg in "$@"; do
		case "$arg" in
		--core) with_core=1 ;;
		--tests) with_core=1 with_tests=1 ;;
		--slow) with_slow=1 ;;
		--bench) with_bench=1 ;;
		--musl) with_musl=1 ;;
		--arm64) with_arm64=1 ;;
		-h | --help) usage; exit 0 ;;
		*) usage >&2; exit 2 ;;
		esac
	done
	command -v apt-get >/dev/null ||
		die "installs with apt only; elsewhere see 'What the build needs' in doc/INSTALL.md"
	install_missing "${BUILD_PACKAGES[@]}"
	provide_fuse
	if [ -n "$with_core" ]; then
		install_missing "${CORE_PACKAGES[@]}" ${with_tests:+"${TEST_PACKAGES[@]}"}
		provide_lint
	fi
	if [ -n "$with_tests" ]; then
		install_docker_client
		install_clang_runtime
	fi
	if [ -n "$with_slow" ]; then
		install_missing "${SLOW_PACKAGES[@]}"
	fi
	if [ -n "$with_bench" ]; then
		install_missing "${BENCH_PACKAGES[@]}"
		install_docker_client
		provide_cargo
	fi
	[ -z "$with_musl" ] || provide_musl
	[ -z "$with_arm64" ] || provide_arm64
	say "all there"
}

main "$@"
