#!/bin/sh
# ranks.sh -- ranks are killed at random steps; run by hand, for as long as one likes
#
#   tests/sweep/ranks.sh KILLS [NP...]      KILLS for each number of ranks; default: 20, of 2 4 8 ranks
#
# TANDEM: the command (build/release/tandem).  SEED: which steps and ranks; the same number, the same choices.
# RESUME: after every so-manieth kill the run goes on from its checkpoint to the end and must come to the bytes of
# a run that nobody disturbed (10; 0: never).  Exit code 1 when anything was wrong, each time in one line.
#
# Judged after each kill: the launch ends within 10 s with 128 + 9, says which rank was ended and that the others
# found it gone, and leaves no process behind.
# A network that goes away is in tests/e2e/ranks_net.sh.
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
    grep -q "rank $rank was .*signal 9" err || complain "$name: the launch does not name it"
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
    "$TANDEM" launch --nproc "$np" --cpu-affinity none $fixed --epochs $ends --final-state --workspace straight --overwrite \
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

exit $((bad > 0))
