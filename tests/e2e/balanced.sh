# balanced.sh -- --balanced-sampling: the classes of an uneven data set occur equally often; the same bits after a resume and
# on two ranks
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

drawn all --classes 2 --train 64 --val 8
mkdir -p set/train
cp -r all/val set/val
first=$(ls all/train | head -1)
second=$(ls all/train | tail -1)
cp -r "all/train/$first" set/train
mkdir "set/train/$second"
find "all/train/$second" -name '*.jpg' | sort | head -2 | while read -r image; do cp "$image" "set/train/$second"; done
small_model small.td 32 2
net="--model small.td --threads 1 --workers 2 --seed 1 --lr 0.05 --balanced-sampling"

expect 0 train set $net -b 4 --epochs 3 --no-checkpoints --workspace w1 --final-weights whole.safetensors
payload whole.safetensors >one
expect 0 train set $net -b 4 --epochs 3 --run-iters 11 --workspace w2
expect 0 train set --resume w2/checkpoint.safetensors --workspace w2 --final-weights resumed.safetensors
payload resumed.safetensors >two
same one two
plain_model plain.td 32 16 32 1 0.1 # running statistics are each rank's own
plain=$(printf %s "$net" | sed "s/small.td/plain.td/")
expect 0 train set $plain -b 4 --optimizer-batch-size 8 --epochs 1 --no-checkpoints --workspace w3 --final-weights whole.safetensors
expect 0 launch --nproc 2 train set $plain -b 4 --epochs 1 --no-checkpoints --workspace w4 --final-weights ranks.safetensors
payload whole.safetensors >one
payload ranks.safetensors >two
same one two
expect 2 train set $net --shuffle buffer --workspace w6
error_names --balanced-sampling --shuffle
expect 2 train set $net --aug-repeats 2 --workspace w6
error_names --balanced-sampling --aug-repeats
expect 0 train set $net -b 4 --sampler padded --epochs 1 --no-checkpoints --workspace w7
expect 2 train set --balanced-sampling --arch ssd320 --workspace w6
error_names --balanced-sampling
finish
