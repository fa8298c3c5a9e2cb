#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# tools/setup.sh SET...: makes sure that the Debian packages of the named sets are installed.
#
# What it will not do: remove or replace a package (--no-remove), install what nobody asked for
# (--no-install-recommends), start a service, leave a file, or run apt at all when everything is there.  Without root
# and without sudo it prints the one line that an administrator must run, and fails.

set -euo pipefail

# libclang_rt (ASan, libFuzzer) is named after clang's version, which the release fixes.
clang_rt() {
    # shellcheck disable=SC1091
    case $(. /etc/os-release 2>/dev/null && echo "${VERSION_CODENAME:-}") in
    trixie) echo libclang-rt-19-dev ;;
    *) echo libclang-rt-14-dev ;;
    esac
}

packages() {
    case $1 in
    # what `make run` needs: the compilers, mkfs.ext4 for the store of a sandbox, mkfs.xfs for forks of one
    build) echo gcc libc6-dev meson ninja-build pkg-config libseccomp-dev python3 e2fsprogs xfsprogs libidn2-dev \
        libssl-dev libsqlite3-dev libpq-dev zlib1g-dev libzstd-dev liblzma-dev libbz2-dev libwslay-dev \
        libpcre2-dev libcurl4-openssl-dev python3-yaml ;;
    # unit tests, rootless tests (newuidmap), sanitizers and fuzzers, man page check, the look of C, commit in `brig
    # version`; what tests run inside sandboxes; the clients of the gate and of the broker, since nothing is skipped for
    # want of a package (a nodejs that is not Debian's brings its own npm and cannot be installed beside the package)
    test)
        echo libcmocka-dev uidmap clang clang-format "$(clang_rt)" mandoc git procps ca-certificates openssl perl
        echo iproute2 postgresql curl dns2tcp iodine wget python3-requests dnsmasq-base nginx-light nodejs esbuild
        echo python3-numpy python3-pydantic python3-pip python3-venv chromium python3-botocore nftables golang-go
        echo default-jdk-headless zstd docker-registry skopeo umoci runc
        [ -x /usr/bin/npm ] || echo npm
        ;;
    # the kernel and busybox are only downloaded, by tests/vm/run.py
    vm) echo qemu-system-x86 erofs-utils uidmap e2fsprogs xfsprogs ;;
    # what installs other people's packages (the clients of tests/compat, and requirement sets), and a Docker engine
    compat)
        echo docker.io mmdebstrap
        [ -x /usr/bin/npm ] || echo npm
        ;;
    # the runtimes and engines behind the providers of brig-runner
    providers) echo runc crun procps runsc docker.io podman conmon busybox-static ;;
    lint) echo clang-format clang-tidy ;;
    # the peers that we measure ourselves against
    bench) echo bubblewrap firejail runc docker.io nginx-light wrk mitmproxy ;;
    *)
        echo "tools/setup.sh: no package set \"$1\" (build, test, vm, compat, providers, lint, bench)" >&2
        exit 2
        ;;
    esac
}

wanted=()
for set in "$@"; do
    list=$(packages "$set")
    read -r -d '' -a more <<<"$list" || true # to the end of all its lines
    wanted+=("${more[@]}")
done

if ! command -v dpkg-query >/dev/null; then
    echo "tools/setup.sh: this is no Debian; going on in the hope that these are here: ${wanted[*]}" >&2
    exit 0
fi

missing=()
for p in "${wanted[@]}"; do
    state=$(dpkg-query -W -f '${db:Status-Status}\n' "$p" 2>/dev/null | head -n 1 || true)
    [ "$state" = installed ] || missing+=("$p")
done
[ ${#missing[@]} -gt 0 ] || exit 0

apt=(apt-get -y --no-remove --no-install-recommends)
if [ "$(id -u)" -eq 0 ]; then
    as=(env)
elif command -v sudo >/dev/null; then
    as=(sudo env)
else
    echo "tools/setup.sh: packages are missing, and this is neither root nor is there sudo. As root, run:" >&2
    echo "    apt-get update && ${apt[*]} install ${missing[*]}" >&2
    exit 1
fi

# No service is started: systemctl takes SYSTEMD_OFFLINE for a chroot and ignores `start`, and invoke-rc.d does nothing
# in runlevel 1.  Both are read from the environment, so there is no policy-rc.d to leave behind.
as+=(DEBIAN_FRONTEND=noninteractive SYSTEMD_OFFLINE=1 RUNLEVEL=1)
echo "tools/setup.sh: installing ${missing[*]}"
"${as[@]}" apt-get -q -o DPkg::Lock::Timeout=300 update
"${as[@]}" "${apt[@]}" -q -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 install "${missing[@]}"
