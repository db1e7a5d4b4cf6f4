# pth.sh -- PyTorch's weight files wherever weights are taken: the same logits as from the plain file, in every
# container, type and generation of names; converted; a training resumed, and given back; and what is refused.  The files are tests/oracle/pth.py's.
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"
files=$TANDEM_SOURCE/tests/data/pth
net="--model $files/tiny.td"
drawn set --classes 4 --train 20 --val 12

# --- read directly: every one of them means the same weights --------------------------------------
expect 0 evaluate set $net --weights "$files/tiny.safetensors" --logits want.safetensors
for weights in tiny.pth checkpoint-zip.pth.tar checkpoint-legacy.pth.tar half-zip.pth half-legacy.pth bf16-protocol4.pt; do
    expect 0 evaluate set $net --weights "$files/$weights" --logits got.safetensors
    same want.safetensors got.safetensors
done
image=$(ls set/val/*/* | head -1)
expect 0 classify $net --weights "$files/tiny.safetensors" --json "$image"
sed 's/, "seconds.*//' out >want
expect 0 classify $net --weights "$files/checkpoint-zip.pth.tar" --json "$image"
sed 's/, "seconds.*//' out | cmp -s - want || complain "classify differs"
cp "$files/half-legacy.pth" named.safetensors # the content decides, not the name
expect 0 evaluate set $net --weights named.safetensors --logits got.safetensors
same want.safetensors got.safetensors
expect 0 inspect checkpoint "$files/checkpoint-legacy.pth.tar"
prints '^  torch.container: legacy$'
prints '^  torch.best_prec1: 77.125$'
prints '^  module.layers.0.0.squeeze.squeeze.weight +f32\[2,8\]$'
expect 0 train set $net --pretrained-weights "$files/half-zip.pth" --epochs 1 -b 4 --lr 0.01 --seed 1 --workspace half
expect 0 train set $net --pretrained-weights "$files/tiny.safetensors" --epochs 1 -b 4 --lr 0.01 --seed 1 --workspace full
# fine-tuning with most of it frozen: what is frozen is PyTorch's to the bit
expect 0 train set $net --pretrained-weights "$files/tiny.pth" --freeze 'conv1*,bn1*,layer1.*' --freeze-bn --epochs 1 -b 4 --lr 0.01 \
    --seed 1 --workspace frozen --final-weights frozen.safetensors
says '^train: frozen: [0-9]+ of [0-9]+ '
for name in conv1.weight bn1.weight bn1.bias bn1.running_mean bn1.running_var layer1.0.conv1.weight layer1.0.bn1.running_var \
    layer1.0.se.fc1.weight layer1.0.se.fc2.bias; do
    tensor "$files/tiny.safetensors" $name >x
    tensor frozen.safetensors $name >y
    [ -s x ] || complain "no $name"
    same x y
done
tensor "$files/tiny.safetensors" fc.weight >x
tensor frozen.safetensors fc.weight >y
if cmp -s x y; then complain "fc.weight was not trained"; fi
expect 0 convert half/checkpoint.safetensors a.safetensors
expect 0 convert full/checkpoint.safetensors b.safetensors
payload a.safetensors >a
payload b.safetensors >b
same a b

# --- converted ------------------------------------------------------------------------------------
for container in zip legacy; do
    expect 0 convert --overwrite "$files/checkpoint-$container.pth.tar" plain.safetensors
    prints '^epoch 90$'
    prints '^best accuracy 77.125 %$'
    expect 0 convert --overwrite --ema "$files/checkpoint-$container.pth.tar" ema.safetensors
    for kind in plain ema; do
        [ $kind = ema ] && same_as=tiny-ema || same_as=tiny
        expect 0 inspect checkpoint "$files/$same_as.safetensors"
        sed -n '/^tensors/,$p' out | sort >want
        expect 0 inspect checkpoint $kind.safetensors
        sed -n '/^tensors/,$p' out | sort | cmp -s - want || complain "$kind: other names or shapes"
        expect 0 evaluate set $net --weights "$files/$same_as.safetensors" --logits want.safetensors
        expect 0 evaluate set $net --weights $kind.safetensors --logits got.safetensors
        same want.safetensors got.safetensors
    done
    # which of the two, without converting
    expect 0 evaluate set $net --weights "$files/checkpoint-$container.pth.tar" --use-ema --logits got.safetensors
    expect 0 evaluate set $net --weights "$files/tiny-ema.safetensors" --logits want.safetensors
    same want.safetensors got.safetensors
    # ONNX of the averages in one step
    expect 0 convert --overwrite --ema "$files/checkpoint-$container.pth.tar" --model "$files/tiny.td" got.onnx
    expect 0 convert --overwrite "$files/tiny-ema.safetensors" --model "$files/tiny.td" want.onnx
    same want.onnx got.onnx
done
expect 1 evaluate set $net --weights "$files/tiny.pth" --use-ema
error_names "tiny.pth'"
expect 1 convert --ema "$files/tiny.pth" --model "$files/tiny.td" none.onnx
error_names "tiny.pth'"
expect 0 convert --overwrite --log io=debug "$files/checkpoint-zip.pth.tar" plain.safetensors
log_names "'optimizer'" dict
log_names "'numpy'" object
expect 0 convert --json "$files/half-zip.pth" half.safetensors
prints '"tensors": 18'
expect 0 inspect checkpoint half.safetensors
prints '^  layer1.0.se.fc1.weight +f16\[2,8,1,1\]$'
expect 0 evaluate set $net --weights "$files/tiny.safetensors" --logits want.safetensors
expect 0 evaluate set $net --weights half.safetensors --logits got.safetensors
same want.safetensors got.safetensors

# --- PyTorch's training goes on here ---------------------------------------------------------------
expect 0 train set $net --resume "$files/checkpoint-zip.pth.tar" --epochs 91 -b 4 --lr 0.01 --seed 1 --workspace resumed
log_names "checkpoint-zip.pth.tar'" SGD 90 77.125
log_names --use-ema
log_names 90 0
log_names 'weight decay' all # one group of parameters
grep -q '^ *momentum: 0.875$' resumed/config.yaml || complain "not the file's momentum"
expect 0 train set $net --resume "$files/checkpoint-legacy.pth.tar" --epochs 91 -b 4 --lr 0.01 --seed 1 --workspace legacy
payload resumed/checkpoint.safetensors >a
payload legacy/checkpoint.safetensors >b
same a b

# --- ours to PyTorch's and back: the same bits as going on from ours ----------------------------------
how="-b 4 --lr 0.01 --momentum 0.875 --seed 1 --use-ema 0.9 --epochs 2"
expect 0 train set $net $how --run-epochs 1 --workspace ours
expect 0 convert ours/checkpoint.safetensors ours.pth.tar
prints '^epoch 1$'
expect 0 convert ours/checkpoint.safetensors twice --to pth
same ours.pth.tar twice
expect 0 inspect checkpoint ours.pth.tar
prints '^  layers.0.0.squeeze.squeeze.weight +f32\[2,8\]$'
for checkpoint in ours/checkpoint.safetensors ours.pth.tar; do
    expect 0 train set $net $how --resume $checkpoint --no-checkpoints --final-state --final-weights w.safetensors --workspace on
    payload w.safetensors >"$(basename $checkpoint).payload"
    expect 0 evaluate set $net --weights $checkpoint --use-ema --logits "$(basename $checkpoint).logits"
done
same checkpoint.safetensors.payload ours.pth.tar.payload
same checkpoint.safetensors.logits ours.pth.tar.logits
for optimizer in adam adamw lamb; do # their means, squares and steps; other options than the defaults
    how="-b 4 --lr 0.001 --optimizer $optimizer --adam-beta1 0.8 --adam-eps 1e-5 --wd 0.01 --seed 1 --epochs 2"
    expect 0 train set $net $how --run-epochs 1 --workspace $optimizer
    expect 0 convert $optimizer/checkpoint.safetensors $optimizer.pth.tar
    for checkpoint in $optimizer/checkpoint.safetensors $optimizer.pth.tar; do
        expect 0 train set $net -b 4 --lr 0.001 --seed 1 --epochs 2 --resume $checkpoint --no-checkpoints --final-state \
            --final-weights w.safetensors --workspace on
        payload w.safetensors >"$(basename $checkpoint).payload"
    done
    same checkpoint.safetensors.payload $optimizer.pth.tar.payload
done
expect 0 convert "$files/tiny.safetensors" out.pth
expect 0 convert out.pth back.safetensors
for name in conv1.weight layer1.0.se.fc2.weight bn1.num_batches_tracked fc.bias; do
    tensor "$files/tiny.safetensors" $name >x
    tensor back.safetensors $name >y
    [ -s x ] || complain "no $name"
    same x y
done
expect 0 inspect checkpoint out.pth
prints '^  layer1.0.se.fc1.weight +f32\[2,8,1,1\]$'
expect 0 evaluate set $net --weights out.pth --logits got.safetensors
same want.safetensors got.safetensors
expect 0 convert --names reference --ema ours/checkpoint.safetensors out.pt
expect 0 evaluate set $net --weights out.pt --logits got.safetensors
expect 0 evaluate set $net --weights ours/checkpoint.safetensors --use-ema --logits want.safetensors
same want.safetensors got.safetensors

# --- what a file says of its network goes along, there and back: evaluated alike, with no option -----------
expect 0 train set --arch resnet18 --image-size 32 -b 4 --lr 0.01 --seed 1 --use-ema 0.9 --epochs 1 --run-iters 2 --threads 1 --workspace small
for in in small/checkpoint small/model_best; do
    [ -e $in.safetensors ] || continue
    expect 0 evaluate set --weights $in.safetensors --logits want.safetensors
    cp out want.txt
    for out in way.pth way.pth.tar; do
        expect 0 convert --overwrite $in.safetensors $out
        expect 0 evaluate set --weights $out --logits got.safetensors
        same want.safetensors got.safetensors
        expect 0 convert --overwrite $out again.safetensors
        expect 0 evaluate set --weights again.safetensors --logits got.safetensors
        same want.safetensors got.safetensors
        expect 0 inspect checkpoint again.safetensors
        prints '^  tandem.image_size: 32$'
        prints '^  tandem.arch: resnet18$'
        prints '^  tandem.classes: \["'
    done
done
expect 0 convert --overwrite small/checkpoint.safetensors way.pth.tar
says 'small/checkpoint.safetensors.*options.*seed' # what such a file has no place for
expect 0 classify --json $(ls set/val/*/* | head -1) --weights way.pth.tar
prints '"name": "[a-z]'
expect 0 convert --overwrite --image-size 64 small/checkpoint.safetensors way.pth
expect 0 inspect checkpoint way.pth
prints '^  tandem.image_size: 64$'
# a file that names no network: the message says which one its tensors are of
expect 0 init --arch resnet18 --num-classes 4 --image-size 32 -o bare.safetensors
safetensors nameless.safetensors "$(header bare.safetensors | sed 's/"__metadata__":{[^}]*},//')"
payload bare.safetensors >>nameless.safetensors
for weights in nameless.safetensors nameless.pth; do
    [ -e $weights ] || expect 0 convert nameless.safetensors nameless.pth
    expect 1 classify "$(ls set/val/*/* | head -1)" --weights $weights
    error_names "'resnet18'" --arch
done
expect 1 classify "$(ls set/val/*/* | head -1)" --weights "$files/tiny.pth"
error_names --arch
# a file that names no size: 224, and the log says so
expect 0 classify --arch resnet18 --num-classes 4 --threads 1 $(ls set/val/*/* | head -1) --weights nameless.pth
says 'image size 224'
expect 0 classify --arch resnet18 --num-classes 4 --threads 1 --image-size 32 $(ls set/val/*/* | head -1) --weights nameless.pth
if grep -q 'image size 224' err; then complain "a size that was given is not the one used"; fi
expect 0 convert --overwrite --image-size 32 nameless.safetensors nameless.pth
expect 0 classify --arch resnet18 --num-classes 4 --threads 1 $(ls set/val/*/* | head -1) --weights nameless.pth
if grep -q 'image size 224' err; then complain "convert --image-size was not stored"; fi
tidy .

# --- a file is not replaced without --overwrite, in either direction and whichever way it is named -----------
echo old >old.safetensors
cp old.safetensors old.pth
cp old.safetensors old.onnx
for out in old.safetensors old.pth old.onnx; do
    expect 1 convert "$files/tiny.safetensors" --model "$files/tiny.td" $out
    error_names "'$out'" --overwrite
    expect 1 convert --checkpoint-path "$files/tiny.safetensors" --model "$files/tiny.td" --weight-path $out
    error_names "'$out'" --overwrite
    [ "$(cat $out)" = old ] || complain "'$out' was replaced"
    expect 0 convert "$files/tiny.safetensors" --model "$files/tiny.td" $out --overwrite
    if [ "$(head -c 3 $out)" = old ]; then complain "'$out' was not replaced"; fi
done
expect 0 convert "$files/tiny.safetensors" --to onnx --model "$files/tiny.td"
prints '^tiny.onnx$'
expect 1 convert "$files/tiny.safetensors" --to onnx --model "$files/tiny.td"
error_names "'tiny.onnx'"

# --- refused --------------------------------------------------------------------------------------
expect 1 convert --ema "$files/tiny.pth" none.safetensors
error_names "tiny.pth'"
expect 1 convert --ema full/checkpoint.safetensors none.safetensors
error_names "'full/checkpoint.safetensors'"
expect 1 train set $net --resume "$files/tiny.pth" --workspace none
error_names "tiny.pth'" "'optimizer'" --pretrained-weights
expect 1 train set $net --resume "$files/checkpoint-zip.pth.tar" --epochs 89 --workspace none
error_names "checkpoint-zip.pth.tar'" 90 --epochs 89
expect 1 train set --arch resnet18 --resume "$files/checkpoint-zip.pth.tar" --epochs 91 --image-size 32 -b 4 --workspace none
error_names "'resnet18'" checkpoint-zip.pth.tar
expect 1 convert "$files/float8.pth" none.safetensors
error_names "'f8'" float8_e4m3fn
expect 2 convert "$files/tiny.pth" out.txt
error_names "'out.txt'"
expect 2 convert "$files/tiny.pth" out.onnx --to pth
error_names pth "'out.onnx'"
expect 2 convert --names reference "$files/tiny.pth" none.safetensors
error_names --names "'none.safetensors'"
expect 2 convert --names reference "$files/tiny.pth" --model "$files/tiny.td" none.onnx
error_names --names OUT ONNX
expect 1 convert absent.pth none.safetensors
error_names "'absent.pth'"
expect 1 convert set none.safetensors
error_names "'set'" folder
printf '\200\002cos\nsystem\nX\010\000\000\000touch pw\205R.' >bare.pth
expect 1 convert bare.pth none.safetensors
error_names "'bare.pth'" torch.save
{
    head -c 137 "$files/small-legacy.pth"
    printf '\200\002cos\nsystem\nX\010\000\000\000touch pw\205R.'
} >code.pth
expect 1 convert code.pth none.safetensors
error_names "'os.system'"
for verb in "evaluate set $net --weights" "classify $net $image --weights" "inspect checkpoint"; do
    expect 1 $verb code.pth
    says "os.system"
done
[ ! -e pw ] || complain "code of a file was run"
[ ! -e none ] || complain "a run that never began left a workspace"
[ ! -e none.safetensors ] || complain "a refused file left a result"
head -c 2000 "$files/checkpoint-zip.pth.tar" >cut.pth
expect 1 convert cut.pth none.safetensors
error_names "'cut.pth'" cut
: >empty.pth
expect 1 convert empty.pth none.safetensors
error_names "'empty.pth'"
finish
