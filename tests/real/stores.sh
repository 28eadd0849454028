# What the scripts s3, gcs and azure share: a server of objects that runs here, and what is asked of backups in it. Each
# says how a server of its kind is run, and how requests to it are signed that are none of the command's.

# Runs a server until the script ends, and waits until it answers at the URL: serve URL PROGRAM [ARGUMENT...]. Sets `server`.
serve() {
    local url="$1"
    shift
    "$@" >"$work/server" 2>&1 &
    server=$!
    # What it still writes must be there before the folder goes.
    trap '{ kill "$server" && wait "$server"; } 2>/dev/null || true; rm -rf "$work"' EXIT
    for _ in $(seq 200); do
        curl --silent --output /dev/null "$url" && return
        kill -0 "$server" 2>/dev/null || break
        sleep 0.1
    done
    skip "$1 does not run: $(tail -n 1 "$work/server")"
}

# A request to the server that is none of the command's.
request() {
    curl --silent --fail "$@" || fail "the server refused $*"
}

told() {
    local said="$work/said.$BASHPID"
    "$ebbtide" "$@" 2>"$said" || fail "$* ended with status $?: $(cat "$said")"
}
refused() {
    local said status=0
    said="$("$ebbtide" "$@" 2>&1)" || status=$?
    [ "$status" = 2 ] || fail "$* ended with status $status: $said"
    [ "$(wc -l <<<"$said")" = 1 ] || fail "$* said more than a line: $said"
}
# The names of the objects in a folder of the store.
objects() {
    local said
    said="$(listed "$1")" || return 1
    grep -o "of/db/$1/[0-9a-z.-]\+" <<<"$said" || true
}
field() {
    python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"
}

# Keeps backups in a store: backups_in WHAT TO MISSING. MISSING lies in a bucket that is not there. Calls `listed FOLDER`,
# which shows what the server says when it lists a folder at TO, and `spoil NAME`, which puts other bytes under a name.
backups_in() {
    local what="$1" to="$2" missing="$3" sent again pruned left at failed= running=()
    # A table of more than a part, so that it goes up in several.
    python3 -c '
import json, random
random.seed(1)
for n in range(1, 20001):
    print(json.dumps({"id": "k%d" % n, "v": "%0640x" % random.getrandbits(2560)}))' >"$work/lines"
    told import db c "$work/lines" --key id >/dev/null
    sent="$(told --json backup db "$to" | field uploaded_bytes)"
    told put db c later v --ttl 3600 >/dev/null
    again="$(told --json backup db "$to" | field uploaded_bytes)"
    [ $((again * 20)) -lt "$sent" ] || fail "the second backup sent $again bytes, the first $sent"
    told restore "$to" first --at 1 >/dev/null
    told restore "$to" second >/dev/null
    [ "$(told count first c)" = 20000 ] && [ "$(told count second c)" = 20001 ] || fail "items are missing"
    [ "$(told get second c k7)" = "$(told get db c k7)" ] || fail "an item differs"
    told expire db c --all --yes >/dev/null
    told backup ledger db "$to" >/dev/null
    told restore "$to" told --at 1 >/dev/null
    [ "$(told count told c)" = 0 ] || fail "what expired is back"
    [ "$(told --json backup prove "$to" | field backups)" = 2 ] || fail "no proof of both"
    [ "$(told backups "$to" --json | wc -l)" = 2 ] || fail "not both are listed"
    pruned="$(told --json backup prune "$to" --keep 1)"
    [ "$(field backups <<<"$pruned")" = 1 ] || fail "pruned: $pruned"
    told restore "$to" after >/dev/null

    # Copies of one database send the same new table at a time, and look for a number for their backups at a time.
    told import db d "$work/lines" --key id >/dev/null
    told compact db >/dev/null
    for at in 1 2 3 4; do
        cp -r db "copy$at"
    done
    for at in 1 2 3 4; do
        told backup "copy$at" "$to" >/dev/null &
        running+=($!)
    done
    for at in "${running[@]}"; do
        wait "$at" || failed=yes
    done
    [ -z "$failed" ] || fail "not all of four backups at a time ended well"
    [ "$(told backups "$to" --json | wc -l)" = 5 ] || fail "a backup took another's name"
    [ "$(told --json backup prove "$to" | field backups)" = 5 ] || fail "no proof of those made at a time"
    left="$(objects leases)"
    [ -z "$left" ] || fail "leases stay: $left"

    # The bytes of objects are changed under their names.
    left="$(objects objects)"
    for at in $left; do
        spoil "$at"
    done
    refused restore "$to" damaged
    [ ! -e damaged ] || fail "a damaged backup was restored"
    refused backup prove "$to"
    refused backup db "$missing"
    kill "$server"
    wait "$server" 2>/dev/null || true
    refused backups "$to"
    echo "FIGURE backups in $what: first sent $sent bytes, second $again; restored, told what expired, proved, pruned; four at a time kept apart; damage, a missing bucket and a server that is away refused in a line"
}
