# ctest: timeout 240
# recipe_state.sh -- accumulation, averages, mixup, RMSprop, learning rates by step: a run that is stopped inside an
# optimiser step and resumed ends with the bytes of one never stopped; averages are validated, saved, evaluated;
# losses of validation; what is refused
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_background.sh"

drawn set --classes 6 --train 48 --val 18
small_model small.td 32 6
small="--model small.td --threads 1 --workers 1 --seed 1 --lr 0.01 -b 8 -p 1"

# --- stopped and resumed --------------------------------------------------------------------------
# An epoch is six batches, a step four: after one epoch the second step has two of its batches.
# resumes NAME OPTIONS...: ends of epochs 0 and 1, SIGINT and kill -9 inside; then the bytes of a run never stopped
resumes() {
    name=$1
    shift
    whole="$small --epochs 3 --final-state $*"
    expect 0 train set $whole --workspace "$name-a" --final-weights "$name-a.safetensors" --gather-checkpoints -1
    for epoch in 0 1; do
        expect 0 train set --resume "$name-a/checkpoint_000$epoch.safetensors" --workspace "$name-b" --overwrite \
            --final-weights "$name-b.safetensors" --final-state
        same "$name-a.safetensors" "$name-b.safetensors"
    done
    # less than a whole step is left of the training: nothing was skipped, all is well
    expect 0 train set $whole --checkpoint-every 4 --run-iters 4 --workspace "$name-b" --overwrite
    expect 0 train set --resume "$name-b/checkpoint.safetensors" --workspace "$name-b"
    prints '^steps +4$'
    for signal in INT KILL; do
        rm -rf "$name-c"
        holds stopped 'epoch 1, iteration 3/6' train set $whole --checkpoint-every 1 --workspace "$name-c"
        kill -$signal $pid
        ends stopped "$([ $signal = INT ] && echo 3 || echo 137)"
        [ -s "$name-c/checkpoint.safetensors" ] || complain "there is no checkpoint"
        expect 0 train set --resume "$name-c/checkpoint.safetensors" --workspace "$name-c" \
            --final-weights "$name-c.safetensors" --final-state
        same "$name-a.safetensors" "$name-c.safetensors"
    done
    rm -rf "$name-b" "$name-c" "$name"-[bc].safetensors
}
recipe="--mixup 0.2 --label-smoothing 0.1 --use-ema 0.99 --optimizer-batch-size 32 --nesterov"
resumes sgd $recipe --lr-schedule cosine --warmup 1
log_names train: multiplier 4
resumes rmsprop --optimizer rmsprop --mixup 0.4 --mixup-mode sample --use-ema 0.9 --optimizer-batch-size 32
resumes adamw --optimizer adamw --precision fp16 --use-ema 0.9 --optimizer-batch-size 32 --norm-weight-decay 0
resumes clipped --clip-grad-norm 0.5 --precision fp16 --optimizer-batch-size 32
resumes lamb --optimizer lamb --wd 0.02 --optimizer-batch-size 32
resumes cycle --optimizer adamw --lr-schedule one_cycle --anneal-strategy linear --optimizer-batch-size 32
resumes scaled $recipe --precision fp16 --lr-rule tf --lr-schedule cosine

# inside a step its sums are there, elsewhere they are not; nothing of the kind in weights
holds() {
    header "$1" | grep -q "\"$2" || complain "$1 has no $2..."
}
lacks() {
    ! header "$1" | grep -qF "\"$2" || complain "$1 has $2..."
}
last="contents of files"
holds sgd-a/checkpoint_0000.safetensors accumulated.
lacks sgd-a/checkpoint_0001.safetensors accumulated.
holds scaled-a/checkpoint_0000.safetensors pending.ema.
holds rmsprop-a/checkpoint.safetensors square_avg.
holds adamw-a/checkpoint.safetensors exp_avg_sq.
holds sgd-a.safetensors ema.
lacks sgd-a.safetensors accumulated.
expect 0 convert sgd-a/checkpoint_0000.safetensors bare.safetensors
for prefix in momentum. ema. accumulated. pending.; do
    lacks bare.safetensors $prefix
done

# --- averages -------------------------------------------------------------------------------------
expect 0 evaluate set --weights sgd-a/checkpoint.safetensors --logits raw.safetensors
expect 0 evaluate set --weights sgd-a/checkpoint.safetensors --use-ema --logits ema.safetensors --json
loss=$(sed -n 's/.*"loss": \([0-9.]*\).*/\1/p' out | cut -c1-7)
cmp -s raw.safetensors ema.safetensors && complain "averaged weights are the trained ones"
reported=$(metric sgd-a/experiment_raport.json 2 val_ema.loss | cut -c1-7)
[ -n "$loss" ] && [ "$loss" = "$reported" ] || complain "the averages' loss is '$loss', reported was '$reported'"
image=$(find set/val -name '*.jpg' | sort | head -1)
expect 0 classify "$image" --weights sgd-a/model_best.safetensors
expect 0 classify "$image" --weights sgd-a/model_best.safetensors --use-ema
expect 1 evaluate set --weights bare.safetensors --use-ema
error_names "'bare.safetensors'"
# train --evaluate judges both; convert --ema writes what evaluate --use-ema reads
expect 0 train set --evaluate --resume sgd-a/checkpoint.safetensors --use-ema 0.99 --json --workspace . --raport-file both.json
both=$(sed -n 's/.*"ema_loss": \([0-9.]*\).*/\1/p' out | cut -c1-7)
[ "$both" = "$loss" ] || complain "train --evaluate says $both of the averages, wanted $loss"
grep -q '"val.loss": .*"val_ema.loss": ' both.json || complain "not both in one record"
expect 1 train set --evaluate --pretrained-weights bare.safetensors --model small.td --use-ema 0.9
error_names "'bare.safetensors'"
for file in checkpoint model_best; do
    expect 0 convert --overwrite --ema sgd-a/$file.safetensors averaged.safetensors
    for prefix in momentum. ema. accumulated. pending.; do
        lacks averaged.safetensors $prefix
    done
done
expect 0 convert --overwrite --ema sgd-a/checkpoint.safetensors averaged.safetensors
expect 0 evaluate set --weights averaged.safetensors --logits converted.safetensors
payload ema.safetensors >ema.payload
payload converted.safetensors >converted.payload
same ema.payload converted.payload
# to ONNX in one step as in two
expect 0 convert averaged.safetensors two.onnx
expect 0 convert --ema sgd-a/checkpoint.safetensors one.onnx
same two.onnx one.onnx
expect 0 convert sgd-a/checkpoint.safetensors raw.onnx
if cmp -s raw.onnx one.onnx; then complain "--ema makes no difference to an ONNX file"; fi
expect 1 convert --ema bare.safetensors none.onnx
error_names "'bare.safetensors'"
expect 1 convert --ema bare.safetensors none.safetensors
error_names "'bare.safetensors'"
# a training without averages may go on with them: they begin as the weights are; and the other way round
expect 0 train set $small --epochs 1 --workspace plain
expect 0 train set --resume plain/checkpoint.safetensors --epochs 2 --use-ema 0.9 --workspace plain
[ -n "$(metric plain/experiment_raport.json 1 val_ema.top1)" ] || complain "no validation of the averages"
expect 0 train set --resume plain/checkpoint.safetensors --epochs 3 --use-ema -1 --workspace plain
lacks plain/checkpoint.safetensors ema.
# a factor of 0 forgets everything: the averages are the weights
expect 0 train set $small --epochs 1 --use-ema 0 --workspace none
[ "$(metric none/experiment_raport.json 0 val_ema.loss)" = "$(metric none/experiment_raport.json 0 val.loss)" ] ||
    complain "averages with a factor of 0 are not the weights"

# --- losses ---------------------------------------------------------------------------------------
# with mixup validation is plain cross-entropy, else it is smoothed as training is
for mixup in 0 0.2; do
    expect 0 train set $small --epochs 1 --label-smoothing 0.1 --mixup $mixup --workspace "mix$mixup"
    reported=$(metric "mix$mixup/experiment_raport.json" 0 val.loss | cut -c1-7)
    smoothing=0.1
    [ $mixup = 0 ] || smoothing=0
    expect 0 evaluate set --weights "mix$mixup/checkpoint.safetensors" --label-smoothing $smoothing --json
    loss=$(sed -n 's/.*"loss": \([0-9.]*\).*/\1/p' out | cut -c1-7)
    [ -n "$loss" ] && [ "$loss" = "$reported" ] || complain "validation with mixup $mixup: $reported, wanted $loss"
done
# the norm of the gradients is reported where it is limited
[ -n "$(metric clipped-a/experiment_raport.json '0, 6' train.grad_norm)" ] || complain "no train.grad_norm"
grep -q 'train[.]grad_norm' sgd-a/experiment_raport.json && complain "train.grad_norm of gradients that are not limited"
# what decay adds is reported beside the loss
expect 0 train set $small --epochs 1 --wd 0.01 --l2-loss --workspace l2
awk "BEGIN { l = $(metric l2/experiment_raport.json '0, 3' train.loss); d = $(metric l2/experiment_raport.json '0, 3' train.l2_loss);
    t = $(metric l2/experiment_raport.json '0, 3' train.total_loss); exit !(d > 0 && t - l - d < 1e-7 && l + d - t < 1e-7) }" ||
    complain "the total loss is not the sum of its parts"
grep -q '"metric": "train.total_loss", "metadata": {"unit": null' l2/experiment_raport.json || complain "no METADATA of train.total_loss"
grep -q '"metric": "l2_loss"' l2/experiment_raport.json && complain "TensorFlow's name unasked"
grep -q '"metric": "[a-z.]*l2_loss' sgd-a/experiment_raport.json && complain "METADATA of what is not reported"
expect 0 train set $small --epochs 1 --wd 0.01 --l2-loss --raport-names tf --csv-iterations l2.csv --workspace l2 --overwrite
[ -n "$(metric l2/experiment_raport.json '0, 3' l2_loss)" ] || complain "no l2_loss"
[ "$(metric l2/experiment_raport.json '0, 3' total_loss)" = "$(metric l2/experiment_raport.json '0, 3' train.total_loss)" ] ||
    complain "total_loss is not train.total_loss"
head -1 l2.csv | grep -q ',train.l2_loss,train.total_loss' || complain "no column of train.l2_loss"

# --- what is refused ------------------------------------------------------------------------------
expect 2 train set $small --optimizer-batch-size 7
error_names --optimizer-batch-size 7 8
expect 0 train set $small --optimizer-batch-size 20 --epochs 1 --no-checkpoints
warning_names train: 20 8 16
expect 1 train set --resume sgd-a/checkpoint_0000.safetensors --optimizer-batch-size 16 --workspace other
error_names 2 4
expect 0 train set --resume sgd-a/checkpoint_0001.safetensors --optimizer-batch-size 16 --workspace other --overwrite
expect 2 train set $small --use-ema -0.5
error_names --use-ema "'-0.5'" 0 1 -1
expect 2 train set $small --mixup-file raw.safetensors
error_names --mixup-file --mixup
expect 1 train set $small --mixup 0.2 --mixup-file raw.safetensors
error_names "'raw.safetensors'" "'lambda'"
expect 2 train set $small --lr-rule tf --lr-schedule linear
error_names step cosine linear
expect 2 train set $small --decay-rule readme --bn-weight-decay
expect 2 train set $small --norm-weight-decay 0 --bn-weight-decay
expect 2 train set $small --bias-weight-decay -0.5
error_names --bias-weight-decay "'-0.5'"
expect 2 train set $small --transformer-embedding-decay 0 --l2-loss
error_names --transformer-embedding-decay --l2-loss
expect 2 train set $small --optimizer adamw --adam-beta2 1
error_names --adam-beta2
expect 2 train set $small --clip-grad-norm 1 --clip-grad-value 1
error_names --clip-grad-norm --clip-grad-value
expect 2 train set $small --optimizer lamb --l2-loss
error_names --l2-loss lamb
expect 2 train set $small --amp-level O3 --precision bf16 --use-ema 0.9
expect 1 train set --resume plain/checkpoint.safetensors --epochs 4 --optimizer rmsprop --workspace plain
says "^tandem: error: .*'square_avg"

finish
