# ctest: timeout 180
# model_file.sh -- a network of the user's own, as a graph text: it trains, is evaluated and classifies, travels inside
# its weight files, and what `inspect graph` prints of a built-in network is such a text too
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

fixed="--threads 1 --workers 1 --seed 1"
sed 's/\[10,32\]/[4,32]/; s/fc.bias:f32\[10\]/fc.bias:f32[4]/' "$TANDEM_SOURCE/examples/small_cnn.td" >own.td
drawn set --classes 4 --train 200 --val 40

# an untrained one fails, a trained one does much better than chance
expect 0 init --model own.td --seed 1 -o fresh.safetensors
expect 4 evaluate set --weights fresh.safetensors --require 'top1>=60'
expect 0 train set --model own.td $fixed -b 10 --epochs 20 --lr 0.02 --lr-schedule cosine --workspace run --require 'top1>=60'
log_names train: own.td 4 200 '32 x 32' 10 1
expect 0 evaluate set --model own.td --weights run/checkpoint.safetensors --require 'top1>=60' --json
prints '"n": 40, '
sed -n 's/.*"n"/"n"/; s/, "images_per_s.*//p' out >counts

# the weight file brings the network with it
rm own.td
for weights in run/checkpoint.safetensors weights.safetensors; do
    [ -e $weights ] || expect 0 convert run/checkpoint.safetensors $weights
    expect 0 evaluate set --weights $weights --json
    [ "$(sed -n 's/.*"n"/"n"/; s/, "images_per_s.*//p' out)" = "$(cat counts)" ] || complain "not the counts of --model"
done
image=$(ls set/val/circle/* | head -1)
expect 0 classify --weights weights.safetensors "$image" --json
prints '"name": "circle", "probability"'
expect 0 train set --resume run/checkpoint.safetensors --epochs 21 --workspace run
log_names train: "'run/checkpoint.safetensors'" 'epoch 20' 'iteration 0'

# other sizes and batches than the text's
expect 0 evaluate set --weights weights.safetensors --image-size 48 -b 7
prints '^images +40$'

# a built-in network printed, read back, and trained the same way; what is frozen in the text is its forward part
expect 0 inspect graph --arch resnet18 --num-classes 4 --image-size 32
cp out resnet18.td
common="$fixed -b 10 --epochs 1 --lr 0.01 --no-checkpoints --training-only --run-iters 3 --workspace w"
expect 0 init --arch resnet18 --num-classes 4 --seed 5 -o r18.safetensors
expect 0 train set --arch resnet18 --image-size 32 $common --pretrained-weights r18.safetensors --final-weights a.safetensors
expect 0 train set --model resnet18.td $common --pretrained-weights r18.safetensors --final-weights b.safetensors
payload a.safetensors >a && payload b.safetensors >b
same a b

# head without a bias; weights of another text are refused by name
sed '/^%fc.bias/d; s/, %fc.bias//' "$TANDEM_SOURCE/examples/small_cnn.td" >bare.td
expect 0 init --model bare.td -o bare.safetensors
expect 1 evaluate set --model bare.td --weights weights.safetensors
says "^tandem: error: .*(fc|classes)"
expect 0 inspect graph --model bare.td
prints '^output logits = '

# an empty file is called empty by every verb
: >empty.td
printf '# nothing\n\n' >comment.td
for net in empty.td comment.td; do
    expect 1 inspect graph --model $net
    error_names $net empty
    expect 1 train set --model $net --run-iters 1 --workspace empty
    error_names $net empty
    expect 1 evaluate set --model $net --weights weights.safetensors
    error_names $net empty
    expect 1 benchmark --model $net --iters 1
    error_names $net empty
done

# parameters are float32; half is for mixed precision to make
sed 's/^%fc.weight:f32\(.*\)/%half:bf16\1\n%fc.weight = cast %half {to=f32}/' "$TANDEM_SOURCE/examples/small_cnn.td" >half.td
expect 1 inspect graph --model half.td
error_names "'half'" bf16 f32

# a graph of 900,000 nodes in a weight file is refused before it is built
chain=$(awk 'BEGIN { for (i = 2; i <= 900000; i++) printf "%%%d = relu %%%d\\n", i, i - 1 }')
safetensors huge.safetensors "{\"__metadata__\":{\"tandem.graph\":\"%1:f32[1,3,8,8] = input\\n$chain\"}}"
expect 1 classify --weights huge.safetensors "$image"
error_names graph:20001 20000
finish
