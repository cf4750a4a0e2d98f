#!/bin/sh
# Creates a stack on a host, reaches it from inside and from here, destroys it and checks that nothing is left.
# Needs `sandbox` on the PATH and, on the host, an image with httpd and wget. The host decides which engine runs it;
# SANDBOXER_COMPOSE_CMD names another compose command and reaches `sandbox` through the environment.
# usage: smoke-compose-e2e.sh HOST [IMAGE]
set -eu
fail() { printf 'error: %s\n' "$1" >&2; exit 1; }
report() { printf '%-10s %s\n' "$1" "$2"; }
# json_value KEY FILE: the first value of a key in an indented JSON document.
json_value() { sed -n "s/.*\"$1\": *\"\{0,1\}\([^\",}]*\).*/\1/p" "$2" | head -n 1; }

[ $# -ge 1 ] && [ -n "$1" ] || { echo "usage: smoke-compose-e2e.sh HOST [IMAGE]" >&2; exit 2; }
host=$1
image=${2:-busybox}
command -v sandbox >/dev/null || fail "sandbox is not on the PATH; install it first: make install"
work=$(mktemp -d)
id=
tunnel=
clean_up() {
    [ -z "$tunnel" ] || kill "$tunnel" 2>/dev/null || :
    [ -z "$id" ] || sandbox destroy "$id" --discard >/dev/null || :
    rm -rf "$work"
}
trap clean_up EXIT
# A shell that a signal ends runs no EXIT trap.
trap 'exit 130' INT
trap 'exit 143' TERM

mkdir -p "$work/repo/e2e"
echo "smoke $$" >"$work/repo/index.html"
cat >"$work/repo/e2e/docker-compose.yml" <<END
services:
  web:
    image: $image
    command: httpd -f -p 8080 -h /repo
    volumes: ["..:/repo"]
    ports: ["8080"]
  client:
    image: $image
    command: sleep 3600
END

sandbox create --json --profile profile.compose-e2e --host "$host" --input "repo=$work/repo" --ttl 15m >"$work/created"
id=$(json_value sandbox_id "$work/created")
[ -n "$id" ] || fail "sandbox create printed no sandbox_id"
report created "$id"
sandbox get "$id" --json >"$work/status"
state=$(json_value state "$work/status")
[ "$state" = ready ] || [ "$state" = active ] || fail "the sandbox is $state, not ready"
report ready "$state"

[ "$(sandbox exec "$id" --service client -- wget -q -O - http://web:8080/)" = "smoke $$" ] ||
    fail "service client does not reach service web"
report reachable "from the other service"

sandbox forward "$id" web --json >"$work/forward" &
tunnel=$!
get_page() { wget -q -O - "$1" 2>/dev/null || curl -fs "$1"; }
tries=0
until port=$(json_value port "$work/forward") && [ -n "$port" ] &&
    [ "$(get_page "http://127.0.0.1:$port/")" = "smoke $$" ]; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || fail "service web does not answer through the tunnel"
    sleep 0.1
done
kill "$tunnel"
tunnel=
report reachable "from here, by a tunnel"

destroyed=$id
sandbox destroy "$id" --discard >/dev/null
id=
report destroyed "$destroyed"
sandbox hosts sweep "$host" --dry-run --grace 0s --json >"$work/orphans"
! grep -q "$destroyed" "$work/orphans" || fail "left on $host: $(cat "$work/orphans")"
report clean "nothing is left on $host"
