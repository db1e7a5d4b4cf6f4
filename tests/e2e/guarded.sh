# ctest: timeout 300
# guarded.sh -- every verb with memory that only kernels and copies may use (TANDEM_GUARD_MEMORY=1), as on a device with
# memory of its own: the same bytes, and no signal
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

# both COMMAND...: with and without it, in the folders `guarded` and `plain`
both() {
    for how in guarded plain; do
        mkdir -p $how
        TANDEM_GUARD_MEMORY=$([ $how = guarded ] && echo 1 || echo 0)
        export TANDEM_GUARD_MEMORY
        cd $how || exit 1
        expect 0 "$@"
        mv out err ..
        cp ../out out.last
        cd ..
    done
    unset TANDEM_GUARD_MEMORY
}

drawn set --classes 4 --train 24 --val 9
drawn boxes --boxes --train 6 --val 3 --classes 3 --size 320
small_model small.td 16 4
run="train ../set --model ../small.td -b 4 --threads 1 --workers 1 --seed 3 --lr 0.05 --epochs 2"

# --- training: mixed precision, averages, accumulation, statistics, a checkpoint -----------------------------
both $run --precision fp16 --static-loss-scale 128 --use-ema 0.9 --optimizer-batch-size 8 --amp-stats stats.jsonl \
    --workspace run --final-weights w.safetensors --final-state --json
same plain/w.safetensors guarded/w.safetensors
both $run --precision bf16 --mixup 0.2 --run-epochs 1 --workspace halves
both $run --precision bf16 --mixup 0.2 --resume halves/checkpoint.safetensors --workspace halves --final-weights h.safetensors
same plain/h.safetensors guarded/h.safetensors

# --- what is trained is used ----------------------------------------------------------------------------------
both evaluate ../set --weights w.safetensors --model ../small.td --threads 1 --logits logits.safetensors
same plain/logits.safetensors guarded/logits.safetensors
both classify --weights w.safetensors --model ../small.td --threads 1 --json $(cd set && find val -name '*.png' -o -name '*.jpg' | sort | sed 's#^#../set/#')
same plain/out.last guarded/out.last

# --- a detector ------------------------------------------------------------------------------------------------
both train ../boxes --arch ssd320 --backbone resnet18 -b 2 --threads 2 --workers 1 --seed 3 --lr 0.01 --run-iters 2 \
    --training-only --no-checkpoints --final-weights d.safetensors
same plain/d.safetensors guarded/d.safetensors

# --- ranks ----------------------------------------------------------------------------------------------------
both launch --nproc 2 $run --run-epochs 1 --no-checkpoints --final-weights r.safetensors
same plain/r.safetensors guarded/r.safetensors
finish
