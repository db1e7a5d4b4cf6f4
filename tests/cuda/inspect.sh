#!/bin/sh
# inspect.sh [LIBRARY_PATH] -- inspect kernels --device cuda --describe: the engines that the real cuDNN has for an H200
[ $# = 1 ] || {
    echo "skipped: no CUDA toolkit or no cuDNN >= 9.8 was found when the build was configured"
    exit 77
}
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
export LD_LIBRARY_PATH="$1"
export TANDEM_GPU_PLUGIN="$TANDEM_BUILD/tests/libtandem_cuda_stand_in.so"
cd "$WORK" || exit 1

# float32, whose engines are not compiled at run time
expect 0 inspect kernels --arch resnet18 -b 32 --device cuda --describe "$TANDEM_GOLDEN/gpu-h200.json"
prints ' conv2d_fused +cudnn_conv2d_fused cudnn engine [0-9]+.*, [0-9]+ bytes of workspace'
prints ' linear +cublaslt_linear$' # its algorithm is chosen on the GPU
n=$(grep -c ' cudnn_conv2d_fused cudnn engine ' out)
[ "$n" = 20 ] || complain "$n of 20 convolutions have an engine"
# relu6: with depthwise convolutions; the 18 others would get an engine of cuDNN's fallback list in float32
expect 0 inspect kernels --arch mobilenet_v2 -b 32 --device cuda --describe "$TANDEM_GOLDEN/gpu-h200.json"
n=$(grep -c ' cudnn_conv2d_fused cudnn engine ' out)
[ "$n" = 52 ] || complain "$n of 52 convolutions have an engine"
n=$(grep -Ec ' relu6 +cuda_relu6$' out)
[ "$n" = 18 ] || complain "$n of 35 relu6 are not fused, wanted 18"
expect 0 inspect kernels --arch resnet18 -b 32 --training --device cuda --describe "$TANDEM_GOLDEN/gpu-h200.json" --json
grep -q '"op": "conv2d_grad_w", "kernel": "cudnn_conv2d_grad_w", "implementation": "cudnn engine [0-9]*' out ||
    complain "no engine of a filter gradient"

# norms in half: fused as cuDNN accepts for this GPU, with engines that are not compiled; the first layer has 3 channels
expect 0 inspect kernels --arch resnet18 -b 32 --training --precision fp16 --device cuda --describe "$TANDEM_GOLDEN/gpu-h200.json"
n=$(grep -c ' cudnn_conv2d_statistics cudnn engine ' out)
[ "$n" = 19 ] || complain "$n of 19 convolutions compute sums"
n=$(grep -c ' cudnn_conv2d_scale_relu_grad_w cudnn engine ' out)
[ "$n" = 8 ] || complain "$n of 8 filter gradients compute the norm"

printf '{"deviceVer":' >cut.json
expect 1 inspect kernels --arch resnet18 --device cuda --describe cut.json
error_names cut.json JSON
finish
