# gray.sh -- --channels 1: networks for gray images in every verb; the weight file keeps it, weights for RGB images are
# summed, contradictions are errors; tests/oracle/gray.py judges the numbers
# ctest: timeout 480
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

expect 0 dataset draw set --classes 3 --train 24 --val 9 --size 48 --seed 3
net="--arch squeezenet1_1 --image-size 32 --threads 1 --workers 1 --seed 1 -b 4 --lr 0.01"
image=$(ls set/val/*/* | head -1)

# --- dataset ------------------------------------------------------------------------------------------
expect 0 dataset stats set --channels 1
prints '^--channels 1 --mean 0\.[0-9]{6} --std 0\.[0-9]{6}$'
options=$(cat out)
expect 0 dataset stats set --channels 1 --threads 3 --json
prints '"mean": \[0\.[0-9]+\], "std": \[0\.[0-9]+\]\}$'
expect 0 dataset stats set --channels 3
prints '^--mean 0.479019,0.496639,0.527384 --std'
expect 2 dataset stats set --channels 2
error_names --channels 2
expect 0 dataset check set/val --channels 1 --image-size 32 --dump-tensors val.safetensors
header val.safetensors >out
prints '"images":\{"dtype":"F32","shape":\[9,1,32,32\]'

# --- training, with every change of colors and positions, in one pass and resumed -----------------------
changes="--auto-augment imagenet --color-jitter --jitter-strength 0.4,0.4,0.4,0.1 --random-erase 0.5 --mixup 0.2 --cutmix 1"
expect 0 train set $net --channels 1 $changes --epochs 2 --workspace a --final-weights a.safetensors
header a.safetensors >out
prints '"tandem.channels":"1"'
prints '"features.0.weight":\{"dtype":"F32","shape":\[64,1,3,3\]'
if grep -q image_mean out; then complain "the default of gray images is stored"; fi
expect 0 train set $net --channels 1 $changes --epochs 1 --workspace b
expect 0 train set --resume b/checkpoint.safetensors --epochs 2 --workspace b --final-weights b.safetensors
payload a.safetensors >one
payload b.safetensors >two
same one two
expect 0 train set $net $options --epochs 1 --no-checkpoints --workspace c --final-weights c.safetensors
header c.safetensors >out
prints '"tandem.image_mean":"0\.[0-9]+"'
expect 0 launch --nproc 2 train set $net --channels 1 -b 2 --epochs 1 --no-checkpoints --workspace ranks
for input in u8 f32; do # constants for which the reference kernel of bytes, in float64, rounds as floats do
    TANDEM_INPUT=$input expect 0 train set $net --channels 1 --mean 0.5 --std 0.25 --epochs 1 --no-checkpoints --workspace $input \
        --final-weights $input.safetensors
    payload $input.safetensors >$input.bytes
done
same u8.bytes f32.bytes
expect 0 train set $net --channels 1 --amp --precision bf16 --epochs 1 --no-checkpoints --workspace amp
expect 0 train --data-backend synthetic $net --channels 1 --num-classes 3 --run-iters 2 --epochs 1 --training-only \
    --no-checkpoints --workspace synthetic

# --- every other verb takes it from the file --------------------------------------------------------------
loss_of() {
    expect 0 evaluate --threads 1 --json "$@"
    grep -o '"loss": [0-9.]*' out
}
loss_of set --weights a.safetensors >kept
loss_of set --weights a.safetensors --channels 1 >given
same kept given
loss_of val.safetensors --data-backend tensors --weights a.safetensors >tensors
same kept tensors
TANDEM_INPUT=u8 loss_of set --weights a.safetensors >given
same kept given
loss_of set --weights a.safetensors --tta hflip >mirrored
TANDEM_INPUT=u8 loss_of set --weights a.safetensors --tta hflip >given
same mirrored given
expect 0 convert a.safetensors a.pth
loss_of set --weights a.pth >given
same kept given
expect 0 convert a.safetensors a.onnx
near() {
    awk '{ print $2 }' "$1" "$2" | tr '\n' ' ' | awk '{ exit !($1 - $2 < 1e-4 && $2 - $1 < 1e-4) }' ||
        complain "$1 and $2 differ: $(cat "$1" "$2")"
}
loss_of set --weights a.onnx >given
near kept given
loss_of set --model a.onnx >given
near kept given
for input in float bytes; do
    expect 0 convert c.safetensors $input.onnx --export-preprocessing $input
    loss_of set --weights c.safetensors >own
    loss_of set --weights $input.onnx >given
    near own given
done
expect 0 convert a.onnx back.safetensors
header back.safetensors >out
prints '"tandem.channels":"1"'
expect 0 classify "$image" --weights a.safetensors --threads 1 --json
cp out kept
TANDEM_INPUT=u8 expect 0 classify "$image" --weights a.safetensors --threads 1 --json
same out kept
expect 0 quantize a.safetensors set -o q.safetensors --threads 1
expect 0 evaluate set --weights q.safetensors --threads 1
expect 0 init --arch mobilenet_v2 --channels 1 -o fresh.safetensors
header fresh.safetensors >out
prints '"shape":\[32,1,3,3\]'
expect 0 inspect model --weights a.safetensors
prints '^features.0 .* 576 '
expect 0 benchmark --arch squeezenet1_1 --channels 1 --image-size 32 -b 2 --iters 1 --warmup 0 --threads 1
expect 0 benchmark --mode training --arch squeezenet1_1 --channels 1 --image-size 32 -b 2 --iters 1 --warmup 0 --threads 1
expect 0 benchmark set --mode data --channels 1 --iters 1 --threads 1 --image-size 32 -b 4

# --- a graph decides by itself ------------------------------------------------------------------------------
small_model rgb.td 32 3
sed -e 's/%images:f32\[1,3,/%images:f32[1,1,/' -e 's/conv1.weight:f32\[16,3,/conv1.weight:f32[16,1,/' rgb.td >gray.td
own="--model gray.td --threads 1 --workers 1 --seed 1 -b 4 --lr 0.01 --epochs 1 --no-checkpoints"
expect 0 train set $own --mean 0.5 --std 0.25 --workspace d --final-weights d.safetensors
header d.safetensors >out
prints '"tandem.image_mean":"0.5"'
expect 0 evaluate set --weights d.safetensors --threads 1
expect 2 train set $own --channels 3
error_names "'gray.td'" --channels 1 3
sed -e 's/%images:f32\[1,3,/%images:f32[1,2,/' -e 's/conv1.weight:f32\[16,3,/conv1.weight:f32[16,2,/' rgb.td >two.td
expect 1 train set --model two.td
error_names "'two.td'" 2 1 3

# --- weights for RGB images are summed over the channels ----------------------------------------------------
expect 0 init --arch squeezenet1_1 --num-classes 3 --image-size 32 --seed 1 -o rgb.safetensors
expect 0 evaluate set --weights rgb.safetensors --channels 1 --threads 1
log_names "'rgb.safetensors'" "'features.0.weight'"
expect 0 train set --pretrained-weights rgb.safetensors $net --channels 1 --epochs 1 --no-checkpoints --workspace e
log_names "'rgb.safetensors'" "'features.0.weight'"
expect 0 classify "$image" --weights rgb.safetensors --channels 1

# --- contradictions -------------------------------------------------------------------------------------------
for job in "evaluate set" "classify $image" "serve --port 0" "train set --epochs 1 --workspace x"; do
    case $job in
    train*) weights=--pretrained-weights ;;
    *) weights=--weights ;;
    esac
    expect 2 $job $weights a.safetensors --threads 1 --channels 3
    error_names "'a.safetensors'" --channels 3
done
expect 2 train set --resume b/checkpoint.safetensors --epochs 3 --workspace b --channels 3
expect 0 train set $net --epochs 1 --workspace f
expect 1 train set --resume f/checkpoint.safetensors --epochs 2 --workspace f --channels 1
error_names "'f/checkpoint.safetensors'" --channels 1 3
expect 2 train set $net --channels 2
error_names --channels 2
expect 2 train set $net --channels 1 --mean 0.4,0.4,0.4
error_names --mean
expect 2 train set $net --mean 0.4
error_names --mean
expect 2 train set $net --channels 1 --normalization tf
error_names --normalization
expect 2 train set --arch ssd320 --channels 1
error_names --channels "'ssd320'"
expect 1 evaluate val.safetensors --data-backend tensors --weights rgb.safetensors --threads 1
error_names "'val.safetensors'" 1 3
finish
