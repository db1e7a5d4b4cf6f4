# ctest: timeout 240
# presets.sh -- a short run of each model's recipe, and what its report, its checkpoint and its config.yaml say; staged
# runs; the modes of the launcher and of TensorFlow's main
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"
small="--data-backend synthetic --image-size 32 --num-classes 4 --threads 1 --workers 1"

# the first parameters of a report: one has NAME with VALUE
reports() {
    grep -qF -e "\"$2\": $3" "$1/experiment_raport.json" || complain "$1: the report has no $2 $3"
}

# --- every name that completion offers is a preset
names=$("$TANDEM" help --completion bash | sed -n "s/^ *--preset) values='list \([^']*\)'.*/\1/p" | head -1)
[ "$(echo $names | wc -w)" -ge 60 ] || complain "completion offers these presets only: $names"
for name in $names; do
    expect 0 train $small --preset "$name" --print-config
done

# --- one step of every model; the recipe of a machine, with what a small machine needs over it
for model in resnet50 resnext101-32x4d se-resnext101-32x4d; do
    expect 0 train $small --preset $model/DGXA100/AMP/90 -b 2 --optimizer-batch-size 2 --run-iters 2 --epochs 1000 \
        --warmup 8 --precision fp32 --training-only --no-checkpoints --raport-file experiment_raport.json \
        --workspace $model --seed 1 --prof 2 -p 1
    says "preset $model/DGXA100/AMP/90: lr "
    ! grep -q 'mixed precision\|loss scale' err || complain "$model: --precision fp32 does not win over AMP"
    reports $model momentum 0.875
    reports $model mixup 0
    reports $model label_smoothing 0.1
    case $model in resnet50) lr=2.048 wd=3.0517578125e-05 ;; *) lr=1.024 wd=6.103515625e-05 ;; esac
    reports $model lr $lr
    reports $model weight_decay $wd
    # warm-up: the first epoch's rate is an eighth of the peak
    grep '"train.lr": [0-9]' $model/experiment_raport.json | head -1 |
        sed 's/.*"train.lr": \([0-9.e-]*\).*/\1/' | awk -v lr=$lr '{ n++; d = $0 / (lr / 8) - 1; bad = !(d < 1e-6 && d > -1e-6) } END { exit n != 1 || bad }' ||
        complain "$model: $(grep '"train.lr": ' $model/experiment_raport.json | head -1)"
done

# --- two steps of the recipes of other programs
drawn set --classes 4 --train 32 --val 8 --size 80
for name in torchvision/resnet50-v2 timm/resnet50-a1 timm/resnet50-a2 timm/resnet50-a3; do
    expect 0 train set --preset $name --arch resnet18 --image-size 32 --threads 1 --workers 1 --seed 1 -b 4 \
        --optimizer-batch-size 8 --run-iters 2 --no-checkpoints --workspace ${name#*/}
    says "preset $name: lr "
    case $name in torchvision/*) log_names 32 0.99998 600 0.9999915 ;; esac
done
expect 2 train set --preset timm/resnet50-a9
error_names "'resnet50-a9'" resnet50-a1

# --- config.yaml gives the same run again, to the bit; a foreign one is left alone
expect 0 train $small --preset resnet50/90 --arch resnet18 -b 4 --run-iters 2 --training-only --workspace one \
    --final-weights one.safetensors --prof 2
log_names 0.004 4 0.256 256
grep -v 'final_weights\|workspace' one/config.yaml >again.yaml
grep -qx '  lr: 0.004' again.yaml || complain "config.yaml has no lr 0.004"
grep -q '^  seed: [0-9]' again.yaml || complain "config.yaml does not name the seed"
expect 0 train --config again.yaml --workspace two --final-weights two.safetensors
cmp -s one.safetensors two.safetensors || complain "config.yaml leads to other weights"
mkdir own
echo 'lr: 1' >own/config.yaml
expect 0 train $small --arch resnet18 -b 4 --run-iters 1 --training-only --workspace own \
    --config own/config.yaml --prof 1
warning_names "'own/config.yaml'"
[ "$(cat own/config.yaml)" = 'lr: 1' ] || complain "the user's config.yaml was overwritten"

# --- TF32 says what it is here
expect 0 train $small --model resnet50 --precision TF32 --platform DGXA100 --mode benchmark_training --prof 1 -b 2 \
    --optimizer-batch-size 2 --mixup 0 --arch resnet18 --workspace tf32
log_names tf32 float32
log_names 3 8 epochs

# --- modes that other verbs do
expect 0 train $small --arch resnet18 --mode inference_benchmark --num_iter 3 --iter_unit batch --warmup_steps 1 -b 2
prints '"mode": "inference"'
prints '"iters": 3'
expect 0 train $small --arch resnet18 --mode training_benchmark --num_iter 3 --iter_unit batch --warmup_steps 1 -b 2
prints '"mode": "training"'
expect 2 train $small --arch resnet18 --mode training_benchmark --num_iter 3
error_names --iter-unit
expect 0 train $small --model resnet50 --platform T4 --precision FP32 --mode benchmark_inference --arch resnet18 \
    --prof 2 -b 2 --warmup_steps 1
prints '"mode": "inference"'
expect 2 train --mode predict
says "--to-predict"
expect 2 train --mode predict --to_predict p.jpg
says "--resume or --pretrained-weights"
expect 0 train $small --mode evaluate --prof 1 -b 4
log_names --resume --pretrained-weights
finish
