#!/bin/sh
# ctest: timeout 300
# gates.sh -- two blocks with squeeze-excite layers on device cuda: the launches of pass gates, forward and backward;
# training beside the same without the pass: close losses in every step; a second run gives the same bytes
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_cuda.sh"
cd "$WORK" || exit 1
unset TANDEM_CUDA_NORMS TANDEM_CUDA_GRAPH
drawn set --classes 2 --train 32 --val 8

# block NAME X Y -- Y = relu(X + the gated norm of a convolution of X)
block() {
    echo "%$1.conv.weight:f32[16,16,3,3] = param {init=normal, scale=0.2}"
    echo "%$1a = conv2d %$2, %$1.conv.weight {pad=1}"
    norm "$1.bn" 16 "$1a" "$1b"
    echo "%$1.w1:f32[8,16] = param {init=uniform, scale=0.5}"
    echo "%$1.b1:f32[8] = param"
    echo "%$1.w2:f32[16,8] = param {init=uniform, scale=0.5}"
    echo "%$1.b2:f32[16] = param"
    echo "%$1c = squeeze_excite %$1b, %$1.w1, %$1.b1, %$1.w2, %$1.b2"
    echo "%$1d = add %$1c, %$2"
    echo "%$3 = relu %$1d"
}
{
    echo "%images:f32[1,3,32,32] = input"
    echo "%stem.weight:f32[16,3,3,3] = param {init=normal, scale=0.2}"
    echo "%s0 = conv2d %images, %stem.weight {stride=2, pad=1}"
    norm stem_bn 16 s0 s1
    echo "%s2 = relu %s1"
    block one s2 x
    block two x y
    echo "%p = global_avg_pool %y"
    echo "%fc.weight:f32[2,16] = param {init=uniform, scale=0.25}"
    echo "%fc.bias:f32[2] = param {init=uniform, scale=0.25}"
    echo "%logits = linear %p, %fc.weight, %fc.bias"
    echo "output logits = %logits"
} >gates.td

# has COUNT OP ARGUMENTS... -- nodes of the graph
has() {
    count=$1 op=$2
    shift 2
    expect 0 inspect kernels --model gates.td --device cuda "$@"
    n=$(grep -c " $op " out)
    [ "$n" = "$count" ] || complain "$*: $n nodes $op, wanted $count"
}
for precision in fp32 fp16 bf16; do
    has 2 gated_add --precision $precision
    has 4 gated_add --precision $precision --training # forward, and the gradients of the images
    has 2 gated_add_relu_grad --precision $precision --training
    has 0 mul_reduce --precision $precision --training
    has 1 global_avg_pool_grad --precision $precision --training # of the last mean
done
has 0 gated_add --precision fp16 --training --skip-passes gates
has 0 gated_add --precision fp16 --training --device cpu # nothing changes on a processor

# train NAME PRECISION ARGUMENTS... -- leaves NAME.losses, NAME.kernels and NAME.safetensors
train() {
    name=$1 precision=$2
    shift 2
    rm -f "$name.kernels"
    TANDEM_STAND_IN_KERNELS="$PWD/$name.kernels" TANDEM_CUDA_GRAPH=0 expect 0 train set --model gates.td --image-size 32 \
        -b 8 --epochs 1 --lr 0.01 --seed 1 --threads 1 --workers 1 --no-checkpoints --device cuda --training-only \
        --precision "$precision" --print-freq 1 --final-weights "$name.safetensors" "$@"
    sed -n 's/.*iteration [0-9/]*: loss \([0-9.]*\).*/\1/p' err >"$name.losses"
}
# launches COUNT KERNEL -- of the four steps of fp16
launches() {
    n=$(grep -c "$2" fp16.kernels)
    [ "$n" = "$1" ] || complain "$n launches of $2, wanted $1"
}
for precision in fp32 fp16 bf16; do
    limit=0.001
    [ $precision = fp32 ] || limit=0.02
    train $precision $precision
    train $precision-apart $precision --skip-passes gates
    [ "$(wc -l <$precision.losses)" = 4 ] || complain "$precision: not four losses"
    close_losses $precision $precision-apart $limit
    least=$(($(wc -l <$precision.kernels) + 4 * 14))
    [ "$(wc -l <$precision-apart.kernels)" -ge "$least" ] ||
        complain "$precision: $(wc -l <$precision-apart.kernels) launches without the pass, wanted $least"
done
launches 8 'gate_wide<T, false>' # a block's end
launches 8 'gate_wide<T, true>'  # its images' gradient
launches 4 'sum_pixels<T, N, KEPT>'        # the last block's gradient
launches 4 'sum_pixels<T, N, KEPT_OF_TWO>' # of two readers
train again fp16
same fp16.safetensors again.safetensors
finish
