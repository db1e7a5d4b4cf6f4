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

for arch in 75 90 120; do
    for source in "$TANDEM_SOURCE"/src/backend/cuda/*.cu; do
        [ ! -e "$WORK/${source##*/}.host" ] || continue
        # shellcheck disable=SC2086
        "$nvcc" -std=c++17 -O3 -arch=sm_$arch -cubin -Xptxas -v $includes -o "$WORK/cubin" "$source" >"$WORK/ptxas" 2>&1 || {
            cat "$WORK/ptxas"
            exit 1
        }
        # a source without kernels needs no other architecture
        grep -q 'Compiling entry function' "$WORK/ptxas" || : >"$WORK/${source##*/}.host"
        cat "$WORK/ptxas" >>"$WORK/all.$arch"
    done
    awk -v arch=$arch '
        /Compiling entry function/ { split($0, part, "\x27"); name = part[2]; n++ }
        /bytes stack frame/ && ($1 > 0 || $5 > 0 || $9 > 0) { print "sm_" arch ": " name ": " $0; bad = 1 }
        /Used [0-9]+ registers/ { for (i = 1; i < NF; i++) if ($i == "Used" && $(i + 1) > most) most = $(i + 1) }
        END { print "sm_" arch ": " n " kernels, at most " most " registers"; exit bad || n == 0 }' "$WORK/all.$arch" || exit 1
done
