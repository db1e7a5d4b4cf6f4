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
prints ' linear +cudnn_linear'
! grep -q 'engine' out || complain "an engine without cuDNN"
expect 0 inspect kernels --model small.td --device cuda --training
prints ' conv2d_grad_x +cudnn_conv2d_grad_x'
prints ' sgd +cuda_sgd'

expect 0 inspect kernels --model small.td --device cuda --json
"$TANDEM" inspect kernels --model small.td --device cuda --json 2>/dev/null | grep -q '"kernel": "cudnn_linear"' ||
    complain "no kernel in the JSON"

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
