# val_resize.sh -- --val-resize: the short side to which evaluation resizes; the weight file keeps it with its image size,
# every job that evaluates takes it
# ctest: timeout 180
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

expect 0 dataset draw set --classes 3 --train 24 --val 9 --size 80 --seed 3
small_model small.td 32 3
net="--threads 1 --workers 1 --seed 1 -b 4 --lr 0.01 --image-size 32 --epochs 1"
image=$(ls set/val/*/* | head -1)

loss_of() {
    expect 0 evaluate set --threads 1 --json "$@"
    grep -o '"loss": [0-9.]*' out
}

# --- the default is 32 pixels more than the image ----------------------------------------------------
expect 0 train set --model small.td $net --workspace a --final-weights a.safetensors
header a.safetensors >out
if grep -q val_resize out; then complain "the default is stored"; fi
loss_of --weights a.safetensors >usual
loss_of --weights a.safetensors --val-resize 64 >same
same usual same
loss_of --weights a.safetensors --val-resize 36 >narrow
loss_of --weights a.safetensors --val-resize 32 >none
if cmp -s usual narrow; then complain "--val-resize 36 changes nothing"; fi
if cmp -s none narrow; then complain "--val-resize 32 is as 36"; fi
loss_of --weights a.safetensors --val-resize-size 36 >alias
same narrow alias

# --- training stores it, every other job takes it ----------------------------------------------------
expect 0 train set --model small.td $net --val-resize 36 --workspace b --final-weights b.safetensors
header b.safetensors >out
prints '"tandem.val_resize":"36"'
payload a.safetensors >one
payload b.safetensors >two
same one two
loss_of --weights b.safetensors >stored
same narrow stored
loss_of --weights b.safetensors --val-resize 64 >over
same usual over
grep -o '"val.loss": [0-9.]*' a/experiment_raport.json >one
grep -o '"val.loss": [0-9.]*' b/experiment_raport.json >two
if cmp -s one two; then complain "the validation of the training ignores it"; fi
# of another image size it is not taken
loss_of --weights b.safetensors --image-size 40 >of_40
loss_of --weights a.safetensors --image-size 40 >usual_40
same usual_40 of_40
for weights in a b; do
    expect 0 classify "$image" --weights $weights.safetensors --threads 1 --json
    cp out classes_$weights
done
if cmp -s classes_a classes_b; then complain "classify ignores it"; fi
expect 0 classify "$image" --weights a.safetensors --threads 1 --json --val-resize 36
same out classes_b
expect 0 quantize b.safetensors set -o q.safetensors --threads 1
header q.safetensors >out
prints '"tandem.val_resize":"36"'
expect 0 quantize a.safetensors set -o p.safetensors --threads 1 --val-resize 36
header p.safetensors >out
prints '"tandem.val_resize":"36"'
payload q.safetensors >one
payload p.safetensors >two
same one two
expect 0 init --model small.td --image-size 32 --val-resize 36 -o fresh.safetensors
header fresh.safetensors >out
prints '"tandem.val_resize":"36"'
expect 0 benchmark set --model small.td --image-size 32 --val-resize 36 --mode inference --iters 1 --warmup 0 --threads 1 -b 3 --no-bound
expect 0 train set --pretrained-weights b.safetensors $net --no-checkpoints --workspace c --final-weights c.safetensors
header c.safetensors >out
prints '"tandem.val_resize":"36"'
expect 0 train set --resume b/checkpoint.safetensors --epochs 2 --workspace b --final-weights d.safetensors
header d.safetensors >out
prints '"tandem.val_resize":"36"'
# sizes of training images may exceed it
expect 0 train set --arch resnet18 $net --val-resize 36 --image-size-schedule 0:40 --no-checkpoints --workspace e

# --- refused ------------------------------------------------------------------------------------------
for job in "evaluate set" "classify $image" "serve --port 0" "quantize set -o x.safetensors"; do
    case $job in quantize*) set -- quantize a.safetensors set -o x.safetensors ;; *) set -- $job --weights a.safetensors ;; esac
    expect 2 "$@" --threads 1 --val-resize 31
    error_names --val-resize 31 32
done
expect 2 train set --model small.td $net --val-resize 31
error_names --val-resize 31 32
expect 2 train set --arch ssd320 --val-resize 400
error_names --val-resize "'ssd320'"
expect 2 init --arch ssd320 --val-resize 400 -o boxes.safetensors
error_names --val-resize "'ssd320'"
expect 0 init --arch ssd320 --backbone resnet18 --num-classes 2 -o boxes.safetensors
expect 2 detect "$image" --weights boxes.safetensors --val-resize 400
error_names --val-resize "'ssd320'"
expect 2 train set --model small.td $net --val-resize 8193
error_names --val-resize 8193
finish
