#!/bin/sh
# registers.sh [NVCC INCLUDE...] -- no kernel of src/backend/cuda spills registers or needs a stack, from the oldest
# GPU to the newest
# ctest: timeout 1200
[ $# -gt 1 ] || {
    echo "skipped: no CUDA toolkit or no cuDNN >= 9.8 was found when the build was configured"
    exit 77
}
nvcc=$1
shift
includes="-I$TANDEM_SOURCE/include -I$TANDEM_SOURCE/src"
for folder in "$@"; do
    includes="$includes -I$folder"
done

# without the host's half; the second front end serves two architectures
for source in "$TANDEM_SOURCE"/src/backend/cuda/*.cu; do
    grep -q __global__ "$source" || continue
    # shellcheck disable=SC2086
    "$nvcc" -std=c++17 -O3 -gencode arch=compute_75,code=sm_75 -gencode 'arch=compute_90,code=[sm_90,sm_120]' -fatbin \
        -Xptxas -v $includes -o "$WORK/fatbin" "$source" >"$WORK/ptxas" 2>&1 || {
        cat "$WORK/ptxas"
        exit 1
    }
    cat "$WORK/ptxas" >>"$WORK/all"
done
awk '
    /Compiling entry function/ { split($0, part, "\x27"); name = part[2]; arch = part[4]; n[arch]++ }
    /bytes stack frame/ && ($1 > 0 || $5 > 0 || $9 > 0) { print arch ": " name ": " $0; bad = 1 }
    /Used [0-9]+ registers/ { for (i = 1; i < NF; i++) if ($i == "Used" && $(i + 1) > most[arch]) most[arch] = $(i + 1) }
    END {
        for (arch in n) {
            print arch ": " n[arch] " kernels, at most " most[arch] " registers"
            archs++
        }
        exit bad || archs != 3 || n["sm_75"] != n["sm_120"] || n["sm_75"] != n["sm_90"]
    }' "$WORK/all"
