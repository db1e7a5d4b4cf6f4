# train_log.sh -- what a training prints: no results of an interrupted validation, those of the averages, and its position
# if it is silent for long
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_background.sh"

drawn set --classes 4 --train 32 --val 64
small_model small.td 32 4
net="--model small.td --threads 1 --workers 1 --seed 1 --lr 0.01 -b 8"

# --- a signal inside a validation ---------------------------------------------------------------
# The first epoch's: there are no metrics.  The second's, after the trained weights were evaluated and
# before the averages were: the metrics are those of the first epoch.
whole="$net --epochs 2 --use-ema 0.9 --final-state -p 1 --log-format dll"
expect 0 train set $whole --workspace straight --final-weights straight.safetensors
first=$(metric straight/experiment_raport.json 0 val.top1)
counts=$(sed -n '/^top/p;/^val loss/p;/^train loss/p' out)
holds int '^DLL .*Epoch: 0 .*Validation Iteration: 2 ' train set $whole --workspace int
kill -INT $pid
ends int 3
log_names train: 'epoch 0' validation
if grep -Eq '^(top|val)' out; then complain "prints metrics of an interrupted validation"; fi
if grep -q '"type": "CONFUSION"' int/experiment_raport.json; then complain "a confusion record of it"; fi
[ -z "$(metric int/experiment_raport.json '' val.top1)" ] || complain "a summary of it"
[ ! -e int/model_best.safetensors ] || complain "best weights by it"
holds int '^DLL .*Epoch: 1 .*Validation Iteration: 2 .*val_ema' train set $whole --resume int/checkpoint.safetensors
kill -TERM $pid
ends int 3
log_names train: 'epoch 1' validation
prints "^top1 +$(printf %.2f "$first") % "
expect 0 train set $whole --resume int/checkpoint.safetensors --final-weights int.safetensors
same straight.safetensors int.safetensors
[ "$(sed -n '/^top/p;/^val loss/p;/^train loss/p' out)" = "$counts" ] || complain "other results than '$counts'"
holds json '^DLL .*Epoch: 0 .*Validation Iteration: 2 ' train set $whole --workspace json --json
kill -INT $pid
ends json 3
prints '"val_loss": null, "top1": null, .*"was_stopped": true'

# --- averages, best weights -----------------------------------------------------------------------
# of the epoch and of the run: as in the report, and as evaluate prints them
expect 0 train set $net --epochs 1 --use-ema 0.5 --workspace averages
report=averages/experiment_raport.json
top1=$(printf %.2f "$(metric $report 0 val_ema.top1)")
ema="top1 $top1 %, top5 100.00 %, loss [0-9]+.[0-9]+"
says "^train: epoch 0: .*$(printf %.2f "$(metric $report 0 val.top1)") .* $ema$"
prints "^averages +$ema$"
prints '^best weights +averages/model_best.safetensors$'
expect 0 evaluate set --weights averages/checkpoint.safetensors --use-ema -b 8
prints "^top1 +$top1 %"
expect 0 train set $net --epochs 1 --use-ema 0.5 --workspace averages --overwrite --json
prints '"ema_top1": [0-9.]+, "ema_topk": 100, "ema_loss": [0-9.]+, .*"best_weights": "averages/model_best.safetensors", '
expect 0 train set $net --epochs 1 --training-only --workspace trained
if grep -q 'averages\|best' out err; then complain "averages or best weights without a validation"; fi

# --- images smaller than the default size of the network -------------------------------------------
few="--threads 1 --workers 1 --seed 1 -b 2 --run-iters 0 --no-checkpoints"
expect 0 train set --arch resnet18 $few
log_names train: '32 x 32' '224 x 224' resnet18 '--image-size 32'
for size in '--arch resnet18 --image-size 224' '--arch resnet18 --image-size-schedule 0:32' '--model small.td'; do
    expect 0 train set $size $few
    if grep -q enlarged err; then complain "a note about a size that was chosen"; fi
done
"$TANDEM" dataset draw large --classes 2 --train 4 --val 2 --size 230 >/dev/null 2>&1
expect 0 train large --arch resnet18 $few
if grep -q enlarged err; then complain "a note about images that are large enough"; fi

# --- a long silence -------------------------------------------------------------------------------
# whatever --print-freq; the first iteration of a network takes longer than these 2 ms
slow="--arch resnet18 --image-size 96 --threads 1 --workers 1 --seed 1 --lr 0.01 -b 16 --run-iters 2 --no-checkpoints"
export TANDEM_PROGRESS_SECONDS=0.002
expect 0 train set $slow -p 1000
says '^train: epoch 0: iteration 1 of 2 has run for [0-9]+ s$'
says '^train: epoch 0: iteration 2 of 2 has run for [0-9]+ s, [0-9.]+ images/s so far$'
expect 0 train set $slow --log-format dll
if grep -q 'has run for' err; then complain "a line among those of the reference"; fi
expect 0 train set $slow --log warn
if grep -q 'has run for' err; then complain "a line with --log warn"; fi
export TANDEM_PROGRESS_SECONDS=soon
expect 2 train set $slow
error_names TANDEM_PROGRESS_SECONDS "'soon'"
export TANDEM_PROGRESS_SECONDS=0
expect 0 train set $slow
if grep -q 'has run for' err; then complain "a line that was turned off"; fi
finish
