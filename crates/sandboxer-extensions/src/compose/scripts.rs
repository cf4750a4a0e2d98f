//! What is run on a host. Constants: whatever varies is an argument, and quoted.
//!
//! They need a POSIX shell. Everything of ours is found by its two labels, and removed by them. Whatever an engine answers goes into a variable or a file
//! before it is used: a shell does not hear of what fails within a pipe or a list.

/// Stands before every script: where programs are that a login without a terminal may not find.
pub(super) const PLACES: &str = "PATH=\"$PATH:/usr/local/bin:/usr/local/sbin:/usr/sbin:/sbin\"\n";

/// Says who we are there, and what there is. `$1`: the compose command, where one is set. Speaks at once: it is how long the way is measured by. What it
/// looks at is looked at all at once: most of it is the start of programs.
pub(super) const GREET: &str = r#"
printf 'home=%s\nuser=%s\n' "$HOME" "$(id -u)"
tools() {
  for tool in tar find sort comm xargs gzip mktemp realpath; do command -v $tool >/dev/null || printf 'missing=%s\n' "$tool"; done
  for tool in find tar sort comm head date; do
    case $($tool --version 2>/dev/null) in *GNU*) ;; *) printf 'missing=GNU %s\n' "$tool" ;; esac
  done
}
engine() {
  case $1 in
    *podman*) podman info --format '{{.Version.Version}} rootless={{.Host.Security.Rootless}}' 2>&1 ;;
    # Where nobody answers, some clients complain of the format, and not of that.
    *)
      if told=$(docker info --format '{{.ServerVersion}} {{.SecurityOptions}}' 2>/dev/null); then echo "$told"; return; fi
      docker version --format '{{.Server.Version}}' 2>&1
      return 1
      ;;
  esac
}
# Where docker looks for it. To try it takes longer than everything else here.
has_plugin() {
  command -v docker >/dev/null || return
  for at in "${DOCKER_CONFIG:-$HOME/.docker}" /usr/local/lib/docker /usr/local/libexec/docker /usr/lib/docker /usr/libexec/docker; do
    [ ! -x "$at/cli-plugins/docker-compose" ] || return 0
  done
  return 1
}
works() {
  case $1 in
    'docker compose') has_plugin || $1 version >/dev/null 2>&1 ;;
    'podman compose') $1 version >/dev/null 2>&1 ;;
    *) command -v ${1%% *} >/dev/null ;;
  esac
}
# Docker is asked while its compose is tried: either is the start of a large program.
asked= status=
ask_early() {
  command -v docker >/dev/null && early=$(mktemp) || return
  # Whatever becomes of us, it does not stay.
  exec 3>"$early" 4<"$early"
  rm -f -- "$early"
  engine docker >&3 & asked=$!
}
# What an engine says, in `said`.
ask() {
  if [ "$1" != docker ] || [ -z "$asked" ]; then said=$(engine "$1"); return; fi
  # Who has been waited for once is not known any more.
  [ -n "$status" ] || { wait $asked; status=$?; heard=$(cat <&4); }
  said=$heard
  return $status
}
search() {
  found=
  for compose in ${1:+"$1"} 'docker compose' 'docker-compose' 'podman compose' 'podman-compose'; do
    if ! works "$compose"; then
      [ "$compose" = "${1:-}" ] && { printf 'trouble=%s does not work there\n' "$compose"; return; }
      continue
    fi
    found=$compose
    case $compose in *podman*) program=podman ;; *) program=docker ;; esac
    if ask "$program" && [ -n "$said" ]; then
      printf 'compose=%s\nengine=%s\nversion=%s\n' "$compose" "$program" "$(printf %s "$said" | tr '\n' ' ')"
      return
    fi
    printf 'trouble=%s\n' "$(printf %s "$program: $said" | tr '\n' ' ')"
    [ "$compose" = "${1:-}" ] && return
  done
  [ -n "$found" ] || echo 'trouble=there is no compose command: docker compose, docker-compose, podman compose, podman-compose'
}
# Each says its lines as a whole: they are short.
tools &
case ${1:-} in *podman*) ;; *) ask_early ;; esac
search "${1:-}"
wait
"#;

/// A start whose connection broke goes on by itself: whoever takes its place ends it first. It has noted its process, when that was started, and its
/// group, which is that of its session. `end_start DIRECTORY` says whether there was one.
const END_START: &str = r#"
started_at() { [ -r "/proc/$1/stat" ] && cut -d ' ' -f 22 "/proc/$1/stat"; }
end_start() {
  [ -f "$1/starting" ] && read -r process moment group <"$1/starting" || return 1
  rm -f -- "$1/starting"
  # Without a `--`, which not every shell takes here.
  [ "$(started_at "$process")" = "$moment" ] && kill -KILL "-$group" 2>/dev/null
}
"#;

const PREPARE: &str = r#"
set -eu
umask 077
d=$1/$2/$3
if [ -d "$d" ]; then
  end_start "$d" || :
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

/// Makes the directory of a sandbox. What an earlier try left running is removed: it could change the tree under our hands. `$1` base, `$2` controller,
/// `$3` sandbox, `$4` engine.
pub(super) fn prepare() -> String {
    [END_START, PREPARE].concat()
}

/// `expect PATH` looks at what the engine is about to mount or build from, before anything runs that could change it: it is no link, and lies behind none.
/// `seal PATH NAME MODE` copies what is mounted from a place that nobody else writes to; a directory has no mode, and is as it was.
const SEALING: &str = r#"
expect() {
  if [ "$(realpath -e -- "$root/$1")" != "$root${1:+/$1}" ]; then echo "$1 is a link, or lies behind one" >&2; exit 1; fi
}
seal() {
  cp --archive --no-target-directory -- "$root/$1" "$d/sealed/$2"
  [ -z "$3" ] || chmod -- "$3" "$d/sealed/$2"
}
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
d=$1 network=$2 engine=$3 controller=$4 sandbox=$5 expected=$7 sealed=$8
root=$(realpath -e -- "$6")
shift 8
read -r one two three four group rest </proc/$$/stat
trap 'rm -f -- "$d/starting"' EXIT
echo "$$ $(started_at $$) $group" >"$d/starting"
cat >"$d/stack.yaml.new"
mv "$d/stack.yaml.new" "$d/stack.yaml"
while [ "$expected" -gt 0 ]; do expect "$1"; expected=$((expected - 1)); shift; done
while [ "$sealed" -gt 0 ]; do seal "$1" "$2" "$3"; sealed=$((sealed - 1)); shift 3; done
if [ "$network" = guarded ]; then guard || exit 41; fi
unset COMPOSE_FILE COMPOSE_PROFILES COMPOSE_PROJECT_NAME COMPOSE_ENV_FILES COMPOSE_PATH_SEPARATOR
cd "$d"
"$@" >&2
"#;

/// Writes the stack that it reads, and runs a compose command on it; then tells of the containers, as [`LOOK`]. `$1` directory, `$2` `guarded` or `open`,
/// `$3` engine, `$4` controller, `$5` sandbox, `$6` workspace, `$7` how many paths in it are expected, `$8` how many copies are made; then these paths, three
/// words for each copy, and the command.
pub(super) fn start() -> String {
    let look = format!("set -- \"$engine\" \"$controller\" \"$sandbox\"\n{LOOK}");
    [END_START, SEALING, FIREWALL, START, &look].concat()
}

/// Looks at images that others are built from: what is not there is fetched, so that no build does. Ends with 42 where one has instructions for whoever
/// builds from it (`ONBUILD`), which nobody has checked. `$1` engine, then the images.
pub(super) const BASES: &str = r#"
set -eu
engine=$1
shift
for image in "$@"; do
  # The empty one, which is no image.
  [ "$image" != scratch ] || continue
  "$engine" image inspect --format . "$image" >/dev/null 2>&1 || "$engine" pull --quiet "$image" >&2
  said=$("$engine" image inspect --format '{{len .Config.OnBuild}}' "$image")
  [ "$said" = 0 ] || { echo "$image has instructions of its own for whoever builds from it (ONBUILD)" >&2; exit 42; }
done
"#;

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
"$1" inspect --type container --format '{"id":{{json .Id}},"service":{{json (index .Config.Labels "com.docker.compose.service")}},"state":{{json .State}},"ports":{{json .NetworkSettings.Ports}},"networks":{{json .NetworkSettings.Networks}}}' $ids
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

const REMOVE: &str = r#"
set -u
base=$1 controller=$2 sandbox=$3
shift 3
d=$base/$controller/$sandbox
f="--filter label=sandboxer.sandbox=$sandbox --filter label=sandboxer.home=$controller"
at=$(mktemp -d) || exit 1
trap 'rm -rf -- "$at"' EXIT
: >"$at/log"
# What its engine was asked for last may come yet. Else nobody makes anything any more: of what there was nothing of, nothing comes.
settled=yes
! end_start "$d" || settled=
# All at once, and while containers go: most of what a look takes is the start of the engine's client.
look_elsewhere() {
  looks=
  for kind in $kinds; do
    case $kind in
      image) "$1" images --quiet $f --filter 'reference=sandboxer-*' >"$at/image" & ;;
      *) "$1" $kind ls --quiet $f >"$at/$kind" & ;;
    esac
    looks="$looks $!"
  done
}
remove_containers() {
  ids=$(cut -d ' ' -f 1 "$at/container")
  [ -n "$ids" ] || return 0
  left=yes
  paused=$(grep -i paused "$at/container" | cut -d ' ' -f 1)
  [ -z "$paused" ] || "$1" unpause $paused >/dev/null 2>&1
  "$1" rm --force --volumes $ids >/dev/null 2>"$at/log"
}
round() {
  left= again=network removed=0
  look_elsewhere "$1"
  "$1" ps --all $f --format '{{.ID}} {{.Status}}' >"$at/container" || return 1
  remove_containers "$1" || removed=2
  for look in $looks; do wait $look || return 1; done
  [ $removed = 0 ] || return 2
  for kind in $kinds; do
    ids=$(cat "$at/$kind")
    [ -n "$ids" ] || continue
    left=yes
    [ $kind = network ] || again="$again $kind"
    "$1" $kind rm $([ $kind = image ] && echo --force) $ids >/dev/null 2>"$at/log" || return 2
  done
  [ -z "$settled" ] || kinds=$again
}
for engine in "$@"; do
  if ! command -v "$engine" >/dev/null; then
    # The only one is the one that made it.
    [ $# -gt 1 ] || { echo "$engine is not there" >&2; exit 1; }
    continue
  fi
  tries=0 kinds='network volume image'
  while :; do
    round "$engine"
    case $? in
      0)
        if [ -z "$left" ]; then
          [ -z "$settled" ] || break
          settled=yes
          sleep 0.5
        fi
        [ $tries -eq 0 ] || sleep 0.1
        ;;
      1) exit 1 ;;
      *) sleep 0.1 ;;
    esac
    tries=$((tries + 1))
    [ $tries -lt 25 ] || { cat "$at/log" >&2; exit 1; }
  done
done
# What services have made as another user is out of our reach where we are not root; the engine is.
clear_by_engine() {
  command -v "$1" >/dev/null || return 1
  image=sandboxer-remove:$sandbox
  # Another one by that name would leave this one without any.
  "$1" image inspect --format . "$image" >/dev/null 2>&1 ||
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

/// Removes everything that carries a sandbox's labels, then its directory, and looks whether something is left. `$1` base, `$2` controller, `$3` sandbox,
/// then the engines.
pub(super) fn remove() -> String {
    [END_START, REMOVE].concat()
}

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
