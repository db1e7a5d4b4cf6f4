# quantize.sh -- a trained network in 8-bit integers: nearly the same answers, a quarter of the bytes, in every verb
# ctest: timeout 600
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_serve.sh"

expect 0 dataset draw set --classes 3 --train 240 --val 90 --size 32 --seed 7
expect 0 train set --arch resnet18 --image-size 32 -b 16 --epochs 5 --lr 0.02 --seed 1 --workspace run --threads 1
w=run/model_best.safetensors
expect 0 quantize $w set -o q.safetensors --calibration-images 48 --compare --json --threads 1
value() {
    sed "s/.*\"$1\": \([-0-9.e+]*\)[,}].*/\1/" out
}
[ "$(value n_layers) $(value quantized) $(value images)" = "21 19 48" ] || complain "other layers"
wide=$(value float32) narrow=$(value int8)
# 90 images: one is 1.1 points
awk "BEGIN { exit !($wide > 60 && $narrow > $wide - 2.3) }" || complain "float32 $wide, int8 $narrow"
[ $(($(wc -c <q.safetensors) * 39)) -lt $(($(wc -c <$w) * 10)) ] || complain "$(wc -c <q.safetensors) bytes"

# the same bytes again; every method; what is kept wide
expect 0 quantize $w set -o again.safetensors --calibration-images 48 --threads 1
cmp q.safetensors again.safetensors || complain "other bytes in a second run"
expect 1 quantize $w set -o again.safetensors
error_names again.safetensors
for method in "max" "percentile --percentile 99"; do
    expect 0 quantize $w set -o again.safetensors --overwrite --calibration-images 24 --method $method --threads 1
    cmp -s q.safetensors again.safetensors && complain "--method $method changes nothing"
done
expect 0 quantize $w set -o kept.safetensors --calibration-images 8 --calibrate-on-val \
    --keep-wide 'layer4.*,layer1.0.conv1' --json --threads 1
[ "$(value quantized)" = 13 ] || complain "$(value quantized) are quantized"
expect 2 quantize $w set -o none.safetensors --calibration-images 8 --keep-wide 'layer9.*' --threads 1
error_names 'layer9.*'

# it runs in int8, or in float32 if that is wanted
expect 0 inspect kernels --weights q.safetensors
n_fast=$(grep -c ' conv2d_int8 ' out)
[ "$n_fast" = 19 ] || complain "$n_fast convolutions are quantized"
expect 0 inspect kernels --weights q.safetensors --device ref
[ "$(grep -c ' conv2d_int8 ' out)" = 19 ] || complain "not 19 on device ref"
expect 0 inspect kernels --weights q.safetensors --precision fp32
grep -q ' conv2d_int8 ' out && complain "int8 with --precision fp32"
expect 0 inspect kernels --weights q.safetensors --skip-passes quantize
grep -q ' conv2d_int8 ' out && complain "int8 without its pass"
expect 0 inspect quantization q.safetensors
[ "$(grep -c 'int8$' out)" = 19 ] || complain "inspect quantization has other layers"
prints '^conv1.weight .*float32: first convolution$'
expect 0 inspect quantization kept.safetensors --json
[ "$(grep -o '"why": "--keep-wide"' out | wc -l)" = 6 ] || complain "not six are kept wide"
expect 1 inspect quantization $w
error_names $w
for precision in int8 fp32; do
    expect 0 evaluate set --weights q.safetensors --precision $precision --json --logits $precision.safetensors --threads 1
    awk "BEGIN { exit !($(value top1) > $wide - 2.3) }" || complain "top1 $(value top1) in $precision"
done
[ "$n_fast" = 19 ] && cmp -s int8.safetensors fp32.safetensors && complain "int8 and float32 give the same logits"
first=$(find set/val -name '*.jpg' | sort | head -1)
expect 0 classify --weights q.safetensors --json "$first"
last="evaluate without VNNI: filters of 7 bits"
TANDEM_MAX_ISA=avx2 "$TANDEM" evaluate set --weights q.safetensors --json --threads 1 >out 2>err || complain "it fails"
warning_names 19 "7 bits" VNNI
awk "BEGIN { exit !($(value top1) > $wide - 2.3) }" || complain "top1 $(value top1) with filters of 7 bits"
expect 0 benchmark --mode inference --weights q.safetensors -b 2 --iters 2 --warmup 1 --json
prints '"precision": "int8"'
expect 0 benchmark --mode inference --arch resnet18 --image-size 32 --precision int8 -b 2 --iters 2 --warmup 1 --json
prints '"precision": "int8"'

cp q.safetensors w.safetensors
serve --threads 1
ask 200 GET /v2/models/resnet18
prints '"precision": "int8"'
ask 200 POST '/classify?topk=1' <"$first"
stop

# what is refused
expect 2 evaluate set --weights $w --precision int8
error_names int8 $w
expect 2 train set --arch resnet18 --image-size 32 -b 16 --epochs 1 --pretrained-weights q.safetensors --workspace no
error_names q.safetensors
expect 2 train set --arch resnet18 --image-size 32 -b 16 --epochs 1 --precision int8 --workspace no
error_names int8
expect 2 quantize q.safetensors set -o no.safetensors
error_names q.safetensors
expect 2 quantize $w set
error_names --output
cp $w own.safetensors
expect 0 quantize own.safetensors set -o ./own.safetensors --overwrite --compare --json --calibration-images 4
[ "$(value float32)" = "$wide" ] || complain "float32 $(value float32), wanted $wide: the weights are compared before they are replaced"
mkdir only_train && ln -s ../set/train only_train/train
expect 1 quantize $w only_train -o no.safetensors --compare # found before images are observed
error_names only_train val
expect 2 inspect kernels --weights q.safetensors --training
error_names q.safetensors '8-bit'
expect 2 quantize $w set -o no.safetensors --calibration-images 4 --keep-wide '*'
error_names --keep-wide
[ ! -e no.safetensors ] && [ ! -e none.safetensors ] || complain "a failure wrote a file"

# a network of one's own, and the options that say which images are observed, and how
small_model small.td 32 3
expect 0 train set --model small.td --threads 1 --workers 1 -b 8 --epochs 1 --use-ema 0.9 --workspace small
s=small/checkpoint.safetensors
expect 0 quantize $s --data set -o s.safetensors --calibration-images 24 --workers 1 --log warn
prints '^1 of 3 layers quantized, 24 images observed$'
[ ! -s err ] || complain "--log warn"
for option in "--interpolation bicubic" "--crop tf" "--normalization tf" \
    --use-ema --calibrate-on-val "--calibration-images 25" "--data-backend synthetic" "-b 5"; do
    expect 0 quantize $s set -o other.safetensors --overwrite --calibration-images 24 --workers 1 $option
    cmp -s s.safetensors other.safetensors && complain "it changes nothing"
done
expect 0 quantize $s set -o other.safetensors --overwrite --calibration-images 24 --workers 1 --device ref
expect 2 quantize $s set -o no.safetensors --device none
error_names none
mkdir only_val && cp -r set/val only_val/val
expect 1 quantize $s only_val -o no.safetensors
error_names only_val train --calibrate-on-val
expect 0 inspect checkpoint other.safetensors
prints 'tandem.graph'

# an input that can be negative, and with --quantize-also the first convolution and the linear layer
small_model signed.td 32 3
sed -i '/^%3 = relu/d; s/max_pool2d %3/max_pool2d %2/' signed.td
expect 0 init --model signed.td --seed 4 -o n.safetensors
expect 0 quantize n.safetensors set -o nq.safetensors --calibration-images 24 --threads 1
prints '^conv2.weight .*int8$'
prints '^fc.weight .*float32: linear layer$'
expect 0 inspect kernels --weights nq.safetensors
[ "$(grep -c ' shift_int8 ' out) $(grep -c ' conv2d_int8 ' out)" = "1 1" ] || complain "it is not shifted"
expect 0 inspect kernels --weights nq.safetensors --device ref
[ "$(grep -c ' shift_int8 ' out) $(grep -c ' conv2d_int8 ' out)" = "0 1" ] || complain "device ref shifts it"
expect 0 quantize n.safetensors set -o all.safetensors --calibration-images 24 --quantize-also 'conv1,fc' --threads 1
prints '^3 of 3 layers quantized, 24 images observed$'
expect 0 inspect kernels --weights all.safetensors
[ "$(grep -c ' conv2d_int8 ' out)" = 3 ] || complain "not three run in int8"
expect 0 quantize n.safetensors set -o other.safetensors --overwrite --calibration-images 24 --quantize-also 'conv1,fc' \
    --keep-wide conv1
prints '^conv1.weight .*float32: --keep-wide$'
expect 2 quantize n.safetensors set -o no.safetensors --calibration-images 8 --quantize-also head
error_names --quantize-also head
expect 0 evaluate set --weights n.safetensors --json --threads 1
in_float=$(value loss)
for run in "nq cpu" "nq ref" "all cpu" "all ref"; do
    expect 0 evaluate set --weights ${run% *}.safetensors --device ${run#* } --json --threads 1
    awk "BEGIN { d = $(value loss) - $in_float; exit !(d != 0 && d < 0.02 && d > -0.02) }" ||
        complain "loss $(value loss), in float32 $in_float"
done
expect 0 convert all.safetensors all.onnx
expect 0 convert all.onnx allback.safetensors
expect 0 evaluate set --weights allback.safetensors --json --threads 1
awk "BEGIN { d = $(value loss) - $in_float; exit !(d < 0.02 && d > -0.02) }" || complain "loss $(value loss) of the file that came back"

mkdir -p broken/train/a broken/train/b
printf 'text' >broken/train/a/x.jpg
cp "$first" broken/train/b/y.jpg
expect 1 quantize $s broken -o no.safetensors --max-bad 0
error_names x.jpg
expect 0 quantize $s broken -o one.safetensors --max-bad 0.5
prints ' 1 images observed$'

# a detector, untrained: its heads stay float32
expect 0 dataset draw boxes --boxes --train 6 --val 4 --size 160 --seed 3
expect 0 init --arch ssd320 --backbone resnet18 --num-classes 3 --image-size 160 --seed 2 -o d.safetensors
expect 2 quantize d.safetensors boxes -o no.safetensors --backbone resnet34
error_names --backbone resnet34
expect 0 quantize d.safetensors boxes -o dq.safetensors --calibration-images 4 -b 2 --threads 1 --log warn \
    --annotations boxes/annotations/instances_train.json
grep -q '^heads.*int8$' out || complain "no layer of the towers is quantized"
grep '^heads.box.weight' out | grep -q 'float32: ' || complain "the last convolution is quantized"
expect 0 evaluate boxes --weights dq.safetensors -b 2 --threads 1
expect 0 detect boxes/val --weights dq.safetensors --threads 1 --json
expect 0 benchmark --mode inference --weights dq.safetensors -b 1 --iters 1 --warmup 0 --json
prints '"precision": "int8"'

# files that are damaged or hostile
sed 's/"input\\": [0-9.e-]*/"input\\": 0/' s.safetensors >zero.safetensors
expect 1 evaluate set --weights zero.safetensors
error_names zero.safetensors

# convert makes float32 weights of it
expect 0 convert q.safetensors wide.pth
expect 0 evaluate set --weights wide.pth --arch resnet18 --image-size 32 --json --threads 1
awk "BEGIN { exit !($(value top1) > $wide - 2.3) }" || complain "top1 $(value top1) of the converted file"
finish
