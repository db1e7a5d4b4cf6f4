# ctest: timeout 300
# train.sh -- from drawn images to a trained network and everything that is done with it: train, evaluate,
# classify, convert, fine-tune, --require, the contracts of --final-weights, --logits and the back ends, the report
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

drawn set --classes 4 --train 128 --val 22
small_model small.td 32 4
fixed="--threads 1 --workers 1 --seed 1 --lr 0.01"
net="--arch resnet18 --image-size 32 $fixed"
small="--model small.td $fixed"

# --- train -------------------------------------------------------------------------------------
expect 0 train set $net -b 8 --epochs 3 --print-freq 4 --lr-schedule cosine --workspace run --json
prints '^\{"arch": "resnet18", "epoch": 3, "steps": 48, "train_loss": [0-9.]+, "val_loss": [0-9.]+, "top1": [0-9.]+, "top5": 100, '
prints '"was_stopped": false, "checkpoint": "run/checkpoint.safetensors"\}$'
log_names train: resnet18 4 128 '32 x 32' 8 1
says '^train: epoch 2, iteration 16/16: loss '
says '^train: epoch 2: .*top1 [0-9.]+ %, top5 100.00 %'
tidy run
[ ! -e run/bad.list ] || complain "a list of bad images without any"

# --- report ------------------------------------------------------------------------------------
report=run/experiment_raport.json
last="report"
report_is_sound $report
for name in train.loss train.compute_ips train.total_ips train.data_time train.compute_time train.lr \
    val.top1 val.top5 val.loss val.compute_ips val.total_ips val.data_time val.compute_latency \
    val.compute_latency_at95 val.compute_latency_at99 val.compute_latency_at100; do
    grep -q "\"METADATA\", \"metric\": \"$name\"" $report || complain "no metadata of $name"
    [ -n "$(metric $report 2 $name)" ] || complain "no $name of epoch 2"
done
for step in '0, 4' '0, 16' '2, 16'; do
    [ -n "$(metric $report "$step" train.loss)" ] || complain "no train.loss of step $step"
done
[ -z "$(metric $report '0, 3' train.loss)" ] || complain "a record that --print-freq leaves out"
[ "$(metric $report 0 train.lr)" = 0.01 ] || complain "the first learning rate is not 0.01"
[ "$(metric $report 2 train.lr)" = 0.0025 ] || complain "the third learning rate is not 0.0025"
awk "BEGIN { exit !($(metric $report 2 train.loss) < $(metric $report 0 train.loss)) }" ||
    complain "the loss of epoch 2 is not below that of epoch 0"
grep -q '"step": "PARAMETER", "data": {.*"batch_size": 8' $report || complain "the settings are not in the report"
[ -n "$(metric $report '' val.top1)" ] || complain "no summary"

# --- evaluate, convert -------------------------------------------------------------------------
facts='"n": 22, "n_top1": [0-9]+, "n_topk": 22, "n_bad": 0, "k": 5, "top1": [0-9.]+, "top5": 100, "loss": [0-9.]+'
counts() {
    sed -n 's/, "images_per_s.*//p' out
}
expect 0 evaluate set --weights run/checkpoint.safetensors -b 8 -p 1 --json
says '^evaluate: batch 2/3: [0-9.]+ images/s'
prints "^\\{\"arch\": \"resnet18\", $facts"
counts >of_checkpoint
awk -F'[:,]' '{ d = $6 / 22 * 100 - $14; exit !(d < 0.01 && d > -0.01) }' of_checkpoint ||
    complain "top1 is not n_top1 / n: $(cat of_checkpoint)"
top1=$(sed 's/.*"top1": \([0-9.]*\).*/\1/' of_checkpoint)
[ "$(metric $report 2 val.top1 | cut -c1-5)" = "$(echo "$top1" | cut -c1-5)" ] ||
    complain "evaluate has top1 $top1, training ended with $(metric $report 2 val.top1)"

# whatever the batch, every image counts once; the last checkpoint and its weights are the same network
for batch in 1 5 64; do
    expect 0 evaluate set --weights run/checkpoint.safetensors -b $batch --json
    [ "$(counts | sed 's/"loss.*//')" = "$(sed 's/"loss.*//' of_checkpoint)" ] || complain "other counts with -b $batch"
done
expect 0 convert run/checkpoint.safetensors weights.safetensors
prints '^weights.safetensors$'
[ "$(wc -c <weights.safetensors)" -lt $(($(wc -c <run/checkpoint.safetensors) * 6 / 10)) ] ||
    complain "the weights are not about half of the checkpoint"
expect 0 evaluate set --weights weights.safetensors -b 8 --json
[ "$(counts)" = "$(cat of_checkpoint)" ] || complain "converted weights: $(counts), checkpoint: $(cat of_checkpoint)"
expect 0 inspect checkpoint weights.safetensors
prints 'tandem.kind: weights'
prints "tandem.classes: \\[\"$(ls set/train | paste -s -d, | sed 's/,/", "/g')\"\\]"
if grep -q 'momentum\.' out; then complain "momentum was converted too"; fi
expect 0 evaluate set/val --weights run/model_best.safetensors
prints '^images +22$'
prints '^top1 +[0-9.]+ % \([0-9]+\)$'
expect 0 train set --evaluate --resume run/checkpoint.safetensors -b 8 --json
[ "$(counts)" = "$(cat of_checkpoint)" ] || complain "train --evaluate: $(counts), evaluate: $(cat of_checkpoint)"
expect 0 evaluate set --weights weights.safetensors --raport-file evaluation.json --topk 2
report_is_sound evaluation.json
[ -n "$(metric evaluation.json '' val.top2)" ] || complain "no val.top2 in the report"

# --- classify ----------------------------------------------------------------------------------
class=$(ls set/val | head -1)
image=$(ls set/val/"$class"/* | head -1)
expect 0 classify --weights run/model_best.safetensors "$image" "$image"
[ "$(wc -l <out)" = 10 ] || complain "not two paths with four classes each"
prints "^$image$"
prints "^  $class: [0-9.]+%$"
awk -F': ' '/%/ { s += $2 } END { exit !(s > 199 && s < 201) }' out || complain "the shares do not add up"
expect 0 classify --weights run/model_best.safetensors --topk 2 --json "$image"
one='\{"label": [0-3], "name": "[A-Za-z_]+", "probability": [-0-9.e]+\}'
prints "^\\{\"predictions\": \\[\\{\"path\": \"$image\", \"classes\": \\[$one, $one\\]\\}\\]\\}$"

expect 0 train --mode predict --to_predict "$image" --pretrained-weights run/model_best.safetensors
prints "^$class: [0-9.]+%$"
expect 1 train --mode predict --to_predict absent.jpg --pretrained-weights run/model_best.safetensors
error_names "'absent.jpg'"
silent

# classify agrees with evaluate: as many images are right
expect 0 classify --weights weights.safetensors --topk 1 --json $(find set/val -name '*.jpg')
right=$(sed 's/{"path"/\n&/g' out | sed -n 's,.*/val/\([A-Za-z_]*\)/.*"name": "\([A-Za-z_]*\)".*,\1 \2,p' |
    awk '$1 == $2' | wc -l)
grep -q "\"n_top1\": $right," of_checkpoint || complain "classify has $right right: $(cat of_checkpoint)"

# --- --require ---------------------------------------------------------------------------------
judged="evaluate set --weights weights.safetensors --require"
expect 0 $judged 'top1>=0'
expect 4 $judged 'top1>=100.5'
error_names top1 'top1>=100.5'
prints '^top1 '
expect 0 $judged 'loss<=1e9'
expect 4 $judged 'loss<=0'
expect 2 $judged 'top1>95'
for limit in nan inf -inf; do
    expect 2 $judged "top1>=$limit"
    error_names --require "'top1>=$limit'"
done
expect 2 $judged 'speed>=95'
error_names "'speed'" top1 top5
short="$small -b 32 --no-checkpoints --workspace req"
expect 4 train set $short --epochs 1 --require 'top1>=100.5'
expect 0 train set $short --epochs 1 --require 'topk>=100'
expect 2 train set $short --epochs 1000000 --require 'speed>=1'
expect 2 train set $short --epochs 1 --require 'top1>=1' --training-only
expect 4 train set $short --epochs 1 --require 'top1>=1' --run-iters 1
error_names 'top1>=1'
[ ! -e req/checkpoint.safetensors ] || complain "--no-checkpoints saved one"

# --- fine-tuning -------------------------------------------------------------------------------
drawn other --classes 3 --train 24 --val 6 --seed 5
tune="--arch resnet18 --image-size 32 $fixed -b 8 --epochs 1 --no-checkpoints --training-only --workspace tune"
expect 0 train other $tune --pretrained-weights weights.safetensors --run-iters 0 --final-weights begin.safetensors
log_names 4 3 fc
expect 0 inspect checkpoint begin.safetensors
prints '^  fc.weight +f32\[3,512\]$'
expect 0 train other $fixed -b 8 --pretrained-weights weights.safetensors --run-iters 0 --no-checkpoints \
    --workspace tuned # not --arch's resnet50 and its 224, but the file's
says '^train: resnet18, 3 classes, .* 32 x 32, '
log_names train: "'weights.safetensors'" --arch
expect 0 train other $tune --pretrained-weights run/checkpoint.safetensors --run-iters 0 --final-weights again.safetensors
same begin.safetensors again.safetensors
expect 0 train other $tune --pretrained-weights weights.safetensors --final-weights tuned.safetensors
if cmp -s begin.safetensors tuned.safetensors; then complain "three steps changed nothing"; fi
expect 0 train set $tune --pretrained-weights weights.safetensors --run-iters 0 --final-weights as_is.safetensors
payload weights.safetensors >a && payload as_is.safetensors >b
same a b
rm -f begin.safetensors again.safetensors tuned.safetensors as_is.safetensors a b

# --- --final-weights, --final-state ------------------------------------------------------------
steps="$small -b 8 --epochs 9 --no-checkpoints --workspace steps --raport-file r.json"
expect 0 train set $steps --run-iters 3 --final-weights w3.safetensors --json
prints '"steps": 3,'
prints '"checkpoint": null'
[ ! -e steps/checkpoint.safetensors ] || complain "--no-checkpoints saved one"
[ -s steps/r.json ] || complain "no report under its name"
expect 0 train set $steps --run-iters 3 --final-weights again.safetensors
same w3.safetensors again.safetensors
expect 0 train set $steps --run-iters 3 --final-state --final-weights state.safetensors
expect 0 inspect checkpoint state.safetensors
prints '^  momentum.conv1.weight +f32\[16,3,3,3\]$'
prints '^  momentum.fc.bias +f32\[4\]$'
if grep -Eq '^  momentum.bn1.running' out; then complain "a statistic with momentum"; fi
expect 0 convert state.safetensors reduced.safetensors
payload w3.safetensors >a && payload reduced.safetensors >b
same a b
expect 0 train set $steps --run-iters 3 --seed 2 --final-weights other.safetensors
if cmp -s w3.safetensors other.safetensors; then complain "another seed gave the same weights"; fi

# --- tensors: batches in order -----------------------------------------------------------------
expect 0 dataset check set/val --image-size 32 --dump-tensors val.safetensors
expect 0 evaluate val.safetensors --data-backend tensors --weights weights.safetensors -b 8 --logits all.safetensors --json
[ "$(counts)" = "$(cat of_checkpoint)" ] || complain "of tensors: $(counts), of images: $(cat of_checkpoint)"
expect 0 inspect checkpoint all.safetensors
prints '^1 tensors'
prints '^  logits +f32\[22,4\]$'
expect 0 evaluate set --weights weights.safetensors -b 8 --logits of_images.safetensors
payload all.safetensors >a && payload of_images.safetensors >b
same a b

# rows FILE FIRST N: some rows of val.safetensors as a file of their own
row=$((3 * 32 * 32 * 4))
at_images=$(header val.safetensors | sed 's/.*"images":{[^}]*"data_offsets":\[\([0-9]*\),.*/\1/')
at_labels=$(header val.safetensors | sed 's/.*"labels":{[^}]*"data_offsets":\[\([0-9]*\),.*/\1/')
payload val.safetensors >val.bytes
rows() {
    safetensors "$1" "$(tensors_header "$3" 3 32 32)"
    tail -c +$((1 + at_images + $2 * row)) val.bytes | head -c $(($3 * row)) >>"$1"
    tail -c +$((1 + at_labels + $2 * 8)) val.bytes | head -c $(($3 * 8)) >>"$1"
}
rows first8.safetensors 0 8
rows middle.safetensors 8 8
rows first16.safetensors 0 16
expect 0 evaluate middle.safetensors --data-backend tensors --weights weights.safetensors -b 8 --logits m.safetensors
payload all.safetensors | tail -c +129 | head -c 128 >a && payload m.safetensors >b
same a b

tensors="--data-backend tensors $small -b 8 --no-checkpoints --workspace t --final-state --pretrained-weights w3.safetensors"
expect 0 train first16.safetensors $tensors --run-iters 2 --final-weights t2.safetensors --json
prints '"steps": 2,'
log_names train: small.td 4 16 '32 x 32'
expect 0 train first16.safetensors $tensors --run-iters 5 --final-weights t5.safetensors --json
prints '"steps": 5,'
# with rows in order, steps 1 and 2 of 22 rows are those of the first 16
expect 0 train val.safetensors $tensors --run-iters 2 --final-weights v2.safetensors
same t2.safetensors v2.safetensors
expect 0 train first8.safetensors $tensors --run-iters 2 --final-weights f2.safetensors
if cmp -s t2.safetensors f2.safetensors; then complain "the second batch made no difference"; fi
expect 0 train first8.safetensors $tensors --run-iters 1 --final-weights f1.safetensors --train-logits first.safetensors
expect 0 train val.safetensors $tensors --run-iters 1 --final-weights v1.safetensors
same f1.safetensors v1.safetensors
expect 0 inspect checkpoint first.safetensors
prints '^  logits +f32\[8,4\]$'

# --- synthetic ---------------------------------------------------------------------------------
for backend in synthetic syntetic; do
    expect 0 train --data-backend $backend --arch resnet18 --image-size 32 $fixed -b 4 --epochs 1 --prof 2 \
        --no-checkpoints --workspace synthetic --json
    prints '"steps": 2, .*"top1": '
done
says '1000 classes'
expect 0 train set $small -b 8 --epochs 1 --run-iters 1 --no-checkpoints --workspace named --data-backend dali-cpu
finish
