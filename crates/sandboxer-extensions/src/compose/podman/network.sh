# network NAME BRIDGE OPTION…: makes a network unless it is there. The firewall knows the bridge by its name, which this podman takes
# from the network's own file alone; there the name server goes too, which would ask the host's for whatever a service asks it.
network() {
  name=$1 bridge=$2
  shift 2
  podman network exists "$name" || podman network create "$@" "$name" >/dev/null
  [ -n "$bridge" ] || return 0
  file=/etc/containers/networks/$name.json
  [ -f "$file" ] || { echo "podman does not keep its networks in ${file%/*}" >&2; exit 41; }
  sed -e 's/"network_interface": *"[^"]*"/"network_interface": "'"$bridge"'"/' -e 's/"dns_enabled": *true/"dns_enabled": false/' "$file" >"$file.new"
  mv -- "$file.new" "$file"
  is=$(podman network inspect --format '{{.NetworkInterface}} {{.DNSEnabled}}' "$name")
  [ "$is" = "$bridge false" ] || { echo "the bridge of network $name cannot be named: $is" >&2; exit 41; }
}
