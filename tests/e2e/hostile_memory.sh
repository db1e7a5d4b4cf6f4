# ctest: timeout 300
# hostile_memory.sh -- an allocation fails, ours or a library's: one sentence and exit code 1, no abort, no fault, no
# temporary file.  About 40 of each command's allocations, spread over all of them; TANDEM_FAIL_EVERY=1 tries each.
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"
shim=$TANDEM_BUILD/tests/fail_malloc.so
if [ ! -e "$shim" ] || grep -q __asan_init "$TANDEM" || grep -q __tsan_init "$TANDEM"; then
    echo "no allocator to fail in this build"
    exit 77
fi

drawn set --classes 2 --train 16 --val 4
small_model small.td 32 2
one="--threads 1 --workers 1"
expect 0 train set --model small.td -b 8 $one --lr 0.01 --seed 1 --run-iters 2 --workspace good

# starves NAME ARGUMENTS...: the command, each time without another allocation
starves() {
    name=$1
    shift
    rm -rf work && mkdir work
    last="tandem $*"
    FAIL_COUNT=$WORK/count LD_PRELOAD=$shim "$TANDEM" "$@" >out 2>err </dev/null || complain "fails with all its memory"
    of=$(cat count)
    every=${TANDEM_FAIL_EVERY:-$((of / 40 + 1))}
    n=$((every / 2 + 1))
    tried=0
    ended=0
    while [ $n -le "$of" ]; do
        rm -rf work && mkdir work
        code=0
        FAIL_AT=$n LD_PRELOAD=$shim "$TANDEM" "$@" >out 2>err </dev/null || code=$?
        last="tandem $* without allocation $n of $of"
        tried=$((tried + 1))
        case $code in
        0) ;; # done without: a buffer of stdio, a name to look for
        1)
            ended=$((ended + 1))
            [ "$(grep -c '^tandem: error: ' err)" = 1 ] || grep -q '^libgomp: Out of memory' err || complain "not one sentence"
            ;;
        *) complain "exit code $code" ;;
        esac
        if find . -name '*.tmp.*' | grep . >&2; then complain "a temporary file is left"; fi
        n=$((n + every))
    done
    echo "$name: $tried of $of allocations, $ended ended it"
    [ $((2 * ended)) -ge $tried ] || complain "only $ended of $tried failed allocations ended it"
}

starves train train set --model small.td -b 8 $one --lr 0.01 --seed 1 --run-iters 2 --workspace work
starves evaluate evaluate set --weights good/checkpoint.safetensors $one
starves classify classify set/val/*/*0.jpg --weights good/checkpoint.safetensors $one
starves onnx convert good/checkpoint.safetensors work/out.onnx --overwrite
starves convert convert good/checkpoint.safetensors work/out.safetensors --overwrite
finish
