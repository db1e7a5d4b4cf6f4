# ctest: timeout 600
# ranks_net.sh -- ranks on two machines, here network namespaces with host names of their own and a link between them:
# the bytes of one rank, through `launch --hosts`; when the link is cut, all ranks and mpirun end, and one names a rank of
# the other machine; with --restarts, the run continues without a machine that is lost; skipped where namespaces or MPI cannot be had
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_background.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_mpi.sh"

skip() {
    echo "skipped: $*" >&2
    exit 77
}
[ -n "$mpis" ] || skip "${mpis_missing#skipped: }"
command -v ip >/dev/null 2>&1 && command -v unshare >/dev/null 2>&1 || skip "no ip, or no unshare"
a=tandem-a-$$ b=tandem-b-$$
trap 'ip netns del $a 2>/dev/null; ip netns del $b 2>/dev/null' EXIT
ip netns add $a 2>netns.err && ip netns add $b 2>>netns.err || skip "network namespaces: $(head -1 netns.err)"
unshare --uts true 2>netns.err || skip "host names of their own: $(head -1 netns.err)"
ip link add net0 netns $a type veth peer name net0 netns $b 2>netns.err || skip "a link: $(head -1 netns.err)"
ip -n $a addr add 10.77.0.1/24 dev net0 && ip -n $b addr add 10.77.0.2/24 dev net0 || skip "addresses"
for ns in $a $b; do
    ip -n $ns link set lo up && ip -n $ns link set net0 up || skip "links that are up"
done

# what mpirun uses in ssh's place
cat >agent <<'END'
#!/bin/sh
# agent [OPTIONS] HOST COMMAND...: the command in that namespace, with that host name
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
[ ! -e "$GONE" ] || [ "$(cat "$GONE")" != "$host" ] || exit 255
exec ip netns exec "$host" unshare --uts sh -c 'hostname "$0"; exec sh -c "$1"' "$host" "$*"
END
chmod +x agent
export GONE="$PWD/gone" # a file with the name of the machine that cannot be reached
export OMPI_MCA_plm=rsh OMPI_MCA_plm_rsh_agent="$PWD/agent" OMPI_MCA_btl=tcp,self
export OMPI_MCA_btl_tcp_if_include=10.77.0.0/24 OMPI_MCA_oob_tcp_if_include=10.77.0.0/24
export OMPI_MCA_oob_tcp_retry_delay=1 # ten attempts to connect, also while a link is not up yet
export PRTE_MCA_plm_ssh_agent="$PWD/agent"
export HYDRA_LAUNCHER=rsh HYDRA_LAUNCHER_EXEC="$PWD/agent" HYDRA_IFACE=net0
TMPDIR=$(mktemp -d /tmp/tandem.XXXXXX) && export TMPDIR # the paths of sockets are short
trap 'ip netns del $a 2>/dev/null; ip netns del $b 2>/dev/null; rm -rf "$TMPDIR"' EXIT

# the first machine runs the command
on_a() {
    ip netns exec $a unshare --uts sh -c 'hostname "$0"; exec "$@"' $a "$@"
}

drawn set --classes 4 --train 96 --val 23
plain_model plain.td 32 16 32 1 0.1
fixed="--model plain.td --threads 1 --workers 1 --seed 7 --lr 0.01 --no-checkpoints"
all="$fixed --epochs 2 --final-state"
expect 0 train set $all -b 4 --optimizer-batch-size 16 --final-weights one.safetensors
expect 0 train set $all -b 8 --optimizer-batch-size 16 --final-weights two.safetensors

# after a loss: 16 images a step, on however many ranks
long="--model plain.td --threads 1 --workers 1 --seed 7 --lr 0.01 -p 1 -b 8 --epochs 100000 --lr-schedule cosine --final-state"

# loses NAME: the run of two machines loses the second one, continues on the first, and is stopped there
loses() {
    waits "$1" 'epoch 2, '
    echo $b >gone
    # MPICH's library finds that the two machines are one, and sends nothing over the link
    if [ $mpi = openmpi ]; then ip -n $a link set net0 down; else kill -KILL $(ip netns pids $b); fi
    waits "$1" 'restart 1 of 1' && waits "$1" 'train: resumed'
    mpirun=$(sed -n 's/^launch: mpirun is process //p' "$1.err" | tail -n 1)
    kill -TERM "$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$mpirun/status")"
    ends "$1" 3
    log_names 'restart 1 of 1' "'$b'" '1 rank' "'lost/checkpoint.safetensors'"
    steps=$(sed -n 's/^tandem: stopped: .*[^0-9]\([0-9]*\)$/\1/p' err)
    kill -KILL $(ip netns pids $a) $(ip netns pids $b) 2>/dev/null
    rm gone
    ip -n $a link set net0 up
}

for mpi in $mpis; do
    # --- the same bytes: two ranks on each machine, then one ---------------------------------------------
    last="mpirun.$mpi, two machines of two ranks"
    on_a "$TANDEM" launch --mpirun mpirun.$mpi --hosts $a:2,$b:2 train set $all -b 4 --reproducible \
        --final-weights net.safetensors >out 2>err </dev/null || complain "exit code $?"
    log_names train: '4 ranks' '2 of them'
    same one.safetensors net.safetensors
    last="mpirun.$mpi, two machines of one rank"
    on_a "$TANDEM" launch --mpirun mpirun.$mpi --hosts $a,$b train set $all -b 8 \
        --final-weights net.safetensors >out 2>err </dev/null || complain "exit code $?"
    log_names train: '2 ranks' '1 of them'
    same two.safetensors net.safetensors

    # --- a machine is lost, with --restarts; then a signal to the launcher ---------------------------------------
    last="mpirun.$mpi, a machine is lost"
    : >lost.err
    on_a "$TANDEM" launch --log debug --mpirun mpirun.$mpi --hosts $a,$b --restarts 1 --min-ranks 1 train --log debug set \
        $long --workspace lost --overwrite >out 2>lost.err </dev/null &
    pid=$!
    loses lost
    expect 0 train set $long --workspace lost --resume lost/checkpoint.safetensors --optimizer-batch-size 16 --run-iters 5 \
        --final-weights net.safetensors
    expect 0 train set $long --optimizer-batch-size 16 --no-checkpoints --run-iters $((${steps:-0} + 5)) \
        --final-weights straight.safetensors
    same straight.safetensors net.safetensors

    # --- the link is cut ------------------------------------------------------------------------------
    [ $mpi = openmpi ] || continue
    last="mpirun.$mpi, the link is cut"
    : >cut.err
    on_a "$TANDEM" launch --mpirun mpirun.$mpi --hosts $a:2,$b:2 train --log debug set $fixed -p 1 -b 8 --epochs 100000 \
        >out 2>cut.err </dev/null &
    pid=$!
    waits cut 'epoch 2, '
    ip -n $a link set net0 down
    ranks=$(sed -n 's/^ranks: rank [0-9]* of 4 is process \([0-9]*\),.*/\1/p' cut.err)
    [ "$(echo "$ranks" | wc -l)" = 4 ] || complain "$(echo "$ranks" | wc -l) ranks have begun, wanted 4"
    for process in $ranks; do
        n=0
        while grep -qs '^State:.[^ZX]' "/proc/$process/status"; do
            n=$((n + 1))
            [ $n -gt 6000 ] && complain "process $process is left behind" && break
            sleep 0.01
        done
    done
    # mpirun, which may wait for the machine that it cannot reach, ends too
    wait $pid && complain "exit code 0"
    kill -KILL $(ip netns pids $a) $(ip netns pids $b) 2>/dev/null
    cp cut.err err
    log_names 'rank' "$b"
    if ls -d .tandem-launch-* 2>/dev/null >&2; then complain "the launcher's file is left"; fi
    ip -n $a link set net0 up
done
finish
