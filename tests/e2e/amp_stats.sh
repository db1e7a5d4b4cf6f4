# amp_stats.sh -- what tensors hold: written while training, read, tabulated and drawn by inspect; bad files are refused
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

small_model small.td 16 4
drawn set --classes 4 --train 24 --val 4
whole="train set --model small.td -b 4 --threads 1 --workers 1 --seed 3 --lr 0.05 --epochs 2 --run-epochs 1"

lines() {
    [ "$(wc -l <"$1")" -eq "$2" ] || complain "'$1' has $(wc -l <"$1") lines, wanted $2"
}

# --- written: 6 steps an epoch, the first and every second of them --------------------------------
for precision in fp32 bf16 fp16; do
    expect 0 $whole --workspace plain --overwrite --precision $precision --final-weights plain.safetensors
    expect 0 $whole --workspace seen --overwrite --precision $precision --final-weights seen.safetensors \
        --amp-stats $precision.jsonl --amp-stats-every 2
    same plain.safetensors seen.safetensors
    lines $precision.jsonl 3
    grep -q '"step": 5, "epoch": 0, "iteration": 5, "precision": "'$precision'"' $precision.jsonl ||
        complain "no step 5 in $precision.jsonl"
    grep -q '"gradient_of": "conv1.weight"' $precision.jsonl || complain "no gradient of conv1.weight"
    expect 0 inspect amp-stats $precision.jsonl --json
    prints '^\{"steps": \[\{"step": 1, '
    prints '"worst_step": [135], '
done
grep -q '"loss_scale": 32768' fp16.jsonl || complain "no loss scale in fp16.jsonl"
grep -q '"loss_scale": 1,' bf16.jsonl || complain "a loss scale in bf16.jsonl"
grep -q '"dtype": "f16"' fp16.jsonl || complain "no f16 in fp16.jsonl"
grep -q '"dtype": "bf16"' bf16.jsonl || complain "no bf16 in bf16.jsonl"
expect 0 $whole --workspace seen --overwrite --amp-stats few.jsonl
lines few.jsonl 1

# a run that goes on does not write the file of the run before
expect 0 $whole --workspace on --amp-stats on.jsonl --amp-stats-every 3
cp on.jsonl on.before
expect 0 train set --resume on/checkpoint.safetensors --workspace on
same on.before on.jsonl

# --- read and drawn -------------------------------------------------------------------------------
expect 0 inspect amp-stats fp16.jsonl --svg fp16.svg
prints '^ +3 +0 fp16 +32768 '
prints '^conv2 .*activation f16 '
prints 'of [0-9]+ tensors are within fp16.s normal range$'
head -c 5 fp16.svg | grep -q '<?xml' || complain "the drawing is no XML"
tail -n 1 fp16.svg | grep -q '^</svg>$' || complain "the drawing has no end"
grep -q 'gradient x loss scale 32768; the unscaled one is 2^-15 times that' fp16.svg || complain "the drawing has no scale"
grep -q '>conv1.weight (conv2d_grad_w)<' fp16.svg || complain "the drawing has no layer"
expect 0 inspect amp-stats few.jsonl --svg few.svg
grep -q 'no loss scale' few.svg || complain "the drawing of float32 has a scale"

# gradients that overflow: nothing can be said of the scale, the step was skipped
expect 1 $whole --workspace over --precision fp16 --static-loss-scale 1e30 --amp-stats over.jsonl --no-checkpoints
error_names 6 steps
expect 0 inspect amp-stats over.jsonl
prints '^ +1 +0 fp16 +1e\+30 .* - +- +skipped$'
expect 0 inspect amp-stats over.jsonl --json
prints '"skipped": true, .*"fp16_largest_scale": null'
expect 0 inspect amp-stats over.jsonl --svg over.svg

# --- wrong ----------------------------------------------------------------------------------------
expect 2 inspect amp-stats
error_names PATH
expect 1 inspect amp-stats absent.jsonl
says "absent.jsonl"
: >empty.jsonl
expect 1 inspect amp-stats empty.jsonl --svg never.svg
error_names "'empty.jsonl'"
head -c 4000 fp16.jsonl >cut.jsonl
expect 1 inspect amp-stats cut.jsonl
error_names "'cut.jsonl'" 'line 1'
{ head -n 1 fp16.jsonl; head -c 4000 fp16.jsonl; } >killed.jsonl
expect 0 inspect amp-stats killed.jsonl
warning_names "'killed.jsonl'" 'line 2'
{ head -n 1 fp16.jsonl; echo '{"step": 2}'; } >short.jsonl
expect 1 inspect amp-stats short.jsonl
error_names "'short.jsonl'" 'line 2' "'epoch'"
sed 's/"zero": 0,/"zero": -1,/' fp16.jsonl >odd.jsonl
expect 1 inspect amp-stats odd.jsonl
error_names 'line 1' zero -1 0 1
expect 1 inspect amp-stats small.td
says "'small.td': line 1: "
expect 1 inspect amp-stats fp16.jsonl --svg absent/x.svg
says "absent"
silent
expect 2 inspect graph --model small.td --svg never.svg
error_names --svg
[ ! -e never.svg ] || complain "something was drawn"
expect 2 $whole --workspace none --amp-stats x.jsonl --amp-stats-every 0
expect 2 $whole --workspace none --amp-stats-every 5
error_names --amp-stats-every --amp-stats
expect 1 $whole --workspace none --amp-stats absent/x.jsonl
says "absent/x.jsonl"
expect 2 $whole --workspace none --amp-stats same --final-weights same
error_names "'same'"
# --- no file that is read, or written by something else, is lost ----------------------------------
expect 0 $whole --workspace kept
cp kept/checkpoint.safetensors before
expect 2 train set --resume kept/checkpoint.safetensors --epochs 4 --workspace other --amp-stats kept/checkpoint.safetensors
error_names "'kept/checkpoint.safetensors'"
same before kept/checkpoint.safetensors
cp small.td before
expect 2 train set --model small.td -b 4 --workspace other --amp-stats ./small.td
error_names "'./small.td'"
same before small.td
for file in ./kept/checkpoint.safetensors kept//tandem.lock kept/../kept/experiment_raport.json; do
    expect 2 $whole --workspace kept --amp-stats $file
    error_names "${file##*/}"
done
expect 2 inspect amp-stats over.jsonl --svg ./over.jsonl
error_names "'./over.jsonl'"
expect 0 $whole --workspace half --fp16 --loss-scaler nvidia --static-loss-scale 1 --dynamic-loss-scale --lr 1e6 --amp-stats low.jsonl \
    --amp-stats-every 1 --no-checkpoints --training-only --max-skips 0
expect 0 inspect amp-stats low.jsonl

finish
