# ctest: timeout 900
# ctest: processors 2
# detect_learns.sh -- a detector learns: from nothing, on drawn images, in 120 steps of 4 in mixed precision, to an
# AP50 that an untrained one (below 0.02) does not have
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"

"$TANDEM" dataset draw set --boxes --classes 2 --train 200 --val 24 --size 160 >draw.log 2>&1 || { cat draw.log >&2; exit 1; }
# running statistics must follow within so few steps: 0.9, not 0.997
expect 0 train set --arch ssd320 --backbone resnet18 --image-size 160 --bn-decay 0.9 --amp -b 4 --num-train-steps 120 \
    --lr 0.01 --eval-count 1 --print-freq 20 --seed 1 --no-checkpoints --final-weights weights.safetensors --workspace run \
    --require 'AP50>=0.1'
prints '^AP50 +0\.[0-9]+$'
expect 0 evaluate set --weights weights.safetensors --amp --require 'AP50>=0.1'
expect 0 detect --weights weights.safetensors --amp --draw drawn --min-score 0.2 set/val
[ "$(ls drawn | wc -l)" = 24 ] || complain "not 24 images drawn"
prints '^  (circle|square): [0-9.]+% at '

# in 8-bit integers it finds the same
expect 0 quantize weights.safetensors set -o q.safetensors --calibration-images 40 -b 4 --compare --json --log warn
sed 's/.*"float32": \([-0-9.e]*\), "int8": \([-0-9.e]*\),.*/\1 \2/' out |
    awk '{ exit !($2 > $1 - 0.02 && $2 < $1 + 0.02) }' || complain "the AP in float32 and int8: $(cut -c1-200 out)"
finish
