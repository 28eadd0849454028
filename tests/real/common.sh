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

# Builds what is asked for, by the profile PROFILE (release), and says where the programs are. BUILD has arguments of cargo
# that build it, too, where that has been done by these already.
build() {
    local profile="${PROFILE:-release}" arguments=("$@") out
    [ -z "${BUILD:-}" ] || read -ra arguments <<<"$BUILD"
    cargo build --quiet --profile "$profile" --manifest-path "$root/Cargo.toml" "${arguments[@]}"
    out="${CARGO_TARGET_DIR:-$root/target}/${profile/dev/debug}"
    oracle="$out/examples/oracle"
    keys="$out/examples/keys"
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

# Shuts a file system down and shows the moment before that, in nanoseconds since the Unix epoch: cut_off FOLDER HOW. HOW
# is 0 after all has been written back, 1 after its log has been flushed, 2 without either.
cut_off() {
    perl -MTime::HiRes=clock_gettime,CLOCK_REALTIME -e '
        open(my $folder, "<", $ARGV[0]) or die "$!\n";
        printf "%.0f\n", clock_gettime(CLOCK_REALTIME) * 1e9;
        ioctl($folder, 0x8004587d, pack("L", $ARGV[1])) or die "$!\n"' "$@"
}

# Mounts what is on the disk anew. Others, who look at all that is mounted, may keep it busy for a moment.
mount_again() {
    local tries
    for ((tries = 1; ; tries++)); do
        umount "$mnt" 2>"$work/why" && break
        ((tries < 50)) || fail "$(cat "$work/why")"
        sleep 0.1
    done
    mount -o loop "$work/disk" "$mnt"
}

# Power cuts, as far as a file system can be cut off from its device: power_cuts KIND ROUNDS. A process writes; its file
# system is shut down under it at some moment, in one of three ways; then it is mounted anew, and the database must open
# and hold what was synced. Some writers are killed at about that moment. What was told lies on another file system; what
# was synced after the shutdown began does not count: a sync that runs meanwhile may be answered as done by XFS and ext4
# (Linux 6.18), where a power cut would have ended the process. Rounds with plain files show how often.
power_cuts() {
    local kind="$1" rounds="$2" acknowledged=0 lost=0 died=0 killed=0 before=0 round status told cut found
    local of_keys=0 late=0 late_lost=0 latest=0 plain=0 plain_late=0 plain_lost=0
    number "$rounds"
    need mkfs."$kind" perl
    build --example oracle --example keys
    scratch
    mount_new "$kind" 400
    told="$work/told"
    cut_off "$mnt" 2 >"$work/cut" 2>"$work/why" || skip "cannot shut down $kind: $(cat "$work/why")"
    mount_again
    for ((round = 1; round <= rounds; round++)); do
        if ((round % 60 == 1)); then
            # Durably: what the shutdown takes back would be a database of which nobody was told.
            rm -rf "$mnt/"{oracle,keys,plain} "$told."*
            sync -f "$mnt"
            before=0
        fi
        local program flags=() limit=60 how=$(below 3)
        program=$(printf 'oracle\nkeys\nkeys\nplain\n' | sed -n "$(($(below 4) + 1))p")
        local writes=("$oracle" write "$mnt/oracle" "$told.oracle" --seed "$round")
        local checks=("$oracle" check "$mnt/oracle" "$told.oracle" --power-cut)
        ((round % 2)) && writes+=(--sync)
        case "$program" in
        keys) writes=("$keys" write) checks=("$keys" check) ;;
        plain) writes=("$keys" plain-write) checks=("$keys" plain-check) ;;
        esac
        [ "$program" = oracle ] || flags=("$mnt/$program" "$told.$program")
        # A part of them while the database is being opened.
        local wait=$(below $(($(below 4) ? 400 : 15)))
        if (($(below 4) == 0)); then
            limit="0.$(printf %03d $((wait + $(below 12) + 1)))" killed=$((killed + 1))
        fi
        timeout -s KILL "$limit" "${writes[@]}" "${flags[@]}" 2>"$work/said" &
        sleep "0.$(printf %03d "$wait")"
        cut="$(cut_off "$mnt" "$how")"
        status=0
        wait $! 2>/dev/null || status=$?
        case "$status" in
        3) ;;
        # A store into a mapped page of a file system that is gone is a signal.
        135) died=$((died + 1)) ;;
        137) [ "$limit" != 60 ] || fail "round $round: the writer of $program hangs" ;;
        *) fail "round $round: the writer of $program ended with status $status: $(cat "$work/said")" ;;
        esac
        mount_again
        cp "$told.$program" "$work/was" 2>/dev/null || true
        # Where all was written back first, every sync that succeeded has, also while the call ran.
        local bound="$cut"
        [ "$program$how" != keys0 ] && [ "$program$how" != plain0 ] || bound="${cut/#1/9}"
        timeout -s KILL 60 "${checks[@]}" "${flags[@]}" "$bound" >"$work/found" 2>"$work/said" || {
            keep="$(mktemp -d)"
            cp -a "$mnt" "$work/was" "$keep" || true
            fail "round $round, $program, shut down by $how at $cut: $(cat "$work/said"); kept in $keep"
        }
        local all synced gone last
        case "$program" in
        oracle)
            read -r all synced found <"$work/found"
            acknowledged=$((acknowledged + (all > before ? all - before : 0)))
            lost=$((lost + (all > found ? all - found : 0)))
            before="$found"
            ;;
        keys)
            read -r all synced gone last <"$work/found"
            of_keys=$((of_keys + all)) late=$((late + synced)) late_lost=$((late_lost + gone))
            latest=$((last > latest ? last : latest))
            ;;
        plain)
            read -r all synced gone last <"$work/found"
            plain=$((plain + all)) plain_late=$((plain_late + synced)) plain_lost=$((plain_lost + gone))
            ;;
        esac
        rm -f "$work/was"
    done
    echo "FIGURE real power cuts, $kind: $rounds shutdowns in three ways, $killed writers killed about then; one thread: $acknowledged acknowledged writes, $lost of them not yet synced and lost; four threads, synced: $of_keys acknowledged before the shutdown, none lost, $late while it ran, $late_lost of these lost, up to $latest us after it began; plain files: $plain, none lost, $plain_late, $plain_lost of these lost; 0 violations; $died writers ended by SIGBUS"
}
