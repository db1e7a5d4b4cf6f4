#!/bin/sh
# ctest: timeout 300
# failures.sh -- calls of CUDA, cuDNN and cuBLASLt that fail, one in each run: an error that names it, and nothing is left behind
#
# A first run lists its calls; then runs follow in which the n-th fails, for all of the first, the first and the last
# of each name, and some of the others.  Planning may go on with another engine of cuDNN,
# and a step whose launches cannot be captured without that; the result is then the same.  A norm that no convolution
# computes, because planning failed, rounds differently.
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_cuda.sh"
cd "$WORK" || exit 1
export TANDEM_STAND_IN_FAIL=0
SECONDS_MAX=60 # of a run that takes a tenth of one

# with products of batches of matrices before the linear layer
small_model small.td 16 2
sed -i 's/linear %9,/linear %joined,/
    /^%fc.weight/i\
%tokens = reshape %9 {shape=1:2:4:4}\
%scores = matmul %tokens, %tokens {transpose_b=true}\
%mixed = matmul %scores, %tokens\
%joined = reshape %mixed {shape=1:32}' small.td
"$TANDEM" dataset draw set --classes 2 --train 8 --val 4 --size 16 >/dev/null || exit 1

# memory of the host that is lost, where the compiler has the leak sanitizer, and ptrace is permitted for it
lsan=$(gcc -print-file-name=liblsan.so 2>/dev/null)
case $lsan in
/*) LD_PRELOAD=$lsan "$TANDEM" help >/dev/null 2>&1 || lsan= ;;
*) lsan= ;;
esac

# run N ARGUMENTS... -- the N-th call fails
run() {
    export TANDEM_STAND_IN_FAIL="$1" TANDEM_STAND_IN_LOG="$PWD/calls"
    shift
    rm -f calls
    last="TANDEM_STAND_IN_FAIL=$TANDEM_STAND_IN_FAIL tandem $*"
    code=0
    timeout -k 5 "$SECONDS_MAX" env LD_PRELOAD="$lsan" "$TANDEM" "$@" >out 2>err </dev/null || code=$?
    grep -Ev '^(images/s|latency|checkpoint|best weights) ' out >result
}

train() {
    rm -rf run
    run "$1" train set --model small.td -b 4 --epochs 1 --lr 0.01 --seed 1 --threads 1 --workers 1 --amp --device cuda --workspace run
}

evaluate() {
    run "$1" evaluate set --model small.td -w weights.safetensors -b 4 --threads 1 --workers 1 --device cuda
}

# chosen CALLS MANY -- the numbers of the calls to fail, some MANY of them
chosen() {
    awk -v many="$2" '
        { name[NR] = $1; if (!($1 in first)) first[$1] = NR; last[$1] = NR }
        END {
            step = int(NR / many) + 1
            for (n = 1; n <= NR; n++)
                if (n <= many / 3 || n > NR - many / 3 || n % step == 0 || n == first[name[n]] || n == last[name[n]]) print n, name[n]
        }' "$1"
}

# close -- are the numbers of the last result those expected, within 1 %?
close() {
    [ "$(wc -l <result)" = "$(wc -l <expected)" ] && paste -d ' ' result expected | awk '{
        for (i = 1; i <= NF / 2; i++) {
            a = $i; b = $(i + NF / 2); d = a - b
            if (a != b && (a + 0 == 0 || d * d > 1e-4 * a * a)) exit 1
        } }'
}

# judge NAME -- the last run, in which a call of this name failed
judge() {
    ! grep '^left: ' calls >err.left || complain "$1 failed: $(tr '\n' ' ' <err.left)"
    if [ $code = 0 ]; then
        case $1 in
        cudnnCreate | cudnnSetStream | cudnnBackendCreateDescriptor | cudnnBackendSetAttribute | cudnnBackendGetAttribute | cudnnBackendFinalize)
            : ;;
        cublasLtMatmulAlgoConfigGetAttribute | cublasLtMatmulAlgoCapGetAttribute) # for reports only
            : ;;
        *) # while launches are captured; then they follow one by one
            grep -a '^tandem: warning: ' err | grep -q 'CUDA graph' || complain "$1 failed, and the exit code is 0" ;;
        esac
        cmp -s result expected || close || complain "exit code 0, but another result"
        n_survived=$((n_survived + 1))
        return
    fi
    [ $code = 1 ] || complain "$1 failed: exit code $code"
    [ "$(grep -c '^tandem: error: ' err)" = 1 ] || complain "$1 failed: not one error"
    grep -a '^tandem: error: ' err | grep -Eq 'cuda[A-Z][A-Za-z]+|CUDNN_STATUS_[A-Z_]+|CUBLAS_STATUS_[A-Z_]+|\((cuda|cudnn|cublaslt)_[a-z0-9_]+\)|GPU memory|NVIDIA driver' ||
        complain "the error does not name the call or the node"
    if [ -d run ]; then
        tidy run
        for file in run/*.safetensors; do
            [ ! -e "$file" ] || "$TANDEM" inspect checkpoint "$file" >/dev/null 2>&1 || complain "$file is incomplete"
        done
    fi
}

# fail_each VERB MANY
fail_each() {
    "$1" 0
    [ $code = 0 ] || { complain "exit code $code without a failure"; finish; }
    cp result expected
    for name in cudaGetDeviceCount cudaMalloc cudaMemcpyAsync cudaStreamSynchronize cudnnCreate cudnnBackendFinalize \
        cudnnBackendExecute cublasLtCreate cublasLtMatrixLayoutSetAttribute cublasLtMatmulAlgoGetHeuristic cublasLtMatmul launch; do
        grep -qx $name calls || complain "no call of $name"
    done
    for name in cudaHostAlloc cudaStreamBeginCapture cudaStreamEndCapture cudaGraphInstantiate cudaGraphLaunch; do
        [ "$1" = evaluate ] || grep -qx $name calls || complain "no call of $name"
    done
    n_runs=0 n_survived=0
    n_calls=$(wc -l <calls)
    chosen calls "$2" >numbers
    while read -r n name; do
        "$1" "$n"
        judge "$name"
        n_runs=$((n_runs + 1))
    done <numbers
    echo "$1: $n_runs of $n_calls calls failed, $n_survived times it went on"
}

fail_each train 60
train 0
cp run/checkpoint.safetensors weights.safetensors || exit 1
rm -rf run
fail_each evaluate 30
finish
