# ctest: timeout 300
# ctest: processors 2
# benchmark.sh -- `tandem benchmark --device cuda`: memory of the device beside the host's; sums over ranks by NCCL
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_cuda.sh"
cd "$WORK" || exit 1
small_model small.td 32 4
one="benchmark --model small.td -b 4 --iters 2 --warmup 1 --threads 1 --no-bound"

# member NAME: a number of the JSON in ./out, whole
member() {
    value=$(sed -n 's/.*"'"$1"'": \([-+.0-9e]*\).*/\1/p' out)
    [ -n "$value" ] || complain "no $1"
    printf '%.0f\n' "${value:-0}"
}

# --- memory ---------------------------------------------------------------------------------------
export TANDEM_STAND_IN_OTHERS=3000000
for mode in training inference; do
    expect 0 $one --mode $mode --device cuda --json
    peak=$(member device_peak_memory_bytes)
    [ "$peak" -ge "$(member planned_memory_bytes)" ] || complain "peak of $peak bytes, more is planned"
    [ "$(member device_memory_bytes)" -le "$peak" ] || complain "more than the peak of $peak bytes at the end"
    [ "$(member planned_workspace_bytes)" -le "$(member planned_activation_bytes)" ] || complain "a large workspace"
    [ "$(member device_other_memory_bytes)" = 3000000 ] || complain "others use 3000000 bytes"
    [ "$(member device_total_memory_bytes)" = 1000000000 ] || complain "the device has 1000000000 bytes"
    [ "$(member peak_memory_bytes)" -gt 0 ] || complain "no memory of the host"
    # it is the peak, to the byte: with one less there is not enough
    export TANDEM_STAND_IN_BYTES=$((peak + 3000000))
    expect 0 $one --mode $mode --device cuda
    prints '^host memory +[0-9.]+ MB at the peak$'
    prints '^device memory +[0-9.]+ MB at the peak, [0-9.]+ at the end, and 3\.0 of '
    prints '^planned memory .* workspace [0-9.]+$'
    TANDEM_STAND_IN_BYTES=$((peak + 2999999)) expect 1 $one --mode $mode --device cuda
    error_names GPU MB
    unset TANDEM_STAND_IN_BYTES
done
expect 0 $one --device cuda --batch-sizes 2,4
prints '^peak MB: .*GPU'
expect 0 $one --json
grep -q device out && complain "memory of a device without one"
expect 0 $one
prints '^memory +[0-9.]+ MB at the peak$'
unset TANDEM_STAND_IN_OTHERS

# --- the walkthrough: TF32 between float32 and mixed precision, which is fp16
expect 0 $one --walkthrough --device cuda
[ "$(sed -n 's/^\([a-z0-9, ]*[a-z0-9]\)  *-b .*/\1/p' out)" = "$(printf 'float32\ntf32\nmixed\nmixed, fused\nmixed, fused, twice the batch')" ] ||
    complain "other steps: $(cut -c 1-30 out)"
prints '^tf32 +-b 4 --precision tf32 --skip-passes fuse,norms +[0-9.]+ '
prints '^mixed, fused +-b 4 --precision fp16 +[0-9.]+ '
prints '^mixed, fused, twice the batch +-b 8 --precision fp16 +[0-9.]+ '
expect 0 $one --walkthrough --device cuda --precision bf16 --json
[ "$(grep -o '"step": ' out | wc -l)" = 5 ] || complain "not five steps"
prints '"step": "mixed", "article": "AMP", "options": "-b 4 --precision bf16 --skip-passes fuse,norms"'

# --- sums over ranks ------------------------------------------------------------------------------
export TANDEM_NCCL="$stand_in" TANDEM_STAND_IN_DEVICES=2 TMPDIR="$WORK"
sums="benchmark --mode allreduce --iters 1 --warmup 0 --device cuda"
for how in '' '--allreduce fast' '--allreduce fast --allreduce-dtype bf16' '--allreduce fast --allreduce-dtype fp16'; do
    rm -f calls
    TANDEM_STAND_IN_LOG="$PWD/calls" TANDEM_STAND_IN_RANK=1 expect 0 launch --nproc 2 $sums $how --json
    prints '"ranks": 2, .*"shared_memory": false, .*"device": "cuda", "summed_by": "nccl", "sums": \[.*"bytes": 102228128'
    call=$([ "$how" ] && echo ncclAllReduce || echo ncclAllGather)
    n=$(awk -v name="$call" '$1 == name { n++ } END { print n + 0 }' calls)
    [ "$n" = 7 ] || complain "$n calls of $call for seven sizes"
done
expect 0 launch --nproc 2 $sums
prints '^sums by +nccl, cuda$'
prints '^ +102228128( +[0-9.]+){4}$'
expect 2 $sums
error_names --mode allreduce --device cuda --nproc
TANDEM_STAND_IN_DEVICES=1 expect 1 launch --nproc 2 $sums
error_names '--mode allreduce' cuda 'rank 0' 'rank 1' 'one GPU'

# --- scaling --------------------------------------------------------------------------------------
scaling="benchmark --mode scaling --model small.td -b 2 --threads 1 --iters 2 --warmup 1 --device cuda --precision fp32"
expect 0 launch --nproc 2 $scaling --ranks 2,4,64 --bandwidth 200 --json
prints '"measured": \{"ranks": 2, .*"device": "cuda", "summed_by": "nccl"\}'
prints '"ranks": 64, "machines": 32, "step_ms": [0-9.]+'
grep -Eq 'nan|inf' out && complain "no number"
expect 0 launch --nproc 2 $scaling --allreduce fast
prints '^step +[0-9.]+ ms, predicted [0-9.]+ ms'
expect 2 $scaling
error_names --mode scaling --device cuda --nproc
TANDEM_STAND_IN_DEVICES=1 expect 1 launch --nproc 2 $scaling
error_names '--mode scaling' cuda 'rank 0' 'rank 1' 'one GPU'
TANDEM_NCCL=/nowhere/libnccl.so.2 expect 1 launch --nproc 2 $sums
error_names '--mode allreduce' cuda NCCL /nowhere/libnccl.so.2
if ls | grep '^nccl-stand-in-' >&2; then complain "shared memory is left"; fi
finish
