# ctest: timeout 120
# decode.sh -- --decode exact|fast: exact is the default and one with its old name, fast changes training a little and
# evaluation not at all, both repeat to the bit, and a run goes on as it began
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

small_model small.td 32 4
net="--model small.td --threads 1 --workers 2 --seed 3 -b 8 --epochs 2"
"$TANDEM" dataset draw set --classes 4 --train 32 --val 8 --size 160 >draw.log 2>&1 || complain "$(cat draw.log)"

trained() {
    name=$1
    shift
    expect 0 train set $net "$@" --workspace run.$name --final-weights $name.safetensors
}
trained default
trained exact --decode exact
trained old --exact-decode
trained both --decode fast --exact-decode
for name in exact old both; do
    same default.safetensors $name.safetensors
done
trained fast --decode fast
trained again --decode=fast --workers 1
same fast.safetensors again.safetensors
last="--decode fast"
if cmp -s default.safetensors fast.safetensors; then
    complain "it changes nothing: was it used?"
fi

# what a run began with it goes on with
expect 0 train set $net --decode fast --run-epochs 1 --workspace half
expect 0 train set --resume half/checkpoint.safetensors --workspace half --final-weights half.safetensors
same fast.safetensors half.safetensors

# images are evaluated as they are
for how in exact fast; do
    expect 0 evaluate set --weights default.safetensors --decode $how --logits $how.logits --json
done
same exact.logits fast.logits

expect 0 benchmark --mode data set --threads 1 --num-iter 1 --decode fast --json
expect 2 train set $net --decode slow
says "--decode: .*'slow'.*exact.*fast"
expect 2 train set $net --decode
error_names --decode

finish
