#!/bin/sh
# scaling.sh -- compares predictions of `benchmark --mode scaling` with steps over links of limited bandwidth
#
#   tests/sweep/scaling.sh RANKS RANKS_PER_MACHINE GBIT [BENCHMARK OPTIONS]
#
# Machines are network namespaces on one bridge; tc's tbf limits what each sends and receives to GBIT Gbit/s (0: no
# limit).  Ranks talk TCP through Open MPI (MPIRUN=mpirun.mpich: MPICH), each on one processor.  Requires root, ip, tc.
# With DELAY_US every packet also arrives so many microseconds later; the links are then those of tests/tools/slow_link.c,
# since not every kernel has tc's netem.
set -u
[ $# -ge 3 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
ranks=$1 per=$2 gbit=$3
shift 3
n=$((ranks / per))
here=$(cd "$(dirname "$0")/../.." && pwd)
TANDEM=${TANDEM:-$here/build/tandem}
MPIRUN=${MPIRUN:-mpirun.openmpi}
work=$(mktemp -d /tmp/scaling.XXXXXX) || exit 1
hub=hub-$$
clean() {
    i=0
    while [ $i -lt $n ]; do
        ip netns del m$i-$$ 2>/dev/null
        i=$((i + 1))
    done
    ip netns del $hub 2>/dev/null
    [ -z "${relay:-}" ] || kill "$relay" 2>/dev/null
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM

# limit NAMESPACE DEVICE
limit() {
    [ "$gbit" = 0 ] || ip netns exec "$1" tc qdisc add dev "$2" root tbf rate "${gbit}gbit" burst 256kb limit 32mb || exit 1
}

# join NAMESPACE INDEX: to the bridge
join() {
    ip link add net0 netns "$1" type veth peer name "p$2" netns $hub && ip -n $hub link set "p$2" up master br0 || exit 1
    limit "$1" net0
    limit $hub "p$2"
}

ip netns add $hub && ip -n $hub link add br0 type bridge && ip -n $hub link set br0 up || exit 1
hosts= all=
i=0
while [ $i -lt $n ]; do
    m=m$i-$$
    ip netns add $m || exit 1
    [ -n "${DELAY_US:-}" ] || join $m $i
    hosts=$hosts${hosts:+,}$m:$per all="$all $m"
    i=$((i + 1))
done
if [ -n "${DELAY_US:-}" ]; then
    "$here/build/release/tests/slow_link" "$gbit" "$DELAY_US" $all >"$work/ready" &
    relay=$!
    until [ -s "$work/ready" ]; do
        kill -0 $relay 2>/dev/null || exit 1
        sleep 0.1
    done
fi
i=0
for m in $all; do
    i=$((i + 1))
    [ -z "${DELAY_US:-}" ] || ip -n $m link set net0 mtu 9000 || exit 1
    ip netns exec $m sh -c 'echo reno >/proc/sys/net/ipv4/tcp_congestion_control' || exit 1 # bbr: other rates in every run
    ip -n $m addr add 10.79.0.$i/24 dev net0 && ip -n $m link set lo up && ip -n $m link set net0 up || exit 1
done
cat >"$work/agent" <<'X'
#!/bin/sh
# agent [OPTIONS] HOST COMMAND...: the command in that namespace, with that host name
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
exec ip netns exec "$host" unshare --uts sh -c 'hostname "$0"; exec sh -c "$1"' "$host" "$*"
X
cat >"$work/rank" <<'X'
#!/bin/sh
# rank COMMAND...: the command on one processor, chosen by the rank
k=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}
exec taskset -c $((k % $(nproc --all))) "$@"
X
chmod +x "$work/agent" "$work/rank"
export OMPI_MCA_plm=rsh OMPI_MCA_plm_rsh_agent="$work/agent" OMPI_MCA_btl=tcp,self OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_btl_tcp_if_include=10.79.0.0/24 OMPI_MCA_oob_tcp_if_include=10.79.0.0/24
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export HYDRA_LAUNCHER=rsh HYDRA_LAUNCHER_EXEC="$work/agent" HYDRA_IFACE=net0
TMPDIR=$work
export TMPDIR
first=m0-$$
ip netns exec $first unshare --uts sh -c 'hostname "$0"; exec "$@"' $first \
    "$MPIRUN" --oversubscribe -n "$ranks" --host "$hosts" "$work/rank" "$TANDEM" benchmark --mode scaling --threads 1 "$@"
