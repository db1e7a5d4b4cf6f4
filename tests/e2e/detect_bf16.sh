# ctest: timeout 600
# detect_bf16.sh -- RetinaNet in bf16, as a user meets it: train, stop and resume to the byte, evaluate, detect, export,
# benchmark; detections in both precisions
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

"$TANDEM" dataset draw set --boxes --classes 2 --train 8 --val 2 --size 96 >draw.log 2>&1 || { cat draw.log >&2; exit 1; }
one=set/val/00000.jpg
[ -e $one ] || one=$(ls set/val/* | head -1)
run="set --arch retinanet_resnet50_fpn --image-size 64 --threads 1 --workers 1 --seed 1 -b 4 --lr 0.01 --warmup 0 \
    --precision bf16 --print-freq 1"

expect 0 train $run --epochs 2 --no-checkpoints --workspace whole --raport-file whole.json --final-weights whole.safetensors
says 'epoch 1: loss [0-9.]+, .*AP [0-9.]+'
first=$(metric whole/whole.json '0, 1' train.loss)
last=$(metric whole/whole.json '1, 2' train.loss)
awk "BEGIN { exit !($last < $first) }" || complain "the loss does not fall: $first, $last"
expect 0 train $run --epochs 2 --run-iters 3 --workspace part
expect 0 train set --resume part/checkpoint.safetensors --workspace part --run-iters -1 --final-weights part.safetensors
# the last record has the best validation's metrics, also if that was before the run was resumed
expect 0 train $run --epochs 2 --run-epochs 1 --workspace ends --raport-file ends.json
expect 0 train set --resume ends/checkpoint.safetensors --workspace ends --run-epochs -1 --lr 0.5 --raport-file ends.json
for name in val.AP val.AP50 val.AP75 val.AR100; do
    best=0
    [ -n "$(metric ends/ends.json 1 val.AP)" ] || complain "the second epoch has no AP"
    awk "BEGIN { exit !($(metric ends/ends.json 1 val.AP) > $(metric ends/ends.json 0 val.AP)) }" && best=1
    [ "$(metric ends/ends.json '' $name | tail -n 1)" = "$(metric ends/ends.json $best $name)" ] ||
        complain "the last record's $name is not that of epoch $best"
done
payload whole.safetensors >one
payload part.safetensors >two
same one two

expect 0 inspect amp --arch retinanet_resnet50_fpn --image-size 64 -b 2 --precision bf16 --training
prints 'conv2d'
expect 0 evaluate set --weights whole.safetensors --threads 1 --precision bf16 --json
prints '"arch": "retinanet_resnet50_fpn", .*"AP": [-0-9.e]+'
boxes() { # PRECISION FILE: the best three boxes, in whole pixels
    expect 0 detect --weights whole.safetensors --threads 1 --precision "$1" --min-score 0 --max-boxes 3 "$one"
    [ "$(grep -c ' at ' out)" = 3 ] || complain "not three boxes in $1"
}
boxes bf16
boxes fp32
expect 0 convert whole.safetensors whole.onnx --max-boxes 20 --min-score 0.001
grep -aFq NonMaxSuppression whole.onnx || complain "the export has no NonMaxSuppression"
expect 0 convert whole.safetensors half.onnx --half-weights --max-boxes 20 --min-score 0.001
for mode in training inference; do
    expect 0 benchmark --mode $mode --arch retinanet_resnet50_fpn --image-size 64 --threads 1 -b 1 --iters 2 --warmup 1 \
        --precision bf16
    prints "^network +retinanet_resnet50_fpn, $mode, bf16\$"
done
finish
