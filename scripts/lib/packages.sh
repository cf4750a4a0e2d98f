# What the tests need from the system, and how it is installed. Sourced by ./test.

# Packages of servers (docker.io, mariadb-server, openssh-server, postgresql) start one where the system lets them; no test talks to it. Who does
# not want an sshd on port 22 says so first: /usr/sbin/policy-rc.d, or `systemctl mask ssh`.
# command : Debian package : what stays untested without it
readonly SYSTEM_TOOLS='
cc:gcc:nothing can be built (SQLite is compiled from source)
git:git:patches checked with git apply
patch:patch:patches checked with patch
strace:strace:kill at every syscall, failing syscalls
mount:mount:everything on a loop mount or a tmpfs of its own
mkfs.ext4:e2fsprogs:what needs ext4 on a loop mount
mkfs.xfs:xfsprogs:copy_on_write with real reflinks
xfs_io:xfsprogs:power cuts
setpriv:util-linux:commands as another user
taskset:util-linux:sweeps on one processor
stress-ng:stress-ng:a filesystem tester at work in an overlay
script:bsdutils:what run asks on a terminal
tmux:tmux:programs on a terminal inside a sandbox
make:make:builds inside a sandbox; the benchmark of a compile
nsenter:util-linux:the benchmark of exec into a live sandbox
bwrap:bubblewrap:the benchmark of run against another container
man:man-db:rendering of the man pages
zsh:zsh:completions for zsh
fish:fish:completions for fish
mkfs.btrfs:btrfs-progs:what needs btrfs on a loop mount
sqlite3:sqlite3:the walk through docs/databases.md
python3:python3:custom strategies in Python
curl:curl:the walk through docs/http.md
wrk:wrk:the benchmark of requests a second
dockerd:docker.io:containers, as environments and by the example strategy
mariadbd:mariadb-server:held transactions on MariaDB
pg_ctlcluster:postgresql:held transactions on PostgreSQL
busybox:busybox-static:the image that containers are tried with
ssh:openssh-client:everything on other machines
sshd:openssh-server:everything on other machines
ip:iproute2:networks of other machines
socat:socat:networks of other machines
iptables:iptables:engines on other machines
docker-compose:docker-compose:stacks of services on other machines
podman:podman:other machines whose engine is podman
/usr/lib/podman/netavark:netavark:stacks on podman
slirp4netns:slirp4netns:podman without root
newuidmap:uidmap:podman without root
catatonit:catatonit:an init process in containers of podman
'

# Prints the lines of SYSTEM_TOOLS whose command is not there.
missing_tools() {
    local command rest
    # Administration commands are not on an ordinary user's PATH.
    local PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"
    while IFS=: read -r command rest; do
        [ -n "$command" ] || continue
        have "$command" || printf '%s:%s\n' "$command" "$rest"
    done <<<"$SYSTEM_TOOLS"
}

# Prints how to become root: nothing for root, `sudo -n` where that asks no password. Fails where there is no way.
as_root() {
    if [ "$(id -u)" = 0 ]; then return 0; fi
    if have sudo && sudo -n true 2>/dev/null; then echo "sudo -n"; return 0; fi
    return 1
}

# apt_install PACKAGE…: as many of them as there are. What is missing afterwards is said by the caller.
apt_install() {
    local prefix package apt
    prefix=$(as_root) || { say "not root, and no sudo without a password: installing nothing"; return 0; }
    have apt-get || { say "no apt-get here: installing nothing"; return 0; }
    apt="$prefix env DEBIAN_FRONTEND=noninteractive apt-get -qq"
    $apt update </dev/null >&2 || say "apt-get update failed; trying with the lists there are"
    $apt install -y --no-install-recommends "$@" </dev/null >&2 && return 0
    # One unknown package refuses them all: again, one at a time.
    for package in "$@"; do
        $apt install -y --no-install-recommends "$package" </dev/null >&2 || say "cannot install $package"
    done
}

# Installs what is missing where that is possible, and says what stays untested where it is not.
install_missing() {
    local missing packages command package purpose
    missing=$(missing_tools)
    [ -n "$missing" ] || return 0
    packages=$(cut -d: -f2 <<<"$missing" | sort -u)
    [[ $packages != *gcc* ]] || packages="$packages libc6-dev"
    step "installing $(tr '\n' ' ' <<<"$packages")"
    # shellcheck disable=SC2086  # a list of words on purpose
    apt_install $packages
    while IFS=: read -r command package purpose; do
        [ -n "$command" ] || continue
        note_skip "$command is missing (Debian package $package): $purpose"
    done <<<"$(missing_tools)"
}

# A release of Debian whose `docker-compose` is the second version, a plugin of docker.
readonly COMPOSE_RELEASE=trixie

# Where docker has no `compose`, fetches it for the tests, and installs it nowhere: machines that tests make get it (SANDBOXER_TEST_COMPOSE).
compose_plugin() {
    local root
    ! docker compose version >/dev/null 2>&1 || return 0
    root="$(tool_cache)/compose-$COMPOSE_RELEASE"
    [ -x "$root/docker-compose" ] || fetch_compose "$root" >&2 ||
        { note_skip "\`docker compose\` cannot be fetched from Debian $COMPOSE_RELEASE: stacks made by it"; return 0; }
    export SANDBOXER_TEST_COMPOSE="$root/docker-compose"
}

# fetch_compose DIRECTORY: with lists and a cache of its own, from the mirror that this system has its packages from.
fetch_compose() {
    local root=$1 mirror apt keys=/usr/share/keyrings/debian-archive-keyring.gpg
    have apt-get || { say "no apt-get here"; return 1; }
    # shellcheck disable=SC2016  # apt's own variable
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | head -n 1)
    [ -n "$mirror" ] || { say "no mirror of Debian is known here"; return 1; }
    say "fetching docker compose into $root (once)"
    mkdir -p "$root/lists/partial" "$root/cache/archives/partial" "$root/files"
    echo "deb [signed-by=$keys] $mirror $COMPOSE_RELEASE main" >"$root/sources.list"
    apt="apt-get -qq -o Dir::Etc::sourcelist=$root/sources.list -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists=$root/lists -o Dir::Cache=$root/cache"
    $apt update && (cd "$root" && $apt download docker-compose) || return 1
    dpkg-deb --extract "$root"/docker-compose_*.deb "$root/files" || return 1
    mv "$root/files/usr/libexec/docker/cli-plugins/docker-compose" "$root/docker-compose" || return 1
    rm -rf "$root/lists" "$root/cache" "$root/files" "$root"/docker-compose_*.deb
}
