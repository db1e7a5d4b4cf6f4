#!/bin/sh
# ctest: timeout 300
# launches.sh -- the own kernels that a training step of resnet18 launches: those that update its 62 parameters and 20
# pairs of statistics or add up their gradients run for all at once, with the bytes of one launch for each; and how a
# profile names them
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_cuda.sh"
cd "$WORK" || exit 1
unset TANDEM_STAND_IN_FAIL TANDEM_STAND_IN_ORDER TANDEM_CUDA_GRAPH TANDEM_STAND_IN_LOG
drawn set --classes 2 --train 16 --val 8
run="--arch resnet18 --device cuda --image-size 32 -b 4 --epochs 1 --lr 0.002 --seed 1 --threads 1 --workers 1
    --no-checkpoints --training-only"

# launched NAME ARGUMENTS... -- leaves NAME.kernels, the kernels of a run, and NAME.safetensors
launched() {
    name=$1
    shift
    rm -f "$name.kernels"
    TANDEM_CUDA_GRAPH=0 TANDEM_STAND_IN_KERNELS="$PWD/$name.kernels" expect 0 train set $run \
        --final-weights "$name.safetensors" "$@"
}

# more KERNEL -- its launches in a run of two optimizer steps beyond those in a run of one
more() {
    echo $(($(grep -c "^$1" two.kernels) - $(grep -c "^$1" one.kernels)))
}

# in_a_step KERNEL -- its launches for one batch, of which each launches one targets_kernel
in_a_step() {
    echo $(($(more "$1") / $(more targets_kernel)))
}

# update_costs KERNELS TESTS OTHERS ARGUMENTS... -- launches of a step: for many tensors, for the finite test before
# them, and for one tensor; and at most OTHERS element by element
update_costs() {
    many=$1 tests=$2 others=$3
    shift 3
    launched one --run-iters 1 "$@"
    launched two --run-iters 2 "$@"
    [ "$(more targets_kernel)" -gt 0 ] || { complain "no step"; return; }
    [ "$(in_a_step multi_kernel)" = "$many" ] || complain "$(in_a_step multi_kernel) launches for many tensors"
    [ "$(in_a_step finite_)" = "$tests" ] || complain "$(in_a_step finite_) launches begin tests"
    [ "$(in_a_step single_kernel)" = 0 ] || complain "$(in_a_step single_kernel) launches for one tensor"
    [ "$(in_a_step map_)" -le "$others" ] || complain "$(in_a_step map_) launches element by element"
}

fp16="--precision fp16 --static-loss-scale 128"
update_costs 2 0 4 --precision fp32 # sgd, batch_norm_update
update_costs 5 1 10 $fp16 --use-ema 0.9 # cast, all_finite, sgd, batch_norm_update, ema
update_costs 4 0 4 --precision fp32 --optimizer rmsprop --optimizer-batch-size 8 # accumulate, rmsprop, carry, as above

# sums_cost -- the norm of all gradients takes three launches, lamb's ratios two
sums_cost() {
    [ "$(in_a_step 'multi_[pn]')" = 5 ] || complain "$(in_a_step 'multi_[pn]') launches add up many tensors"
    [ "$(in_a_step part)" = 0 ] || complain "$(in_a_step part) launches add up one tensor"
}

lamb="--optimizer lamb --clip-grad-norm 0.5"
update_costs 2 0 20 --precision fp32 $lamb # lamb, batch_norm_update
sums_cost
update_costs 5 1 26 $fp16 --use-ema 0.9 $lamb # as above
sums_cost

# --- the same bytes without the pass, by at least 140 launches more in each of four steps
launched together $fp16 --use-ema 0.9
launched single $fp16 --use-ema 0.9 --skip-passes multi_tensor
same together.safetensors single.safetensors
least=$(($(wc -l <together.kernels) + 560))
[ "$(wc -l <single.kernels)" -ge "$least" ] || complain "$(wc -l <single.kernels) launches one by one, wanted $least"
launched together $fp16 $lamb
launched single $fp16 $lamb --skip-passes multi_tensor
same together.safetensors single.safetensors

# --- a profile names the launch by the number of its nodes
expect 0 train set $run $fp16 --prof 2
prints 'cuda_sgd *62 nodes, one launch'
expect 0 inspect kernels --arch resnet18 --training --device cuda --image-size 32 -b 4
[ "$(grep -c 'cuda_sgd 62 nodes, one launch' out)" = 62 ] || complain "not 62 steps in one launch"
finish
