# Starts the machine and waits for the end of its own input. With its first process everything ends that runs there, and with that its
# namespaces: what is left are the directory, its mounts on this side, and control groups.
dir=$1 group=$2 bytes=$3 enclosed=$4 kinds=$5
shift 5

hierarchies() { awk '$3 == "cgroup" || $3 == "cgroup2" { print $2 }' /proc/self/mounts; }

# Whoever calls this is in a control group of the machine's own from then on.
enclose() {
    me=$(exec sh -c 'echo $PPID')
    for at in $(hierarchies); do
        mkdir "$at/$group"
        for values in cpuset.cpus cpuset.mems; do
            [ ! -e "$at/$values" ] || cat "$at/$values" >"$at/$group/$values"
        done
        echo "$me" >"$at/$group/cgroup.procs"
    done
}

network=$(readlink /proc/self/ns/net)
[ "$bytes" = 0 ] || mount -t tmpfs -o "size=$bytes,mode=700" tmpfs "$dir/root"
(
    [ "$enclosed" = no ] || enclose
    # shellcheck disable=SC2086  # a list of options on purpose
    exec unshare $kinds --fork --kill-child --propagation private \
        sh "$dir/init" "$dir" "$group" "$enclosed" "$network" "$@"
) >>"$dir/log" 2>&1 </dev/null &
started=$!
read -r _
first=$(cat "$dir/machine") && kill -KILL "$first" || kill -KILL $started
# Who is frozen does not die of anything.
find /sys/fs/cgroup -path "*/$group*" -name freezer.state | while read -r state; do echo THAWED >"$state"; done
wait $started
while [ -n "$first" ] && [ -e "/proc/$first" ]; do sleep 0.01; done
cut -d' ' -f2 /proc/self/mounts | grep "^$dir/" | sort -r | while read -r at; do umount --lazy "$at"; done
find /sys/fs/cgroup -depth -type d -path "*/$group*" -exec rmdir {} ';'
rm -rf "$dir"
