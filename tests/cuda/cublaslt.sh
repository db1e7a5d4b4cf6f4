#!/bin/sh
# cublaslt.sh [LIBRARY] -- runs test_cublaslt with the true cuBLASLt
[ $# = 1 ] || {
    echo "skipped: no C++ compiler, or no CUDA toolkit with cuBLASLt was found when the build was configured"
    exit 77
}
TANDEM_CUBLASLT=$1 "$TANDEM_BUILD/tests/test_cublaslt"
