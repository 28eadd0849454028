# What the scripts in this folder share. Each breaks what is under a real database, in a folder of its own, and prints
# at its end one line that begins with FIGURE. Where a tool or a right is missing it says so and ends with status 0.

set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
name="$(basename "$0")"

skip() {
    echo "tests/real/$name left out: $*"
    exit 0
}

need() {
    local tool
    for tool in "$@"; do
        command -v "$tool" >/dev/null || skip "there is no $tool"
    done
}

fail() {
    echo "tests/real/$name FAILED: $*" >&2
    exit 1
}

# The numbers must be numbers, for they stand in arithmetic.
number() {
    [[ "$1" =~ ^[0-9]+$ ]] || fail "$1 is not a number"
}

# Builds what is asked for, by the profile PROFILE (release), and says where the programs are.
build() {
    local profile="${PROFILE:-release}" out
    cargo build --quiet --profile "$profile" --manifest-path "$root/Cargo.toml" "$@"
    out="${CARGO_TARGET_DIR:-$root/target}/${profile/dev/debug}"
    oracle="$out/examples/oracle"
    ebbtide="$out/ebbtide"
}

# A folder on the usual disk, gone at the end with whatever is mounted in it.
scratch() {
    work="$(mktemp -d)"
    mnt="$work/mnt"
    mkdir "$mnt"
    trap 'umount -q "$mnt" 2>/dev/null || umount -ql "$mnt" 2>/dev/null || true; rm -rf "$work"' EXIT
}

# Makes a file system of a kind in a file and mounts it: mount_new KIND MIB.
mount_new() {
    [ "$(id -u)" = 0 ] || skip "only root may mount"
    truncate -s "${2}M" "$work/disk"
    case "$1" in
    xfs) mkfs.xfs -q -f "$work/disk" ;;
    ext4) mkfs.ext4 -q -F "$work/disk" ;;
    esac
    mount -o loop "$work/disk" "$mnt" 2>"$work/why" || skip "cannot mount $1: $(head -n 1 "$work/why")"
}

# From 0 to its argument, exclusive; the same numbers at each run of a script, from SEED on.
RANDOM="${SEED:-1}"
below() {
    echo $(((RANDOM * 32768 + RANDOM) % $1))
}

# Power cuts, as far as a file system can be cut off from its device: power_cuts KIND ROUNDS. A process writes; its file
# system is shut down under it at some moment, without flushing its log; then it is mounted anew, and the database must
# open and hold what was synced. What was told lies on another file system; what was synced after the shutdown began does
# not count: a sync that runs meanwhile may be answered as done by XFS and ext4 (Linux 6.18; seen with a plain loop of
# pwrite and fdatasync, about once in a hundred), where a power cut would have ended the process.
power_cuts() {
    local kind="$1" rounds="$2" acknowledged=0 lost=0 died=0 round status told cut
    number "$rounds"
    need mkfs."$kind" xfs_io
    build --example oracle
    scratch
    mount_new "$kind" 400
    told="$work/told"
    mkdir "$mnt/probe" && xfs_io -x -c shutdown "$mnt" 2>"$work/why" || skip "cannot shut down $kind: $(cat "$work/why")"
    umount "$mnt" && mount -o loop "$work/disk" "$mnt"
    for ((round = 1; round <= rounds; round++)); do
        if ((round % 20 == 1)); then
            rm -rf "$mnt/db" "$told"
        fi
        local flags=()
        (($(below 2))) && flags=(--sync)
        timeout -s KILL 60 "$oracle" write "$mnt/db" "$told" --seed "$round" "${flags[@]}" 2>"$work/said" &
        # A part of them while the database is being opened.
        sleep "0.$(printf %03d "$(below $(($(below 4) ? 400 : 15)))")"
        cut="$(date +%s%N)"
        xfs_io -x -c shutdown "$mnt"
        status=0
        wait $! 2>/dev/null || status=$?
        case "$status" in
        3) ;;
        # A store into a mapped page of a file system that is gone is a signal.
        135) died=$((died + 1)) ;;
        *) fail "round $round: the writer ended with status $status: $(cat "$work/said")" ;;
        esac
        umount "$mnt"
        mount -o loop "$work/disk" "$mnt"
        timeout -s KILL 60 "$oracle" check "$mnt/db" "$told" --power-cut "$cut" >"$work/found" 2>"$work/said" || {
            keep="$(mktemp -d)"
            cp -a "$mnt" "$told" "$keep" || true
            fail "round $round: $(cat "$work/said"); kept in $keep"
        }
        local was="${before:-0}" all synced found
        read -r all synced found <"$work/found"
        ((round % 20 == 1)) && was=0
        acknowledged=$((acknowledged + all - was))
        lost=$((lost + (all > found ? all - found : 0)))
        before="$found"
    done
    echo "FIGURE real power cuts, $kind: $rounds shutdowns, $acknowledged acknowledged writes, $lost of them not yet synced and lost, 0 violations; $died writers ended by SIGBUS"
}
