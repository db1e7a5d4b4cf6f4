# ctest: timeout 120
# input.sh -- --augmentation, --crop, --antialias, --normalization, --shuffle, --data-backend dali-*: each changes training,
# repeats to the bit whatever the workers, and goes on as it began; files that vanish, tensors that are not finite
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

small_model small.td 32 4
net="--model small.td --threads 1 --seed 3 -b 8 --epochs 2"
"$TANDEM" dataset draw set --classes 4 --train 32 --val 8 --size 80 >draw.log 2>&1 || complain "$(cat draw.log)"
"$TANDEM" dataset pack set set.pack >pack.log 2>&1 || complain "$(cat pack.log)"

trained() {
    name=$1
    shift
    expect 0 train "$@" $net --workspace run.$name --final-weights $name.safetensors
}
differ() {
    if cmp -s $1.safetensors $2.safetensors; then
        complain "$1 and $2 are the same: was it used?"
    fi
}
trained plain set --workers 2
trained aa set --workers 1 --augmentation autoaugment
trained aa2 set --workers 3 --prefetch 5 --augmentation=autoaugment
trained aa3 set.pack --workers 2 --augmentation=autoaugment
same aa.safetensors aa2.safetensors
same aa.safetensors aa3.safetensors
differ plain aa
trained aafast set --workers 2 --augmentation autoaugment --decode fast
trained dali set --workers 2 --crop dali
trained dalicpu set.pack --workers 2 --data-backend dali-cpu
trained daligpu set --workers 1 --data-backend dali-gpu
log_names dali-gpu CPU
same dali.safetensors dalicpu.safetensors
same dali.safetensors daligpu.safetensors
differ plain dali
trained tf set --workers 2 --crop tf
differ plain tf
trained tfnorm set --workers 2 --crop tf --normalization tf
differ tf tfnorm
trained point set --workers 2 --no-antialias
differ plain point
trained cubic set --workers 2 --crop dali --interpolation bicubic
differ dali cubic
trained buffer set --workers 2 --shuffle buffer
differ plain buffer
trained padded set --workers 2 --sampler padded # one rank: the same order
same plain.safetensors padded.safetensors

# what a run began with it goes on with
expect 0 train set $net --augmentation autoaugment --crop dali --shuffle buffer --workspace whole --final-weights whole.safetensors
expect 0 train set $net --augmentation autoaugment --crop dali --shuffle buffer --run-iters 3 --workspace half
expect 0 train set --resume half/checkpoint.safetensors --workspace half --final-weights half.safetensors
same whole.safetensors half.safetensors

# evaluation has the crop's rules too, and no augmentation
for how in torchvision dali tf; do
    expect 0 evaluate set --weights plain.safetensors --crop $how --augmentation none --logits $how.logits --json
done
cmp -s torchvision.logits dali.logits && complain "--crop dali changes no evaluation"
cmp -s dali.logits tf.logits && complain "--crop tf is dali's in evaluation"

expect 0 benchmark --mode data set --threads 1 --num-iter 1 --augmentation autoaugment --json
expect 2 train set $net --crop square
says "--crop: .*'square'.*torchvision.*dali.*tf"
expect 2 train set $net --shuffle buffer --sampler padded
error_names --shuffle
expect 2 train set $net --crop tf --augmentation autoaugment --workspace no1
error_names autoaugment
expect 2 train set $net --antialias --no-antialias --workspace no2
error_names --antialias --no-antialias

# a file that goes between two looks at the folder is none; one that goes later is a bad image: unit.loader_changes
: >set/train/$(ls set/train | head -1)/zzz.jpg
expect 0 train set $net --max-bad 0.1 --workspace emptied
grep -q "zzz.jpg" emptied/bad.list || complain "bad.list does not name zzz.jpg"
expect 1 train set $net --max-bad 0 --workspace strict
error_names --max-bad 1 33 0
log_names "'strict/bad.list'"

finish
