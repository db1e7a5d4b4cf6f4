# ctest: timeout 300
# ranks.sh -- ranks with a GPU each train as one rank does that accumulates, to the byte, and nearly as processors do;
# a lost rank ends the others; without NCCL, or without enough GPUs, the reason is named
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_background.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_mpi.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_cuda.sh"
cd "$WORK" || exit 1
export TANDEM_NCCL="$stand_in" TANDEM_STAND_IN_DEVICES=3 TMPDIR="$WORK"

# losses FILE FILE: the "train loss" that two runs printed, to four digits
losses() {
    for file; do sed -n 's/^train loss *//p' "$file"; done | awk '
        { loss[NR] = $1 }
        END { d = loss[1] - loss[2]; exit !(NR == 2 && loss[1] > 0 && d < 5e-4 && d > -5e-4) }' ||
        complain "losses differ: $(sed -n 's/^train loss *//p' "$@" | tr '\n' ' ')"
}

no_segment_is_left() {
    if ls | grep '^nccl-stand-in-' >&2; then complain "shared memory is left"; fi
}

drawn set --classes 4 --train 96 --val 8
plain_model plain.td 32 16 32 1 0.1 # without norms: running statistics are every rank's own, all else is bytes
small_model small.td 32 4
fixed="--threads 1 --workers 1 --seed 7 --lr 0.01 --final-state --no-checkpoints --training-only"
all="--model plain.td $fixed --epochs 1"
gpu="--device cuda --precision fp32"

# --- in the order of ranks: the bytes of one rank that accumulates, and of sums on the host -------
expect 0 train set $all $gpu -b 8 --optimizer-batch-size 16 --final-weights one.safetensors
cp out one.out
expect 0 launch --log info --nproc 2 train set $all $gpu -b 8 --final-weights two.safetensors
log_names ranks: 'by NCCL'
same one.safetensors two.safetensors
losses one.out out
for order in late early; do # a wait that is missing makes other numbers in one of them
    TANDEM_STAND_IN_ORDER=$order expect 0 launch --nproc 2 train set $all $gpu -b 8 --final-weights two.safetensors
    same one.safetensors two.safetensors
done
expect 0 launch --nproc 2 train set $all -b 8
losses one.out out
TANDEM_STAND_IN_DEVICES=1 expect 0 launch --nproc 2 train set $all $gpu -b 8 --final-weights two.safetensors
warning_names 'rank 0' 'rank 1' 'one GPU'
same one.safetensors two.safetensors
for mpi in $mpis; do # the id of the group travels by MPI
    last="mpirun.$mpi -n 2 tandem train set $all $gpu"
    mpirun.$mpi -n 2 "$TANDEM" train set $all $gpu -b 8 --final-weights two.safetensors >out 2>err </dev/null ||
        complain "exit code $?"
    log_names ranks: 'by NCCL'
    same one.safetensors two.safetensors
done
expect 0 train set $all $gpu -b 4 --optimizer-batch-size 24 --final-weights one.safetensors
expect 0 launch --nproc 3 train set $all $gpu -b 4 --optimizer-batch-size 24 --reproducible --final-weights two.safetensors
same one.safetensors two.safetensors
expect 0 launch --nproc 2 train set $all $gpu -b 8 --optimizer-batch-size 32 --final-weights one.safetensors
TANDEM_STAND_IN_DEVICES=1 expect 0 launch --nproc 2 train set $all $gpu -b 8 --optimizer-batch-size 32 \
    --final-weights two.safetensors
same one.safetensors two.safetensors

# --- several buckets, which are summed while others are computed ----------------------------------
drawn few --classes 2 --train 8 --val 2
deep="--arch resnet18 --image-size 32 --lr 0.002 -b 4 --epochs 1 --threads 1 --seed 7 --no-checkpoints --training-only"
expect 0 launch --nproc 2 train few $deep $gpu --final-weights two.safetensors
cp out deep.out
TANDEM_STAND_IN_DEVICES=1 expect 0 launch --nproc 2 train few $deep $gpu --final-weights one.safetensors
same one.safetensors two.safetensors
expect 0 launch --nproc 2 train few $deep
losses deep.out out

# --- in NCCL's order ------------------------------------------------------------------------------
expect 0 launch --nproc 2 train set $all $gpu -b 8
cp out exact.out
expect 0 launch --log info --nproc 3 train set $all $gpu -b 4 --allreduce fast --allreduce-check 2
log_names ranks: 'by NCCL in its own order'
for dtype in float32 bf16 fp16; do
    expect 0 launch --nproc 2 train set $all $gpu -b 8 --allreduce fast --allreduce-dtype $dtype --allreduce-check 2
    losses exact.out out
    if grep 'allreduce' err >&2; then complain "warned"; fi
done
no_segment_is_left

# --- a network with norms, a loss that is scaled, mixed precision ---------------------------------
norms="--model small.td $fixed --epochs 1 -b 8 --loss-scale 128"
expect 0 launch --nproc 2 train set $norms
cp out cpu.out
for precision in fp32 fp16; do
    expect 0 launch --nproc 2 train set $norms --device cuda --precision $precision --final-weights two.safetensors
    cp out gpu.out
    TANDEM_STAND_IN_DEVICES=1 expect 0 launch --nproc 2 train set $norms --device cuda --precision $precision \
        --final-weights one.safetensors
    same one.safetensors two.safetensors
    losses cpu.out gpu.out
done

# --- no NCCL, not enough GPUs ---------------------------------------------------------------------
TANDEM_NCCL=/nowhere/libnccl.so.2 expect 1 launch --nproc 2 train set $all $gpu -b 8 --allreduce fast
error_names '--allreduce fast' 'NCCL' '/nowhere/libnccl.so.2' 'TANDEM_NCCL'
TANDEM_NCCL=/nowhere/libnccl.so.2 expect 0 launch --nproc 2 train set $all $gpu -b 8 --final-weights one.safetensors
warning_names 'rank 0' 'NCCL' '/nowhere/libnccl.so.2' 'TANDEM_NCCL'
[ "$(grep -c '^tandem: warning: ' err)" = 1 ] || complain "every rank warns"
expect 0 launch --nproc 2 train set $all $gpu -b 8 --final-weights two.safetensors
same one.safetensors two.safetensors
TANDEM_STAND_IN_DEVICES=1 expect 1 launch --nproc 2 train set $all $gpu -b 8 --allreduce fast
error_names '--allreduce fast' 'rank 0' 'rank 1' 'one GPU'
TANDEM_STAND_IN_DEVICES=2 expect 1 launch --nproc 3 train set $all $gpu -b 8
error_names 'device cuda' 'rank 2' 2

# --- a call that fails on one rank: both end, with an error that names it ---------------------------
run="launch --nproc 2 train set --model plain.td $fixed --epochs 1 --run-iters 2 -b 8 $gpu"
export TANDEM_STAND_IN_RANK=1 TANDEM_STAND_IN_LOG="$PWD/calls"
expect 0 $run
awk '/^nccl|Event|Query/ { n[$1]++ } END { for (c in n) { print c, 1; if (c !~ /Query|Async/ && n[c] > 1) print c, n[c] } }' \
    calls >chosen
grep -q ncclAllGather chosen || complain "no calls of NCCL were listed"
while read -r name n; do
    rm -f calls
    last="TANDEM_STAND_IN_CALL=$name TANDEM_STAND_IN_FAIL=$n tandem $run"
    code=0
    TANDEM_STAND_IN_CALL=$name TANDEM_STAND_IN_FAIL=$n timeout 60 "$TANDEM" $run >out 2>err </dev/null || code=$?
    case $name,$code in
    ncclCommFinalize,0) warning_names "$name" ;; # the run had ended
    *,1) error_names 'rank 1' "$name" ;;
    *) complain "exit code $code" ;;
    esac
    if grep '^left: ' calls >&2; then complain "not freed"; fi
done <chosen
unset TANDEM_STAND_IN_RANK TANDEM_STAND_IN_LOG
no_segment_is_left

# --- a rank that is lost --------------------------------------------------------------------------
for mode in exact fast; do
    starts kill launch --log debug --nproc 2 train set --model small.td --threads 1 --workers 1 -b 8 -p 1 \
        --epochs 100000 --training-only --workspace run --overwrite $gpu --allreduce $mode
    waits kill 'epoch 0, iteration 3/' && kill -KILL "$(process kill 1)"
    ends kill 137
    log_names 'rank 1' 'signal 9'
    grep -qs '^State:.[^ZX]' "/proc/$(process kill 0)/status" && complain "rank 0 is left behind"
done
starts stop launch --log debug --nproc 2 train set --model small.td --threads 1 --workers 1 -b 8 -p 1 --epochs 100000 \
    --training-only --workspace run --overwrite $gpu
waits stop 'epoch 0, iteration 3/' && kill -STOP "$(process stop 1)"
ends stop 1
log_names 'rank 1'
for r in 0 1; do
    grep -qs '^State:.[^ZX]' "/proc/$(process stop $r)/status" && complain "rank $r is left behind"
done
no_segment_is_left
finish
