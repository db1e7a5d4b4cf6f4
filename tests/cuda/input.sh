# ctest: timeout 240
# input.sh -- images are copied to a GPU as bytes and normalized there: a quarter of the bytes, and the same numbers as
# with floats, to the bit, in training and evaluation; where values are no bytes, floats are copied
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_cuda.sh"
cd "$WORK" || exit 1
drawn set --classes 2 --train 16 --val 6 # the last batch of the evaluation is smaller
small_model small.td 32 2
fixed="--threads 1 --workers 1 --seed 3 --device cuda -b 4"
FLOATS=49152 BYTES=12288 # of the four images of a batch

# run INPUT NAME ARGUMENTS... -- with the copies to the device in copies.INPUT and the results in result.INPUT
run() {
    rm -f "copies.$1"
    input=$1
    shift
    case $input in
    usual) TANDEM_STAND_IN_COPIES=copies.$input expect 0 "$@" ;;
    *) TANDEM_STAND_IN_COPIES=copies.$input TANDEM_INPUT=$input expect 0 "$@" ;;
    esac
    grep -Ev '^(images/s|latency|checkpoint|best weights|workspace) ' out >"result.$input"
}

# copied INPUT BYTES TIMES -- so often were images of as many bytes copied, alone or with the other inputs of the step;
# once more if the smaller batch at the end was sent ahead
copied() {
    n=$(awk -v least="$2" '$1 >= least && $1 < least + 1024 { n++ } END { print n + 0 }' "copies.$1")
    most=$(($3 + ($3 > 0)))
    [ "$n" -ge "$3" ] && [ "$n" -le $most ] || complain "$n copies of $2 bytes, wanted $3 ($1)"
}

# both TIMES ARGUMENTS... -- the same results from bytes and floats, and this many batches
both() {
    times=$1
    shift
    run f32 "$@"
    [ ! -e final.safetensors ] || mv final.safetensors floats.safetensors
    copied f32 $FLOATS "$times"
    run usual "$@"
    copied usual $BYTES "$times"
    copied usual $FLOATS 0
    cmp result.f32 result.usual >&2 || complain "other results"
    [ ! -e final.safetensors ] || same floats.safetensors final.safetensors
}

train="train set $fixed --epochs 1 --lr 0.002 --no-checkpoints --final-state --final-weights final.safetensors"

# --- four steps, and two batches of the validation
both 4 $train --arch resnet18 --image-size 32 --precision fp32 --training-only
grep -q '^train loss *[0-9.]*$' out || complain "no loss"
both 6 $train --model small.td --precision fp32
for half in --amp '--precision bf16'; do # the cast is part of the normalization
    both 6 $train --model small.td $half
done
both 4 $train --model small.td --precision fp32 --mixup 0.2 --label-smoothing 0.1 --augmentation autoaugment --training-only
both 6 $train --model small.td --precision fp32 --data-backend dali-cpu
cp final.safetensors weights.safetensors
rm final.safetensors
both 2 evaluate set --model small.td -w weights.safetensors $fixed --precision fp32

# --- floats, where they are no bytes; and bytes on the processor
run u8 train set $fixed --epochs 1 --lr 0.002 --no-checkpoints --model small.td --precision fp32 --crop tf
copied u8 $FLOATS 6
cpu="train set -b 4 --threads 1 --workers 1 --seed 3 --epochs 1 --lr 0.002 --no-checkpoints --model small.td"
expect 0 $cpu
sed -n 's/^train loss *//p' out >loss.f32
TANDEM_INPUT=u8 expect 0 $cpu
sed -n 's/^train loss *//p' out >loss.u8
cmp loss.f32 loss.u8 >&2 || complain "another loss on the processor"
"$TANDEM" dataset draw boxes --boxes --train 2 --val 2 --size 64 >/dev/null || exit 1
for input in f32 u8; do
    TANDEM_INPUT=$input expect 0 train boxes --arch ssd300 --backbone resnet18 -b 2 --threads 1 --workers 1 --seed 3 \
        --run-iters 1 --lr 0.001 --no-checkpoints --training-only
    sed -n 's/^train loss *//p' out >"loss.$input"
done
cmp loss.f32 loss.u8 >&2 || complain "another loss of SSD300"
TANDEM_INPUT=u9 expect 2 $cpu
error_names TANDEM_INPUT u9 u8 f32
finish
