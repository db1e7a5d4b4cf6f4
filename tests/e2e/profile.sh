# ctest: timeout 300
# profile.sh -- looking inside a run: --prof prints where a step's time goes, --trace keeps the last steps for a
# viewer, inspect memory --svg draws the plan
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

small_model small.td 16 4
drawn set --classes 4 --train 24 --val 4
whole="train set --model small.td -b 4 --threads 1 --workers 1 --seed 3 --lr 0.05 --epochs 2 --run-epochs 1"
tiny="benchmark --model small.td --threads 1 -b 8 --num-iter 9 --warmup-steps 2"

# --- train: so many iterations of each loop, then the tables ---------------------------------------
expect 0 $whole --workspace prof --prof 4 --final-weights prof.safetensors
prints '^steps +4$'
prints '^profile of 3 steps'
prints '^step +[0-9.]+ ms$'
prints '^kernels +[0-9.]+ ms$'
prints '^executor +[0-9.]+ ms +[0-9.]+ % '
prints '^bound +[0-9.]+ ms +[0-9.]+ % '
prints '^waiting +[0-9.]+ ms '
prints '^by op +calls +ms/step +% +GFLOP/s +GB/s +% bound$'
prints '^by kernel +calls'
prints '^by layer +calls'
prints '^conv2d_grad_w +2 +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+$'
prints '^sgd +[0-9]+ +[0-9.]+ +[0-9.]+ +- +[0-9.]+ +-$'
prints '^conv1 +3 '
# it changes nothing but what is printed
expect 0 $whole --workspace plain --run-iters 4 --final-weights plain.safetensors
same prof.safetensors plain.safetensors
expect 0 $whole --workspace prof --overwrite --prof 4 --json
prints '"checkpoint": "prof/checkpoint.safetensors", "profile": \{"steps": 3, "first_left_out": true, "step_ms": [0-9.]+, '
prints '"executor_share": [0-9.e-]+, "wait_ms": [0-9.e-]+, "bound_ms": [0-9.]+, "bound_share": [0-9.]+, "ops": \[\{"name": '
prints '"layers": \[\{"name": .*\]\}\}$'
expect 0 $whole --workspace prof --overwrite --prof 1
prints '^profile of 1 step; medians$'
expect 0 $whole --workspace prof --overwrite --run-iters 4 --json
grep -q profile out && complain "a profile without --prof"
expect 4 $whole --workspace prof --overwrite --prof 4 --require 'top1>=101'
prints '^profile of 3 steps'
expect 2 $whole --workspace prof --prof -2
says 'prof'

# --- benchmark -------------------------------------------------------------------------------------
for mode in training inference; do
    expect 0 $tiny --mode $mode --prof 5
    prints '^iterations +5, '
    prints '^profile of 5 steps; medians$'
    prints '^bound +[0-9.]+ ms'
    prints '^by layer +calls'
    grep -q '^waiting' out && complain "benchmark waits for no input"
done
# layers have their names where norms are folded into filters, which are transformed
for precision in fp32 bf16; do
    expect 0 benchmark --mode inference --arch resnet18 --image-size 64 -b 1 --precision $precision --prof 2 --no-bound --warmup-steps 0
    grep -q '^layer4[.]1[.]conv2 conv2d' out || complain "no layer4.1.conv2 among the layers in $precision"
    grep -qE '^[0-9]+ conv2d' out && complain "a layer without a name in $precision"
done
expect 0 $tiny --prof 5 --no-bound --warmup-steps 0 --json
prints '"iters": 5, .*"profile": \{"steps": 4, "first_left_out": true, .*"wait_ms": null, "bound_ms": null, "bound_share": null, '
expect 0 $tiny --json
prints '"iters": 9, '
grep -q '"profile"' out && complain "a profile without --prof"
for mode in '--mode op' '--mode data' --walkthrough --largest-batch; do
    expect 2 $tiny $mode --prof 5
    error_names --prof
done

# --- a trace ---------------------------------------------------------------------------------------
# events FILE CATEGORY N: so many complete events, each a line of its own, in a whole file
events() {
    n=$(grep -c '^{"ph": "X", .*"cat": "'"$2"'", "args": {.*}},\{0,1\}$' "$1")
    [ "$n" -eq "$3" ] || complain "'$1' has $n events '$2', wanted $3"
    head -n 1 "$1" | grep -q '^{"displayTimeUnit": "ms", "otherData": {.*}, "traceEvents": \[$' || complain "'$1' has no head"
    tail -n 1 "$1" | grep -q '^\]}$' || complain "'$1' has no end"
}

expect 0 $whole --workspace traced --trace train.json --final-weights traced.safetensors
events train.json step 6
events train.json sgd $((6 * $(grep -c '"name": "[^"]*/sgd"' train.json) / 6))
events train.json input 6
events train.json job 2
grep -q '"name": "process_name", "args": {"name": "train small.td"}' train.json || complain "no name of the run"
grep -q '"name": "conv2/conv2d_grad_w".*"args": {"op": "conv2d_grad_w", "kernel": "[a-z_]*", "impl": "' train.json ||
    complain "no kernel in train.json"
grep -q '"name": "step 6", .*"epoch": 0, "iteration": 6, "loss": [0-9.]*}}' train.json || complain "no step 6"
grep -q '"name": "validate"' train.json || complain "no validation"
expect 0 $whole --workspace traced --overwrite --final-weights plain.safetensors
same traced.safetensors plain.safetensors
expect 0 $tiny --mode inference --prof 30 --trace bench.json
prints '^profile of 30 steps'
events bench.json step 20
grep -q '"steps": 32, "steps_kept": 20}' bench.json || complain "not the last 20 of 32"
grep -q '"name": "step 10"' bench.json && complain "a step that is too old"
grep -q '"name": "step 30"' bench.json || complain "the last step is missing"
cp small.td 'odd "name".td'
expect 0 benchmark --model 'odd "name".td' --threads 1 -b 2 --num-iter 1 --warmup-steps 1 --no-bound --trace odd.json
grep -q '{"name": "benchmark odd \\"name\\".td"}' odd.json || complain "the name is not escaped"
events odd.json step 2
grep -q '"name": "warm-up"' odd.json || complain "no warm-up"

# a signal ends the run, not the trace; a run that fails leaves its steps
: >err
"$TANDEM" train --data-backend synthetic --model small.td --num-classes 4 --threads 1 -b 4 --lr 1e-6 --run-epochs 1 --prof 100000000 -p 1 \
    --training-only --no-checkpoints --workspace int --trace int.json >out 2>err </dev/null &
pid=$!
last='train that is stopped'
for _ in $(seq 1000); do
    grep -q "iteration 30/" err && break
    kill -0 $pid 2>/dev/null || break
    sleep 0.01
done
kill -INT $pid
code=0
wait $pid || code=$?
[ $code = 3 ] || complain "exit code $code, wanted 3"
events int.json step 20
prints '^profile of [0-9]+ steps'
grep -q '^bound' out && complain "a bound was measured after a signal"
expect 1 $whole --workspace over --precision fp16 --static-loss-scale 1e30 --max-skips 3 --trace over.json --no-checkpoints
error_names 3 steps
events over.json step 3
tidy .

# wrong
expect 1 $whole --workspace none --trace absent/t.json
says "absent/t.json"
expect 1 $tiny --trace .
says "'\.'"
expect 2 $whole --workspace none --trace same --final-weights same
error_names "'same'"
expect 2 $whole --workspace traced --trace traced/checkpoint.safetensors
error_names traced/checkpoint.safetensors
cp small.td before
expect 2 $tiny --trace ./small.td
error_names small.td
same before small.td
expect 2 train set --evaluate --pretrained-weights plain.safetensors --trace t.json
error_names --trace --evaluate
for mode in '--mode op' '--mode data' --walkthrough --largest-batch; do
    expect 2 $tiny $mode --trace t.json
    error_names --trace
done
(
    ulimit -f 8
    expect 1 $tiny --trace full.json
    says "full.json"
    exit $bad
) || bad=1
[ ! -e full.json ] || complain "half a trace was left"
(
    ulimit -f 1
    expect 1 inspect memory --arch resnet18 --training --svg full.svg
    error_names full.svg
    expect 1 init --arch resnet18 --num-classes 2 -o full.safetensors
    error_names full.safetensors
    exit $bad
) || bad=1
for file in full.svg full.safetensors; do
    [ ! -e $file ] || complain "half of $file was left"
done
# it belongs to one run: one that goes on leaves the file alone
cp train.json before
expect 0 train set --resume traced/checkpoint.safetensors --workspace traced
same before train.json

# --- the plan, drawn -------------------------------------------------------------------------------
# drawing FILE: whole, with its legend, and small
drawing() {
    head -c 5 "$1" | grep -q '<?xml' || complain "'$1' is no XML"
    tail -n 1 "$1" | grep -q '^</svg>$' || complain "'$1' has no end"
    grep -q '>most alive at once (black line): [0-9.]* MB at ' "$1" || complain "'$1' has no peak"
    [ "$(wc -c <"$1")" -lt 1000000 ] || complain "'$1' is too large: $(wc -c <"$1") bytes"
}

expect 0 inspect memory --model small.td -b 8 --training --svg plan.svg
prints '^activation_bytes +[0-9.]+ MB'
drawing plan.svg
grep -q '>small.td, training, batch 8: [0-9.]* MB planned, [0-9]* buffers; ' plan.svg || complain "no heading"
grep -q '<title>%conv1.weight f32\[' plan.svg || complain "no weight in the plan"
grep -q '>gradients of weights, ' plan.svg || complain "no gradients in the plan"
expect 0 inspect memory --model small.td --json --svg inference.svg
prints '^\{"param_bytes": '
drawing inference.svg
grep -q 'gradients' inference.svg && complain "inference has gradients"
expect 0 inspect memory --arch se-resnext101-32x4d -b 16 --precision bf16 --training --svg large.svg
drawing large.svg
grep -q '>layer3</text>' large.svg || complain "no stages in the plan"
grep -q '>not drawn: [0-9]* buffers too small or too short to be seen<' large.svg || complain "it does not say what is missing"
expect 1 inspect memory --model small.td --svg absent/plan.svg
says "absent/plan.svg"
silent
cp small.td before
expect 2 inspect memory --model small.td --svg ./small.td
error_names "'./small.td'"
same before small.td
expect 2 inspect kernels --model small.td --svg never.svg
error_names kernels --svg
finish
