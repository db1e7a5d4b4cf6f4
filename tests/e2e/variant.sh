# ctest: timeout 180
# variant.sh -- the TensorFlow variant from a seed to a class: its weight files say which variant they are, resuming and
# converting keep it, 1001 outputs come by themselves, and another variant than the weights' is told
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

drawn set --classes 4 --train 24 --val 8
fixed="--arch resnet18 --image-size 32 --threads 1 --workers 1 --seed 1 -b 8 --lr 0.02 --training-only"

expect 0 init --arch resnet18 --variant tensorflow --image-size 32 --seed 1 -o tf.safetensors
expect 0 inspect checkpoint tf.safetensors
prints 'tandem.variant: tensorflow'
prints 'tandem.num_classes: 1001'
prints '^  fc.weight +f32\[1001,512\]$'
expect 0 init --arch resnet18 --variant pytorch --image-size 32 --seed 1 -o pt.safetensors
expect 0 init --arch resnet18 --image-size 32 --seed 1 -o plain.safetensors
same pt.safetensors plain.safetensors
expect 0 inspect checkpoint pt.safetensors
prints '^  fc.weight +f32\[1000,512\]$'
if grep -q tandem.variant out; then complain "a file of the usual variant names it"; fi

# training and going on: the same as in one piece
expect 0 train set $fixed --variant tensorflow --epochs 2 --workspace whole --final-weights whole.safetensors
says 'resnet18, 1001 classes, 24 images'
expect 0 train set $fixed --variant tensorflow --epochs 2 --run-epochs 1 --workspace parts
expect 0 train set --resume parts/checkpoint.safetensors --run-epochs 2 --workspace parts --final-weights parts.safetensors
payload whole.safetensors >a && payload parts.safetensors >b
same a b
expect 0 train set $fixed --variant tensorflow --num-classes 4 --epochs 1 --run-iters 1 --workspace four
says 'resnet18, 4 classes'

# files know what they are: unnamed, and with the architecture named
expect 0 evaluate set --weights whole.safetensors --json
sed -n 's/.*"n"/"n"/; s/, "images_per_s.*//p' out >counts
expect 0 convert whole/checkpoint.safetensors converted.safetensors
for more in "" "--variant tensorflow" "--arch resnet18" "--arch resnet18 --variant tensorflow --device ref"; do
    expect 0 evaluate set --weights converted.safetensors $more --json
    [ "${more%ref}" != "$more" ] || [ "$(sed -n 's/.*"n"/"n"/; s/, "images_per_s.*//p' out)" = "$(cat counts)" ] ||
        complain "not the counts of the first evaluation"
done
expect 0 classify --weights converted.safetensors "$(ls set/val/circle/* | head -1)" --json
prints '"probability"'

# and the other variant is told
expect 2 evaluate set --weights converted.safetensors --variant pytorch
error_names "'tensorflow'" "'pytorch'"
expect 2 evaluate set --weights pt.safetensors --variant tensorflow
error_names "'pytorch'" "'tensorflow'"
expect 2 classify --weights pt.safetensors --variant tensorflow "$(ls set/val/circle/* | head -1)"
error_names "'tensorflow'"
expect 2 train set $fixed --epochs 1 --pretrained-weights tf.safetensors --variant pytorch --workspace no
error_names "'pytorch'"
expect 0 train set $fixed --epochs 1 --run-iters 1 --pretrained-weights tf.safetensors --workspace tuned
says 'resnet18, 1001 classes'
expect 0 inspect checkpoint tuned/checkpoint.safetensors
prints 'tandem.variant: tensorflow'
expect 2 evaluate set --weights pt.safetensors --variant caffe
says "tensorflow"
expect 2 inspect graph --model "$TANDEM_SOURCE/examples/small_cnn.td" --variant tensorflow
error_names "'tensorflow'"

# an ONNX file has the uneven padding, and is read back as what it was
expect 0 convert converted.safetensors tf.onnx
prints '^read back.*logits .*[0-9.]+e-0[5-9]'
grep -aFq tandem.variant tf.onnx || complain "tf.onnx does not name the variant"

# mixed precision takes the uneven padding too
expect 0 evaluate set --weights converted.safetensors --precision bf16
expect 0 inspect graph --arch resnet18 --variant tensorflow --image-size 32
prints 'conv2d %images, %conv1.weight \{stride=2, pad=2, pad_extra=1\}'
prints 'max_pool2d .*\{kernel=3, stride=2, pad_extra=1\}'
expect 0 inspect graph --arch resnet18 --image-size 32
if grep -q pad_extra out; then complain "the usual variant has uneven padding"; fi
finish
