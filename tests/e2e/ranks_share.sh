# ctest: timeout 300
# ctest: processors 2
# ranks_share.sh -- ranks share what is judged: raw outputs, what a detector finds, COCO's numbers are the bytes of one
# rank; how many images may be bad is for all ranks together; so is what a memory limit leaves
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_background.sh"

drawn set --classes 4 --train 96 --val 23
small_model small.td 32 4
few="--threads 1 --workers 1"
fixed="$few --seed 7 --lr 0.01"
ranks="launch --cpu-affinity none --nproc"

# --- raw outputs, in input order; an image that cannot be read is in none -------------------------
expect 0 init --model small.td --seed 3 -o small.safetensors
cp -r set odd
for image in odd/val/*/00001.jpg; do
    echo broken >"$image"
    break
done
judged="--weights small.safetensors -b 4 $few --max-bad 0.1 --json"
expect 0 evaluate odd $judged --logits one.safetensors
for n in 2 3 8; do # of 8 the last two have nothing
    expect 0 $ranks $n evaluate odd $judged --logits two.safetensors
    prints '"n": 22,.*"n_bad": 1,'
    same one.safetensors two.safetensors
done
expect 1 $ranks 2 evaluate odd $judged --logits nowhere/two.safetensors
says "nowhere/two.safetensors"

# --- a folder that is watched ----------------------------------------------------------------------
mkdir watched
cp small.safetensors watched/checkpoint.safetensors
expect 2 $ranks 2 evaluate set --checkpoint-dir watched
error_names --checkpoint-dir
expect 0 $ranks 2 evaluate set --checkpoint-dir watched --run-once --json $few
[ "$(wc -l <out)" = 1 ] || complain "$(wc -l <out) lines of two ranks, wanted one"

# --- a detector: COCO's numbers, those of each class and what was found, to the byte -----------------
numbers() { # without times
    sed -E 's/"(images_per_s|latency_ms)": [^,}]*/"\1"/g' out
}
expect 0 dataset draw boxes --boxes --classes 2 --train 2 --val 7 --size 160
for image in 00001 00004; do echo broken >boxes/val/$image.jpg; done
expect 0 init --arch ssd320 --backbone resnet18 --image-size 160 --num-classes 2 --seed 3 -o detector.safetensors
judged="--weights detector.safetensors -b 2 $few --min-score 0.001 --per-class --max-bad 0.3 --json"
expect 0 evaluate boxes $judged --detections one.json
prints '"n": 5, "n_bad": 2, "n_found": [1-9]'
numbers >one.numbers
for n in 2 5; do # of 5 the last has nothing
    expect 0 $ranks $n evaluate boxes $judged --detections two.json
    same one.json two.json
    numbers >two.numbers
    same one.numbers two.numbers
done
expect 4 $ranks 2 evaluate boxes $judged --require 'AP>=0.9'
error_names AP 0 0.9
expect 1 $ranks 3 evaluate boxes $judged --max-bad 0.2
error_names 2 7 1 'rank 0' "'boxes/val/00001.jpg'"
# ranks whose annotations differ in one box
truths=boxes/annotations/instances_val.json
sed 's/"iscrowd": 0}\]/"iscrowd": 1}]/' $truths >other.json
cmp -s other.json $truths && complain "the annotations are the same"
linked evaluate boxes $judged --detections two.json --annotations $truths \
    ::: evaluate boxes $judged --detections two.json --annotations other.json
[ "$code,$code1" = 1,1 ] || complain "exit codes $code, $code1 with other boxes"
log_names 'rank 1' 'rank 0'
# in training, too, the ranks share the validation
expect 0 $ranks 2 train boxes --arch ssd320 --backbone resnet18 --image-size 160 $fixed -b 1 --epochs 1 --max-bad 0.3 \
    --pretrained-weights detector.safetensors --workspace boxes2
expect 0 evaluate boxes --weights boxes2/checkpoint.safetensors -b 1 $few --max-bad 0.3 --raport-file boxes2/one.json
for name in AP AP50 APs AR100; do
    value=$(metric boxes2/experiment_raport.json 0 val.$name)
    [ -n "$value" ] && [ "$value" = "$(metric boxes2/one.json "" val.$name)" ] || complain "$name of 2 ranks is '$value'"
done
[ "$(sort -u boxes2/bad.list | wc -l)" = 2 ] || complain "bad.list has not the two of the validation"

# --- how many images may be bad: on all ranks together, wherever they are met ---------------------
cp -r set broken
i=0
for image in broken/train/*/*.jpg; do
    i=$((i + 1))
    [ $((i % 24)) = 3 ] && echo broken >"$image"
done
for n in 2 3; do
    rm -rf bad
    expect 1 $ranks $n train broken --model small.td $fixed -b 4 --epochs 1 --max-bad 0.035 --workspace bad
    error_names "'broken/train'" 4 96 3 JPEG PNG
    [ "$(wc -l <bad/bad.list)" = 4 ] || complain "bad.list has $(wc -l <bad/bad.list) lines, wanted 4"
done
# too many for each rank alone, in one step: the list has what all of them have met
cp -r set worse
i=0
for image in worse/train/*/*.jpg; do
    i=$((i + 1))
    [ $((i % 4)) = 3 ] && echo broken >"$image"
done
expect 1 $ranks 2 train worse --model small.td $fixed -b 12 --epochs 1 --max-bad 0.02 --workspace worse_run
met=$(sed -n "s/^tandem: error: .*'worse\/train': \([0-9]*\) of 96 .*/\1/p" err | head -1)
[ "$(wc -l <worse_run/bad.list)" = "$met" ] || complain "bad.list has $(wc -l <worse_run/bad.list) lines, met were $met"
# each counts once, although another rank meets it in the next epoch
expect 0 $ranks 3 train broken --model small.td $fixed -b 4 --epochs 4 --max-bad 0.045 --workspace good
[ "$(sort -u good/bad.list | wc -l)" = 4 ] || complain "bad.list has not the four"

# --- a memory limit counts the sums over ranks -----------------------------------------------------
plain_model wide.td 32 512 1024 8 0.01
# rest: megabytes for the rest of the process: the second number in the error's parentheses
rest() {
    sed -n 's/^[^(]*([0-9.]* MB [^0-9]*\([0-9]*\)\.[0-9] MB .*/\1/p' err | head -1
}
limited="train set --model wide.td $fixed -b 8 --epochs 1 --run-iters 2 --no-checkpoints --training-only"
expect 1 $limited --memory-limit 1M
alone=$(rest)
expect 1 $ranks 2 $limited --memory-limit 1M
shared=$(rest)
# 4.7 million gradients: this rank's, the sums, and a slice of everybody's are 57 MB
[ "${alone:-0}" -gt 0 ] && [ $((${shared:-0} - alone)) -gt 40 ] || complain "the rest of the process: ${shared:-?} MB on two ranks, ${alone:-?} MB on one"
expect 0 $ranks 2 $limited --memory-limit 4G --final-weights one.safetensors
expect 0 $ranks 2 $limited --final-weights two.safetensors
same one.safetensors two.safetensors
finish
