# ctest: timeout 300
# loss_scale.sh -- training with loss scaling: a step that overflows halves the scale once and changes nothing else, good
# steps double it, kill and resume keep it to the bit, too many skipped steps end the run; and a case that f16 can
# train with loss scaling only
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_background.sh"

# --- six batches of four images, and bad ones whose pixels are all huge -------------------------
side=16
row=$((3 * side * side * 4))
small_model small.td $side 4
drawn set --classes 4 --train 24 --val 4
expect 0 dataset check set/train --image-size $side --dump-tensors all.safetensors
at_images=$(header all.safetensors | sed 's/.*"images":{[^}]*"data_offsets":\[\([0-9]*\),.*/\1/')
at_labels=$(header all.safetensors | sed 's/.*"labels":{[^}]*"data_offsets":\[\([0-9]*\),.*/\1/')
payload all.safetensors >all.bytes
for b in 0 1 2 3 4 5; do
    # rows b, b + 6, ...: a batch has several classes
    : >$b.images
    : >$b.labels
    for r in 0 6 12 18; do
        tail -c +$((1 + at_images + (b + r) * row)) all.bytes | head -c $row >>$b.images
        tail -c +$((1 + at_labels + (b + r) * 8)) all.bytes | head -c 8 >>$b.labels
    done
done

# huge NAME HEX: a batch of that 32-bit pattern
huge() {
    floats "$2" >$1.images
    while [ "$(wc -c <$1.images)" -lt $((4 * row)) ]; do
        cat $1.images $1.images >twice
        mv twice $1.images
    done
    head -c $((4 * row)) $1.images >twice && mv twice $1.images
    cp 0.labels $1.labels
}
huge bad 7149f2ca   # 1e30: more than f16 holds
huge worse 7f61b1e6 # 3e38: sums of them are more than f32 holds

# batches FILE NAME...: a data set of these batches in order
batches() {
    file=$1
    shift
    safetensors "$file" "$(tensors_header $(($# * 4)) 3 $side $side)"
    for b; do cat $b.images >>"$file"; done
    for b; do cat $b.labels >>"$file"; done
}
batches data_six.safetensors 0 1 2 3 4 5
batches data_seven32.safetensors 0 1 worse 2 3 4 5
batches data_seven16.safetensors 0 1 bad 2 3 4 5
batches data_all_bad.safetensors worse worse worse worse worse worse

# state FILE MEMBER: a number of a checkpoint's state
state() {
    header "$1" | sed 's/.*"tandem.state":"\(.*[^\\]\)".*/\1/; s/\\//g; s/.*"'"$2"'": "*\([-+.0-9a-z]*\).*/\1/'
}

# whole_state FILE: all of it
whole_state() {
    header "$1" | sed 's/.*"tandem.state":"\([^}]*}}\)".*/\1/; s/\\//g'
}

wants_state() {
    [ "$(state "$1" "$2")" = "$3" ] || complain "$2 of '$1' is $(state "$1" "$2"), wanted $3"
}

same_state() {
    [ "$(whole_state "$1")" = "$(whole_state "$2")" ] ||
        complain "state of '$1' $(whole_state "$1"), of '$2' $(whole_state "$2")"
}

whole="--data-backend tensors --model small.td --threads 1 --workers 1 --seed 3 --lr 0.05 -b 4 -p 1 --final-state"

# trains NAME DATA OPTIONS...: one epoch unless told; the weights to NAME.safetensors, the run to NAME/
trains() {
    name=$1
    data=$2
    shift 2
    expect 0 train data_$data.safetensors $whole --epochs 1 --workspace $name --overwrite --final-weights $name.safetensors --json "$@"
}

# --- float32: a power of two changes no bit ------------------------------------------------------
for device in ref cpu; do
    trains plain six --device $device
    prints '"skipped_steps": 0, "loss_scale": 1, '
    wants_state plain/checkpoint.safetensors kind none
    trains fixed six --device $device --static-loss-scale 1024
    log_names train: 'loss scale' 1024
    log_names 'iteration 6' 'loss scale' 1024
    prints '"skipped_steps": 0, "loss_scale": 1024, '
    same plain.safetensors fixed.safetensors
    trains moving six --device $device --dynamic-loss-scale --loss-scale-interval 2
    log_names train: 'loss scale' 32768 2
    log_names 'iteration 2' 'loss scale' 32768
    log_names 'iteration 3' 'loss scale' 65536
    log_names 'iteration 5' 'loss scale' 131072
    prints '"skipped_steps": 0, "loss_scale": 262144, '
    same plain.safetensors moving.safetensors
done
report_is_sound moving/experiment_raport.json
[ "$(metric moving/experiment_raport.json '0, 5' train.grad_scale)" = 131072 ] || complain "no scale in the report"
[ "$(metric moving/experiment_raport.json 0 train.grad_scale)" = 76458.6667 ] || complain "no mean scale in the report"
grep -q '"METADATA", "metric": "train.skipped_steps"' moving/experiment_raport.json || complain "no metadata"

# --- a bad batch: everything is as if it had not been there, but the scale -----------------------
# injects PRECISION DATA OPTIONS...: six batches and seven, all options alike
is_rounded=
injects() {
    precision=$1
    with_bad=$2
    shift 2
    trains six six --precision $precision "$@"
    trains seven $with_bad --precision $precision "$@"
    prints '"steps": 6, .*"skipped_steps": 1, '
    [ "$is_rounded" ] || same six.safetensors seven.safetensors
    wants_state six/checkpoint.safetensors skipped 0
    wants_state seven/checkpoint.safetensors skipped 1
    wants_state seven/checkpoint.safetensors steps 6
    wants_state seven/checkpoint.safetensors batches_tracked 6
    [ "$(metric seven/experiment_raport.json 0 train.skipped_steps)" = 1 ] || complain "no skipped step in the report"
    [ "$(metric seven/experiment_raport.json 0 train.loss)" = "$(metric six/experiment_raport.json 0 train.loss)" ] ||
        complain "the bad batch is part of the mean loss"
}
for device in ref cpu; do
    injects fp32 seven32 --dynamic-loss-scale --device $device
    log_names train: 'epoch 0' 'iteration 3' overflow 32768 16384
    log_names 'iteration 4' 'loss scale' 16384
    prints '"loss_scale": 16384, '
    wants_state seven/checkpoint.safetensors good 4
    wants_state six/checkpoint.safetensors good 6
    injects fp32 seven32 --static-loss-scale 8 --device $device
    prints '"loss_scale": 8, '
done
injects fp32 seven32 --loss-scaler pytorch
prints '"loss_scale": 32768, '
injects fp32 seven32 --loss-scaler apex
says '^train: Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale.* 32768.0$'
injects fp32 seven32 --loss-scaler nvidia --static-loss-scale 128
log_names train: 'loss scale' 128 100
prints '"loss_scale": 64, '
for device in ref cpu; do
    # half the scale after the bad batch: a gradient that is subnormal in fp16 may round otherwise
    [ $device = ref ] || is_rounded=yes
    injects fp16 seven16 --device $device
    is_rounded=
    log_names train: fp16
    prints '"loss_scale": 16384, '
    injects fp16 seven16 --device $device --static-loss-scale 128
    prints '"loss_scale": 128, '
done
expect 1 train data_seven16.safetensors $whole --epochs 1 --workspace none --no-checkpoints --fp16 --static-loss-scale 1
error_names 'epoch 0' 'iteration 3' loss
expect 1 train data_seven32.safetensors $whole --epochs 1 --workspace none --no-checkpoints
error_names 'epoch 0' 'iteration 3' loss

# --- kill and resume -----------------------------------------------------------------------------
scaled="$whole --fp16 --loss-scale-interval 3 --epochs 4"
expect 0 train data_seven16.safetensors $scaled --workspace straight --final-weights straight.safetensors
wants_state straight/checkpoint.safetensors skipped 4
for steps in 1 2 3 5 6 8 9 14 21; do
    rm -rf part
    expect 0 train data_seven16.safetensors $scaled --workspace part --overwrite --run-iters $steps
    expect 0 train data_seven16.safetensors --resume part/checkpoint.safetensors --workspace part \
        --final-weights part.safetensors --final-state
    last="$last after $steps steps"
    same straight.safetensors part.safetensors
    same_state straight/checkpoint.safetensors part/checkpoint.safetensors
done
rm -rf killed killed.safetensors
resume=
for where in 'step skipped' 'epoch 0, iteration [56]/' 'epoch 1, ' 'epoch 2, iteration [12]/' 'epoch 3, '; do
    holds kill "$where" train data_seven16.safetensors $scaled --workspace killed --checkpoint-every 1 $resume \
        --final-weights killed.safetensors
    kill -9 $pid
    ends kill 137
    resume="--resume killed/checkpoint.safetensors"
done
expect 0 train data_seven16.safetensors $scaled --workspace killed $resume --final-weights killed.safetensors
same straight.safetensors killed.safetensors
same_state straight/checkpoint.safetensors killed/checkpoint.safetensors

# the precision goes on too, also one that was measured, and one of a run that had no wish may be chosen now
expect 0 train data_six.safetensors $whole --amp --epochs 2 --run-epochs 1 --workspace amp
expect 0 train data_six.safetensors --resume amp/checkpoint.safetensors --workspace amp
chosen=$(header amp/checkpoint.safetensors | sed 's/.*\\"precision\\": \\"\([a-z0-9]*\)\\".*/\1/')
case $chosen in bf16 | fp32) ;; *) complain "the checkpoint's precision is '$chosen'" ;; esac
expect 0 train data_six.safetensors $whole --fp16 --epochs 3 --run-epochs 1 --workspace amp --overwrite
expect 0 train data_six.safetensors --resume amp/checkpoint.safetensors --run-epochs 1 --workspace amp
log_names train: fp16
expect 0 train data_six.safetensors --resume amp/checkpoint.safetensors --no-amp --workspace single
grep -q 'mixed precision' err && complain "--no-amp does not take a saved --fp16 back"
expect 0 train data_six.safetensors --resume amp/checkpoint.safetensors --precision bf16 --workspace amp
log_names train: bf16
expect 0 train data_six.safetensors $whole --epochs 2 --run-epochs 1 --workspace amp --overwrite
expect 0 train data_six.safetensors --resume amp/checkpoint.safetensors --amp --workspace amp

# a checkpoint from before there was loss scaling: the same file without what it says of that, and without its digest
expect 0 train data_six.safetensors $whole --epochs 2 --run-epochs 1 --workspace old
LC_ALL=C sed '1s/"digest/"xigest/g; 1s/\\"scaler\\"/\\"xcaler\\"/' old/checkpoint.safetensors >old.safetensors
expect 0 train data_six.safetensors --resume old.safetensors --dynamic-loss-scale --workspace old --overwrite --final-weights old_end.safetensors --final-state
log_names train: 'loss scale' 32768
expect 0 train data_six.safetensors $whole --epochs 2 --workspace new --final-weights new_end.safetensors
same old_end.safetensors new_end.safetensors

# --- no end of skipped steps ---------------------------------------------------------------------
expect 0 train data_six.safetensors $whole --dynamic-loss-scale --epochs 3 --run-epochs 1 --workspace lost
cp lost/checkpoint.safetensors good.safetensors
expect 1 train data_all_bad.safetensors --resume lost/checkpoint.safetensors --checkpoint-every 1 --max-skips 4 --workspace lost
error_names 'epoch 1' 'iteration 4' 4 4096 conv2d conv1
same good.safetensors lost/checkpoint.safetensors
tidy lost
expect 1 train data_all_bad.safetensors $whole --static-loss-scale 2 --epochs 30 --max-skips 9 --workspace lost --no-checkpoints
error_names 'epoch 1' 'iteration 3' 9
expect 1 train data_all_bad.safetensors $whole --dynamic-loss-scale --epochs 5 --max-skips 0 --workspace lost --no-checkpoints --json
error_names 30 1

# --- most steps skipped: an error below one in ten, a warning above one in four ----------------------
batches data_one_good.safetensors worse worse worse worse worse worse worse worse worse worse 0 worse
expect 1 train data_one_good.safetensors $whole --dynamic-loss-scale --epochs 2 --workspace few
error_names 22 24
[ -s few/checkpoint.safetensors ] || complain "nothing was saved of the two steps"
batches data_third.safetensors 0 worse 1 2 worse 3
expect 0 train data_third.safetensors $whole --dynamic-loss-scale --epochs 2 --workspace few --overwrite
warning_names train: 4 12
# a sum that has overflowed inside a step, which will be dropped, is no reason not to save, nor not to go on
batches data_mid.safetensors worse 0 1 2
accumulated="$whole --dynamic-loss-scale --epochs 2 --optimizer-batch-size 8"
expect 0 train data_mid.safetensors $accumulated --workspace straight --overwrite --final-weights straight.safetensors
holds mid 'epoch 0, iteration 1/' train data_mid.safetensors $accumulated --workspace mid
kill -TERM $pid
ends mid 3
expect 0 train data_mid.safetensors $accumulated --workspace mid --resume mid/checkpoint.safetensors --final-weights mid.safetensors
same straight.safetensors mid.safetensors

# --- gradients that f16 cannot hold --------------------------------------------------------------
# Between the two scales a gradient is 2^-12 of what it is outside, and the pooling divides it by 1024 more: about
# 2^-27, where f16 has nothing left but zero.  Only what lies before learns, fc is fixed.
cat >faint.td <<END
%images:f32[1,3,32,32] = input
%conv1.weight:f32[8,3,3,3] = param {init=normal, scale=0.272}
%1 = conv2d %images, %conv1.weight {pad=1}
%bn1.weight:f32[8] = param {init=ones}
%bn1.bias:f32[8] = param
%bn1.running_mean:f32[8] = param {role=stat}
%bn1.running_var:f32[8] = param {role=stat, init=ones}
%2 = batch_norm_infer %1, %bn1.weight, %bn1.bias, %bn1.running_mean, %bn1.running_var
%3 = relu %2
%4 = scale %3 {by=4096}
%5 = global_avg_pool %4
%6 = scale %5 {by=0.000244140625}
%fc.weight:f32[2,8] = param {role=stat, init=normal, scale=1}
%fc.bias:f32[2] = param {role=stat}
%7 = linear %6, %fc.weight, %fc.bias
output logits = %7
END
side=32
row=$((3 * side * side * 4))
huge bright 3f800000
huge dark bf800000
floats 0 0 0 0 0 0 0 0 >bright.labels
floats 1 0 1 0 1 0 1 0 >dark.labels
batches two.safetensors bright dark bright dark
faint="train two.safetensors --data-backend tensors --model faint.td --threads 1 --workers 1 --seed 1 -b 16 --lr 0.1 --wd 0"
learned() {
    awk "BEGIN { exit !($(metric $1/experiment_raport.json 19 train.loss) < 0.2) }"
}
for device in ref cpu; do
    expect 0 $faint --device $device --epochs 20 --workspace wide --overwrite
    learned wide || complain "float32 has not learned"
    expect 0 $faint --device $device --epochs 20 --workspace scaled --overwrite --fp16
    learned scaled || complain "f16 with loss scaling has not learned"
    expect 0 $faint --device $device --epochs 20 --workspace fixed --overwrite --fp16 --static-loss-scale 4096
    learned fixed || complain "f16 with a fixed loss scale has not learned"
    expect 0 $faint --device $device --epochs 20 --workspace lost --overwrite --fp16 --static-loss-scale 1
    warning_names f16
    expect 0 $faint --device $device --epochs 1 --workspace plain --overwrite --fp16 --no-dynamic-loss-scale # the same
    warning_names f16 --static-loss-scale 128 --dynamic
    [ "$(metric lost/experiment_raport.json 0 train.loss)" = "$(metric lost/experiment_raport.json 19 train.loss)" ] ||
        complain "f16 without loss scaling has moved"
done

# --- options that contradict each other ----------------------------------------------------------
expect 2 train data_six.safetensors $whole --fp16 --amp --workspace none
error_names --fp16 --amp
expect 2 train data_six.safetensors $whole --fp16 --dynamic-loss-scale --no-dynamic-loss-scale --workspace none
error_names --dynamic-loss-scale --no-dynamic-loss-scale
expect 2 train data_six.safetensors $whole --fp16 --precision bf16 --workspace none
expect 2 train data_six.safetensors $whole --static-loss-scale 0.5 --workspace none
error_names "'0.5'" 1 -1
expect 2 train data_six.safetensors $whole --loss-scaler tensorflow --workspace none
[ ! -e none ] || [ ! -e none/checkpoint.safetensors ] || complain "a run that never began saved a checkpoint"
finish
