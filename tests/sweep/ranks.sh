#!/bin/sh
# ranks.sh -- ranks are killed at random steps, and a network goes away; run by hand, for as long as one likes
#
#   tests/sweep/ranks.sh KILLS [NP...]      KILLS for each number of ranks; default: 20, of 2 4 8 ranks
#
# TANDEM: the command (build/release/tandem).  SEED: which steps and ranks; the same number, the same choices.
# RESUME: after every so-manieth kill the run goes on from its checkpoint to the end and must come to the bytes of
# a run that nobody disturbed (10; 0: never).  Exit code 1 when anything was wrong, each time in one line.
#
# Judged after each kill: the launch ends within 10 s with 128 + 9, says which rank was ended and that the others
# found it gone, and leaves no process behind.  Then, where the machine lets us have network namespaces: two
# machines of two ranks each, joined by a pair of veth; the link goes down; all four ranks and both launches end
# within 10 s and name a rank of the other side.
set -u
kills=${1:-20}
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- 2 4 8
. "$(dirname "$0")/../e2e/lib_files.sh"
TANDEM=$(realpath "${TANDEM:-build/release/tandem}")
work=$(mktemp -d)
seed=${SEED:-1} resume_every=${RESUME:-10}
bad=0 n_done=0 n_resumed=0 slowest=0
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

complain() {
    echo "wrong: $*"
    sed 's/^/    /' err | tail -5
    bad=$((bad + 1))
}

# random N: 0 .. N - 1 into $random
random() {
    seed=$(((seed * 1103515245 + 12345) % 2147483648))
    random=$((seed / 65536 % $1))
}

now_ms() {
    date +%s%3N
}

process() {
    sed -n "s/^launch: rank $1 is process //p" err
}

# nothing of the ranks 0 .. N - 1 lives
nobody_left() {
    r=0
    while [ $r -lt "$1" ]; do
        grep -qs '^State:.[^ZX]' "/proc/$(process $r)/status" && complain "$2: rank $r is left behind"
        r=$((r + 1))
    done
}

plain_model net.td 16 8 16 2 0.1
"$TANDEM" dataset draw set --classes 4 --train 128 --val 8 --size 16 >out 2>err || exit 1
epochs=100 # of 128 / (2 NP) steps; more than are reached before the kill
ends=12    # where the runs that nobody kills end: beyond any kill
fixed="train set --model net.td --threads 1 --workers 1 --seed 3 --lr 0.01 -b 2 -p 1 --epochs $epochs --checkpoint-every 1"

# --- kills ---------------------------------------------------------------------------------------
# kill_one NP: at a random step of the first three epochs
kill_one() {
    np=$1
    random $((3 * 64 / np))
    step=$random
    per_epoch=$((64 / np))
    random "$np"
    rank=$random
    at="epoch $((step / per_epoch)), iteration $((step % per_epoch + 1))/"
    name="$np ranks, rank $rank killed at $at$per_epoch"
    rm -rf run
    : >err
    "$TANDEM" launch --log debug --nproc "$np" --cpu-affinity none $fixed --workspace run >out 2>err </dev/null &
    pid=$!
    until grep -q "$at" err; do
        kill -0 $pid 2>/dev/null || break
        sleep 0.002
    done
    began=$(now_ms)
    kill -KILL "$(process "$rank")" 2>/dev/null || complain "$name: it was gone already"
    code=0
    wait $pid || code=$?
    took=$(($(now_ms) - began))
    [ $took -gt $slowest ] && slowest=$took
    [ $code = 137 ] || complain "$name: exit code $code, wanted 137"
    [ $took -le 10000 ] || complain "$name: took $took ms"
    grep -q "rank $rank was ended by signal 9" err || complain "$name: the launch does not name it"
    if [ "$rank" != 0 ]; then # whose words go nowhere once it is dead
        grep -Eq "rank $rank \(.*, process [0-9]+\) is gone" err || complain "$name: rank 0 does not name it"
    fi
    nobody_left "$np" "$name"
    n_done=$((n_done + 1))
}

# the run goes on to the end, and is what it would have been
go_on() {
    from=
    [ -e run/checkpoint.safetensors ] && from="--resume run/checkpoint.safetensors"
    "$TANDEM" launch --nproc "$np" --cpu-affinity none $fixed --epochs $ends --final-state $from --workspace run \
        --final-weights after.safetensors >out 2>err </dev/null || complain "$name: does not go on"
    cmp -s after.safetensors "straight$np.safetensors" || complain "$name: going on gave other bytes"
    n_resumed=$((n_resumed + 1))
}

for np; do
    "$TANDEM" launch --nproc "$np" --cpu-affinity none $fixed --epochs $ends --final-state --workspace straight \
        --final-weights "straight$np.safetensors" >out 2>err </dev/null || complain "$np ranks: no run at all"
    i=0
    while [ $i -lt "$kills" ]; do
        i=$((i + 1))
        kill_one "$np"
        [ "$resume_every" -gt 0 ] && [ $((i % resume_every)) = 0 ] && go_on
    done
    echo "$np ranks: $i kills; slowest end so far $slowest ms"
done
echo "$n_done kills, $n_resumed resumed, $bad wrong"

# --- a network that goes away ----------------------------------------------------------------------
a=tandem-a-$$ b=tandem-b-$$
if ! ip netns add $a 2>netns.err || ! ip netns add $b 2>>netns.err; then
    echo "skipped: network namespaces: $(head -1 netns.err)"
    ip netns del $a 2>/dev/null
    exit $((bad > 0))
fi
trap 'ip netns del $a; ip netns del $b; rm -rf "$work"' EXIT
ip link add veth-a netns $a type veth peer name veth-b netns $b || exit 1
ip -n $a addr add 10.77.0.1/24 dev veth-a && ip -n $b addr add 10.77.0.2/24 dev veth-b || exit 1
for side in a b; do
    eval "ns=\$$side"
    ip -n "$ns" link set lo up && ip -n "$ns" link set veth-$side up || exit 1
done

# node SIDE NUMBER: its launch, beside us; stderr to SIDE.err
node() {
    eval "ns=\$$1"
    TANDEM_NO_SHARED_MEMORY=1 ip netns exec "$ns" "$TANDEM" launch --log debug --nnodes 2 --node-rank "$2" --nproc 2 --cpu-affinity none \
        --master-addr 10.77.0.1 --master-port 29517 $fixed --epochs 100000 --workspace net >/dev/null 2>"$1.err" </dev/null &
}

# cut_link HOW...: the link is lost in this way; both sides notice.  $far: whom the first machine may name
far=23
cut_link() {
    : >err
    : >a.err
    node a 0
    first=$!
    node b 1
    second=$!
    n=0
    until grep -q 'epoch 1, iteration 3/' a.err || [ $n -gt 600 ] || ! kill -0 $first 2>/dev/null; do
        n=$((n + 1))
        sleep 0.1
    done
    cp a.err err
    grep -q 'epoch 1, iteration 3/' err || complain "$*: the two machines did not begin"
    began=$(now_ms)
    "$@"
    wait $first
    code_a=$?
    took_a=$(($(now_ms) - began))
    wait $second
    code_b=$?
    took_b=$(($(now_ms) - began))
    [ $code_a = 1 ] && [ $code_b = 1 ] || complain "$*: exit codes $code_a, $code_b"
    [ $took_a -le 10000 ] && [ $took_b -le 10000 ] || complain "$*: took $took_a and $took_b ms"
    grep -Eq "error: .*rank [$far] \(" a.err || complain "$*: the first machine names nobody of the second"
    cat b.err >err
    grep -Eq 'error: .*rank [01] \(' b.err || complain "$*: the second machine names nobody of the first"
    nobody_left 4 "$*"
    grep -Eo 'rank [0-9] \(.*' a.err | tail -1
    echo "network: $*: over after $took_a and $took_b ms"
}

cut_link ip -n $a link set veth-a down
ip -n $a link set veth-a up
ip -n $a addr replace 10.77.0.1/24 dev veth-a
cut_link ip -n $b link set veth-b down
ip -n $b link set veth-b up
ip -n $b addr replace 10.77.0.2/24 dev veth-b
far=123 # with the interface goes its address, by which rank 0 and rank 1 talk, too
cut_link ip -n $b link del veth-b
echo "$bad wrong"
exit $((bad > 0))
