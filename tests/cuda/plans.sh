#!/bin/sh
# plans.sh [LIBRARY_PATH] -- cuDNN plans the convolutions of all networks, and what may be fused, for an H200; pass norms
# asks it which norms convolutions can compute
# ctest: timeout 900
#
# With the cuDNN version of tests/golden/cuda_plans.txt engines and workspaces must be those of this file;
# TANDEM_GOLDEN_WRITE=1 rewrites it.  With another version every problem of a network must have a plan.
[ $# = 1 ] || {
    echo "skipped: no CUDA toolkit or no cuDNN >= 9.8 was found when the build was configured"
    exit 77
}
networks="resnet18 resnet50 resnext101-32x4d se-resnext101-32x4d ssd320 ssd300"
golden=$TANDEM_GOLDEN/cuda_plans.txt
export LD_LIBRARY_PATH="$1"

plan() {
    "$TANDEM_BUILD/tests/cuda_plans" "$TANDEM_GOLDEN/gpu-h200.json" "$@" >>"$WORK/plans.txt" || {
        grep ': none: ' "$WORK/plans.txt"
        exit 1
    }
}
for precision in fp16 bf16 tf32 fp32; do
    # shellcheck disable=SC2086
    plan "$precision" $networks
done
plan fusions
# shellcheck disable=SC2086
plan norms fp16 $networks
plan norms bf16 resnet18
for precision in fp16 bf16 tf32; do
    plan inference "$precision" mobilenet_v2 # with relu6
done
if [ -n "${TANDEM_GOLDEN_WRITE:-}" ]; then
    cp "$WORK/plans.txt" "$golden"
elif [ "$(head -n 1 "$WORK/plans.txt")" = "$(head -n 1 "$golden")" ]; then
    diff -u "$golden" "$WORK/plans.txt"
else
    echo "$(head -n 1 "$WORK/plans.txt") here, $(head -n 1 "$golden") in $golden: checked that there are plans, not which"
fi
