#!/bin/sh
# ctest: timeout 300
# norms.sh -- trainings in half on device cuda whose convolutions compute the norms (pass norms), beside trainings whose
# norms are kernels of their own: close losses in every step; the same bytes in a second run and with plain launches
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_cuda.sh"
cd "$WORK" || exit 1
unset TANDEM_CUDA_NORMS TANDEM_CUDA_GRAPH
drawn set --classes 2 --train 32 --val 8

# conv NAME K C R X Y ATTRIBUTES -- Y = convolution of X with K filters
conv() {
    echo "%$1.weight:f32[$2,$3,$4,$4] = param {init=normal, scale=0.2}"
    echo "%$6 = conv2d %$5, %$1.weight {$7}"
}
# block NAME X Y MIDDLE OUT ATTRIBUTES -- a bottleneck whose second convolution has these attributes
block() {
    conv "$1.conv1" 16 16 1 "$2" "$1a" stride=1
    norm "$1.bn1" 16 "$1a" "$1b"
    echo "%$1c = relu %$1b"
    conv "$1.conv2" "$4" "$(case $6 in *groups=4*) echo 4 ;; *) echo 16 ;; esac)" 3 "$1c" "$1d" "pad=1, $6"
    norm "$1.bn2" "$4" "$1d" "$1e"
    echo "%$1f = relu %$1e"
    conv "$1.conv3" "$5" "$4" 1 "$1f" "$1g" stride=1
    norm "$1.bn3" "$5" "$1g" "$1h"
}
{
    echo "%images:f32[1,3,32,32] = input"
    conv stem 16 3 3 images s0 "stride=2, pad=1"
    norm stem_bn 16 s0 s1
    echo "%s2 = relu %s1"
    block one s2 x 16 16 groups=4
    echo "%x = add %oneh, %s2"
    echo "%x1 = relu %x"
    block two x1 y 16 32 stride=2
    conv two.down 32 16 1 x1 z0 stride=2
    norm two.down_bn 32 z0 z1
    echo "%y = add %twoh, %z1"
    echo "%y1 = relu %y"
    echo "%p = global_avg_pool %y1"
    echo "%fc.weight:f32[2,32] = param {init=uniform, scale=0.177}"
    echo "%fc.bias:f32[2] = param {init=uniform, scale=0.177}"
    echo "%logits = linear %p, %fc.weight, %fc.bias"
    echo "output logits = %logits"
} >blocks.td

# has COUNT OP PRECISION -- nodes of the training graph
has() {
    expect 0 inspect kernels --model blocks.td --device cuda --training --precision "$3" --skip-passes recompute
    n=$(grep -c " $2 " out)
    [ "$n" = "$1" ] || complain "$3: $n nodes $2, wanted $1"
}
has 7 conv2d_statistics fp16        # but for the groups
has 2 conv2d_scale_relu_grad_w fp16 # the last two convolutions of the second block
has 1 batch_norm_relu fp16
has 0 conv2d_scale_relu_grad_w bf16
has 4 batch_norm_relu_infer bf16    # the stem's, before the groups, and again for two filters' gradients

# train NAME PRECISION ARGUMENTS... -- leaves NAME.losses and NAME.safetensors
train() {
    name=$1 precision=$2
    shift 2
    expect 0 train set --image-size 32 -b 8 --epochs 1 --lr 0.01 --seed 1 --threads 1 --workers 1 --no-checkpoints --device cuda \
        --training-only --precision "$precision" --print-freq 1 --final-weights "$name.safetensors" "$@"
    sed -n 's/.*iteration [0-9/]*: loss \([0-9.]*\).*/\1/p' err >"$name.losses"
}

for precision in fp16 bf16; do
    limit=0.01
    [ $precision = fp16 ] || limit=0.04
    train $precision $precision --model blocks.td
    TANDEM_CUDA_NORMS=0 train $precision-apart $precision --model blocks.td
    close_losses $precision $precision-apart $limit
    ! cmp -s $precision.safetensors $precision-apart.safetensors || complain "TANDEM_CUDA_NORMS=0 changes nothing"
    TANDEM_CUDA_GRAPH=0 train $precision-plain $precision --model blocks.td
    same $precision.safetensors $precision-plain.safetensors
done
train resnet fp16 --arch resnet18 --run-iters 3 --lr 0.001 --image-size 64
TANDEM_CUDA_NORMS=0 train resnet-apart fp16 --arch resnet18 --run-iters 3 --lr 0.001 --image-size 64
close_losses resnet resnet-apart 0.01
train fp32 fp32 --model blocks.td
close_losses fp32 fp16 0.02
finish
