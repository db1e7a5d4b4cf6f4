# onnx.sh -- tandem convert to ONNX: of a trained network, with its options; what cannot be is said, and nothing is lost
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"
net=$TANDEM_SOURCE/examples/small_cnn.td

# holds FILE TEXT: the bytes of a file have the text in them
holds() {
    grep -aFq -e "$2" "$1" || complain "$1 does not hold '$2'"
}

drawn set --train 128 --val 32
expect 0 train set --model "$net" --epochs 1 -b 16 --lr 0.1 --seed 1 --workspace run
expect 0 convert run/checkpoint.safetensors net.onnx
prints '^read back.*logits .*[0-9.]+e-[0-9]+'
prints '^[0-9]+ parameters, [0-9.]+ GMAC \([0-9.]+ GFLOP\)'
prints '^net.onnx$'
holds net.onnx images
holds net.onnx logits
holds net.onnx conv1.weight
holds net.onnx tandem.classes
holds net.onnx '"dots"'
if grep -aFq momentum net.onnx; then complain "velocities are in the file"; fi

expect 0 convert --overwrite run/checkpoint.safetensors net.onnx --opset 21 --batch-size 3 --export-preprocessing bytes \
    --probabilities --half-weights --json
prints '^\{"input": "run/checkpoint.safetensors", "output": "net.onnx", "arch": ".*", "opset": 21, "nodes": [0-9]+, '
prints '"parameters": [0-9]+, "macs": [0-9]+, "flops": [0-9]+, "difference": [0-9.e-]+\}$'
holds net.onnx Transpose
holds net.onnx probabilities
expect 0 convert run/checkpoint.safetensors quick.onnx --no-verify
prints '^quick.onnx$'
if grep -q 'read back' out; then complain "it was verified"; fi

# the name follows from the weights' where none is given: here, ending replaced
for name in a.b.safetensors bare c.pth d.pth.tar e.pt f.bin; do
    cp run/checkpoint.safetensors "run/$name"
    rm -f ./*.onnx
    expect 0 convert "run/$name" --to onnx --no-verify
    wanted=$(echo "$name" | sed -e 's/\.pth\.tar$//' -e 's/\.\(safetensors\|pth\|pt\|bin\)$//').onnx
    [ -s "$wanted" ] || complain "it wrote $(ls ./*.onnx), wanted $wanted"
done

# squeeze-and-excitation in both forms; an architecture that the file itself names
expect 0 init --model "$TANDEM_SOURCE/tests/data/onnx_ops.td" -o se.safetensors
expect 0 convert se.safetensors se.onnx --opset 13
holds se.onnx se.fc1/Conv
expect 0 convert --overwrite se.safetensors se.onnx --se-layers linear
holds se.onnx se.fc1/Gemm
rm -f se.onnx
expect 0 init --arch resnet18 --image-size 64 --num-classes 5 -o r18.safetensors
expect 0 convert r18.safetensors r18.onnx
holds r18.onnx layer4.1.conv2/Conv

# images of any size, unless the network does not allow it, or --image-size fixes it
prints '^images of any height and width$'
holds r18.onnx height
expect 0 convert r18.safetensors r18.onnx --overwrite --json
prints '"image_size": 0,'
expect 0 classify set/val/dots/* --weights r18.onnx # at 64, the size that the file names
expect 0 classify set/val/dots/* --weights r18.onnx --image-size 72
expect 0 convert r18.safetensors r18.onnx --overwrite --export-preprocessing bytes
prints '^images of any height and width$'
expect 0 convert r18.safetensors r18.onnx --overwrite --image-size 96
prints '^images of 96 x 96$'
if grep -aFq height r18.onnx; then complain "the size is not fixed"; fi
cat >flat.td <<'END'
%images:f32[1,3,8,8] = input
%w:f32[4,192] = param {init=normal, scale=0.1}
%1 = reshape %images {shape=1:192}
%y = linear %1, %w
output logits = %y
END
expect 0 init --model flat.td -o flat.safetensors
expect 0 convert flat.safetensors flat.onnx
prints '^images of 8 x 8: '
expect 0 convert flat.safetensors flat.onnx --overwrite --json
prints '"image_size": 8,'
expect 0 convert r18.safetensors r18.onnx --overwrite

# detectors: decoded and suppressed in the file, or all boxes; what is counted is what inspect counts
expect 0 init --arch ssd320 --backbone resnet18 --image-size 160 --num-classes 2 --seed 2 -o det.safetensors
expect 0 convert det.safetensors det.onnx --json
prints '"arch": "ssd320", .*"parameters": [0-9]+, "macs": [0-9]+, "flops": [0-9]+, "difference": [0-9.e-]+\}$'
counted=$(sed 's/.*\("parameters": [0-9]*\).*\("macs": [0-9]*\).*/\1 \2/' out)
expect 0 inspect model --arch ssd320 --backbone resnet18 --image-size 160 --num-classes 2 -b 1 --json
inspected=$(sed 's/.*\("parameters": [0-9]*\), "trainable_tensors": [0-9]*, \("macs": [0-9]*\)}$/\1 \2/' out)
[ "$counted" = "$inspected" ] || complain "convert counts $counted, inspect $inspected"
for name in detection_boxes detection_scores detection_classes num_detections NonMaxSuppression tandem.backbone; do
    holds det.onnx $name
done
expect 0 convert det.safetensors raw.onnx --no-nms --opset 21 --batch-size 1 --export-preprocessing bytes --half-weights
holds raw.onnx detections/boxes
if grep -aFq NonMaxSuppression raw.onnx; then complain "--no-nms suppresses"; fi
expect 0 convert det.safetensors few.onnx --min-score 0.009 --nms-iou 0.5 --max-per-class 3 --max-boxes 5
expect 0 init --arch ssd300 --backbone resnet18 --num-classes 2 --seed 2 -o s300.safetensors
expect 0 convert s300.safetensors s300.onnx --max-boxes 20
holds s300.onnx ScatterElements
expect 0 init --arch ssdlite320_mobilenet_v3_large --image-size 96 --num-classes 2 --seed 2 -o lite.safetensors
expect 0 convert lite.safetensors lite.onnx --max-boxes 20 --export-preprocessing bytes
holds lite.onnx NonMaxSuppression
expect 0 convert lite.safetensors lite_raw.onnx --no-nms
expect 0 init --arch retinanet_resnet50_fpn --image-size 64 --num-classes 2 --seed 2 -o retina.safetensors
expect 0 convert retina.safetensors retina.onnx --max-boxes 20 --min-score 0.001
holds retina.onnx NonMaxSuppression
rm -f lite.safetensors retina.safetensors retina.onnx
tidy .
expect 2 convert det.safetensors few.onnx --probabilities
error_names --probabilities classifier "'det.safetensors'" detector
expect 2 convert det.safetensors few.onnx --no-nms --max-boxes 5
error_names --max-boxes --no-nms
expect 2 convert r18.safetensors few.onnx --max-boxes 5
error_names --max-boxes detector "'r18.safetensors'" classifier
expect 2 convert r18.safetensors few.onnx --no-nms
error_names --no-nms detector "'r18.safetensors'" classifier
expect 1 convert --overwrite det.safetensors few.onnx --nms-iou 0
error_names ONNX NonMaxSuppression 0 1
rm -f det.safetensors s300.safetensors ./*.onnx

# what was there stays when the new file cannot be
echo old >kept.onnx
expect 1 convert r18.safetensors kept.onnx --overwrite --arch resnet50
says "r18.safetensors.*layer1"
expect 1 convert absent.safetensors kept.onnx --overwrite
says "absent.safetensors"
printf 'no tensors' >text.safetensors
expect 1 convert text.safetensors kept.onnx --overwrite
says "text.safetensors"
[ "$(cat kept.onnx)" = old ] || complain "the old file is gone"
(ulimit -f 8; expect 1 convert r18.safetensors kept.onnx --overwrite; error_names "'kept.onnx'"; exit $bad) || bad=1
[ "$(cat kept.onnx)" = old ] || complain "the old file is gone after a full disk"
tidy .

# layer norms: opset 17 unless another one is given
cat >norm.td <<'END'
%images:f32[1,3,8,8] = input
%gamma:f32[3] = param {init=ones}
%beta:f32[3] = param
%1 = global_avg_pool %images
%y, %mean, %scale = layer_norm %1, %gamma, %beta
output logits = %y
END
expect 0 init --model norm.td -o norm.safetensors
expect 0 convert norm.safetensors norm.onnx --json
prints '"opset": 17,'
expect 0 convert norm.safetensors norm.onnx --overwrite --opset 18 --json
prints '"opset": 18,'
expect 1 convert norm.safetensors norm.onnx --overwrite --opset 16
error_names layer_norm "requires --opset 17"

# an op that ONNX has no counterpart of
cat >odd.td <<'END'
%images:f32[1,3,8,8] = input
%w:f32[2,3] = param {init=normal, scale=1}
%1 = global_avg_pool %images
%2 = linear %1, %w
%y = broadcast_like %2, %2 {by=2}
output logits = %y
END
expect 0 init --model odd.td -o odd.safetensors
expect 1 convert odd.safetensors odd.onnx
error_names broadcast_like ONNX
[ ! -e odd.onnx ] || complain "a failed export left a file"

expect 1 convert se.safetensors absent/se.onnx
says "absent"
expect 2 convert se.safetensors run
says "run"
expect 2 convert se.safetensors se.tflite
says "se.tflite"
expect 2 convert se.safetensors se.onnx --opset 12
says "opset"
expect 2 convert se.safetensors out.safetensors --opset 17
error_names out.safetensors
expect 2 convert se.safetensors
says "OUT"
expect 2 convert se.safetensors se.onnx --export-preprocessing resize
error_names normalised float bytes
finish
