//! What is run on a host. Constants: whatever varies is an argument, and quoted.
//!
//! They need a POSIX shell. Everything that a stack makes is found and removed by its labels (see [`MINE`]). Whatever an engine answers goes into a variable or a file
//! before it is used: a shell does not hear of what fails within a pipe or a list.

use super::PauseMethod;

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
    *podman*) podman info --format '{{.Version.Version}} rootless={{.Host.Security.Rootless}} cgroups={{.Host.CgroupsVersion}} network={{.Host.NetworkBackend}} controllers={{.Host.CgroupControllers}}' 2>&1 ;;
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
    # The word selects the engine; podman itself starts the containers.
    *podman*) command -v podman >/dev/null ;;
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
  for compose in ${1:+"$1"} 'docker compose' 'docker-compose' 'podman'; do
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
  [ -n "$found" ] || echo 'trouble=there is no docker compose, docker-compose or podman'
}
# Each says its lines as a whole: they are short.
tools &
case ${1:-} in *podman*) ;; *) ask_early ;; esac
search "${1:-}"
wait
"#;

/// `mine ENGINE CONTROLLER SANDBOX` prints the filter that selects what belongs to a sandbox. podman 4.3 lists a volume or an
/// image if one of several labels fits, so that the things of another sandbox would go; its filter is one label for both.
pub(super) const MINE: &str = r#"
mine() {
  case $1 in
    podman) echo "--filter label=sandboxer.stack=$2/$3" ;;
    *) echo "--filter label=sandboxer.sandbox=$3 --filter label=sandboxer.home=$2" ;;
  esac
}
# Options for the labels of CONTROLLER SANDBOX.
label_options() { echo "--label sandboxer.sandbox=$2 --label sandboxer.home=$1 --label sandboxer.stack=$1/$2"; }
# Makes an image without files: ENGINE IMAGE CONTROLLER SANDBOX. podman takes one label from each change.
import_empty() {
  tar -cf - -T /dev/null | "$1" import --change "LABEL sandboxer.sandbox=$4" --change "LABEL sandboxer.home=$3" \
    --change "LABEL sandboxer.stack=$3/$4" - "$2" >/dev/null
}
# A label alone does not make an image ours: an image that is built on one of ours has it too.
our_images() { sed -n 's:^\([^ ]*\) \(localhost/\)*sandboxer-.*:\1:p'; }
# The host's own programs, for an image without files.
host_programs() { for at in /bin /lib /lib64 /usr; do [ ! -e $at ] || echo "--volume $at:$at:ro"; done; }
id_field() { case $1 in podman) echo .ID ;; *) echo .Id ;; esac; }
# podman waits ten seconds for a container unless it is told not to.
remove_containers() {
  case $1 in podman) set -- "$@" --time 0 ;; esac
  program=$1
  shift
  "$program" rm --force --volumes "$@"
}
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
  ids=$("$4" ps --all --quiet $(mine "$4" "$2" "$3"))
  [ -z "$ids" ] || remove_containers "$4" $ids >&2
  rm -rf "$d/sealed"
fi
mkdir -p "$1/$2/$3"
for at in "$1" "$1/$2" "$d"; do
  if [ -L "$at" ] || [ ! -O "$at" ]; then echo "$at is not a directory of ours" >&2; exit 1; fi
  chmod 700 "$at"
done
mkdir -p "$d/workspaces" "$d/sealed" "$d/lists"
echo "$4" >"$d/engine"
"#;

/// Makes the directory of a sandbox, with a note of its engine. What an earlier try left running is removed: it could change the tree under our hands. `$1` base, `$2` controller,
/// `$3` sandbox, `$4` engine.
pub(super) fn prepare() -> String {
    [MINE, END_START, PREPARE].concat()
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
pub(crate) const FIREWALL: &str = r#"
guard() {
  for tables in iptables ip6tables; do
    command -v $tables >/dev/null || { [ $tables = ip6tables ] && continue; return 1; }
    as=
    [ "$(id -u)" = 0 ] || as='sudo -n'
    # The first of all, or another rule may let through what it drops.
    first=$($as $tables -w 10 -S INPUT 1 2>/dev/null) || first=
    [ "$first" = '-A INPUT -i sbx+ -m conntrack --ctstate NEW -j DROP' ] ||
      $as $tables -w 10 -I INPUT -i 'sbx+' -m conntrack --ctstate NEW -j DROP || [ $tables = ip6tables ] || return 1
    # docker has rules of its own for networks that nothing leaves.
    [ "$engine" = podman ] || continue
    $as $tables -w 10 -C FORWARD -i 'sbx+' ! -o 'sbx+' -j DROP 2>/dev/null ||
      $as $tables -w 10 -I FORWARD -i 'sbx+' ! -o 'sbx+' -j DROP || [ $tables = ip6tables ] || return 1
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
file=stack.yaml
[ "$engine" != podman ] || file=stack.sh
cat >"$d/$file.new"
mv "$d/$file.new" "$d/$file"
while [ "$expected" -gt 0 ]; do expect "$1"; expected=$((expected - 1)); shift; done
while [ "$sealed" -gt 0 ]; do seal "$1" "$2" "$3"; sealed=$((sealed - 1)); shift 3; done
if [ "$network" = guarded ]; then guard || exit 41; fi
unset COMPOSE_FILE COMPOSE_PROFILES COMPOSE_PROJECT_NAME COMPOSE_ENV_FILES COMPOSE_PATH_SEPARATOR
cd "$d"
"$@" >&2
"#;

/// Writes the stack that it reads, a compose file or a script, and runs a command on it; then tells of the containers, as [`LOOK`]. `$1` directory, `$2` `guarded` or `open`,
/// `$3` engine, `$4` controller, `$5` sandbox, `$6` workspace, `$7` how many paths in it are expected, `$8` how many copies are made; then these paths, three
/// words for each copy, and the command.
pub(super) fn start() -> String {
    let look = format!("set -- \"$engine\" \"$controller\" \"$sandbox\"\n{LOOK}");
    [MINE, END_START, SEALING, FIREWALL, START, &look].concat()
}

/// Looks at images that others are built from: what is not there is fetched, so that no build does. Ends with 42 where one has instructions for whoever
/// builds from it (`ONBUILD`), which nobody has checked. `$1` engine, then the images.
pub(super) const BASES: &str = r#"
set -eu
engine=$1
shift
# podman has no registry of its own for short names.
whole_name() {
  case $engine-${1%%/*} in
    docker-*) echo "$1" ;;
    podman-"$1") echo "docker.io/library/$1" ;;
    podman-*[.:]* | podman-localhost) echo "$1" ;;
    *) echo "docker.io/$1" ;;
  esac
}
# podman does not show the instructions of an image; they are in the configuration that it saves. Escaped letters could hide
# the word.
has_no_instructions() {
  if [ "$engine" = docker ]; then
    [ "$(docker image inspect --format '{{len .Config.OnBuild}}' "$1")" = 0 ]
    return
  fi
  found=$(podman save --quiet --format docker-archive "$1" | tar -xOf - --wildcards '*.json')
  found=$(printf %s "$found" | tr -d ' \t\r\n' | tr '[:upper:]' '[:lower:]' | sed -e 's/"onbuild":null//g' -e 's/"onbuild":\[\]//g')
  case $found in '' | *onbuild* | *'\u00'[4-7]*) return 1 ;; esac
}
for image in "$@"; do
  # The empty one, which is no image.
  [ "$image" != scratch ] || continue
  "$engine" image inspect --format . "$image" >/dev/null 2>&1 || "$engine" pull --quiet "$(whole_name "$image")" >&2
  has_no_instructions "$image" || { echo "$image has instructions of its own for whoever builds from it (ONBUILD)" >&2; exit 42; }
done
"#;

/// Whether the rules of [`FIREWALL`] could be set; prints `there` if all of them are. Changes nothing. `$1` engine.
pub(super) const COULD_GUARD: &str = r#"
as=
[ "$(id -u)" = 0 ] || as='sudo -n'
command -v iptables >/dev/null || { echo "iptables is not there" >&2; exit 1; }
input=$($as iptables -w 10 -S INPUT) || exit 1
forward=$($as iptables -w 10 -S FORWARD) || exit 1
case $input in *'-i sbx+ -m conntrack --ctstate NEW -j DROP'*) ;; *) exit 0 ;; esac
case $1-$forward in podman-*'-i sbx+ ! -o sbx+ -j DROP'* | docker-*) echo there ;; esac
"#;

/// One line of JSON for each container. `$1` engine, `$2` controller, `$3` sandbox.
const LOOK: &str = r#"
set -eu
f=$(mine "$1" "$2" "$3")
ids=$("$1" ps --all --quiet --no-trunc $f)
[ -n "$ids" ] || exit 0
# podman has no timer for the checks of a container's health.
if [ "$1" = podman ]; then
  "$1" ps $f --format '{{.ID}} {{.Status}}' | grep -e '(starting)' -e '(unhealthy)' | while read -r id rest; do
    "$1" healthcheck run "$id" >/dev/null 2>&1 </dev/null || :
  done
fi
id=$(id_field "$1")
"$1" inspect --type container --format '{"id":{{json '"$id"'}},"service":{{json (index .Config.Labels "com.docker.compose.service")}},"state":{{json .State}},"ports":{{json .NetworkSettings.Ports}},"networks":{{json .NetworkSettings.Networks}}}' $ids
"#;

/// The containers of a sandbox, see [`LOOK`].
pub(super) fn look() -> String {
    [MINE, LOOK].concat()
}

/// The end of what a container printed. `$1` engine, `$2` container.
pub(super) const LAST_WORDS: &str = r#""$1" logs --tail 5 "$2" 2>&1 | tail -c 1000"#;

/// Holds every container of a sandbox still, or lets it go on; says how many there are. `$1` engine, `$2` controller, `$3` sandbox, `$4` `pause` or
/// `unpause`.
const STILL: &str = r#"
set -eu
status=running
[ "$4" = pause ] || status=paused
by_status() { "$1" ps --quiet $(mine "$1" "$2" "$3") --filter "status=$4"; }
ids=$(by_status "$1" "$2" "$3" $status)
if [ -n "$ids" ] && ! "$1" "$4" $ids >/dev/null; then
  # What ended meanwhile is no failure.
  left=$(by_status "$1" "$2" "$3" $status)
  if [ -n "$left" ]; then
    [ "$4" = unpause ] || "$1" unpause $ids >/dev/null 2>&1 || :
    exit 1
  fi
fi
[ "$4" = pause ] || exit 0
ids=$(by_status "$1" "$2" "$3" paused)
set -- $ids
echo $#
"#;

/// The same by signals, where rootless podman cannot freeze control groups. All processes of a container are those of its
/// process namespace. A process that is stopped starts no other one, so that a round without a new process is the last.
/// `signal_processes PODMAN SIGNAL PID…` sends a signal to every process in the namespaces of these, until no new one is found.
pub(crate) const SIGNAL_PROCESSES: &str = r#"
signal_processes() {
  podman=$1
  shift
  "$podman" unshare sh -c '
signal=$1 seen=
shift
of_containers() {
  for pid in "$@"; do
    namespace=$(readlink "/proc/$pid/ns/pid") || continue
    for process in /proc/[0-9]*; do
      [ "$(readlink "$process/ns/pid" 2>/dev/null)" != "$namespace" ] || echo "${process#/proc/}"
    done
  done
}
still_runs() {
  for process in $now; do
    case $(sed -n "s/^State:[[:space:]]*//p" "/proc/$process/status" 2>/dev/null) in [TtZX]* | "") ;; *) return 0 ;; esac
  done
  return 1
}
while :; do
  now=$(of_containers "$@")
  if [ "$now" = "$seen" ]; then [ $signal = CONT ] || still_runs || exit 0; [ $signal = STOP ] || exit 0; fi
  for process in $now; do kill -$signal "$process" 2>/dev/null || :; done
  seen=$now
done' sh "$@"
}
"#;

const STILL_BY_SIGNALS: &str = r#"
set -eu
ids=$("$1" ps --quiet $(mine "$1" "$2" "$3") --filter status=running)
[ -n "$ids" ] || { [ "$4" = unpause ] || echo 0; exit 0; }
pids=$("$1" inspect --type container --format '{{.State.Pid}}' $ids)
signal=STOP
[ "$4" = pause ] || signal=CONT
signal_processes "$1" $signal $pids
[ "$4" = unpause ] || { set -- $ids; echo $#; }
"#;

pub(super) fn hold_still(method: PauseMethod) -> String {
    match method {
        PauseMethod::Engine => [MINE, STILL].concat(),
        PauseMethod::Signals => [MINE, SIGNAL_PROCESSES, STILL_BY_SIGNALS].concat(),
    }
}

/// Prints the logs of containers with the name of the service before each line, which podman omits for a single one. `$1`
/// project, `$2` filter for all containers, or nothing for the one that is the last argument; then options.
pub(super) const PODMAN_LOGS: &str = r#"
project=$1 filter=$2
shift 2
if [ -z "$filter" ]; then
  for container; do :; done
  name=$(podman container inspect --format '{{.Name}}' "$container") || exit
  podman logs "$@" 2>&1 | sed -u "s/^/${name#"${project}_"} | /"
  exit
fi
podman logs --names "$@" $(podman ps --all --quiet $filter) 2>&1 | sed -u "s/^${project}_\([^ ]*\) /\1 | /"
"#;

const REMOVE: &str = r#"
set -u
base=$1 controller=$2 sandbox=$3
shift 3
d=$base/$controller/$sandbox
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
      image) "$1" images $f --format '{{.ID}} {{.Repository}}' >"$at/image" & ;;
      *) "$1" $kind ls --quiet $f >"$at/$kind" & ;;
    esac
    looks="$looks $!"
  done
}
remove_found() {
  ids=$(cut -d ' ' -f 1 "$at/container")
  [ -n "$ids" ] || return 0
  left=yes
  paused=$(grep -i paused "$at/container" | cut -d ' ' -f 1)
  [ -z "$paused" ] || "$1" unpause $paused >/dev/null 2>&1
  remove_containers "$1" $ids >/dev/null 2>"$at/log"
}
round() {
  left= again=network removed=0 f=$(mine "$1" "$controller" "$sandbox")
  look_elsewhere "$1"
  "$1" ps --all $f --format '{{.ID}} {{.Status}}' >"$at/container" || return 1
  remove_found "$1" || removed=2
  for look in $looks; do wait $look || return 1; done
  [ $removed = 0 ] || return 2
  for kind in $kinds; do
    case $kind in image) ids=$(our_images <"$at/image") ;; *) ids=$(cat "$at/$kind") ;; esac
    [ -n "$ids" ] || continue
    left=yes
    [ $kind = network ] || again="$again $kind"
    "$1" $kind rm $([ $kind = image ] && echo --force) $ids >/dev/null 2>"$at/log" || return 2
  done
  [ -z "$settled" ] || kinds=$again
}
# Ask only the engine that made the stack, if that is noted: the daemon of another one may not run.
for directory in "$d" "$d.gone"; do
  if [ -f "$directory/engine" ]; then
    read -r noted <"$directory/engine"
    case $noted in docker | podman) set -- "$noted" ;; esac
  fi
done
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
      1)
        # Without a directory, nothing was made yet; an engine without a daemon does not matter then.
        if [ $# -gt 1 ] && [ ! -e "$d" ] && [ ! -e "$d.gone" ]; then break; fi
        exit 1
        ;;
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
  "$1" image inspect --format . "$image" >/dev/null 2>&1 || import_empty "$1" "$image" "$controller" "$sandbox" || return 1
  "$1" run --rm --network none $(label_options "$controller" "$sandbox") $(host_programs) \
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
    [MINE, END_START, REMOVE].concat()
}

/// A line for everything of a controller's: kind, sandbox, name, state, time. `$1` base, `$2` controller, `$3` sandbox or nothing, then the engines.
const INVENTORY: &str = r#"
set -eu
base=$1 controller=$2 sandbox=$3
shift 3
t='	'
# An engine that no stack here was made with need not answer: its daemon may not run.
needed() {
  for note in "$base/$controller"/*/engine; do
    [ -f "$note" ] || continue
    read -r noted <"$note"
    [ "$noted" != "$1" ] || return 0
  done
  for at in "$base/$controller"/*; do [ ! -d "$at" ] || [ -f "$at/engine" ] || return 0; done
  return 1
}
list() {
  if [ -n "$sandbox" ]; then f=$(mine "$1" "$controller" "$sandbox"); else f="--filter label=sandboxer.home=$controller"; fi
  ids=$("$1" ps --all --quiet $f) || return 1
  [ -z "$ids" ] || "$1" inspect --type container --format "container$t{{json (index .Config.Labels \"sandboxer.sandbox\")}}$t{{.Name}}$t{{.State.Status}}$t{{.Created}}" $ids || return 1
  ids=$("$1" network ls --quiet $f) || return 1
  [ -z "$ids" ] || "$1" network inspect --format "network$t{{json (index .Labels \"sandboxer.sandbox\")}}$t{{.Name}}$t-$t{{.Created}}" $ids || return 1
  ids=$("$1" volume ls --quiet $f) || return 1
  [ -z "$ids" ] || "$1" volume inspect --format "volume$t{{json (index .Labels \"sandboxer.sandbox\")}}$t{{.Name}}$t-$t{{.CreatedAt}}" $ids || return 1
  ids=$("$1" images $f --format '{{.ID}} {{.Repository}}') || return 1
  ids=$(printf '%s\n' "$ids" | our_images)
  [ -z "$ids" ] || "$1" image inspect --format "image$t{{json (index .Config.Labels \"sandboxer.sandbox\")}}$t{{$(id_field "$1")}}$t-$t{{.Created}}" $ids || return 1
}
for engine in "$@"; do
  command -v "$engine" >/dev/null || continue
  list "$engine" || ! needed "$engine"
done
[ -d "$base/$controller" ] || exit 0
find "$base/$controller" -mindepth 1 -maxdepth 1 -name "${sandbox:-*}*" -printf "directory$t\"%f\"$t%p$t-$t%T@\n"
"#;

/// Lists what there is of a controller's, see [`INVENTORY`].
pub(super) fn inventory() -> String {
    [MINE, INVENTORY].concat()
}

/// `tar_in_container CONTROLLER SANDBOX VOLUME OPTION…` runs the host's `tar` in a container above a volume. podman's `cp`
/// does not see volumes below a directory and loses owners.
const VOLUME_TAR: &str = r#"
tar_in_container() {
  labels=$(label_options "$1" "$2") image=sandboxer-volumes:$2 volume=$3
  shift 3
  podman run --rm --interactive --network none --log-driver none $labels $(host_programs) \
    --volume "$volume:/kept/volume" "$image" tar -C /kept "$@"
}
"#;

/// Writes the files of a volume to the output, compressed. `$1` engine, `$2` controller, `$3` sandbox, `$4` volume.
const KEEP: &str = r#"
set -eu
pack() {
  case $1 in
    podman) tar_in_container "$2" "$3" "$4" -cf - . ;;
    *) "$1" cp "sandboxer-volumes-$3:/kept/$4/." - ;;
  esac
}
# A shell sees only the exit code of the last command in a pipe.
exec 3>&1
failed=$({ { pack "$@" || echo "$?" >&4; } | gzip -1 >&3; } 4>&1)
[ -z "$failed" ]
"#;

/// Fills a volume with what [`KEEP`] wrote. The same arguments.
const FILL: &str = r#"
set -eu
unpack() {
  case $1 in
    podman) tar_in_container "$2" "$3" "$4" -xpf - --numeric-owner ;;
    *) "$1" cp --archive - "sandboxer-volumes-$3:/kept/$4" ;;
  esac
}
failed=$({ { gzip -dc || echo "$?" >&4; } | unpack "$@" >&2; } 4>&1)
[ -z "$failed" ]
"#;

pub(super) fn keep_volume() -> String {
    [MINE, VOLUME_TAR, KEEP].concat()
}

pub(super) fn fill_volume() -> String {
    [MINE, VOLUME_TAR, FILL].concat()
}

/// Whether a directory is there. `$1`.
pub(super) const IS_THERE: &str = r#"[ -d "$1" ] && [ ! -L "$1" ]"#;
