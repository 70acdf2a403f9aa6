#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages in a clean Debian (debootstrap, minbase), works with them as an ordinary user, removes them, and looks for what
# is left. Needs root, the network and about two minutes; changes nothing outside of its own folder.
#
# usage: tests/package/chroot.sh [--packages FOLDER] [--suite NAME] [--mirror URL] [--base FOLDER]
#   --packages FOLDER  with the .deb files [out/packages, where scripts/package.sh puts them; built when there are none]
#   --suite NAME       Debian's release [bookworm]
#   --mirror URL       [http://deb.debian.org/debian]
#   --base FOLDER      a root that debootstrap made, which is copied; made there when it does not exist
set -euo pipefail # so no pipe into grep -q, which would not read to the end
. "$(dirname "$0")/../../scripts/common.sh"

packages=$SLR_ROOT/out/packages suite=bookworm mirror=http://deb.debian.org/debian base=""
arguments=("$@")
while [ $# -gt 0 ]; do
    case $1 in
    --packages | --suite | --mirror | --base) need_value "$1" "$@" && declare "${1#--}=$2" && shift ;;
    -h | --help) usage && exit 0 ;;
    *) die "unknown option $1; see --help" ;;
    esac
    shift
done
[ "$(id -u)" = 0 ] || die "has to be run as root: it makes a root folder and changes into it"
for tool in debootstrap unshare chroot; do
    have $tool || die "$tool is missing (Debian: debootstrap, util-linux, coreutils)"
done

# What is mounted from here on ends with this script.
if [ "${CHROOT_SH_INSIDE:-}" != 1 ]; then
    CHROOT_SH_INSIDE=1 exec unshare --mount --pid --fork --propagation private -- bash "$0" "${arguments[@]}"
fi

work=$(mktemp -d)
root=$work/root
clean_up() {
    umount "$root/dev/shm" "$root/proc" 2>/dev/null || :
    rm -rf --one-file-system "$work"
}
trap clean_up EXIT
step() { say "$*"; }
fail() { die "FAILED: $*"; }
inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C DEBIAN_FRONTEND=noninteractive "$@"; }
as_user() { chroot --userspec=65534:65534 "$root" env -i PATH=/usr/bin:/bin HOME=/tmp LC_ALL=C "$@"; }

[ -n "$(ls "$packages"/slipring_*.deb 2>/dev/null)" ] || "$SLR_ROOT/scripts/package.sh" --out "$packages"
newest() { ls -t "$packages/$1"_*.deb 2>/dev/null | head -n 1; } # package.sh leaves those of other versions
main=$(newest slipring) softgpu=$(newest slipring-softgpu)

make_root() {
    local from=${base:-$work/base}
    if [ ! -d "$from" ]; then
        step "debootstrap $suite"
        debootstrap --variant=minbase "$suite" "$from" "$mirror" >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2 && fail "debootstrap"; }
    fi
    cp -a "$from" "$root"
    mount -t proc proc "$root/proc"
    mkdir -p "$root/dev/shm"
    mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
    cp /etc/resolv.conf "$root/etc/resolv.conf"
}

# Every file with its kind, mode, owner and contents, but for what dpkg, apt and ldconfig write for themselves.
snapshot() {
    (cd "$root" && find . \( -path ./proc -o -path ./sys -o -path ./var/cache/apt -o -path ./var/lib/apt/lists \) -prune -o -printf '%y %m %u:%g %P %l\n' |
        grep -vE ' (var/log/|var/lib/dpkg/(status|available|lock|triggers|info/format|diversions|statoverride|updates)|var/cache/ldconfig|etc/ld\.so\.cache|var/cache/debconf|var/lib/dpkg$)' | LC_ALL=C sort
        find . -xdev \( -path ./proc -o -path ./dev -o -path ./var/cache -o -path ./var/lib/apt -o -path ./var/lib/dpkg -o -path ./var/log -o -path ./etc/ld.so.cache \) -prune -o -type f -print0 |
            LC_ALL=C sort -z | xargs -0 sha256sum) >"$1"
}

# nothing_left SNAPSHOT: all is as it was then, and nobody has heard of slipring.
nothing_left() {
    snapshot "$work/after"
    diff "$1" "$work/after" || fail "< before, > after"
    [ -z "$(ls -A "$root/dev/shm")" ] || fail "left in /dev/shm: $(ls -A "$root/dev/shm")"
    ! inside dpkg-query -W 'slipring*' 2>/dev/null | grep . || fail "dpkg still knows the packages"
    # dpkg keeps its log and the file that it had before.
    ! grep -rl --exclude-dir=proc --exclude-dir=dev --exclude='dpkg.log' --exclude='status-old' --exclude-dir=log -i slipring "$root" || fail "these files still name it"
}

remove() {
    step "removing $*"
    inside dpkg --remove "$@" >/dev/null
    ! find "$root/usr" "$root/etc" "$root/opt" "$root/var/lib" -name '*slipring*' ! -path '*/dpkg/info/*' | grep . || fail "left by dpkg --remove"
    inside dpkg --purge "$@" >/dev/null 2>&1 # what has no configuration is gone already
}

# The package alone: nothing but libc is needed.
work_alone() {
    step "$(basename "$main") alone"
    cp "$main" "$root/tmp/slipring.deb"
    inside dpkg -i /tmp/slipring.deb >"$work/log" 2>&1 || { cat "$work/log" >&2 && fail "dpkg -i"; }
    rm "$root/tmp/slipring.deb"
    ! grep -iE 'warning|error' "$work/log" || fail "dpkg -i complains"
    inside ldconfig -p | grep 'libslipring.so ' >/dev/null || fail "ldconfig does not know the library"
    [ "$(as_user slipring --version | sed 's/ (commit.*//; 2d' | paste -sd,)" = "slipring $(dpkg-deb -f "$main" Version),library: /usr/lib/libslipring.so" ] || fail "--version"
    as_user slipring env | grep '^SLIPRING_ENABLE=on$' >/dev/null || fail "env"
    [ "$(as_user slipring run -- sh -c 'echo $LD_PRELOAD')" = /usr/lib/libslipring.so ] || fail "run"
    [ "$(as_user env LD_PRELOAD=libslipring.so sh -c 'echo fine' 2>&1)" = fine ] || fail "preloaded by name"
    for program in "$root"/usr/libexec/slipring/slipring-*; do # each at least starts
        as_user "${program#"$root"}" --help >/dev/null 2>&1 || fail "${program##*/} --help"
    done
    if [ -x "$root/usr/libexec/slipring/slipring-doctor" ]; then # there is no GPU: it has to say so, and what to do
        status=0
        as_user slipring doctor >"$work/doctor" 2>&1 || status=$?
        sed 's/^/    /' "$work/doctor"
        [ $status = 3 ] && grep -qi 'driver' "$work/doctor" || fail "doctor without a driver: status $status"
    fi
    if have gcc; then
        dpkg-deb -x "$main" "$work/unpacked"
        PKG_CONFIG_PATH=$work/unpacked/usr/lib/pkgconfig
        # shellcheck disable=SC2046 # words
        PKG_CONFIG_PATH=$PKG_CONFIG_PATH gcc $(PKG_CONFIG_PATH=$PKG_CONFIG_PATH pkg-config --cflags slipring) -o "$root/tmp/alone" "$SLR_ROOT/tests/hooks/api_alone.c" \
            $(PKG_CONFIG_PATH=$PKG_CONFIG_PATH pkg-config --libs slipring) -pthread
        as_user /tmp/alone || fail "a program of the C API"
        rm "$root/tmp/alone"
    fi
}

# The main job, on the software GPU.
work_on_softgpu() {
    step "$(basename "$softgpu"): gathers and GEMMs of 4 ranks"
    cp "$main" "$softgpu" "$root/tmp/"
    inside sh -c 'dpkg -i /tmp/slipring_*.deb /tmp/slipring-softgpu_*.deb && rm /tmp/*.deb' >"$work/log" 2>&1 || { cat "$work/log" >&2 && fail "dpkg -i"; }
    as_user slipring run --softgpu=4 --set log=info --set log-file=/tmp/slipring.log --set min-bytes=0 -- \
        /usr/libexec/slipring/ag_gemm --ranks 4 --m 256 --k 256 --n 256 --iters 3 >"$work/job" 2>&1 || { cat "$work/job" >&2 && fail "ag_gemm"; }
    sed 's/^/    /' "$work/job"
    grep -q 'exact' "$work/job" || fail "ag_gemm did not check its results"
    [ "$(grep -c 'info substitute ' "$root/tmp/slipring.log")" -ge 4 ] || fail "not every rank's gathers were substituted"
    grep -q 'info fused ' "$root/tmp/slipring.log" || fail "no GEMM was fused"
    rm "$root/tmp/slipring.log"
    if [ -x "$root/usr/libexec/slipring/slipring-doctor" ]; then
        status=0
        as_user slipring softgpu -n 4 -- slipring doctor >"$work/doctor" 2>&1 || status=$?
        sed 's/^/    /' "$work/doctor"
        [ $status -le 1 ] || fail "doctor on the software GPU: status $status"
    fi
    if [ -x "$root/usr/libexec/slipring/slipring-report" ]; then
        as_user sh -e -c 'mkdir /tmp/logs
            slipring run --softgpu=2 --set min-bytes=0 --set trace=1 --set log=info --set log-format=json --set log-file=/tmp/logs/%r.log -- /usr/libexec/slipring/ag_gemm --ranks 2 --m 64 --k 64 --n 64 --iters 2
            slipring report --html /tmp/logs/report.html --text - /tmp/logs
            slipring trace -o /tmp/logs/trace.json /tmp/logs' >"$work/job" 2>&1 || { cat "$work/job" >&2 && fail "report or trace"; }
        [ -s "$root/tmp/logs/report.html" ] && [ -s "$root/tmp/logs/trace.json" ] || fail "report or trace wrote nothing"
        rm -r "$root/tmp/logs"
    fi
    if [ -x "$root/usr/libexec/slipring/slipring-verify" ]; then
        as_user slipring verify --softgpu=2 --set min-bytes=0 -- /usr/libexec/slipring/ag_gemm --ranks 2 --m 64 --k 64 --n 64 --iters 2 >"$work/job" 2>&1 || { cat "$work/job" >&2 && fail "verify"; }
    fi
    if [ -x "$root/usr/libexec/slipring/slipring-bench" ]; then
        as_user sh -c 'cd /tmp && slipring bench --softgpu --rounds 1 -- --ranks 4 --m 256 --k 256 --n 256 --iters 3' >"$work/job" 2>&1 || { cat "$work/job" >&2 && fail "bench"; }
        sed 's/^/    /' "$work/job"
    fi
}

make_root
snapshot "$work/bare"
work_alone
remove slipring
nothing_left "$work/bare"
if [ -n "$softgpu" ]; then
    needs=$(dpkg-deb -f "$softgpu" Depends | tr ',' '\n' | sed -E 's/^ *([^ ]+).*/\1/' | grep -v '^slipring$')
    step "what slipring-softgpu depends on: $(echo $needs)"
    # shellcheck disable=SC2086 # words
    { inside apt-get -qq update && inside apt-get -qq -y --no-install-recommends install $needs; } >"$work/log" 2>&1 || { cat "$work/log" >&2 && fail "apt-get"; }
    snapshot "$work/bare"
    work_on_softgpu
    remove slipring-softgpu slipring
    nothing_left "$work/bare"
fi
say "passed: nothing is left of it"
