#!/bin/sh
# ctest: timeout 300
# order.sh -- a training on a device that queues: the same bytes in every order that events permit, with launches that
# are captured and without; and what a step copies
#
# TANDEM_STAND_IN_ORDER=late queues everything until something waits for it; with early the copies of the second
# stream run as soon as they may.  A wait that is missing makes other numbers in one of them.
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_cuda.sh"
cd "$WORK" || exit 1
unset TANDEM_STAND_IN_FAIL TANDEM_STAND_IN_ORDER TANDEM_CUDA_GRAPH
export TANDEM_STAND_IN_LOG="$PWD/calls"
run="--image-size 32 -b 4 --epochs 1 --lr 0.002 --seed 1 --threads 1 --workers 1 --no-checkpoints"
drawn set --classes 2 --train 12 --val 8

# train NAME ARGUMENTS... -- leaves NAME.losses, NAME.safetensors and NAME.calls
train() {
    name=$1
    shift
    : >calls
    expect 0 train set $run --precision fp32 --print-freq 1 --final-weights "$name.safetensors" "$@"
    mv calls "$name.calls"
    grep -E '^(train|val) loss|^top' out >"$name.losses"
    sed -n 's/.*iteration \([0-9]*\).*\(loss [0-9.]*\).*/\1 \2/p' err >>"$name.losses"
    [ "$(grep -c '^[123] loss' "$name.losses")" = 3 ] || complain "not three steps"
}

# as NAME OTHER
as() {
    same "$1.losses" "$2.losses"
    same "$1.safetensors" "$2.safetensors"
}

resnet="--arch resnet18 --device cuda"
TANDEM_CUDA_GRAPH=0 train plain $resnet
train graph $resnet
as plain graph
for order in late early; do
    TANDEM_STAND_IN_ORDER=$order TANDEM_CUDA_GRAPH=0 train $order $resnet
    TANDEM_STAND_IN_ORDER=$order train $order-graph $resnet
    as plain $order
    as plain $order-graph
done
grep -q cudaStreamWaitEvent plain.calls || complain "nothing was copied ahead"
grep -q cudaGraphLaunch graph.calls || complain "nothing was replayed"
! grep -q Graph plain.calls || complain "captured with TANDEM_CUDA_GRAPH=0"
! grep -q 'CUDA graph' err || complain "could not be captured"
TANDEM_CUDA_GRAPH=yes expect 2 train set $run $resnet
error_names TANDEM_CUDA_GRAPH yes

# --- a step that is replayed: one wait, one copy in, at most two within the device, one out for the loss and one for `finite`
small_model small.td 32 2
count() {
    grep -cx "$2" "$1.calls"
}
# steps_cost CALL LEAST MOST -- of a step, from runs of three and of five; the second step is captured
steps_cost() {
    cost=$(($(count five "$1") - $(count three "$1")))
    [ "$cost" -ge $((2 * $2)) ] && [ "$cost" -le $((2 * $3)) ] || complain "two steps call $1 $cost times"
}
for precision in "--precision fp32" --amp; do
    for n in 3 5; do
        : >calls
        expect 0 train set --model small.td $run --training-only --device cuda --epochs 2 --run-iters $n $precision
        mv calls "$([ $n = 3 ] && echo three || echo five).calls"
    done
    steps_cost cudaStreamSynchronize 1 1
    steps_cost cudaMemcpyAsync 2 5
    steps_cost cudaMalloc 0 0
    steps_cost cudaHostAlloc 0 0
    steps_cost cudaGraphLaunch 1 1
    steps_cost launch 0 0
    steps_cost cudnnBackendExecute 0 0
    steps_cost cublasLtMatmul 0 0
done

# --- memory of the processor that only kernels and copies may use goes the same way
train host --model small.td
TANDEM_GUARD_MEMORY=1 train guarded --model small.td
as host guarded
finish
