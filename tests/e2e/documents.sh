# ctest: timeout 300
# documents.sh -- the command lines that the reference programs' documents and scripts print: each is understood, or
# refused in words that name the way.  documents.table has them, with {a|b} for alternatives.
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

cp "$TANDEM_SOURCE/tests/data/pth/checkpoint-zip.pth.tar" ck.pth.tar
for config in full_1gpus full_4gpus full_8gpus bench; do
    cp "$TANDEM_SOURCE/tests/data/ssd320_full_8gpus.config" ssd320_$config.config
done
printf 'precision: {AMP: {amp: True}}\nplatform: {P: {}}\nmodels: {net: {P: {AMP: {lr: 1}}}}\nmode: {convergence: {}}\n' >configs.yml
small_model small.td 16 2
drawn set --classes 2 --train 4 --val 2
expect 0 train set --model small.td --threads 1 -b 4 --epochs 1 --workspace RUN

# every line of the table, alternatives made lines of their own
expand() {
    awk '
    function each(line,    from, to, n, i, parts) {
        if (!match(line, /\{[^}]*\|[^}]*\}/)) {
            print line
            return
        }
        from = RSTART
        to = RSTART + RLENGTH
        n = split(substr(line, from + 1, RLENGTH - 2), parts, "|")
        for (i = 1; i <= n; i++)
            each(substr(line, 1, from - 1) parts[i] substr(line, to))
    }
    /^#/ || /^ *$/ { next }
    { each($0) }' "$TANDEM_SOURCE/tests/e2e/documents.table"
}

check_settings() {
    rest=$1
    while :; do
        grep -qxF -e "  ${rest%% ; *}" out || complain "no '${rest%% ; *}' in the configuration"
        case $rest in *' ; '*) rest=${rest#* ; } ;; *) break ;; esac
    done
}

n=0
expand >lines
while IFS= read -r line; do
    n=$((n + 1))
    case $line in
    *' ! '*)
        expect 2 ${line%% ! *} --print-config
        grep -qF -e "${line#* ! }" err || complain "stderr does not say '${line#* ! }'"
        silent
        ;;
    *)
        expect 0 ${line%% : *} --print-config
        check_settings "${line#* : }"
        ;;
    esac
done <lines
echo "$n lines of documents"

# --- some of them run, with a few small images in the place of ImageNet and COCO -----------------------
small='--threads 1 -j 1 --image-size 64 -b 4 --prof 1 --optimizer-batch-size 4 --lr 0.001 --seed 1'
for mode in benchmark_training benchmark_training_short benchmark_inference convergence evaluate; do
    expect 0 train --model resnet50 --precision FP32 --mode $mode --platform DGX1V set --raport-file $mode.json --epochs 1 --warmup 0 \
        --workspace launch.$mode $small --num-classes 2 --no-checkpoints
    grep -q '"step": \[\]' launch.$mode/$mode.json || complain "the report of $mode has no end"
done
expect 0 train --arch resnet18 --training-only -p 1 --raport-file benchmark.json --epochs 1 --prof 1 --fp16 --static-loss-scale 1 set $small \
    --workspace w2019
expect 0 train --arch resnet18 --evaluate -p 1 --raport-file benchmark.json --epochs 1 --prof 1 set $small --workspace w2019
expect 0 train --arch=resnet18 --mode=train_and_evaluate --iter_unit=epoch --num_iter=1 --batch_size=4 --warmup_steps=100 --use_cosine \
    --label_smoothing 0.1 --lr_init=0.256 --lr_warmup_epochs=0 --momentum=0.875 --use_tf_amp --static_loss_scale 128 --weight_init=fan_in \
    --data_dir=set --results_dir=tf --threads 1 --image-size 64 --seed 1
for mode in training inference; do
    expect 0 train --arch=resnet18 --mode=${mode}_benchmark --warmup_steps 1 --num_iter 2 --iter_unit batch --batch_size 2 --use_xla --use_dali \
        --data_dir=set --results_dir=tf --log_filename=$mode.json --threads 1 --image-size 32
    grep -q '"step": \[\]' tf/$mode.json || complain "the report of $mode has no end"
done
expect 0 convert --device cuda --output w.onnx -b 4 --pretrained-from-file RUN/model_best.safetensors
drawn things --boxes --train 2 --val 2
expect 0 benchmark --mode inference --pipeline_config_path=ssd320_full_1gpus.config --warmup_iters 0 --benchmark_iters 1 --batch_size 1 \
    --percentiles 90,95,99 --raport_file s.json --raport-names tf --backbone resnet18 --image-size 160 --threads 2 things
grep -q '"infer_throughput": [0-9.]*, "eval_avg_latency": [0-9.]*, "eval_90%_latency"' s.json || complain "no figures of SSD320"
[ "$n" -ge 250 ] || complain "only $n lines"
finish
