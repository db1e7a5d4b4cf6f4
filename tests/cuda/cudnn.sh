#!/bin/sh
# cudnn.sh [LIBRARY_PATH] -- runs test_cudnn with the stand-in for the driver's library
[ $# = 1 ] || {
    echo "skipped: no CUDA toolkit or no cuDNN >= 9.8 was found when the build was configured"
    exit 77
}
LD_LIBRARY_PATH=$1 "$TANDEM_BUILD/tests/test_cudnn" "$TANDEM_GOLDEN/gpu-h200.json"
