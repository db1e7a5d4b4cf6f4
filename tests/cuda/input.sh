# ctest: timeout 240
# input.sh -- images are copied to a GPU as bytes and normalized there: a quarter of the bytes, and the same numbers as
# with floats, to the bit, in training and evaluation; where values are no bytes, floats are copied
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_cuda.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_cuda_input.sh"
cd "$WORK" || exit 1
drawn set --classes 2 --train 16 --val 6 # the last batch of the evaluation is smaller
small_model small.td 36 2
fixed="--threads 1 --workers 1 --seed 3 --device cuda -b 4"
FLOATS=62208 BYTES=15552 # of the four images of a batch; no table of the update has such a size

train="train set $fixed --epochs 1 --lr 0.002 --no-checkpoints --final-state --final-weights final.safetensors"

# --- four steps, and two batches of the validation
as_bytes 4 $train --arch resnet18 --image-size 36 --precision fp32 --training-only
grep -q '^train loss *[0-9.]*$' out || complain "no loss"
as_bytes 6 $train --model small.td --precision fp32
for half in --amp '--precision bf16'; do # the cast is part of the normalization
    as_bytes 6 $train --model small.td $half
done
as_bytes 4 $train --model small.td --precision fp32 --mixup 0.2 --label-smoothing 0.1 --augmentation autoaugment --training-only
as_bytes 6 $train --model small.td --precision fp32 --data-backend dali-cpu
cp final.safetensors weights.safetensors
rm final.safetensors
as_bytes 2 evaluate set --model small.td -w weights.safetensors $fixed --precision fp32

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
