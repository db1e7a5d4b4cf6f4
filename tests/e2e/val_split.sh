# val_split.sh -- --val-split: a fraction of each class becomes the validation images, by --seed only: the same for folders,
# packs and lists, any number of ranks, and a resumed run; no image is in both parts
# ctest: timeout 180
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

drawn set --classes 3 --train 60 --val 3
rm -r set/val
small_model small.td 32 3
net="--model small.td --threads 1 --workers 1 -b 4 --lr 0.01"
in_both="--epochs 1 --no-checkpoints"

# --- sizes, and both parts ------------------------------------------------------------------------------
expect 0 train set $net --val-split 0.2 --seed 1 $in_both --raport-file r.json --workspace a --final-weights a.safetensors
expect 0 evaluate set --val-split 0.2 --seed 1 --weights a.safetensors --threads 1 --json --per-class
prints '"n": 12, '
grep -o '"n": [0-9]*' out | sort | uniq -c >counts
grep -Eq '3 "n": 4$' counts || complain "the classes do not have 4 validation images each: $(cat counts)"
expect 0 evaluate set --val-split 0.2 --seed 1 --weights a.safetensors --threads 1 --json --logits v.safetensors
grep -o '"loss": [0-9.]*' out >first
expect 0 train set $net --val-split 0.2 --seed 1 --training-only $in_both --workspace b --final-weights b.safetensors
payload a.safetensors >one
payload b.safetensors >two
same one two
# classes without a folder train/
expect 0 evaluate set/train --val-split 0.2 --seed 1 --weights a.safetensors --threads 1 --json
grep -o '"loss": [0-9.]*' out >second
same first second
expect 0 evaluate set --val-split 0.2 --seed 2 --weights a.safetensors --threads 1 --json
grep -o '"loss": [0-9.]*' out >second
if cmp -s first second; then complain "the seed changes nothing"; fi

# --- packs: the same images; lists: as many -----------------------------------------------------------------
expect 0 dataset pack set set.pack
expect 0 evaluate set.pack --val-split 0.2 --seed 1 --weights a.safetensors --threads 1 --json
grep -o '"loss": [0-9.]*' out >second
same first second
expect 0 train set.pack $net --val-split 0.2 --seed 1 $in_both --workspace c --final-weights c.safetensors
payload c.safetensors >two
same one two
for file in set/train/*/*; do
    class=${file%/*}
    printf '%s,%s\n' "$file" "${class##*/}"
done >set.csv
expect 0 train set.csv $net --val-split 0.2 --seed 1 $in_both --workspace d
expect 0 evaluate set.csv --val-split 0.2 --seed 1 --weights a.safetensors --threads 1 --json
prints '"n": 12, '

# --- two ranks; a resumed run ---------------------------------------------------------------------------
expect 0 train set $net --val-split 0.2 --seed 1 --epochs 2 --no-checkpoints --optimizer-batch-size 8 --workspace e \
    --final-weights one_rank.safetensors
expect 0 launch --nproc 2 train set $net --val-split 0.2 --seed 1 --epochs 2 --no-checkpoints --workspace f \
    --final-weights two_ranks.safetensors
tensor one_rank.safetensors conv1.weight >one
tensor two_ranks.safetensors conv1.weight >two
same one two
expect 0 train set $net --val-split 0.2 --seed 1 --epochs 1 --workspace g
expect 0 train set --resume g/checkpoint.safetensors --epochs 2 --workspace g --final-weights resumed.safetensors
expect 0 train set $net --val-split 0.2 --seed 1 --epochs 2 --no-checkpoints --workspace h --final-weights whole.safetensors
payload resumed.safetensors >one
payload whole.safetensors >two
same one two
expect 2 train set --resume g/checkpoint.safetensors --epochs 3 --workspace g --seed 2
error_names --seed --val-split 2 1
expect 2 train set --resume g/checkpoint.safetensors --epochs 3 --workspace g --val-split 0.3
error_names --val-split 0.2 0.3
expect 0 train set --resume g/checkpoint.safetensors --evaluate --workspace i --json
prints '"n": 12, '

# --- contradictions --------------------------------------------------------------------------------------
expect 2 evaluate set --val-split 0.2 --weights a.safetensors --threads 1
error_names --val-split --seed
drawn full --classes 3 --train 24 --val 9
expect 0 dataset pack full full.pack
for data in full full.pack; do
    expect 2 train $data $net --val-split 0.2 $in_both --workspace x
    error_names --val-split "'$data'"
done
expect 2 train set $net --val-split 0.2 --val-list set.csv $in_both --workspace x
error_names --val-split --val-list
expect 2 train set $net --val-split 0.2 --data-backend synthetic $in_both --workspace x
error_names --val-split
expect 1 train set $net --val-split 0.01 $in_both --workspace x
error_names --val-split 0.01
expect 2 train set $net --val-split 1 $in_both --workspace x
expect 2 train set --arch ssd320 --val-split 0.2 $in_both --workspace x
error_names --val-split
expect 1 train set $net $in_both --workspace x
error_names --val-split --training-only
drawn boxes --boxes --train 8 --val 4
rm -r boxes/val boxes/annotations/instances_val.json
expect 1 train boxes --arch ssd320 --backbone resnet18 --image-size 160 -b 2 $in_both --workspace x
error_names --training-only
if grep -q -e --val-split err; then complain "detectors do not take --val-split"; fi
finish
