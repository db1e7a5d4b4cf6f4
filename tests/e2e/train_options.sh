# train_options.sh -- options of `train` that must do what they say: TensorFlow's batches are followed by a validation,
# options of detectors are refused by classifiers, --no-amp wins over the environment, a loss that is no number is
# named in words, a finished run is left as it is, --no-checkpoints writes nothing
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

drawn set --classes 2 --train 24 --val 8
small_model small.td 32 2
net="--model small.td --threads 1 --workers 1 --seed 1 -b 8 --lr 0.01"

# --- train_and_evaluate, by batches --------------------------------------------------------------
expect 0 train set $net --mode=train_and_evaluate --num_iter 4 --iter_unit batch --workspace batches
prints '^steps +4$'
prints '^top1 +[0-9.]+ %'
[ -n "$(metric batches/experiment_raport.json 1 val.top1)" ] || complain "no validation in the report"
expect 0 train set $net --mode=train_and_evaluate --num_iter 4 --run_iter 2 --iter_unit batch --workspace parts
prints '^steps +2$'
expect 0 train set --resume parts/checkpoint.safetensors --workspace parts
prints '^steps +4$'
prints '^top1 +[0-9.]+ %'

# --- options of detectors ------------------------------------------------------------------------
for option in '--annotations a.json' '--val-annotations a.json' '--label-ids keep' '--label-ids dense' --strict \
    '--min-score 0.1' '--nms-iou 0.5' '--max-per-class 3' '--max-boxes 3' --box-areas '--sample-1-of-n 2' '--backbone resnet18'; do
    expect 2 train set $net $option --run-iters 1 --workspace refused
    error_names ${option%% *} "'small.td'"
    expect 2 evaluate set --weights batches/checkpoint.safetensors $option
    error_names ${option%% *} "'batches/checkpoint.safetensors'"
done
[ ! -e refused ] || complain "a refused run has left a folder"
# a config file lists all options, so that a default in it is no demand; sections may have their former names
expect 0 train set $net --run-iters 1 --training-only --workspace listed --print-config
grep -q '^  label_ids: dense$' out && sed 's/^detections:/boxes_that_are_found:/' out >listed.yaml
grep -q '^boxes_that_are_found:$' listed.yaml || complain "no section 'detections' in the printed options"
expect 0 train set --config listed.yaml

# --- float32 asked for is float32 without loss scaling, also after resuming ----------------------
export TF_ENABLE_AUTO_MIXED_PRECISION=1
for option in --no-amp '--precision fp32' '--precision tf32'; do
    rm -rf wide
    expect 0 train set $net $option --run-iters 1 --training-only --workspace wide
    ! grep -q 'loss scale' out err || complain "loss scaling in float32"
    expect 0 train set --resume wide/checkpoint.safetensors --workspace wide
    ! grep -q 'loss scale' out err || complain "loss scaling in float32, after resuming"
done
unset TF_ENABLE_AUTO_MIXED_PRECISION

# --- a validation loss that is no number: in words, and never the best ---------------------------
# two steps without norms: the second loss is a number, what it leads to overflows
plain_model plain.td 32 4 4 2 1
drawn four --classes 4 --train 24 --val 8
"$TANDEM" train four --model plain.td --threads 1 --workers 1 --seed 1 -b 12 --lr 1e6 --epochs 1 --workspace wild \
    >out 2>err </dev/null
last="a learning rate of 1e6"
says 'finite|not a number'
! grep -Eiq '(^|[^a-z])-?nan([^a-z]|$)' out err || complain "a raw nan"
[ ! -e wild/model_best.safetensors ] || complain "it is the best"

# --- resuming a finished run ---------------------------------------------------------------------
expect 0 train set $net --epochs 1 --workspace done
cksum done/config.yaml done/checkpoint.safetensors done/model_best.safetensors >before
expect 0 train set --resume done/checkpoint.safetensors --threads 2 --print-freq 3 --workspace done
log_names "'done/checkpoint.safetensors'" 1
cksum done/config.yaml done/checkpoint.safetensors done/model_best.safetensors | cmp -s before - ||
    complain "a finished run was written again"
grep 'images/s' out err && complain "a speed of no steps"

# --- numbers that would train nothing, or with nothing -------------------------------------------
for option in '--num-train-steps 0' '--lr-total-steps 0'; do
    expect 2 train set $net $option --workspace none
    error_names ${option% *} 0 1 -1
done
expect 1 train set --arch resnet18 --image-size 7 -b 8 --run-iters 1 --workspace none
error_names "'resnet18'" 8 7
[ ! -e none ] || complain "a refused run has left a folder"

# a run of no steps writes the weights that a training begins with, and says so
for option in '--run-iters 0' '--run-epochs 0'; do
    expect 0 train set $net $option --no-checkpoints --workspace none --training-only --final-weights none.safetensors
    warning_names train: "$option"
    prints '^steps +0$'
    [ -f none.safetensors ] && rm none.safetensors || complain "no weights of a run without steps"
done
rm -rf none

# --- --no-checkpoints ----------------------------------------------------------------------------
expect 0 train set $net --epochs 1 --no-checkpoints --workspace nothing
[ -z "$(ls nothing)" ] || complain "it has left $(ls nothing)"
expect 0 train set $net --epochs 1 --no-checkpoints --workspace asked --raport-file experiment_raport.json
[ "$(ls asked)" = experiment_raport.json ] || complain "it has left $(ls asked)"
# nor bad.list in the current folder, where another run's stays; a folder that is named has it
cp -r set spoilt && : >"$(find spoilt/train -name '*.jpg' | sort | head -1)"
mkdir here && echo mine >here/bad.list
(cd here && "$TANDEM" train ../spoilt --model ../small.td -b 8 --threads 1 --workers 1 --lr 0.01 --seed 1 \
    --epochs 1 --max-bad 0.5 --no-checkpoints >../out 2>../err </dev/null) || complain "one bad image ends the run"
warning_names data: empty
[ "$(ls here)" = bad.list ] && [ "$(cat here/bad.list)" = mine ] || complain "it has left $(ls here)"
expect 0 train spoilt $net --epochs 1 --max-bad 0.5 --no-checkpoints --workspace listed_bad
[ "$(ls listed_bad)" = bad.list ] || complain "it has left $(ls listed_bad)"

# --- --class-weights -----------------------------------------------------------------------------
# balanced: a class with half of the other's images has twice its weight, and the mean is 1
cp -r set uneven
set -- $(ls -d uneven/train/*/)
ls "$1"* | awk 'NR % 2' | xargs rm
few=$(ls "$1" | wc -l)
all=$(find uneven/train -type f | wc -l)
weights=$(awk -v few="$few" -v all="$all" 'BEGIN { printf "%.9g,%.9g", all / 2 / few, all / 2 / (all - few) }')
for w in balanced "$weights"; do
    expect 0 train uneven $net --epochs 1 --no-checkpoints --workspace weighted --training-only --class-weights "$w"
    sed -n 's/^train loss *//p' out >>losses
done
[ "$(sort -u losses | wc -l)" = 1 ] || complain "balanced is not $weights: $(tr '\n' ' ' <losses)"
for w in 1 "$weights,1" nan,nan '1,-1' '1,'; do
    expect 2 train set $net --class-weights "$w"
    error_names --class-weights
done
expect 2 train set $net --class-weights balanced --loss bce
error_names --class-weights bce

# --- the momentum of one cycle ---------------------------------------------------------------------------
expect 2 train set $net --lr-schedule one_cycle --base-momentum 0.96
error_names --base-momentum 0.96 --max-momentum 0.95
expect 2 train set $net --lr-schedule one_cycle --optimizer adam --max-momentum 1
error_names --max-momentum adam
expect 2 train set $net --use-ema 0.9 --ema-rule torchvision --lr-rule ssd300
error_names --ema-rule --lr-rule ssd300
finish
