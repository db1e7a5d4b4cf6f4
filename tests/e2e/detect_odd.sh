# ctest: timeout 200
# detect_odd.sh -- what a new user of detectors gets wrong: weights of other networks, options that the file
# contradicts, annotations that are left out, pictures whose boxes turn
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

"$TANDEM" dataset draw set --boxes --classes 2 --train 2 --val 2 --size 160 >draw.log 2>&1 || { cat draw.log >&2; exit 1; }
one=$(ls set/val/*.jpg | head -1)
expect 0 init --arch ssd320 --backbone resnet18 --image-size 160 --num-classes 4 --seed 1 -o fresh.safetensors
expect 0 init --arch resnet18 --num-classes 4 --seed 1 -o classifier.safetensors
step="--image-size 160 --batch-size 1 --run-iters 1 --lr 0.01 --threads 1 --seed 1 --training-only --no-checkpoints --workspace run"

# --- weights and options that contradict them --------------------------------------------------------
expect 0 detect --weights fresh.safetensors --arch ssd320 --threads 1 --min-score 0 --max-boxes 1 "$one" # the file's backbone
prints '^  class [1-4]: '
expect 2 detect --weights fresh.safetensors --backbone resnet50 "$one"
says "'fresh.safetensors' has weights of ssd320 with the backbone resnet18, --backbone resnet50 cannot take them"
expect 2 detect --weights fresh.safetensors --arch ssd300 "$one"
says "'fresh.safetensors' has weights of ssd320, --arch ssd300 cannot take them"
expect 2 evaluate set --weights fresh.safetensors --arch resnet18
says "'fresh.safetensors' has weights of ssd320, --arch resnet18 cannot take them"
expect 2 classify --weights classifier.safetensors --arch ssd320 "$one"
says "'classifier.safetensors' has weights of resnet18, --arch ssd320 cannot take them"
# more classes than the data have, and none of them named
expect 0 evaluate set --weights fresh.safetensors --threads 1 -b 2
says "'fresh.safetensors' names no classes and has 4, the data have 2: its first are taken for them"

# --- beginning with weights ---------------------------------------------------------------------------
expect 0 train set --arch ssd320 --pretrained-weights fresh.safetensors $step
says "296 tensors are from 'fresh.safetensors'; 2 begin anew: heads.class.weight, heads.class.bias" # its backbone, too
expect 2 train set --pretrained-weights fresh.safetensors $step
says "has weights of ssd320, a detector, which begin no classifier: --arch ssd320 goes on with them"

# --- what is left out is said -------------------------------------------------------------------------
cp -r set few
sed 's/"bbox": *\[[^]]*\]/"bbox": [0, 0, 0, 5]/' set/annotations/instances_val.json >few/annotations/instances_val.json
expect 0 evaluate few --weights fresh.safetensors --threads 1 -b 2
says "'few/annotations/instances_val.json': [0-9]+ entries are left out .'tandem dataset check' lists them., the first: annotation 1: its box is 0 x 5"

finish
