# What a stack's script is made of. Everything that varies is an argument.
set -eu
fail() { echo "$1" >&2; exit 1; }

# The first three numbers of a network's addresses.
prefix() {
  subnet=$(podman network inspect --format '{{range .Subnets}}{{.Subnet}} {{end}}' "$1")
  subnet=${subnet%% *}
  case $subnet in *.0/24) echo "${subnet%.0/24}" ;; *) fail "network $1 has the addresses $subnet, and not 254 in a row" ;; esac
}

volume() {
  name=$1
  shift
  podman volume exists "$name" || podman volume create "$@" "$name" >/dev/null
}

# fetch NAME WHOLE POLICY: sees to it that an image is there, and says what it is called here. A short name is docker's.
fetch() {
  for image in "$2" "localhost/$1"; do
    if podman image exists "$image"; then echo "$image"; return; fi
  done
  [ "$3" != never ] || fail "image $1 is not there, and is not to be fetched"
  podman pull --quiet "$2" >&2
  echo "$2"
}

build() {
  tag=$1
  shift
  podman build --force-rm --tag "$tag" "$@" >&2
}

# container NAME IMAGE WHOLE POLICY OPTION… -- COMMAND…
container() {
  name=$1
  ! podman container exists "$name" || return 0
  image=$(fetch "$2" "$3" "$4")
  shift 4
  count=$#
  while [ "$count" -gt 0 ]; do
    word=$1 count=$((count - 1))
    shift
    # The first of our own; one in the command stays what it is.
    if [ "$word" = -- ] && [ -n "$image" ]; then word=$image image=; fi
    set -- "$@" "$word"
  done
  podman create --name "$name" --pull=never "$@" >/dev/null
}

start() { podman start "$@" >/dev/null; }

in_rootless_network() { podman unshare --rootless-netns "$@"; }

# start_on_networks CONTAINER…: starts containers of rootless podman that have networks, none of which may run yet.
#
# When a container ends, podman 4 removes the network namespace with all bridges unless another container has recorded an
# interface there. A container that is being started records its own last, so the end of any other container can leave it
# without. An initialized container has recorded it and runs nothing yet: a file in that namespace's /run tells whether the
# namespace was removed meanwhile, and then the containers are initialized again.
# podman 5 counts the interfaces instead, and needs none of this.
start_on_networks() {
  case $(podman version --format '{{.Client.Version}}') in 4.*) ;; *) start "$@"; return ;; esac
  marker=/run/sandboxer-$1
  for attempt in 1 2 3 4 5 6 7 8 9 10; do
    if in_rootless_network touch "$marker"; then
      podman init "$@" >/dev/null
      if in_rootless_network rm "$marker" 2>/dev/null; then
        start "$@"
        return
      fi
    fi
    echo "the networks were removed during attempt $attempt to join them" >&2
    podman container cleanup "$@" >/dev/null 2>&1 || :
  done
  fail "the networks are removed again and again by other containers that end"
}

# healthy NAME SERVICE SECONDS: there may be nobody on a host who asks for a container's health, so we do.
healthy() {
  until=$(($(date +%s) + $3))
  until said=$(podman healthcheck run "$1" 2>&1); do
    [ "$(podman container inspect --format '{{.State.Status}}' "$1")" = running ] || fail "$2 has ended, and others wait for it"
    [ "$(date +%s)" -lt $until ] || fail "$2 is not healthy, and others wait for it: $said"
    sleep 0.2
  done
}

# completed NAME SERVICE
completed() {
  code=$(podman wait "$1")
  [ "$code" = 0 ] || fail "$2 has ended with exit code $code, and others wait for it"
}
