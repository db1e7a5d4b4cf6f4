# ctest: timeout 300
# memory_limit.sh -- --memory-limit: the same weights in less memory, and what is said where it cannot be done
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

drawn set --classes 4 --train 64 --val 32
net="--arch resnet18 --image-size 64 -b 32 --threads 1"
run="train set $net --workers 1 --seed 1 --lr 0.01 --epochs 1 --run-iters 2"

member() {
    sed 's/.*"'"$2"'": \([-+.0-9e]*\).*/\1/' "$1"
}

# no_less A B, for whole numbers
no_less() {
    [ "$1" -ge "$2" ] || complain "$1 is less than $2"
}

# megabytes that the error in err names in parentheses: for the step, and for the rest of the process
needs() {
    sed -n 's/^tandem: error: [^(]*(\([0-9]*\)\.[0-9] MB [^0-9]*\([0-9]*\)\.[0-9] MB .*/\1 \2/p' err
}

# --- train -------------------------------------------------------------------------------------
for precision in fp32 bf16; do
    expect 0 $run --precision $precision --workspace plain.$precision --final-weights plain.safetensors
    grep -q '^memory:' err && complain "something was recomputed without a limit"
    expect 0 $run --precision $precision --workspace wide.$precision --memory-limit 8G --final-weights wide.safetensors
    grep -q '^memory:' err && complain "something was recomputed within 8 GB"
    cmp plain.safetensors wide.safetensors || complain "a limit far away changes weights"

    expect 1 $run --precision $precision --workspace never --memory-limit 1M --final-weights never.safetensors
    error_names --memory-limit '1.0 MB' 32 1
    all=$(sed -n 's/^tandem: error: [^(]* \([0-9]*\)\.[0-9] MB (.*/\1/p' err)
    one=$(sed -n 's/^tandem: error: .*;[^;]* \([0-9]*\)\.[0-9] MB.*/\1/p' err)
    no_less "$all" "$one"
    [ "$(grep -c 'tandem: error' err)" -eq 1 ] || complain "more than one sentence"
    [ ! -e never ] && [ ! -e never.safetensors ] || complain "something was written"
    set -- $(needs)
    [ $# -eq 2 ] || complain "no numbers in the sentence"

    limit=$(($1 + $2 + 8))
    expect 0 $run --precision $precision --workspace tight.$precision --memory-limit ${limit}M \
        --final-weights tight.safetensors
    # the line names the limit, what it is needed for, and what recomputing makes of it: the plan of the next line
    log_names memory: --memory-limit "$limit.0 MB"
    fits=$(sed -n 's/^memory: .* \([0-9.]*\) MB: .* \([0-9.]*\) MB .* \([0-9.]*\) MB; .*GFLOP .*%.* \([0-9.]*\) MB$/\1 \2 \3 \4/p' err)
    plan=$(sed -n 's/^train: .*momentum \([0-9.]*\) MB, .* \([0-9.]*\) MB$/\1 \2/p' err)
    echo $fits $plan | awk '{ exit !(NF == 6 && $2 + $3 > $1 && $4 + $3 <= $1 + 0.2 && $4 - $5 - $6 < 0.21 && $5 + $6 - $4 < 0.21) }' ||
        complain "limit, step, rest, lowered step: $fits; the plan: $plan"
    cmp plain.safetensors tight.safetensors || complain "a tight limit changes weights"

    expect 1 $run --precision $precision --workspace never --memory-limit $(($1 + $2 - 6))M
    says '^tandem: error: .* 32.* [0-9]+ .*--batch-size [0-9]+ '
    fits=$(sed -n 's/^tandem: error: .*--batch-size \([0-9]*\) .*/\1/p' err)
    no_less 31 "$fits"
    [ ! -e never ] || complain "something was written"
done
# the batch that is suggested has room for averages and squares too
kept="$run --use-ema 0.9 --optimizer rmsprop --workspace never"
expect 1 $kept --memory-limit 1M
set -- $(needs)
limit=$(($1 + $2 - 15))
expect 1 $kept --memory-limit ${limit}M
fits=$(sed -n 's/^tandem: error: .*--batch-size \([0-9]*\) .*/\1/p' err)
no_less "${fits:-0}" 1
expect 0 $kept --memory-limit ${limit}M -b "${fits:-0}"
rm -rf never
expect 2 $run --memory-limit -5
expect 2 $run --memory-limit much

# a run that is resumed may have another limit, or none
expect 0 train set --resume tight.bf16/checkpoint.safetensors --epochs 2 --run-iters 1 --workspace later --threads 1
grep -q '^memory:' err && complain "the limit of an earlier run"

# --- benchmark, inspect ------------------------------------------------------------------------
bench="benchmark $net --iters 1 --warmup 1 --no-bound --json"
expect 0 $bench
planned=$(member out planned_memory_bytes)
expect 1 $bench --memory-limit 1M
set -- $(needs)
limit=$((($1 + $2 + 8) * 1000000))
expect 0 $bench --memory-limit $limit
says '^memory: .*[0-9] MB'
[ "$(member out unlimited_memory_bytes)" -eq "$planned" ] || complain "another plan without the limit"
no_less "$planned" $(($(member out planned_memory_bytes) + 1))
no_less $limit "$(member out peak_memory_bytes)"
no_less "$(member out recomputed_results)" 1

look="inspect memory $net --training"
expect 0 $look --json
all=$(($(member out param_bytes) + $(member out activation_bytes)))
grep -q recomputed out && complain "something was recomputed without a limit"
expect 1 $look --memory-limit 1M
error_names '1.0 MB'
least=$(sed -n 's/^tandem: error: [^0-9]*\([0-9]*\)\.[0-9] MB.*/\1/p' err)
expect 0 $look --memory-limit $((least + 1))M --json
[ "$(member out unlimited_bytes)" -eq $all ] || complain "another plan without the limit"
no_less $((least * 1000000 + 1000000)) $(($(member out param_bytes) + $(member out activation_bytes)))
expect 0 $look --memory-limit $((least + 1))M
prints '^recomputed_results +[0-9]+ '
finish
