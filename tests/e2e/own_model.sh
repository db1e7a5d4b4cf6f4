# own_model.sh -- a network of the user's own, as a graph text file, through every verb that takes --model
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
net=$TANDEM_SOURCE/examples/small_cnn.td

expect 0 dataset draw drawn --train 640 --val 160 --size 48 --seed 5
expect 0 train drawn --model "$net" --epochs 8 -b 16 --lr 0.1 --lr-schedule cosine --seed 1 --workspace run --json
prints '"checkpoint": "run/checkpoint.safetensors"'
# 8 classes: chance is 12.5 %
expect 0 evaluate drawn --model "$net" --weights run/checkpoint.safetensors --require 'top1>=50' --json
prints '"n": 160'
expect 4 evaluate drawn --model "$net" --weights run/checkpoint.safetensors --require 'top1>=100.5'
prints '^top1 '
expect 0 classify --model "$net" --weights run/checkpoint.safetensors --topk 3 drawn/val/*/00000.jpg
prints '^drawn/val/dots/00000.jpg$'
prints '^  dots: [0-9.]+%$'
expect 0 classify --model "$net" --weights run/checkpoint.safetensors --json drawn/val/dots/00000.jpg
prints '"probability": 0\.'
expect 0 train drawn --model "$net" --evaluate --resume run/checkpoint.safetensors
prints '^top1 '
expect 0 benchmark --model "$net" -b 8 --iters 3 --warmup 1 --json
prints '"images_per_s": \{'
expect 0 inspect kernels --model "$net" --training -b 4
prints 'conv2d_grad_w'
expect 0 inspect memory --model "$net" --training -b 4
prints '^param_bytes'

# the text's own numbers win over nothing, and disagree aloud
expect 1 train drawn --model "$net" --num-classes 12 --workspace none
says "logits have 10 classes, 12 are asked for"
printf '%%images:f32[1,3,32,32] = input\n%%1 = global_avg_pool %%imagse\n' >wrong.td
expect 1 train drawn --model wrong.td --workspace none
says "wrong.td:2: .*imagse"
expect 1 inspect model --model absent.td
says "absent.td"
[ ! -e none ] || complain "a run that never began left a workspace"
finish
