# The first process of a machine: gives it what is its own, says that it is there, starts what it is told to, and waits.
dir=$1 group=$2 enclosed=$3 outer_network=$4
shift 4
set -e

# Still the outer view: this is our number out there.
read -r number _ </proc/self/stat
mount -t proc proc /proc

# Copies of what other tests have mounted would keep their disks busy for as long as this machine runs.
cut -d' ' -f2 /proc/self/mounts | grep "^${TMPDIR:-/tmp}/" | grep -v "^$dir/" | sort -r | while read -r at; do
    umount --lazy "$at" || :
done

mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mkdir -m 755 /run/sshd /run/lock /run/etc /run/work

# A view of the devices of this network, with the control groups where they were. There is one for each network, which is mounted once.
if [ "$(readlink /proc/self/ns/net)" != "$outer_network" ]; then
    mkdir /run/cgroup
    mount --rbind /sys/fs/cgroup /run/cgroup
    mount -t sysfs sysfs /sys
    mount --rbind /run/cgroup /sys/fs/cgroup
    umount --lazy --recursive /run/cgroup
    ip link set lo up
fi
if [ "$enclosed" = yes ]; then
    # Those below the first view are still listed.
    for at in $(awk '$3 == "cgroup" || $3 == "cgroup2" { print $2 }' /proc/self/mounts | sort -u); do
        mount --bind "$at/$group" "$at"
    done
fi

mount -t overlay -o lowerdir=/etc,upperdir=/run/etc,workdir=/run/work overlay /etc || {
    cp -a /etc/. /run/etc
    mount --bind /run/etc /etc
}
cat "$dir/passwd" >>/etc/passwd
cat "$dir/group" >>/etc/group
# What an engine of the guest's needs: ids for its containers, a directory until the next start, and the device of its network.
cat "$dir/subordinate-ids" >>/etc/subuid
cat "$dir/subordinate-ids" >>/etc/subgid
mkdir -p /run/user
install -d -m 700 -o guest -g guest /run/user/64321
if [ -e /dev/net/tun ]; then
    mknod -m 666 /run/tun c 10 200
    mount --bind /run/tun /dev/net/tun
fi
mkdir -p /etc/containers
cp "$dir/storage.conf" /etc/containers/
# As where a resolver of the system's runs, which is what an engine asks on behalf of its containers.
rm -f /etc/resolv.conf
echo nameserver 127.0.0.53 >/etc/resolv.conf

mount --bind "$dir/root" /root
mount --bind "$dir/home" /home
hostname "${group#sbx-}"

echo "$number" >"$dir/machine.new"
mv "$dir/machine.new" "$dir/machine"
[ $# = 0 ] || "$@" &
sleep infinity &
wait
