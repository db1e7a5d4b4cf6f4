# tfrecords.sh -- TFRecords of classes and of boxes train the weights of the folder and evaluate alike; splits by folders, by
# names and by patterns; what is wrong with a file is said in one sentence with file and byte
# ctest: timeout 600
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

records() { # DATA SPLIT FORM FIRST COUNT FILE
    "$TANDEM_BUILD/tests/tfrecord_file" "$1" "$2" "$3" "$4" "$5" >"$6" || complain "cannot write $6"
}

# --- ImageNet's: the same training as from the folder ----------------------------------------------------
drawn set --classes 3 --train 24 --val 9
small_model small.td 32 3
net="--model small.td --threads 1 --workers 1 --seed 1 -b 4 --lr 0.01"
mkdir tf zero
records set train classes 0 10 tf/train-00000-of-00002
records set train classes 10 14 tf/train-00001-of-00002
records set val classes 0 9 tf/validation-00000-of-00001
records set train zero 0 24 zero/train.tfrecord
records set val zero 0 9 zero/val.tfrecord
mkdir tf/idx
printf '0 100\n' >tf/idx/train-00000-of-00002.idx # DALI's, which is not needed
expect 0 train set $net --epochs 1 --no-checkpoints --final-weights folder.safetensors --workspace w1
payload folder.safetensors >one
trains() { # DATA OPTIONS
    expect 0 train "$@" $net --epochs 1 --no-checkpoints --final-weights records.safetensors --workspace w2 --overwrite
    payload records.safetensors >two
    same one two
}
trains tf
trains tf --data-backend tfrecord --data_idx_dir tf/idx
trains --data_dir tf
trains zero --label-offset 0
trains 'tf/train-*' --val-list 'tf/val*' --workers 3
trains 'tf/train-{00000..00001}-of-00002' --val-list tf/validation-00000-of-00001
mkdir -p parts/train parts/val
cp tf/train-* parts/train
cp tf/validation-* parts/val/a
trains parts
class=$(ls set/train | head -1)
header records.safetensors | grep -q "$class" || complain "the class names are not those of image/class/text"
expect 0 evaluate set --weights folder.safetensors --threads 1 --json
grep -o '"loss": [0-9.]*' out >first
for data in tf parts parts/val tf/validation-00000-of-00001 'tf/val*'; do
    expect 0 evaluate "$data" --weights records.safetensors --threads 1 --json
    prints '"n": 9, '
    grep -o '"loss": [0-9.]*' out >second
    same first second
done
expect 0 evaluate zero --label-offset 0 --weights records.safetensors --threads 1
# a stopped run resumes; two ranks
expect 0 train tf $net --run-iters 3 --epochs 2 --workspace part
expect 0 train tf --resume part/checkpoint.safetensors --epochs 2 --workspace part --final-weights resumed.safetensors
expect 0 train set $net --epochs 2 --no-checkpoints --final-weights whole.safetensors --workspace w4
payload whole.safetensors >one
payload resumed.safetensors >two
same one two
expect 0 launch --nproc 2 train set $net --epochs 1 --no-checkpoints --workspace w5 --final-weights folder.safetensors
expect 0 launch --nproc 2 train tf $net --epochs 1 --no-checkpoints --workspace w6 --final-weights records.safetensors
payload folder.safetensors >one
payload records.safetensors >two
same one two
expect 0 train parts/train $net --val-split 0.25 --epochs 1 --no-checkpoints --workspace w7
expect 0 dataset check tf
prints '^  images      24, 24 readable, 0 not$'
prints '^splits +train, val$'
expect 0 dataset check zero --label-offset 0
expect 0 dataset stats set
cp out first
expect 0 dataset stats tf
same first out
expect 0 inspect dataset tf
prints '^tf: 24 images, 3 classes$'

# --- COCO's: the same training, the same metrics ---------------------------------------------------------
expect 0 dataset draw things --boxes --train 8 --val 6 --size 96
detector="--arch ssd320 --backbone resnet18 --image-size 160 --threads 1 --workers 1 --seed 1 -b 2 --lr 0.01 --num-train-steps 3"
mkdir coco names
records things train boxes 0 5 coco/coco_train.record-00000-of-00002
records things train boxes 5 3 coco/coco_train.record-00001-of-00002
records things val boxes 0 6 coco/coco_val.record-00000-of-00001
records things train texts 0 8 names/train.record
records things val texts 0 6 names/val.record
expect 0 train things $detector --no-checkpoints --final-weights boxes.safetensors --workspace d1
payload boxes.safetensors >one
for data in coco names; do
    expect 0 train $data $detector --no-checkpoints --final-weights found.safetensors --workspace d2 --overwrite
    payload found.safetensors >two
    same one two
done
expect 0 train 'coco/*train*' $detector --no-checkpoints --val-list 'coco/*val*' --final-weights found.safetensors --workspace d2 --overwrite
payload found.safetensors >two
same one two
expect 0 train coco $detector --run-iters 1 --workspace d3
expect 0 train coco --resume d3/checkpoint.safetensors --workspace d3 --final-weights found.safetensors
payload found.safetensors >two
same one two
scores() { # DATA
    expect 0 evaluate "$1" --weights boxes.safetensors --threads 1 --json
    grep -o '"AP[0-9a-z]*": [-0-9.e]*' out
}
scores things >first
[ -s first ] || complain "no metrics"
for data in coco names coco/coco_val.record-00000-of-00001; do
    scores "$data" >second
    same first second
done
expect 0 dataset check coco
prints '^  images      8, 8 readable, 0 not$'
expect 0 inspect dataset coco
prints '^coco: 8 images, 3 classes$'
expect 1 train 'coco/*train*' $detector --workspace d4
error_names --val-list
expect 1 train coco $net --workspace d4
error_names 0 ssd320
expect 1 train tf $detector --workspace d4
error_names "'tf/train-00000-of-00002'"
expect 2 train coco $detector --label-offset 0 --workspace d4
error_names --label-offset ssd320
expect 1 train coco $detector --annotations things/annotations/instances_train.json --workspace d4
error_names "'coco'"

# --- what is not possible ----------------------------------------------------------------------------------
expect 1 train tf/train-00000-of-00002 $net --workspace d4
error_names "'tf/train-00000-of-00002'" --val-list --val-split
expect 1 train tf/validation-00000-of-00001 $net --training-only --workspace d4
error_names "'tf/validation-00000-of-00001'" "'train'"
expect 1 train 'tf/none-*' --data-backend tfrecord $net --training-only --workspace d4
error_names "'tf/none-*'"
expect 1 train zero $net --workspace d4
error_names "'zero/train.tfrecord'" 0 --label-offset
for verb in "train set $net --workspace d4" "evaluate set --weights records.safetensors" "dataset check set" \
    "dataset check coco"; do
    expect 2 $verb --label-offset 0
    error_names --label-offset
done
expect 2 train tf $net --label-offset 2 --workspace d4
error_names --label-offset 1

# --- a malformed file is an error with its place, damaged data are a bad image ------------------------------
refused() { # FILE WORDS
    file=$1
    shift
    expect 1 dataset check $file
    error_names "'$file'" "$@"
    silent
}
good=tf/train-00000-of-00002
length=$(($(od -An -t u8 -N 8 $good)))
head -c $((length + 20)) $good >cut.tfrecord
refused cut.tfrecord $((length + 16)) $((length + 20))
{ head -c $((length + 16)) $good; printf 'x'; tail -c +$((length + 18)) $good; } >length.tfrecord
refused length.tfrecord $((length + 16))
gzip -c $good >gzip.tfrecord
refused gzip.tfrecord compressed
printf 'this is no record' >text.tfrecord
refused text.tfrecord 8
mkdir torn
cp tf/* torn 2>/dev/null
{ printf 'x'; tail -c +2 $good; } >torn/train-00000-of-00002
expect 1 train torn $net --workspace d4
error_names "'torn/train-00000-of-00002'"
mkdir half
cp tf/train-00001-of-00002 half
expect 0 dataset check half
warning_names "'half/train-00001-of-00002'" 1 2
expect 0 dataset check tf
[ ! -s err ] || complain "a complete set has warnings"
# a changed byte of the second record's data
at=$((length + 16 + 12 + 300))
mkdir damaged
cp tf/*-of-* damaged
{ head -c $at $good; head -c 1 /dev/zero; tail -c +$((at + 2)) $good; } >damaged/train-00000-of-00002
expect 1 dataset check damaged
prints "$((length + 16))"
expect 0 train damaged $net --epochs 1 --max-bad 0.2 --no-checkpoints --workspace d5
grep -q "'damaged/train-00000-of-00002'.* byte $((length + 16)) " d5/bad.list || complain "the bad record is not listed"
finish
