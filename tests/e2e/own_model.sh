# own_model.sh -- a network of the user's own, as a graph text file, through every verb that takes --model
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
net=$TANDEM_SOURCE/examples/small_cnn.td

expect 0 dataset draw drawn --train 640 --val 160 --size 48 --seed 5
expect 0 train drawn --model "$net" --epochs 8 -b 16 --lr 0.1 --lr-schedule cosine --seed 1 --workspace run --json
prints '"checkpoint": "run/checkpoint.safetensors"'
log_names train: 10 8 "'drawn/train'"
says '^train: .*small_cnn.td, 8 classes, '
expect 0 inspect checkpoint run/checkpoint.safetensors
prints '^  fc.weight +f32\[8,32\]$'
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

# --- other classes: the last layer is made for them, whatever it is called ------------------------
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"
begin="--run-iters 0 --epochs 1 -b 8 --threads 1 --workers 1 --seed 1 --no-checkpoints --training-only --workspace tuned"
drawn few --classes 3 --train 24 --val 6
drawn many --classes 12 --train 24 --val 12
expect 0 train drawn --model "$net" $begin --num-classes 12 --final-weights twelve.safetensors
says 'small_cnn.td, 12 classes, '
for set in few many; do
    k=$(ls $set/train | wc -l)
    for from in "" "--model $net"; do
        expect 0 train $set $from $begin --pretrained-weights run/model_best.safetensors --final-weights tuned.safetensors
        log_names train: 8 "$k" fc
        for name in conv1.weight bn2.running_mean; do
            tensor run/model_best.safetensors $name >a
            tensor tuned.safetensors $name >b
            [ -s a ] || complain "no $name"
            same a b
        done
        expect 0 evaluate $set --weights tuned.safetensors --threads 1 --json
        expect 0 inspect checkpoint tuned.safetensors
        prints "^  fc.weight +f32\\[$k,32\\]$"
        header tuned.safetensors | grep -qF "fc.weight:f32[$k,32]" || complain "the graph in the file has other classes"
    done
done
sed 's/fc\./top./g' "$net" >top.td
expect 0 train drawn --model top.td $begin --final-weights top.safetensors
expect 0 train few $begin --pretrained-weights top.safetensors --freeze 'top.*'
log_names train: 8 3 top
log_names --freeze "'top.*'" top
sed '/^%fc.weight/,$d' "$net" >odd.td
printf '%%u:f32[10,32] = param\n%%v:f32[10,32] = param\n%%a = linear %%9, %%u\n%%b = linear %%9, %%v\n%%y = add %%a, %%b\noutput logits = %%y\n' >>odd.td
expect 1 train few --model odd.td $begin
error_names "'odd.td'" 3 10
expect 0 train few --model odd.td $begin --num-classes 10
says 'odd.td, 10 classes, '
expect 1 train many --model odd.td $begin --num-classes 10
error_names "'many/train'" 12 10
expect 0 train --data-backend synthetic --model "$net" --epochs 1 --prof 1 -b 4 --threads 1 --no-checkpoints --workspace noise
says 'small_cnn.td, 10 classes, '

printf '%%images:f32[1,3,32,32] = input\n%%1 = global_avg_pool %%imagse\n' >wrong.td
expect 1 train drawn --model wrong.td --workspace none
says "wrong.td:2: .*imagse"
expect 1 inspect model --model absent.td
says "absent.td"
[ ! -e none ] || complain "a run that never began left a workspace"
finish
