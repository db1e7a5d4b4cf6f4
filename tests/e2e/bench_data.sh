# ctest: timeout 240
# bench_data.sh -- a benchmark reads the data that it is given and writes what it is asked for, whatever its name:
# `benchmark DATA`, TensorFlow's and SSD300's modes, the launcher's; evaluation as a benchmark, without weights
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

small_model small.td 16 2
net='--model small.td --threads 1 -b 4'
drawn set --classes 2 --train 16 --val 10
tf='--warmup_steps 1 --num_iter 5 --iter_unit batch --display_every 2'

# numbers REPORT STEP NAMES...: each is in the report's record of that step, and a number above zero
numbers() {
    report=$1
    step=$2
    shift 2
    for name; do
        awk -v x="$(metric "$report" "$step" "$name")" 'BEGIN { exit !(x + 0 > 0) }' || complain "$report: no '$name' at [$step]"
    done
}

# --- a folder that is not there is an error, and nothing is written -----------------------------------
for line in '--mode=training_benchmark' '--mode=inference_benchmark' '--mode=benchmark-training' '--mode=benchmark-inference' \
    '--mode=benchmark_inference'; do
    expect 1 train $net $line --data_dir=absent --results_dir=nothing $tf
    error_names "'absent'"
    silent
done
for mode in training inference data; do
    expect 1 benchmark --mode $mode --model small.td absent
    error_names "'absent'"
done
[ ! -e nothing ] || [ -z "$(ls nothing)" ] || complain "a run without data wrote $(ls nothing)"

# --- data are read, and reports are where they were asked for -----------------------------------------
expect 0 train $net --mode=training_benchmark --data_dir=set --results_dir=R $tf
prints '"mode": "training", .*"iters": 5, "warmup": 1, .*"data": \{"path": "set/train", "images": 16, "wait_ms": [0-9.e+-]+\}'
report_is_sound R/benchmark.json
numbers R/benchmark.json '0, 2' train.loss train.compute_ips train.total_ips train.compute_time imgs_per_sec total_ips
numbers R/benchmark.json '0, 4' train.total_ips
numbers R/benchmark.json '' train.compute_ips train.total_ips train_throughput
grep -q '"run.job": "benchmark".*"run.train_images": 16' R/benchmark.json || complain "the report does not say what ran"
expect 0 train $net --mode=inference_benchmark --data_dir=set --results_dir=R --log_filename=log.json $tf
prints '"data": \{"path": "set/val", "images": 10, '
report_is_sound R/log.json
numbers R/log.json '0, 0, 4' val.compute_ips val.total_ips val.compute_latency val.compute_time val.compute_latency_at99
numbers R/log.json '' val.compute_ips eval_throughput eval_latency_avg eval_latency_p90 eval_latency_p95 eval_latency_p99
expect 0 report R/benchmark.json R/log.json
prints 'R/benchmark.json +R/log.json'

expect 0 benchmark $net --mode training set --iters 3 --warmup 0 --no-bound --json --workspace W --raport-file b.json -p 3 --log-format dll
prints '"data": \{"path": "set/train"'
says '^DLL .* - Epoch: 0 Iteration: 3  train.loss : '
numbers W/b.json '0, 3' train.total_ips
grep -q train_throughput W/b.json && complain "TensorFlow's names are there without --raport-names"
expect 0 benchmark $net --mode inference set/val --iters 4 --warmup 0 --no-bound --json # more than the data have: begun again
prints '"path": "set/val", "images": 10, '
expect 0 benchmark $net --mode inference --iters 1 --warmup 0 --no-bound --json
grep -q '"data"' out && complain "made-up images are data"
expect 0 benchmark $net set --data-backend synthetic --iters 1 --warmup 0 --no-bound --json
log_names --data-backend "'set'"
expect 0 launch --nproc 2 benchmark $net --mode training --data set --iters 2 --warmup 0 --no-bound --json --raport-file ranks.json -p 1
prints '"ranks": 2, .*"data": \{"path": "set/train", "images": 16, '
[ "$(grep -c '"step": \[0, ' ranks.json)" = 2 ] || complain "not a record for each of two iterations"
expect 0 benchmark $net --mode inference set --batch-sizes 1,2 --iters 1 --warmup 0 --no-bound --json
[ "$(grep -o '"path": "set/val"' out | wc -l)" = 2 ] || complain "rows of a table do not read the data"
expect 1 benchmark --model small.td -b 11 --mode inference set
error_names "'set/val'" 10 11
for line in '--batch-sizes 1,2' --walkthrough --largest-batch '--mode data'; do
    expect 2 benchmark --model small.td set $line --raport-file r.json
    error_names --raport-file
done
expect 2 benchmark --mode op set
error_names --mode op "'set'"
expect 2 benchmark --model small.td --largest-batch set
error_names --largest-batch
cp small.td kept.td
expect 2 benchmark $net --iters 1 --no-bound --raport-file small.td
error_names "'small.td'"
same small.td kept.td
expect 2 train $net --mode=training_benchmark --data_dir=set --pretrained-weights w.safetensors $tf
error_names --pretrained-weights "'w.safetensors'"
expect 1 benchmark $net --iters 1 --no-bound --raport-file absent/r.json
error_names "'absent/r.json'"

# --- detectors ---------------------------------------------------------------------------------------
drawn things --boxes --train 4 --val 2
ssd='--arch ssd300 --backbone resnet18 -b 1 --threads 2 --benchmark-warmup 0 --benchmark-iterations 2'
expect 0 train $ssd --mode benchmark-training --data things --json-summary s.json
prints '"arch": "ssd300", "mode": "training", .*"iters": 2, "warmup": 0, .*"data": \{"path": "things/train", "images": 4, '
numbers s.json '' avg_img.sec med_img.sec min_img.sec max_img.sec
expect 0 train $ssd --mode benchmark-inference --data things --json-summary s.json
prints '"mode": "inference", .*"data": \{"path": "things/val", "images": 2, '
numbers s.json '' avg_img.sec med_img.sec min_img.sec max_img.sec val.compute_latency
rm -r things/annotations
expect 1 train $ssd --mode benchmark-training --data things
says 'things'

# --- evaluation as a benchmark: without weights they are fresh ones, and that is told ------------------
expect 0 train $net set --evaluate --epochs 1 --prof 2 -p 1 --workspace E --raport-file benchmark.json
log_names --resume --pretrained-weights
numbers E/benchmark.json '0, 0, 2' val.compute_ips
numbers E/benchmark.json '' val.compute_ips val.total_ips val.compute_latency val.compute_time val.compute_latency_at95
expect 0 train $net set --mode benchmark_inference --workspace E2 --epochs 1 --prof 2
log_names --resume --pretrained-weights
numbers E2/evaluation.json '' val.compute_ips
expect 2 train $net set --evaluate --use-ema 0.9
error_names --use-ema
expect 2 evaluate set --model small.td
error_names --weights FILE

# the counts of `out` and `evaluated` are the same, and losses but for rounding: batches may have other sizes
same_result() {
    [ "$(head -3 out)" = "$(head -3 evaluated)" ] &&
        awk '$1 == "loss" { loss[n++] = $2 } END { d = loss[0] - loss[1]; exit !(n == 2 && d < 1e-4 && d > -1e-4) }' out evaluated
}

# --- a training's folder, and PyTorch's checkpoints ----------------------------------------------------
expect 0 train $net set --epochs 12 --run-epochs 12 --lr 0.01 --workspace RUN --training-only --prof 1 --gather-checkpoints
[ "$(ls RUN/checkpoint_*)" = "$(for i in 0 1 2 3 4 5 6 7 8 9 10; do printf 'RUN/checkpoint_%04d.safetensors\n' $i; done)" ] ||
    complain "--gather-checkpoints without a number kept $(ls RUN)"
cp RUN/experiment_raport.json before.json
expect 2 train --mode=evaluate --model_dir RUN --threads 1
error_names "'RUN/checkpoint.safetensors'" DATA
expect 0 train --mode=evaluate --model_dir RUN --data_dir set --threads 1
prints '^images +10$'
cp out evaluated
cmp -s before.json RUN/experiment_raport.json || complain "an evaluation wrote over the training's report"
for line in '--mode=evaluate --results_dir RUN --data set' '--evaluate --resume RUN/checkpoint.safetensors --data_dir set'; do
    expect 0 train $line --threads 1
    same_result || complain "another result"
done
expect 0 evaluate set --model_dir RUN --threads 1 --raport-file e.json
same_result || complain "another result"
[ -s RUN/e.json ] || complain "no report in --model_dir"
expect 1 train --mode=evaluate --model_dir E --data_dir set
error_names "'E/checkpoint.safetensors'"
expect 1 evaluate set --model_dir E
error_names "'E'" checkpoint.safetensors
expect 2 train set --model_dir E --results_dir R --print-config
error_names --model-dir 'E' 'R'
expect 0 benchmark --mode inference set --checkpoint_dir RUN -b 4 --threads 1 --iters 1 --no-bound --json
expect 1 benchmark --mode inference set --checkpoint_dir E
expect 2 benchmark --mode training set --checkpoint_dir RUN
error_names --mode
pth=$TANDEM_SOURCE/tests/data/pth
drawn four --classes 4 --train 4 --val 8
expect 0 evaluate four --model "$pth/tiny.td" --weights "$pth/tiny.safetensors" --threads 1
cp out evaluated
expect 0 train four --model "$pth/tiny.td" --evaluate --resume "$pth/checkpoint-zip.pth.tar" --epochs 1 -b 64 --threads 1
same_result || complain "PyTorch's checkpoint gives another result"

# --- the converter's own options -----------------------------------------------------------------------
expect 0 convert --checkpoint-path "$pth/checkpoint-zip.pth.tar" --weight-path a.safetensors
expect 0 convert "$pth/checkpoint-zip.pth.tar" b.safetensors
same a.safetensors b.safetensors
expect 0 convert --checkpoint-path "$pth/checkpoint-zip.pth.tar" c.safetensors
same a.safetensors c.safetensors
expect 2 convert --checkpoint-path a.safetensors b.safetensors c.safetensors
error_names --checkpoint-path a.safetensors b.safetensors
expect 2 convert --weight-path b.safetensors
error_names IN
finish
