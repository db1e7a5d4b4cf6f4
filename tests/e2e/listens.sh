# ctest: timeout 180
# ctest: processors 2
# listens.sh -- no command but `serve` listens on a socket: neither alone nor as a rank of `launch`, Open MPI or MPICH.
# What listens in a rank under mpirun was made by a library of MPI, or inherited from mpirun.
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_background.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_mpi.sh"

# the sockets of a process that listen, by the kernel's tables: TCP in state 0A, UNIX with the flag of listen()
listening() {
    for fd in /proc/"$1"/fd/*; do
        readlink "$fd"
    done 2>/dev/null | sed -n 's/^socket:.\([0-9]*\).$/\1/p' | while read -r inode; do
        awk -v i="$inode" '$10 == i && $4 == "0A" { print i }' "/proc/$1/net/tcp" "/proc/$1/net/tcp6" 2>/dev/null
        awk -v i="$inode" '$7 == i && $4 == "00010000" { print i }' "/proc/$1/net/unix"
    done
}

# every call of listen() is logged, with the program or library that made it: tests/preload/log_listen.c
export LISTEN_LOG="$PWD/listen.log"
: >"$LISTEN_LOG"
export PRELOAD="$TANDEM_BUILD/tests/log_listen.so" LOGGED="$TANDEM"
export ASAN_OPTIONS="verify_asan_link_order=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}"
cat >logged <<'END'
#!/bin/sh
LD_PRELOAD=$PRELOAD exec "$LOGGED" "$@"
END
chmod +x logged
TANDEM=$PWD/logged

# none_of_ours: no call of listen() by code of the program, of what it is linked with, or of its plug-ins
none_of_ours() {
    ! grep -Eq ' program |/libtandem' "$LISTEN_LOG" || complain "listen() was called: $(cat "$LISTEN_LOG")"
}

# is_quiet WHAT PROCESS...: none of them listens
is_quiet() {
    what=$1
    shift
    for process; do
        [ -d "/proc/$process" ] || complain "$what: no process '$process'"
        [ -z "$(listening "$process")" ] || complain "$what: process $process listens"
    done
}

# --- both checks find a server ----------------------------------------------------------------------
small_model small.td 32 2
expect 0 init --model small.td --seed 3 -o small.safetensors
[ ! -s "$LISTEN_LOG" ] || complain "init listens: $(cat "$LISTEN_LOG")"
starts server serve --weights small.safetensors --port 0 --threads 1
waits server 127.0.0.1
grep -q "^serving small at" out || complain "a network of the user's own is not served under the name of its file: $(cat out)"
inode=$(listening $pid)
[ -n "$inode" ] || complain "a server does not listen"
grep -Eq "^$pid program $inode .*tandem" "$LISTEN_LOG" || complain "the server's call is not logged: $(cat "$LISTEN_LOG")"
kill -TERM $pid
wait $pid
: >"$LISTEN_LOG"

# --- one process -------------------------------------------------------------------------------------
expect 0 dataset draw set --classes 2 --train 8 --val 4 --size 32
fixed="--model small.td --threads 1 --workers 1 --seed 7 --lr 0.01 -b 2"
endless="$fixed -p 1 --no-checkpoints --epochs 100000"
speed="--model small.td --threads 1 -b 2 --iters 1 --warmup 0"
starts alone train set $endless
waits alone 'epoch 1, '
is_quiet train $pid
kill -TERM $pid
ends alone 3
expect 0 train set $fixed --epochs 1 --workspace run
expect 0 evaluate set --weights run/checkpoint.safetensors --threads 1 -b 2
expect 0 benchmark $speed
expect 0 classify "$(ls set/val/*/* | head -1)" --weights run/checkpoint.safetensors --threads 1
expect 0 dataset pack set set.pack
expect 0 report run -o page.html
expect 0 convert run/checkpoint.safetensors small.onnx
expect 0 inspect model --model small.td
expect 0 doctor
[ ! -s "$LISTEN_LOG" ] || complain "a socket listens: $(cat "$LISTEN_LOG")"

# --- ranks of `launch` ---------------------------------------------------------------------------------
starts quiet launch --log debug --nproc 3 --cpu-affinity none train set $endless
waits quiet 'epoch 1, '
is_quiet launch $pid "$(process quiet 0)" "$(process quiet 1)" "$(process quiet 2)"
kill -TERM $pid
ends quiet 3
expect 0 launch --nproc 2 --cpu-affinity none evaluate set --weights run/checkpoint.safetensors --threads 1 -b 2
expect 0 launch --nproc 2 --cpu-affinity none benchmark --mode allreduce --iters 1 --warmup 0
[ ! -s "$LISTEN_LOG" ] || complain "a socket listens: $(cat "$LISTEN_LOG")"

# --- ranks of mpirun: the libraries of MPI may listen -------------------------------------------------------
for mpi in $mpis; do
    : >"$LISTEN_LOG"
    last="mpirun.$mpi -np 2 tandem train"
    : >mpi.err
    mpirun.$mpi -np 2 "$TANDEM" train --log debug set $endless >out 2>mpi.err </dev/null &
    pid=$!
    waits mpi 'epoch 1, '
    ranks=$(sed -n 's/^ranks: rank [0-9]* of 2 is process \([0-9]*\),.*/\1/p' mpi.err)
    [ "$(echo "$ranks" | wc -l)" = 2 ] || complain "the ranks are '$ranks'"
    for process in $ranks; do
        for inode in $(listening "$process"); do
            grep -Eq "^$process [a-z]* $inode " "$LISTEN_LOG" || complain "nobody made socket $inode of process $process listen"
        done
    done
    kill -TERM $(echo "$ranks" | head -1)
    wait $pid
    for job in "evaluate set --weights run/checkpoint.safetensors --threads 1 -b 2" \
        "benchmark --mode allreduce --iters 1 --warmup 0"; do
        last="mpirun.$mpi -np 2 tandem $job"
        mpirun.$mpi -np 2 "$TANDEM" $job >out 2>err </dev/null || complain "exit code $?"
    done
    cp mpi.err err
    none_of_ours
done
finish
