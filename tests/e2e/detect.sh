# ctest: timeout 600
# detect.sh -- from drawn images with boxes to a detector and what is done with it: train, kill -9 and resume to the
# byte, evaluate, detect, draw, benchmark; TensorFlow's configuration; what is refused, with which words
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_background.sh"

"$TANDEM" dataset draw set --boxes --classes 2 --train 12 --val 3 --size 160 >draw.log 2>&1 || { cat draw.log >&2; exit 1; }
net="--arch ssd320 --backbone resnet18 --image-size 160 --bn-decay 0.9 --threads 1 --workers 1 --seed 3"

# --- train -------------------------------------------------------------------------------------
# 13 steps of 2 images: two epochs of 6 steps and one of the third, where the steps say that it ends
whole="set $net -b 2 --num-train-steps 13 --lr 0.01 --print-freq 2 --evaluation 1 --eval-batch-size 3"
expect 0 train $whole --workspace run --raport-names tf --raport-warmup 3 --json
prints '^\{"arch": "ssd320", "epoch": 3, "steps": 13, "train_loss": [0-9.]+, "AP": [-0-9.e]+, "AP50": '
prints '"best_AP": [-0-9.e]+, '
log_names train: ssd320 2 12 '160 x 160' 1
says '^train: epoch 1: loss [0-9.]+, .*AP [0-9.]+, AP50 [0-9.]+, AP75 [0-9.]+, AR100 [0-9.]+$'
if grep -q 'epoch 0: .*AP' err; then complain "validated after epoch 0"; fi
report=run/experiment_raport.json
for name in train.loss_class train.loss_box train.positives train.l2_loss train.total_loss; do
    [ -n "$(metric $report '0, 2' $name)" ] || complain "no $name of step 2"
done
[ -n "$(metric $report 1 val.AP50)" ] || complain "no val.AP50 of epoch 1"
class=$(sed -n 's/.*"categories": *\[{[^}]*"name": *"\([a-z]*\)".*/\1/p' set/annotations/instances_val.json)
[ -n "$(metric $report 1 "val.AP.$class")" ] || complain "no AP of the class '$class' after epoch 1"
[ -z "$(metric $report 0 val.AP50)" ] || complain "val.AP50 of epoch 0"
grep -q '"metric": "DetectionBoxes_Precision/mAP"' $report || complain "no metadata of mAP"
if grep -q 'top1' $report; then complain "accuracies in a detector's report"; fi
[ -n "$(metric $report '' train_throughput)" ] || complain "no train_throughput"
# warm-up over 8 % of 13 steps is one step, from 0.43332 of the peak; then a cosine to 0
awk "BEGIN { exit !($(metric $report '0, 2' train.lr) == 0.01) }" || complain "the second learning rate is not the peak"
awk "BEGIN { exit !($(metric $report '1, 6' train.loss) < $(metric $report '0, 2' train.loss)) }" ||
    complain "the loss does not fall"
tidy run
expect 0 inspect model --pretrained-weights run/checkpoint.safetensors
prints '^ssd320, backbone resnet18, 2 classes: [a-z]+, [a-z]+$'
expect 2 inspect model --weights run/checkpoint.safetensors --backbone resnet50
error_names ssd320 resnet18 --backbone resnet50
expect 2 inspect ops --weights run/checkpoint.safetensors
error_names --weights
expect 0 inspect checkpoint run/checkpoint.safetensors
prints 'tandem.arch: ssd320'
prints 'tandem.backbone: resnet18'
prints 'tandem.categories: \[1, 2\]'

# --- kill -9, resume ---------------------------------------------------------------------------
# six steps of one image, four to an epoch: killed and resumed inside the first epoch
"$TANDEM" dataset draw four --boxes --classes 2 --train 4 --val 1 --size 160 >draw.log 2>&1 || { cat draw.log >&2; exit 1; }
whole="four $net -b 1 --num-train-steps 6 --lr 0.01 --print-freq 1 --evaluation 1 --eval-batch-size 1"
expect 0 train $whole --no-checkpoints --workspace straight --final-weights straight.safetensors --final-state
holds killed 'epoch 0, iteration 3/4' train $whole --workspace killed --checkpoint-every 2 --final-weights killed.safetensors --final-state
kill -9 $pid
ends killed 137
[ -s killed/checkpoint.safetensors ] || complain "no checkpoint of a killed run"
[ ! -e killed.safetensors ] || complain "the run was over before it was killed"
expect 0 train four --resume killed/checkpoint.safetensors --workspace killed --checkpoint-every 0 --workers 2 --prefetch 3 \
    --final-weights killed.safetensors --final-state
log_names train: "'killed/checkpoint.safetensors'" 'epoch 0'
same straight.safetensors killed.safetensors
rm -rf killed killed.safetensors straight.safetensors

# --- evaluate ----------------------------------------------------------------------------------
weights=run/model_best.safetensors
[ -e $weights ] || weights=run/checkpoint.safetensors
expect 0 evaluate set --weights $weights -b 2 --threads 1 --detections found.json --per-class -p 1 --json \
    --draw judged --draw-limit 2 --draw-min-score 0.01
says '^evaluate: batch 1/2: [0-9.]+ images/s'
log_names evaluate: 2 "'judged'"
[ "$(ls judged)" = "$(ls set/val | head -2)" ] || complain "not the first two images are drawn: $(ls judged)"
prints '^\{"arch": "ssd320", "n": 3, "n_bad": 0, "n_found": [0-9]+, "AP": [0-9.e-]+, "AP50": '
prints '"per_class": \[\{"name": "[a-z]+", "category_id": 1, "n": [0-9]+, "AP": '
twelve() {
    sed 's/.*\("AP": .*"ARl": [-0-9.e]*\).*/\1/' out
}
twelve >of_network
expect 0 evaluate --annotations set/annotations/instances_val.json --detections found.json --json
[ "$(twelve)" = "$(cat of_network)" ] || complain "the file of detections has other metrics: $(cat of_network)"
expect 0 evaluate set --weights $weights -b 3 --threads 1
prints '^ Average Precision  \(AP\) @\[ IoU=0.50      \| area=   all \| maxDets=100 \] = [0-9.-]+$'
expect 4 evaluate set --weights $weights -b 3 --threads 1 --require 'AP50>=1.5'
error_names AP50 'AP50>=1.5'
expect 2 evaluate set --weights $weights --require 'top1>=1'
error_names "'top1'" AP AP50 AP75
expect 2 evaluate set --weights $weights --draw-limit 2
error_names --draw-limit --draw
expect 1 evaluate set --weights $weights --draw set/val
says "^tandem: error: .*'set/val/[0-9]+.jpg'"
expect 2 evaluate set --weights $weights --logits l.safetensors
error_names --logits

# --- a training watched from outside -----------------------------------------------------------
expect 0 evaluate set --checkpoint-dir run --run-once --threads 1 -b 3 --json
cp out once
expect 0 evaluate set --checkpoint-dir run --poll-seconds 1 --threads 1 -b 3 --json # it has done all its epochs
[ "$(twelve)" = "$(sed 's/.*\("AP": .*"ARl": [-0-9.e]*\).*/\1/' once)" ] || complain "watched once and to the end differ"
expect 1 evaluate set --checkpoint-dir few --run-once
error_names "'few'"
expect 2 evaluate set --run-once --weights $weights
error_names --run-once --checkpoint-dir

# --- detect ------------------------------------------------------------------------------------
expect 0 detect --weights $weights --threads 1 --min-score 0.001 --draw drawn --json set/val
prints '^\{"images": \[\{"id": 1, "file_name": "set/val/[0-9]+.jpg", "width": 160, "height": 160, "drawn": "drawn/[0-9]+.jpg"\}, '
prints '"categories": \[\{"id": 1, "name": "[a-z]+"\}, \{"id": 2, "name": "[a-z]+"\}\]'
prints '"detections": \[\{"image_id": 1, "category_id": [12], "bbox": \[[-0-9.]+, [-0-9.]+, [0-9.]+, [0-9.]+\], "score": 0\.[0-9]+'
[ "$(ls drawn | wc -l)" = 3 ] || complain "not three images drawn"
expect 0 dataset check set
for image in drawn/*; do
    case $(od -An -tx1 -N2 "$image") in *ff\ d8*) ;; *) complain "'$image' is no JPEG" ;; esac
done
one=$(ls set/val/*.jpg | head -1)
printf 'no image' >bad.jpg
expect 0 detect --weights $weights --threads 1 --max-boxes 2 --min-score 0 "$one" bad.jpg
prints "^$one$"
prints '^  [a-z]+: [0-9.]+% at -?[0-9]+, -?[0-9]+, [0-9]+ x [0-9]+$'
prints '^  unreadable: .*JPEG'
[ "$(grep -c ' at ' out)" = 2 ] || complain "not two boxes with --max-boxes 2"
expect 1 detect --weights $weights --threads 1 bad.jpg
error_names "'bad.jpg'" JPEG
silent
mkdir own && cp "$one" own/p.jpg
expect 1 detect --weights $weights --threads 1 --draw own own/p.jpg
error_names "'own/p.jpg'"
same "$one" own/p.jpg
expect 2 detect --weights $weights
expect 2 detect "$one"
error_names --weights FILE

# --- ONNX ----------------------------------------------------------------------------------------
expect 0 convert $weights network.onnx --min-score 0.01
prints '^read back.*logits .*[0-9.]+e-[0-9]+'
prints '^[0-9]+ parameters, 3\.[0-9]+ GMAC \(7\.[0-9]+ GFLOP\)'
prints '^network.onnx$'
for text in detection_boxes num_detections NonMaxSuppression tandem.categories heads.box.weight; do
    grep -aFq $text network.onnx || complain "network.onnx does not hold '$text'"
done

# --- every second image is judged: their number is printed, not that of all ----------------------
expect 0 evaluate set --weights $weights -b 3 --sample_1_of_n_eval_examples 2 --threads 1
prints '^images        2$'
expect 0 evaluate set --weights $weights -b 3 --sample_1_of_n_eval_examples 2 --threads 1 --json
prints '"n": 2, '

# --- other networks' weights -------------------------------------------------------------------
expect 0 init --arch resnet18 --num-classes 4 --seed 1 -o classifier.safetensors
expect 2 detect --weights classifier.safetensors "$one"
error_names "'classifier.safetensors'" resnet18
expect 2 evaluate set --weights classifier.safetensors --detections d.json
error_names --detections
expect 2 evaluate set --weights classifier.safetensors --draw d
error_names --draw

# --- and the jobs that a detector has not --------------------------------------------------------
expect 2 classify --weights $weights "$one"
error_names ssd320

# --- SSD300 --------------------------------------------------------------------------------------
expect 0 train set --arch ssd300 --backbone resnet18 -b 1 --run-iters 2 --threads 1 --seed 1 --no-checkpoints \
    --workspace s300 --print-freq 1 --final-weights s300.safetensors
log_names train: ssd300 2 12 '300 x 300' 1
says 'iteration 2/12: loss [0-9.]+, lr 8.125e-05' # 2.6e-3 for 32 images
expect 0 detect --weights s300.safetensors --threads 1 --min-score 0.01 --max-boxes 3 "$one"
[ "$(grep -c ' at ' out)" = 3 ] || complain "not three boxes of SSD300"

# --- torchvision's SSDLite ------------------------------------------------------------------------
lite="--arch ssdlite320-mobilenet-v3-large --image-size 64 --threads 1"
expect 0 train set $lite -b 4 --epochs 2 --seed 1 --bn-decay 0.9 --workspace lite --print-freq 1
log_names train: ssdlite320_mobilenet_v3_large 2 '64 x 64'
expect 0 evaluate set --weights lite/model_best.safetensors --threads 1 --json
prints '"arch": "ssdlite320_mobilenet_v3_large", .*"AP": '
expect 0 detect --weights lite/model_best.safetensors --threads 1 --min-score 0.01 --max-boxes 3 "$one"
[ "$(grep -c ' at ' out)" = 3 ] || complain "not three boxes of SSDLite"
expect 0 inspect model --weights lite/model_best.safetensors
prints '^ssdlite320_mobilenet_v3_large, 2 classes: [a-z]+, [a-z]+$'
expect 0 benchmark --mode inference $lite -b 1 --iters 2 --warmup 1
prints '^network +ssdlite320_mobilenet_v3_large, inference, fp32$'
expect 1 train set --arch ssdlite320_mobilenet_v3_large --image-size 300 --workspace no
error_names 32 64 300
expect 0 train DIR --arch ssdlite320_mobilenet_v3_large --print-config
for line in 'lr: 0.01875' 'batch_size: 24' 'lr_rule: torchvision' 'weight_decay: 4e-05' 'epochs: 660' 'warmup: -1'; do
    grep -qx "  $line" out || complain "no '$line'"
done
expect 0 train DIR --preset ssdlite320_mobilenet_v3_large/8gpus --print-config
prints '^  lr: 0.15$'
prints '^  warmup: -1$'

# --- torchvision's RetinaNet ----------------------------------------------------------------------
retina="--arch retinanet-resnet50-fpn --image-size 64 --threads 1"
expect 0 train set $retina -b 4 --epochs 2 --seed 1 --workers 1 --workspace retina --print-freq 1 --multistep 1
log_names train: retinanet_resnet50_fpn 2 '64 x 64'
says 'epoch 0, iteration 1/3: loss [0-9.]+, lr 2.5e-06,' # a thousandth of 0.0025, for 4 of 16 images
says 'epoch 0, iteration 3/3: loss [0-9.]+, lr 0.0025,'  # after the warm-up, which is shorter than an epoch
says 'epoch 1, iteration 1/3: loss [0-9.]+, lr 0.00025,'
if grep -q 'frozen:' err; then complain "frozen without weights"; fi
expect 0 evaluate set --weights retina/model_best.safetensors --threads 1 --json
prints '"arch": "retinanet_resnet50_fpn", .*"AP": '
expect 0 detect --weights retina/model_best.safetensors --threads 1 --min-score 0 --max-boxes 3 "$one"
[ "$(grep -c ' at ' out)" = 3 ] || complain "not three boxes of RetinaNet"
expect 0 inspect model --weights retina/model_best.safetensors
prints '^retinanet_resnet50_fpn, 2 classes: [a-z]+, [a-z]+$'
expect 0 benchmark --mode inference $retina -b 1 --iters 2 --warmup 1
prints '^network +retinanet_resnet50_fpn, inference, fp32$'
expect 1 train set --arch retinanet_resnet50_fpn --image-size 300 --workspace no
error_names 32 64 300
expect 1 detect --weights retina/model_best.safetensors --image-size 50 "$one"
error_names 32 64 50
# a backbone with weights: its first stages and all of its norms are constant, unless --freeze or --freeze-bn says otherwise
expect 0 init --arch resnet50 --num-classes 4 --seed 1 -o r50.safetensors
start="train set $retina -b 4 --run-iters 1 --seed 1 --workers 1 --no-checkpoints --pretrained-weights r50.safetensors"
expect 0 $start --workspace frozen
log_names frozen: 53 norms
says "frozen: 117 of 195 weights"
expect 0 $start --no-freeze-bn --workspace free
if grep -q 'frozen:' err; then complain "frozen with --no-freeze-bn"; fi
expect 0 $start --freeze 'backbone.body.conv1.*' --workspace one
says "frozen: 1 of 195 weights"
rm -rf r50.safetensors retina frozen free one
expect 0 train DIR --arch retinanet_resnet50_fpn --print-config
for line in 'lr: 0.00125' 'batch_size: 2' 'lr_rule: torchvision' 'weight_decay: 0.0001' 'epochs: 26' 'multistep: "16,22"' \
    'bn_weight_decay: true'; do
    grep -qx "  $line" out || complain "no '$line'"
done
expect 0 train DIR --preset retinanet_resnet50_fpn/8gpus --print-config
prints '^  lr: 0.01$'

# --- recipes -----------------------------------------------------------------------------------
expect 0 train DIR --arch ssd320 --print-config
for line in 'lr: 0.02' 'batch_size: 32' 'lr_rule: ssd320' 'momentum: 0.9' 'weight_decay: 0.0004' 'warmup: -1'; do
    grep -qx "  $line" out || complain "no '$line'"
done
expect 0 train DIR --arch ssd320 -b 8 --print-config
prints '^  lr: 0.005$'
expect 0 train DIR --preset ssd320/8gpus --print-config
prints '^  num_train_steps: 12500$'
prints '^  lr_total_steps: 12500$'
prints '^  lr: 0.16$'
expect 0 train DIR --preset ssd320/8gpus --epochs 5 --print-config
prints '^  num_train_steps: -1$'
prints '^  lr_total_steps: -1$'
prints '^  epochs: 5$'
prints '^  warmup: -1$'
expect 0 train DIR --pipeline-config-path "$TANDEM_SOURCE/tests/data/ssd320_full_8gpus.config" \
    --hparams-overrides train_steps=100,num_classes=3 --print-config
prints '^  num_train_steps: 100$'
prints '^  lr_total_steps: 12500$'
prints '^  num_classes: 3$'
prints '^  warmup_lr: 0.0693312$'
printf 'model {\n  ssd {\n    encode_background_as_zeros: false } }' >p.config
expect 2 train DIR --pipeline-config-path p.config --print-config
error_names p.config 'line 3' "'model.ssd.encode_background_as_zeros'" "'false'"
expect 2 train DIR --preset ssd320/9gpus --print-config
error_names "'9gpus'" recipe 1gpus 4gpus 8gpus bench

# when to stop is not the length of the learning rate's curve: 1000 steps of warm-up fit, and resuming keeps both
published="--pipeline-config-path $TANDEM_SOURCE/tests/data/ssd320_full_8gpus.config"
expect 0 train set $published --hparams-overrides height=160,width=160 --backbone resnet18 --label-ids dense -b 1 \
    --threads 1 --seed 1 --num_train_steps=2 --training-only --print-freq 1 --workspace short
says 'iteration 1/12: loss [0-9.]+, lr 0.069331,'
says 'iteration 2/12: loss [0-9.]+, lr 0.069422,'
prints '^steps         2$'
expect 0 train set --resume short/checkpoint.safetensors --print-config
prints '^  num_train_steps: 2$'
prints '^  lr_total_steps: 12500$'
expect 0 train set $published --resume short/checkpoint.safetensors --print-config
prints '^  num_train_steps: 2$'
prints '^  lr_total_steps: 12500$'
expect 0 train set $net -b 1 --num-train-steps 2 --lr-total-steps 1 --warmup 0 --lr 0.01 --training-only \
    --print-freq 1 --no-checkpoints --workspace short
warning_names 0 'step 1' 2
says 'iteration 2/12: loss [0-9.]+, lr 0,'

# --- bad data and options ----------------------------------------------------------------------
few="$net -b 2 --run-iters 1 --no-checkpoints --workspace few"
expect 1 train absent $few
expect 1 train set $few --annotations absent.json
says "'absent.json'"
head -c 300 set/annotations/instances_train.json >cut.json
expect 1 train set $few --annotations cut.json
says "'cut.json'"
expect 1 train set $few -b 13
expect 2 train set $few --mixup 0.2
error_names --mixup
expect 2 train set $few --require 'top1>=1'
expect 2 train set $few --warmup 100 --num-train-steps 50
error_names 100 50
expect 2 train set $few --multistep 5,4 --lr-rule ssd300
expect 1 train set $few --image-size 100

# --- benchmark ---------------------------------------------------------------------------------
expect 0 benchmark --mode inference --arch ssd320 --backbone resnet18 --image-size 160 -b 1 --iters 2 --warmup 1 \
    --threads 1 --no-bound --json
prints '"backbone": "resnet18", "boxes_ms": [0-9.]+, "infer_throughput": [0-9.]+, "eval_avg_latency": [0-9.]+, '
prints '"eval_99%_latency": '
expect 0 benchmark --mode training --arch ssd320 --backbone resnet18 --image-size 160 -b 1 --iters 1 --warmup 0 \
    --threads 1 --no-bound --json
prints '"train_throughput": [0-9.]+'
prints '"last_quarter": \{"images_per_s": [0-9.]+, "lines": 1, "lines_kept": 1, "line_steps": 1\}'
expect 0 train --preset ssd320/bench --data-backend synthetic --backbone resnet18 --image-size 160 -b 1 --run-iters 5 \
    --print-freq 1 --threads 1 --workspace bench
prints '^performance +[0-9.]+ images/s, .*2 of 5 '
shown=$(awk '/^performance/ { print $2 }' out)
speed() {
    metric bench/experiment_raport.json "0, $1" train.total_ips
}
awk "BEGIN { d = $shown - ($(speed 4) + $(speed 5)) / 2; exit !(d * d < 1e-3) }" || complain "$shown is not the mean of the last two lines"
awk "BEGIN { d = $shown - $(metric bench/experiment_raport.json '' train.last_quarter_ips); exit !(d * d < 1e-3) }" ||
    complain "the report has another performance"
expect 0 train --arch ssd320 --backbone resnet18 --image-size 160 --mode benchmark-inference --benchmark-iterations 1 \
    --benchmark-warmup 0 -b 1 --threads 1
prints '"iters": 1, "warmup": 0, .*"infer_throughput"'

finish
