# inspect_cuda.sh -- inspect kernels --device cuda on a machine without a GPU: the list needs no plug-in, and --describe
# says what is missing; tests/cuda/inspect.sh asks the real cuDNN
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"
small_model small.td 32 2
gpu=$TANDEM_GOLDEN/gpu-h200.json
stand_in=$TANDEM_BUILD/tests/libtandem_cuda_stand_in.so
export TANDEM_GPU_PLUGIN="$PWD/no_plugin.so"

# --- the list without a plug-in
expect 0 inspect kernels --model small.td --device cuda
warning_names cuda no_plugin.so
prints ' conv2d_fused +cudnn_conv2d_fused'
prints ' linear +cublaslt_linear'
! grep -q 'engine' out || complain "an engine without cuDNN"
expect 0 inspect kernels --model small.td --device cuda --training
prints ' conv2d_grad_x +cudnn_conv2d_grad_x'
prints ' sgd +cuda_sgd'

expect 0 inspect kernels --model small.td --device cuda --json
"$TANDEM" inspect kernels --model small.td --device cuda --json 2>/dev/null | grep -q '"kernel": "cublaslt_linear"' ||
    complain "no kernel in the JSON"

# fp16: all norms of ResNet-50 but the first, whose convolution has three channels, have the sums of a convolution, and but
# for those at the ends of blocks they are computed by the next convolution
# norms_of PRECISION -- counts the ops of the training graph
norms_of() {
    expect 0 inspect kernels --arch resnet50 --device cuda --training --precision "$1"
}
# has COUNT OP
has() {
    n=$(grep -c " $2 " out)
    [ "$n" = "$1" ] || complain "$n nodes $2, wanted $1"
}
norms_of fp16
prints ' conv2d_statistics +cudnn_conv2d_statistics'
prints ' conv2d_scale_relu_grad_w +cudnn_conv2d_scale_relu_grad_w'
has 52 conv2d_statistics
has 52 batch_norm_statistics
has 32 conv2d_scale_relu_grad_w
has 32 batch_norm_scale_relu_grad
has 16 batch_norm_add_relu_given
has 4 batch_norm_infer
has 0 batch_norm_relu_infer
has 1 batch_norm_relu
has 1 conv2d
norms_of bf16 # only kernels that are compiled at run time sum
has 0 conv2d_statistics
has 53 conv2d
norms_of fp32
has 0 conv2d_statistics
export TANDEM_CUDA_NORMS=0
norms_of fp16
has 0 conv2d_statistics
has 53 conv2d
export TANDEM_CUDA_NORMS=maybe
expect 2 inspect kernels --model small.td --device cuda
error_names TANDEM_CUDA_NORMS maybe
unset TANDEM_CUDA_NORMS
expect 0 inspect kernels --arch mobilenet_v2 --device cuda --precision fp16
has 0 relu6
TANDEM_CUDA_RELU6=0 expect 0 inspect kernels --arch mobilenet_v2 --device cuda --precision fp16
has 35 relu6
expect 0 inspect kernels --arch resnet18 --training --precision bf16 --device cpu
has 0 conv2d_statistics

# --- --describe
expect 2 inspect kernels --model small.td --describe "$gpu"
error_names --describe kernels cuda
expect 2 inspect memory --model small.td --device cuda --describe "$gpu"
error_names --describe kernels cuda
expect 1 inspect kernels --model small.td --device cuda --describe no_file.json
error_names no_file.json
expect 1 inspect kernels --model small.td --device cuda --describe "$gpu"
error_names gpu-h200.json no_plugin.so

# what else needs a GPU, says so
expect 1 inspect memory --model small.td --device cuda
error_names cuda no_plugin.so

# a library that is no plug-in of this build
export TANDEM_GPU_PLUGIN=libm.so.6
expect 1 inspect memory --model small.td --device cuda
error_names libm.so.6 version

# a plug-in that finds no cuDNN, or one that cannot plan for a GPU that is not here
[ -f "$stand_in" ] || {
    echo "skipped in part: no C++ compiler, so no plug-in"
    finish
}
export TANDEM_GPU_PLUGIN="$stand_in"
for devices in -1 0; do
    export TANDEM_STAND_IN_DEVICES=$devices
    expect 1 inspect memory --model small.td --device cuda
    error_names cuda NVIDIA driver
    expect 0 inspect kernels --model small.td --device cuda
    warning_names cuda NVIDIA driver
done
unset TANDEM_STAND_IN_DEVICES
export TANDEM_CUDNN="$PWD/no_cudnn.so"
expect 1 inspect kernels --model small.td --device cuda --describe "$gpu"
error_names gpu-h200.json no_cudnn.so
export TANDEM_CUDNN="$stand_in"
expect 1 inspect kernels --model small.td --device cuda --describe "$gpu"
error_names gpu-h200.json properties
printf '{}' >nul.json
dd if=/dev/zero bs=1 count=1 2>/dev/null >>nul.json
expect 1 inspect kernels --model small.td --device cuda --describe nul.json
error_names nul.json NUL
finish
