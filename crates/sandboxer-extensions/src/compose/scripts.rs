//! What is run on a host. Constants: whatever varies is an argument, and quoted.
//!
//! They need a POSIX shell. Everything of ours is found by its two labels, and removed by them. Whatever an engine answers goes into a variable or a file
//! before it is used: a shell does not hear of what fails within a pipe or a list.

/// Stands before every script: where programs are that a login without a terminal may not find.
pub(super) const PLACES: &str = "PATH=\"$PATH:/usr/local/bin:/usr/local/sbin:/usr/sbin:/sbin\"\n";

/// Says who we are there, and what there is. `$1`: the compose command, where one is set.
pub(super) const GREET: &str = r#"
printf 'home=%s\nuser=%s\n' "$HOME" "$(id -u)"
for tool in tar find sort comm xargs gzip mktemp realpath; do command -v $tool >/dev/null || printf 'missing=%s\n' "$tool"; done
find --version 2>/dev/null | grep -q GNU || echo 'missing=GNU find'
tar --version 2>/dev/null | grep -q GNU || echo 'missing=GNU tar'
for tool in sort comm head date; do $tool --version 2>/dev/null | grep -q GNU || printf 'missing=GNU %s\n' "$tool"; done
engine() {
  case $1 in
    *podman*) podman info --format '{{.Version.Version}} rootless={{.Host.Security.Rootless}}' 2>&1 ;;
    # Where nobody answers, some clients complain of the format, and not of that.
    *) docker info --format '{{.ServerVersion}} {{.SecurityOptions}}' 2>/dev/null || { docker version --format '{{.Server.Version}}' 2>&1; return 1; } ;;
  esac
}
works() {
  case $1 in
    'docker compose' | 'podman compose') $1 version >/dev/null 2>&1 ;;
    *) command -v ${1%% *} >/dev/null ;;
  esac
}
found=
for compose in ${1:+"$1"} 'docker compose' 'docker-compose' 'podman compose' 'podman-compose'; do
  if ! works "$compose"; then
    [ "$compose" = "${1:-}" ] && { printf 'trouble=%s does not work there\n' "$compose"; exit 0; }
    continue
  fi
  found=$compose
  case $compose in *podman*) program=podman ;; *) program=docker ;; esac
  if said=$(engine "$program") && [ -n "$said" ]; then
    printf 'compose=%s\nengine=%s\nversion=%s\n' "$compose" "$program" "$(printf %s "$said" | tr '\n' ' ')"
    exit 0
  fi
  printf 'trouble=%s\n' "$(printf %s "$program: $said" | tr '\n' ' ')"
  [ "$compose" = "${1:-}" ] && exit 0
done
[ -n "$found" ] || echo 'trouble=there is no compose command: docker compose, docker-compose, podman compose, podman-compose'
"#;

/// Makes the directory of a sandbox. What an earlier try left running is removed: it could change the tree under our hands. `$1` base, `$2` controller,
/// `$3` sandbox, `$4` engine.
pub(super) const PREPARE: &str = r#"
set -eu
umask 077
d=$1/$2/$3
if [ -d "$d" ]; then
  ids=$("$4" ps --all --quiet --filter "label=sandboxer.sandbox=$3" --filter "label=sandboxer.home=$2")
  [ -z "$ids" ] || "$4" rm --force --volumes $ids >&2
  rm -rf "$d/sealed"
fi
mkdir -p "$1/$2/$3"
for at in "$1" "$1/$2" "$d"; do
  if [ -L "$at" ] || [ ! -O "$at" ]; then echo "$at is not a directory of ours" >&2; exit 1; fi
  chmod 700 "$at"
done
mkdir -p "$d/workspaces" "$d/sealed" "$d/lists"
"#;

/// Looks at what the engine is about to mount or build from, before anything runs that could change it: none of it is a link, or lies behind one. `$1` the
/// workspace there, then paths in it.
pub(super) const EXPECT: &str = r#"
set -eu
root=$(realpath -e -- "$1")
shift
for path in "$@"; do
  if [ "$(realpath -e -- "$root/$path")" != "$root${path:+/$path}" ]; then echo "$path is a link, or lies behind one" >&2; exit 1; fi
done
"#;

/// Copies what is mounted from a place that nobody else writes to. `$1` the workspace there, `$2` the directory for copies, then triples: path in the
/// workspace, name of the copy, its mode or nothing.
pub(super) const SEAL: &str = r#"
set -eu
umask 077
root=$1 sealed=$2
shift 2
while [ $# -gt 2 ]; do
  cp --archive --no-target-directory -- "$root/$1" "$sealed/$2"
  [ -z "$3" ] || chmod -- "$3" "$sealed/$2"
  shift 3
done
"#;

/// Sees to it that what comes from a stack's bridges reaches nothing of the host. Ends with 41 where that cannot be.
const FIREWALL: &str = r#"
guard() {
  for tables in iptables ip6tables; do
    command -v $tables >/dev/null || { [ $tables = ip6tables ] && continue; return 1; }
    as=
    [ "$(id -u)" = 0 ] || as='sudo -n'
    # The first of all, or another rule may let through what it drops.
    first=$($as $tables -w 10 -S INPUT 1 2>/dev/null) || first=
    [ "$first" != '-A INPUT -i sbx+ -m conntrack --ctstate NEW -j DROP' ] || continue
    $as $tables -w 10 -I INPUT -i 'sbx+' -m conntrack --ctstate NEW -j DROP || [ $tables = ip6tables ] || return 1
  done
}
"#;

const START: &str = r#"
set -eu
umask 077
d=$1 network=$2 engine=$3 controller=$4 sandbox=$5
shift 5
cat >"$d/stack.yaml.new"
mv "$d/stack.yaml.new" "$d/stack.yaml"
if [ "$network" = guarded ]; then guard || exit 41; fi
unset COMPOSE_FILE COMPOSE_PROFILES COMPOSE_PROJECT_NAME COMPOSE_ENV_FILES COMPOSE_PATH_SEPARATOR
cd "$d"
"$@" >&2
"#;

/// Writes the stack that it reads, and runs a compose command on it; then tells of the containers, as [`LOOK`]. `$1` directory, `$2` `guarded` or `open`,
/// `$3` engine, `$4` controller, `$5` sandbox, then the command.
pub(super) fn start() -> String {
    format!("{FIREWALL}{START}set -- \"$engine\" \"$controller\" \"$sandbox\"\n{LOOK}")
}

/// Whether the rule could be set, or is: changes nothing. No arguments.
pub(super) const COULD_GUARD: &str = r#"
as=
[ "$(id -u)" = 0 ] || as='sudo -n'
command -v iptables >/dev/null || { echo "iptables is not there" >&2; exit 1; }
rules=$($as iptables -w 10 -S INPUT) || exit 1
case $rules in *'-i sbx+ -m conntrack --ctstate NEW -j DROP'*) echo there ;; esac
"#;

/// One line of JSON for each container. `$1` engine, `$2` controller, `$3` sandbox.
pub(super) const LOOK: &str = r#"
set -eu
ids=$("$1" ps --all --quiet --no-trunc --filter "label=sandboxer.sandbox=$3" --filter "label=sandboxer.home=$2")
[ -n "$ids" ] || exit 0
"$1" inspect --type container --format '{"id":{{json .Id}},"service":{{json (index .Config.Labels "com.docker.compose.service")}},"state":{{json .State}},"ports":{{json .NetworkSettings.Ports}},"networks":{{json .NetworkSettings.Networks}},"mounts":{{json .Mounts}}}' $ids
"#;

/// The end of what a container printed. `$1` engine, `$2` container.
pub(super) const LAST_WORDS: &str = r#""$1" logs --tail 5 "$2" 2>&1 | tail -c 1000"#;

/// Holds every container of a sandbox still, or lets it go on; says how many there are. `$1` engine, `$2` controller, `$3` sandbox, `$4` `pause` or
/// `unpause`.
pub(super) const STILL: &str = r#"
set -eu
status=running
[ "$4" = pause ] || status=paused
mine() { "$1" ps --quiet --filter "label=sandboxer.sandbox=$3" --filter "label=sandboxer.home=$2" --filter "status=$4"; }
ids=$(mine "$1" "$2" "$3" $status)
if [ -n "$ids" ] && ! "$1" "$4" $ids >/dev/null; then
  # What ended meanwhile is no failure.
  left=$(mine "$1" "$2" "$3" $status)
  if [ -n "$left" ]; then
    [ "$4" = unpause ] || "$1" unpause $ids >/dev/null 2>&1 || :
    exit 1
  fi
fi
[ "$4" = pause ] || exit 0
ids=$(mine "$1" "$2" "$3" paused)
set -- $ids
echo $#
"#;

/// Removes everything that carries a sandbox's labels, then its directory, and looks whether something is left. `$1` base, `$2` controller, `$3` sandbox,
/// then the engines.
pub(super) const REMOVE: &str = r#"
set -u
base=$1 controller=$2 sandbox=$3
shift 3
f="--filter label=sandboxer.sandbox=$sandbox --filter label=sandboxer.home=$controller"
at=$(mktemp -d) || exit 1
trap 'rm -rf -- "$at"' EXIT
: >"$at/log"
# At once: most of what a look takes is the start of the engine's client.
look() {
  "$1" ps --all $f --format '{{.ID}} {{.Status}}' >"$at/container" & containers=$!
  "$1" network ls --quiet $f >"$at/network" & networks=$!
  "$1" volume ls --quiet $f >"$at/volume" & volumes=$!
  "$1" images --quiet $f --filter 'reference=sandboxer-*' >"$at/image" & images=$!
  seen=0
  for one in $containers $networks $volumes $images; do wait $one || seen=1; done
  return $seen
}
round() {
  left=
  look "$1" || return 1
  ids=$(cut -d ' ' -f 1 "$at/container")
  if [ -n "$ids" ]; then
    left=yes
    paused=$(grep -i paused "$at/container" | cut -d ' ' -f 1)
    [ -z "$paused" ] || "$1" unpause $paused >/dev/null 2>&1
    "$1" rm --force --volumes $ids >/dev/null 2>"$at/log" || return 2
  fi
  for kind in network volume image; do
    ids=$(cat "$at/$kind")
    [ -n "$ids" ] || continue
    left=yes
    "$1" $kind rm $([ $kind = image ] && echo --force) $ids >/dev/null 2>"$at/log" || return 2
  done
}
for engine in "$@"; do
  if ! command -v "$engine" >/dev/null; then
    # The only one is the one that made it.
    [ $# -gt 1 ] || { echo "$engine is not there" >&2; exit 1; }
    continue
  fi
  tries=0
  while :; do
    left=
    round "$engine"
    case $? in
      0) [ -n "$left" ] || break; [ $tries -eq 0 ] || sleep 0.1 ;;
      1) exit 1 ;;
      *) sleep 0.1 ;;
    esac
    tries=$((tries + 1))
    [ $tries -lt 25 ] || { cat "$at/log" >&2; exit 1; }
  done
done
d=$base/$controller/$sandbox
# What services have made as another user is out of our reach where we are not root; the engine is.
clear_by_engine() {
  command -v "$1" >/dev/null || return 1
  image=sandboxer-remove:$sandbox
  tar -cf - -T /dev/null | "$1" import --change "LABEL sandboxer.sandbox=$sandbox sandboxer.home=$controller" - "$image" >/dev/null || return 1
  binds=
  for place in /bin /lib /lib64 /usr; do [ ! -e $place ] || binds="$binds --volume $place:$place:ro"; done
  "$1" run --rm --network none --label "sandboxer.sandbox=$sandbox" --label "sandboxer.home=$controller" $binds \
    --mount "type=bind,source=$d.gone,target=/gone" "$image" /usr/bin/find /gone -mindepth 1 -delete >/dev/null
  cleared=$?
  "$1" rmi --force "$image" >/dev/null
  return $cleared
}
clear() {
  rm -rf -- "$d.gone" 2>"$at/log" && return
  if [ "$(id -u)" != 0 ]; then
    for engine in "$@"; do clear_by_engine "$engine" 2>>"$at/log" && rm -rf -- "$d.gone" && return; done
  fi
  cat "$at/log" >&2
  return 1
}
# In one instant: whoever comes in between does not take what is half removed for work that was done.
if [ -e "$d.gone" ]; then clear "$@" || exit 1; fi
if [ -e "$d" ] || [ -L "$d" ]; then mv -- "$d" "$d.gone" && clear "$@" || exit 1; fi
rmdir "$base/$controller" "$base" 2>/dev/null
[ ! -e "$d" ] && [ ! -e "$d.gone" ]
"#;

/// A line for everything of a controller's: kind, sandbox, name, state, time. `$1` base, `$2` controller, `$3` sandbox or nothing, then the engines.
pub(super) const INVENTORY: &str = r#"
set -eu
base=$1 controller=$2 sandbox=$3
shift 3
f="--filter label=sandboxer.home=$controller"
[ -z "$sandbox" ] || f="$f --filter label=sandboxer.sandbox=$sandbox"
t='	'
for engine in "$@"; do
  command -v "$engine" >/dev/null || continue
  ids=$("$engine" ps --all --quiet $f)
  [ -z "$ids" ] || "$engine" inspect --type container --format "container$t{{json (index .Config.Labels \"sandboxer.sandbox\")}}$t{{.Name}}$t{{.State.Status}}$t{{.Created}}" $ids
  ids=$("$engine" network ls --quiet $f)
  [ -z "$ids" ] || "$engine" network inspect --format "network$t{{json (index .Labels \"sandboxer.sandbox\")}}$t{{.Name}}$t-$t{{.Created}}" $ids
  ids=$("$engine" volume ls --quiet $f)
  [ -z "$ids" ] || "$engine" volume inspect --format "volume$t{{json (index .Labels \"sandboxer.sandbox\")}}$t{{.Name}}$t-$t{{.CreatedAt}}" $ids
  # A label alone does not make an image ours: whatever somebody builds on one of ours has it.
  ids=$("$engine" images --quiet $f --filter 'reference=sandboxer-*')
  [ -z "$ids" ] || "$engine" image inspect --format "image$t{{json (index .Config.Labels \"sandboxer.sandbox\")}}$t{{.Id}}$t-$t{{.Created}}" $ids
done
[ -d "$base/$controller" ] || exit 0
find "$base/$controller" -mindepth 1 -maxdepth 1 -name "${sandbox:-*}*" -printf "directory$t\"%f\"$t%p$t-$t%T@\n"
"#;

/// What volumes hold. `$1` engine, `$2` container, `$3` the place in it.
pub(super) const KEEP: &str = r#"
set -eu
# A shell hears only of the last one in a line: what the engine could not read would be kept as if it were all.
exec 3>&1
failed=$({ { "$1" cp "$2:$3/." - || echo "$?" >&4; } | gzip -1 >&3; } 4>&1)
[ -z "$failed" ]
"#;

/// The same the other way round.
pub(super) const FILL: &str = r#"
set -eu
failed=$({ { gzip -dc || echo "$?" >&4; } | "$1" cp --archive - "$2:$3" >&2; } 4>&1)
[ -z "$failed" ]
"#;

/// Whether a directory is there. `$1`.
pub(super) const IS_THERE: &str = r#"[ -d "$1" ] && [ ! -L "$1" ]"#;
