# quantize_onnx.sh -- quantized networks as ONNX files in QDQ form, and weights of ONNX files
# ctest: timeout 600
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

# has FILE TEXT, lacks FILE TEXT: the bytes of a file have the text in them, or not
has() {
    grep -aFq -e "$2" "$1" || complain "$1 does not have '$2'"
}
lacks() {
    if grep -aFq -e "$2" "$1"; then complain "$1 has '$2'"; fi
}
bytes() {
    wc -c <"$1"
}

# a classifier: the file holds the integers; what is read back of it computes the same
drawn set --train 24 --val 8
expect 0 init --arch resnet18 --image-size 32 --num-classes 8 --seed 3 -o w.safetensors
expect 0 quantize w.safetensors set -o q.safetensors --calibration-images 8 --threads 1
expect 0 convert q.safetensors q.onnx --json
prints '"difference": [0-9.e-]*}$'
sed 's/.*"difference": \([0-9.e+-]*\)}/\1/' out | awk '{ exit !($1 < 1e-4) }' || complain "the file differs"
for name in QuantizeLinear DequantizeLinear layer4.1.conv2.weight_scale layer1.0.conv1.bias tandem.quantization; do
    has q.onnx $name
done
lacks q.onnx bn1.running_mean
expect 0 convert q.safetensors wide.onnx --no-qdq
lacks wide.onnx QuantizeLinear
lacks wide.onnx tandem.quantization
[ $(($(bytes q.onnx) * 3)) -lt "$(bytes wide.onnx)" ] || complain "$(bytes q.onnx) bytes in QDQ form"
expect 0 convert q.safetensors 21.onnx --opset 21 --batch-size 2 --export-preprocessing bytes --probabilities
expect 2 convert q.safetensors no.onnx --half-weights
error_names --half-weights q.safetensors --no-qdq

# weights and ranges of the file
expect 0 convert q.onnx back.safetensors
prints '^back.safetensors$'
[ "$(bytes back.safetensors)" -lt $(($(bytes q.onnx) * 11 / 10)) ] || complain "the weights came back as floats"
expect 0 inspect quantization q.safetensors
cp out ranges
expect 0 inspect quantization back.safetensors
cmp -s out ranges || complain "other ranges came back"
expect 0 convert back.safetensors again.onnx
[ "$(bytes again.onnx)" = "$(bytes q.onnx)" ] || complain "another file is written of the weights that came back"
for w in q back; do
    expect 0 evaluate set --weights $w.safetensors --precision fp32 --json --threads 1
    sed 's/.*"loss": \([0-9.]*\).*/\1/' out >$w.loss
done
paste q.loss back.loss | awk '{ d = $1 - $2; exit !(d < 1e-4 && d > -1e-4) }' || complain "losses $(cat q.loss back.loss)"

# floats, a network of one's own, a detector whose towers share filters between norms
expect 0 convert w.safetensors float.onnx
expect 0 convert float.onnx float.safetensors --json
prints '"tensors": [0-9]+\}$'
expect 0 convert float.safetensors again.onnx --overwrite
same again.onnx float.onnx
small_model small.td 32 8
expect 0 init --model small.td --seed 2 -o s.safetensors
expect 0 quantize s.safetensors set -o sq.safetensors --calibration-images 8 --threads 1
expect 0 convert sq.safetensors s.onnx
expect 0 convert s.onnx sback.safetensors
expect 0 evaluate set --weights sback.safetensors --threads 1
expect 0 dataset draw boxes --boxes --train 3 --val 2 --size 160 --seed 3
expect 0 init --arch ssd320 --backbone resnet18 --num-classes 3 --image-size 160 --seed 2 -o d.safetensors
expect 0 quantize d.safetensors boxes -o dq.safetensors --calibration-images 2 -b 2 --threads 1
grep '^fpn.lateral3.weight' out | grep -q 'int8$' || complain "a convolution with a bias is not quantized"
expect 0 convert dq.safetensors d.onnx
has d.onnx heads.box_tower.1.conv.weight_5_scale
expect 0 convert d.onnx dback.safetensors
expect 0 convert dback.safetensors again.onnx --overwrite
expect 0 evaluate boxes --weights dback.safetensors -b 2 --threads 1

# files that are not ours, damaged or hostile
sed 's/tandem\.arch/tandem.erch/' q.onnx >other.onnx
expect 1 convert other.onnx no.safetensors
error_names other.onnx
sed 's/{"weight": "layer1.0.conv1.weight", "input": [0-9]/{"weight": "layer1.0.conv1.weight", "input": 0/' q.onnx >range.onnx
expect 1 convert range.onnx no.safetensors
error_names range.onnx layer1.0.conv1.weight tandem.quantization
sed 's/resnet18/resnet34/' q.onnx >arch.onnx
expect 1 convert arch.onnx no.safetensors
error_names arch.onnx
head -c 100000 q.onnx >short.onnx
expect 1 convert short.onnx no.safetensors
error_names short.onnx
expect 2 convert q.onnx no.pth
error_names q.onnx no.pth
expect 2 convert q.onnx no.safetensors --ema
error_names q.onnx
expect 1 convert q.onnx back.safetensors
error_names back.safetensors
[ ! -e no.safetensors ] && [ ! -e no.pth ] && [ ! -e no.onnx ] || complain "a failure wrote a file"
finish
