# ctest: timeout 300
# augmentations.sh -- --auto-augment, --aa, --color-jitter, --random-erase: each changes training, repeats to the bit whatever
# the workers and the kind of row, is part of what a resumed run continues, and contradictions are refused
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

small_model small.td 32 4
net="--model small.td --threads 1 --seed 3 -b 8 --epochs 2"
drawn set --classes 4 --train 32 --val 8 --size 80

trained() {
    name=$1
    shift
    expect 0 train set $net "$@" --workspace run.$name --final-weights $name.safetensors
}
differ() {
    if cmp -s $1.safetensors $2.safetensors; then
        complain "$1 and $2 are the same: was it used?"
    fi
}
trained plain --workers 2
for how in imagenet ra ta_wide; do
    trained $how --workers 1 --auto-augment $how
    trained again --workers 3 --prefetch 5 --auto-augment $how --overwrite
    same $how.safetensors again.safetensors
    rm -rf run.again again.safetensors
    differ plain $how
done
differ ra ta_wide
trained cubic --auto-augment ta_wide --interpolation bicubic
differ ta_wide cubic
trained one --auto-augment ra --ra-ops 1
differ ra one
trained timm --workers 1 --aa rand-m9-n3-mstd0.5-inc1
trained timm3 --workers 3 --aa rand-m9-n3-mstd0.5-inc1
same timm.safetensors timm3.safetensors
differ plain timm
trained timmcubic --aa rand-m9-n3-mstd0.5-inc1 --train-interpolation bicubic
differ timm timmcubic
trained random --workers 1 --train-interpolation random
trained random3 --workers 3 --train-interpolation random
same random.safetensors random3.safetensors
differ plain random
trained linear --interpolation bicubic --train-interpolation bilinear
same plain.safetensors linear.safetensors
trained jitter --workers 1 --color-jitter
trained jitter3 --workers 3 --color-jitter --jitter-strength 0.4,0.4,0.4,0
same jitter.safetensors jitter3.safetensors
differ plain jitter
trained still --color-jitter --jitter-strength 0,0,0,0
same plain.safetensors still.safetensors
trained erase --random-erase 1
differ plain erase

# bytes that the network normalizes are the same images; with erased boxes the rows are floats
all="--aa rand-m7-mstd0.5-inc1 --train-interpolation random --random-erase 0"
TANDEM_INPUT=f32 trained timmfloats $all
TANDEM_INPUT=u8 trained timmbytes $all
same timmfloats.safetensors timmbytes.safetensors
all="--auto-augment ta_wide --color-jitter --jitter-strength 0.1,0.2,0.3,0.1"
TANDEM_INPUT=f32 trained floats $all
TANDEM_INPUT=u8 trained bytes $all
same floats.safetensors bytes.safetensors
TANDEM_INPUT=u8 trained erase8 --random-erase 1
same erase.safetensors erase8.safetensors

# --- cutmix, and mixup or cutmix by batch: several threads, accumulation and resuming give the same bits ---------
trained cut --cutmix 1
trained cut2 --cutmix 1 --workers 3
same cut.safetensors cut2.safetensors
differ plain cut
trained mix --mixup 0.4
trained either --mixup 0.4 --cutmix 1
differ either cut
differ either mix
trained never --mixup 0.4 --cutmix 1 --mixup-switch-prob 0
same never.safetensors mix.safetensors
trained always --mixup 0.4 --cutmix 1 --mixup-switch-prob 1
same always.safetensors cut.safetensors
trained samples --cutmix 1 --mixup-mode sample
differ samples cut
both="--mixup 0.4 --cutmix 1 --optimizer-batch-size 16"
expect 0 train set $net $both --workspace mixwhole --final-weights mixwhole.safetensors
expect 0 train set $net $both --run-iters 1 --workspace mixhalf
expect 0 train set --resume mixhalf/checkpoint.safetensors --workspace mixhalf --final-weights mixhalf.safetensors
same mixwhole.safetensors mixhalf.safetensors
expect 2 train set $net --mixup 0.2 --cutmix 1 --mixup-file absent.safetensors --workspace no
error_names --mixup-file --cutmix
expect 2 train set --arch ssd320 --cutmix 1 --workspace no
error_names --cutmix

# what a run began with it continues with
all="$all --random-erase 0.5"
expect 0 train set $net $all --workspace whole --final-weights whole.safetensors
expect 0 train set $net $all --run-iters 3 --workspace half
expect 0 train set --resume half/checkpoint.safetensors --workspace half --final-weights half.safetensors
same whole.safetensors half.safetensors
all="--aa rand-m9-n3-mstd0.5-inc1 --mean 0.4,0.5,0.6 --std 0.2,0.3,0.4"
expect 0 train set $net $all --workspace policy --final-weights policy.safetensors
expect 0 train set $net $all --run-iters 3 --workspace part
expect 0 train set --resume part/checkpoint.safetensors --workspace part --final-weights part.safetensors
! grep -q 'paths are not read' err || complain "the policy counts as a path"
same policy.safetensors part.safetensors

expect 0 benchmark --mode data set --threads 1 --num-iter 1 $all --json
expect 0 benchmark --mode data set --threads 1 --num-iter 1 --aa rand-m6 --train-interpolation random --json
expect 0 benchmark --mode data set --threads 1 --num-iter 1 --auto-augment ra --ra-ops 3 --ra-magnitude 4 --augment-bins 5 --json

# --- refused -------------------------------------------------------------------------------------
expect 2 train set $net --auto-augment ra --ra-magnitude 31 --workspace no
error_names --ra-magnitude 31 --augment-bins
expect 2 train set $net --auto-augment cutout
error_names --auto-augment "'cutout'" ta_wide
expect 2 train set $net --auto-augment ra --augmentation autoaugment --workspace no
error_names --auto-augment --augmentation
expect 2 train set $net --auto-augment ra --crop tf --workspace no
error_names --auto-augment --crop
for other in '--auto-augment ra' '--augmentation autoaugment' '--crop tf'; do
    expect 2 train set $net --aa rand-m7 $other --workspace no
    error_names --aa ${other%% *}
done
expect 2 train set $net --train-interpolation bicubic --crop tf --workspace no
error_names --train-interpolation --crop
for policy in rand-m31 original augmix-m3 ''; do
    expect 2 train set $net --aa "$policy" --workspace no
    error_names --aa "'$policy'"
done
expect 2 train set $net --color-jitter --crop tf --workspace no
error_names --color-jitter --crop
for strength in 1,2,3 1,2,3,0.6 1,2,3,0.1,0 -1,0,0,0 nan,0,0,0 x ''; do
    expect 2 train set $net --color-jitter --jitter-strength "$strength" --workspace no
    error_names "'$strength'" hue
done
for option in '--auto-augment ra' '--aa rand' '--train-interpolation bicubic' '--random-erase 0.1' '--jitter-strength 1,1,1,0'; do
    expect 2 train set --arch ssd320 $option --workspace no
    error_names ${option%% *}
done
[ ! -e no ] || complain "a refused run has left a folder"

finish
