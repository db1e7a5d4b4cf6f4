# normalization.sh -- --mean and --std: the weight file keeps them, every job that reads it uses them, a contradiction is
# an error; dataset stats prints them as torch computes them (tests/oracle/normalization.py made the numbers)
# ctest: timeout 180
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

expect 0 dataset draw set --classes 3 --train 24 --val 9 --size 48 --seed 3
small_model small.td 32 3
net="--threads 1 --workers 1 --seed 1 -b 4 --lr 0.01"

# --- dataset stats ------------------------------------------------------------------------------------
expect 0 dataset stats set
cp out whole
prints '^--mean 0.479019,0.496639,0.527384 --std 0.275250,0.300122,0.258649$'
expect 0 dataset stats set/train --threads 1
same out whole
expect 0 dataset stats set --split train --threads 3
same out whole
expect 0 dataset stats set --image-size 32
prints '^--mean 0.459029,0.502318,0.514463 --std 0.270910,0.301896,0.252109$'
cp out crops
expect 0 dataset stats set --image-size 32 --interpolation bicubic
if cmp -s out crops; then complain "the interpolation changes nothing"; fi
expect 0 dataset stats set --split val --json
prints '"images": 9, "unreadable": 0, "pixels": 20736, "mean": \[0\.6054791[0-9]*, 0\.4968048'
cp -r set damaged
image=$(ls damaged/train/*/* | head -1)
printf 'no image' >"$image"
expect 1 dataset stats damaged
error_names "'damaged/train'" 1 24 --max-bad
expect 0 dataset stats damaged --max-bad 0.1
expect 1 dataset stats absent
expect 2 dataset stats
expect 0 train set --model small.td $net $(cat whole) --epochs 1 --no-checkpoints --workspace options

# --- training stores them, every other job takes them -------------------------------------------------
mean=0.5,0.4,0.3
std=0.2,0.25,0.3
own="--mean $mean --std $std"
expect 0 train set --model small.td $net $own --epochs 1 --workspace a --final-weights a.safetensors
expect 0 train set --model small.td $net --epochs 1 --no-checkpoints --final-weights b.safetensors --workspace b
payload a.safetensors >one
payload b.safetensors >two
if cmp -s one two; then complain "--mean and --std change nothing"; fi
header a.safetensors >out
prints "\"tandem.image_mean\":\"$mean\""
prints "\"tandem.image_std\":\"$std\""
header b.safetensors >out
if grep -q image_mean out; then complain "ImageNet's values are stored"; fi
expect 0 train set --model small.td $net --mean 0.485,0.456,0.406 --epochs 1 --no-checkpoints \
    --final-weights c.safetensors --workspace c
payload c.safetensors >one
same one two

loss_of() {
    expect 0 evaluate set --threads 1 --json "$@"
    grep -o '"loss": [0-9.]*' out
}
image=$(ls set/val/*/* | head -1)
loss_of --weights a.safetensors >kept
loss_of --weights a.safetensors $own >given
same kept given
TANDEM_INPUT=u8 loss_of --weights a.safetensors >given
same kept given
TANDEM_INPUT=u8 expect 0 train set --model small.td $net $own --epochs 1 --no-checkpoints --workspace u8 \
    --final-weights u8.safetensors
payload a.safetensors >one
payload u8.safetensors >two
same one two
# the same weights without their metadata need the options
expect 0 convert a.safetensors a.pth
loss_of --weights a.pth >from_pth
same kept from_pth
expect 0 convert a.safetensors a.onnx
loss_of --weights a.onnx >from_onnx
awk '{ print $2 }' kept from_onnx | tr '\n' ' ' | awk '{ exit !($1 - $2 < 1e-4 && $2 - $1 < 1e-4) }' ||
    complain "an ONNX file loses them: $(cat kept from_onnx)"
expect 0 convert a.onnx back.safetensors
header back.safetensors >out
prints "\"tandem.image_mean\":\"$mean\""
expect 0 convert a.safetensors raw.onnx --export-preprocessing bytes --verify
expect 0 quantize a.safetensors set -o q.safetensors --threads 1 $own
header q.safetensors >out
prints "\"tandem.image_std\":\"$std\""
expect 0 evaluate set --weights q.safetensors --threads 1
expect 0 classify "$image" --weights a.safetensors --threads 1 --json
cp out kept
TANDEM_INPUT=u8 expect 0 classify "$image" --weights a.safetensors --threads 1 --json
same out kept
expect 0 classify "$image" --weights a.safetensors --threads 1 --json $own
same out kept
expect 0 classify "$image" --weights c.safetensors --threads 1 --json
if cmp -s out kept; then complain "classify ignores them"; fi
expect 0 init --model small.td $own -o fresh.safetensors
header fresh.safetensors >out
prints "\"tandem.image_mean\":\"$mean\""
expect 0 benchmark set --model small.td --mode data --iters 1 --threads 1 --image-size 32 -b 4 $own

# --- a resumed run continues with them -----------------------------------------------------------------
expect 0 train set --resume a/checkpoint.safetensors --epochs 2 --workspace a --final-weights resumed.safetensors
expect 0 train set --model small.td $net $own --epochs 2 --no-checkpoints --final-weights long.safetensors --workspace d
payload resumed.safetensors >one
payload long.safetensors >two
same one two

# --- contradictions -------------------------------------------------------------------------------------
other="--mean 0.1,0.1,0.1"
for job in "evaluate set" "classify $image" "serve --port 0"; do
    expect 2 $job --weights a.safetensors --threads 1 $other
    error_names "'a.safetensors'" --mean "$mean" 0.1,0.1,0.1
done
expect 2 quantize a.safetensors set -o x.safetensors $other
error_names "'a.safetensors'" --mean "$mean"
expect 2 convert a.safetensors x.onnx --std 0.1,0.1,0.1
error_names "'a.safetensors'" --std "$std"
expect 2 train set --resume a/checkpoint.safetensors --epochs 3 --workspace a $other
error_names --mean "$mean"
expect 2 evaluate set --weights b.safetensors --threads 1 $other
error_names "'b.safetensors'" 0.485,0.456,0.406
expect 0 train set --pretrained-weights a.safetensors $net $other --epochs 1 --no-checkpoints --workspace e \
    --final-weights tuned.safetensors
warning_names "'a.safetensors'" --mean "$mean"
header tuned.safetensors >out
prints '"tandem.image_mean":"0.1,0.1,0.1"'
prints "\"tandem.image_std\":\"$std\""
expect 2 train set --model small.td $net $own --normalization tf
error_names --normalization
for wrong in 1,2 a,b,c 0.1,0.2,0.3,0.4 123.675,116.28,103.53 nan,0,0 , ''; do
    expect 2 train set --model small.td $net --mean "$wrong"
    error_names --mean
done
expect 2 train set --model small.td $net --std 0,0.1,0.1
error_names --std 0.0001
expect 2 train set --arch ssd320 $other
error_names --mean "'ssd320'"
expect 2 detect "$image" --arch ssd320 --weights a.safetensors $other
expect 2 detect "$image" --arch ssd320 --weights a.safetensors --std 0.1,0.1,0.1
finish
