# train_log.sh -- what a training prints about its results: none of an interrupted validation, those of the averages
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
finish
