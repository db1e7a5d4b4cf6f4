# ctest: timeout 300
# benchmark.sh -- measuring a tiny network; the walkthrough; the largest batch within a limit, which then does fit
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

small_model small.td 16 4
tiny="benchmark --model small.td --threads 1"

# member FILE NAME: the first number of that name
member() {
    sed 's/.*"'"$2"'": \([-+.0-9e]*\).*/\1/' "$1"
}

# no_less A B, for whole numbers
no_less() {
    [ "$1" -ge "$2" ] || complain "$1 is less than $2"
}

# --- memory, planned and real ---------------------------------------------------------------------
for precision in fp32 bf16 fp16; do
    expect 0 $tiny -b 64 --num-iter 3 --warmup-steps 1 --iter-unit batch --precision $precision --json --no-bound
    prints '"iters": 3, "warmup": 1, '
    prints '"precision": "'$precision'"'
    parameters=$(member out planned_parameter_bytes)
    activations=$(member out planned_activation_bytes)
    [ "$(member out planned_memory_bytes)" -eq $((parameters + activations)) ] || complain "the plan is no sum"
    no_less "$(member out peak_memory_bytes)" $((parameters + activations))
    eval "activations_$precision=$activations"
done
# shellcheck disable=SC2154
no_less $((activations_fp32 * 7 / 10)) "$activations_bf16"
expect 2 $tiny --iter-unit epoch
says "epoch"

# --- the walkthrough ------------------------------------------------------------------------------
expect 0 $tiny --walkthrough -b 8 --warmup-steps 1 --num-iter 3
prints '^step +options +images/s +min +max +speed-up +peak MB +planned MB$'
prints '^float32 +-b 8 --precision fp32 --skip-passes fuse +.* 1\.00x '
prints '^mixed +-b 8 --precision bf16 --skip-passes fuse +[0-9.]+ '
prints '^mixed, fused +-b 8 --precision bf16 +[0-9.]+ '
prints '^mixed, fused, twice the batch +-b 16 --precision bf16 +[0-9.]+ '
expect 0 $tiny --walkthrough -b 8 --warmup-steps 0 --num-iter 2 --precision fp16 --skip-passes order --json
prints '^\{"walkthrough": \[\{"step": "float32", "article": "FP32", '
prints '"options": "-b 8 --precision fp16 --skip-passes order,fuse", "is_fused": false, '
prints '"options": "-b 16 --precision fp16 --skip-passes order", "is_fused": true, '
[ "$(grep -o '"peak_memory_bytes": [0-9]' out | wc -l)" -eq 4 ] || complain "not four measurements"
expect 2 $tiny --walkthrough --mode inference
says 'is about --mode training'
expect 2 $tiny --walkthrough --precision fp32
says 'compares fp32 with a half type'
expect 2 $tiny --walkthrough --largest-batch
says 'exclude each other'
expect 2 $tiny --walkthrough --skip-passes nonsense -b 2
says 'step 1, float32: .*nonsense'
expect 1 $tiny --walkthrough --device abacus
says 'abacus'

# --- the largest batch ----------------------------------------------------------------------------
limit=60000000
expect 0 $tiny --largest-batch --memory-limit 60M
prints '^largest batches that train within 60.0 MB'
prints '^fp32 +[0-9]+ +[0-9]+'
prints '^bf16 +[0-9]+ +[0-9]+'
prints '^fp16 +[0-9]+ +[0-9]+'
for precision in fp32 bf16 fp16; do
    expect 0 $tiny --largest-batch --memory-limit 60M --precision $precision --json
    prints '^\{"memory_limit_bytes": 60000000, "image_size": 16, "largest_batch": \[\{"precision": "'$precision'"'
    batch=$(sed 's/.*"largest_batch": \([0-9]*\).*/\1/' out)
    bytes=$(member out bytes)
    no_less $limit "$bytes"
    no_less "$bytes" $((limit * 95 / 100)) # one picture more is some 0.1 % of it
    [ $((bytes)) -eq $(($(member out step_bytes) + $(member out validation_bytes) + $(member out input_bytes) +
        $(member out checkpoint_bytes) + $(member out runtime_bytes))) ] || complain "the parts are no sum"
    step=$(member out step_bytes)
    expect 0 $tiny -b "$batch" --iters 1 --warmup 1 --precision $precision --json --no-bound
    [ "$(member out planned_memory_bytes)" -eq "$step" ] || complain "the plan is not the one that runs"
    no_less $limit "$(member out peak_memory_bytes)"
    expect 0 $tiny -b "$batch" --largest-batch --memory-limit 50M --precision $precision --json
    no_less "$batch" $(($(sed 's/.*"largest_batch": \([0-9]*\).*/\1/' out) + 1))
done
expect 0 $tiny --largest-batch --memory-limit 100k --precision fp32
prints '^fp32 +none .*\(one picture\)$'
expect 0 $tiny --largest-batch --memory-limit 100k --precision fp32 --json
prints '"largest_batch": 0, '
for not in '--mode inference' --walkthrough; do
    expect 2 $tiny $not --memory-limit 4G
    says 'memory-limit is about one network, --mode training'
done
expect 2 $tiny --largest-batch --mode inference
says 'is about --mode training'
expect 2 $tiny --largest-batch --memory-limit -5
expect 2 benchmark --largest-batch --memory-limit 1G --arch resnet19
# --- several batch sizes
for mode in inference training; do
    expect 0 benchmark --mode $mode --arch resnet18 --image-size 32 --batch-sizes 1,3 --threads 1 --iters 3 --warmup 1 --no-bound
    [ "$(awk 'NF == 9 && $2 + 0 > 0 { printf "%s ", $1 }' out)" = "1 3 " ] || complain "no rows of batch 1 and 3"
done
expect 0 benchmark --mode inference --arch resnet18 --image-size 32 --batch-sizes 1,3 --threads 1 --iters 3 --warmup 1 --no-bound --json
prints '^\{"batch_sizes": \[\{.*"batch_size": 1, .*"batch_size": 3, '
for list in 1,,2 1, x '' 1,2x ,1; do
    expect 2 benchmark --mode inference --arch resnet18 --batch-sizes "$list"
    says "batch-sizes: '$list' is no list of numbers"
done
expect 2 benchmark --mode inference --arch resnet18 --batch-sizes 1,0
says "batch-sizes: 0 is out of range, wanted 1 to 1048576"
expect 2 benchmark --mode data x --batch-sizes 1,2
says "batch-sizes goes with --mode training or inference"
finish
