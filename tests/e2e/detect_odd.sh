# ctest: timeout 200
# detect_odd.sh -- what a new user of detectors gets wrong: weights of other networks, options that the file
# contradicts, annotations that are left out, images whose boxes turn
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
error_names "'fresh.safetensors'" "ssd320" "resnet18" "--backbone" "resnet50"
expect 2 detect --weights fresh.safetensors --arch ssd300 "$one"
error_names "'fresh.safetensors'" "ssd320" "--arch" "ssd300"
expect 2 evaluate set --weights fresh.safetensors --arch resnet18
error_names "'fresh.safetensors'" "ssd320" "--arch" "resnet18"
expect 2 classify --weights classifier.safetensors --arch ssd320 "$one"
error_names "'classifier.safetensors'" "resnet18" "--arch" "ssd320"
# more classes than the data have, and none of them named; images in folders are drawn in such folders
mkdir -p deep/val/a && cp set/val/* deep/val/a
sed 's|"file_name": *"|&a/|g' set/annotations/instances_val.json >deep/annotations.json
expect 1 evaluate deep --weights fresh.safetensors --threads 1 -b 2
error_names "2" "'fresh.safetensors'" "4" "--classes" "FILE"
expect 0 evaluate deep --weights fresh.safetensors --threads 1 -b 2 --draw drawn/deep --labels-by-order
[ "$(ls drawn/deep/a)" = "$(ls set/val)" ] || complain "not drawn as they lie: $(find drawn)"
log_names classes: 2
printf 'a\n%s\nb\n%s\n' $(tr ',' '\n' <set/annotations/instances_val.json | sed -n 's/.*"name": *"\([a-z]*\)".*/\1/p' | sort -r) >four.names
expect 0 evaluate deep --weights fresh.safetensors --threads 1 -b 2 --classes four.names --per-class
expect 1 evaluate deep --weights fresh.safetensors --threads 1 -b 2 --classes "$TANDEM_SOURCE/data/imagenet_classes.txt"
error_names '1000' 'fresh.safetensors' '4'
expect 2 evaluate deep --weights fresh.safetensors --label-map four.names
error_names '--label-map'

# --- the folder of one split, where the annotations are in the folder above ---------------------------
for data in set/val set/train/; do
    expect 1 train $data --arch resnet18 $step
    error_names "'set'" COCO --arch ssd320 ssd300
    expect 1 train $data --arch ssd320 $step
    error_names "'$data'" "'set'" DATA --annotations
done
mkdir -p plain/val
expect 1 train plain/val --arch resnet18 $step
if grep -q COCO err; then complain "a hint at annotations that are not there"; fi

# --- detect: classes, lists, folders ------------------------------------------------------------------
find_one="detect --weights fresh.safetensors --threads 1 --min-score 0 --max-boxes 30"
expect 0 $find_one --only 3 --max-per-class 5 "$one"
[ "$(grep -c ' at ' out)" = "$(grep -c '^  class 3: ' out)" ] || complain "--only 3 shows others"
expect 2 $find_one --only 5 "$one"
error_names "--only" "'fresh.safetensors'" "'5'"
printf '{"2": "dog", "1": "cat", "4": "owl", "3": "fox"}' >names.json
expect 0 $find_one --only fox --classes names.json "$one"
[ "$(grep -c ' at ' out)" = "$(grep -c '^  fox: ' out)" ] && [ -s out ] || complain "--only fox shows others: $(cat out)"
expect 0 convert fresh.safetensors four.safetensors --classes names.json
expect 0 inspect checkpoint four.safetensors
prints 'tandem.classes: \["cat", "dog", "fox", "owl"\]'
printf '{"0": "dog", "1": "cat", "2": "owl", "3": "fox"}' >zero.json
expect 1 $find_one --classes zero.json "$one"
error_names "4" "0" "1"
expect 1 $find_one --classes cat,dog "$one"
error_names "'cat,dog'"
last="detect - <list"
printf '%s\r\n' "$one" >list
"$TANDEM" $find_one - <list >out 2>err || complain "a list with carriage returns fails"
mkdir own other && cp "$one" own/p.jpg && cp "$one" other/p.jpg && cp "$one" other/BIG.JPG
expect 1 $find_one --draw own other/p.jpg own/p.jpg # the first would take the place of the second
error_names "'own/p.jpg'"
same "$one" own/p.jpg
expect 0 $find_one --draw own other/BIG.JPG
prints '^  drawn: own/BIG.JPG$'

# --- Ctrl-C while a data set is drawn -----------------------------------------------------------------
last="dataset draw, stopped"
"$TANDEM" dataset draw many --boxes --train 100000 --size 64 >out 2>err &
pid=$!
n=0
until [ -e many.part.$pid/train/00003.jpg ] || ! kill -0 $pid || [ $n -gt 3000 ]; do
    n=$((n + 1))
    sleep 0.02
done
kill -INT $pid
wait $pid
[ $? = 3 ] || complain "exit code is not 3"
says '^tandem: stopped: '
if ls -d many* >left 2>/dev/null; then complain "a folder is left: $(cat left)"; fi

# SIGKILL leaves a folder, which the next run of that name removes; not one in use, and no other files
for options in "--boxes --size 64" "--classes 3 --size 32"; do
    "$TANDEM" dataset draw many $options --train 100000 >out 2>err &
    pid=$!
    n=0
    until [ -n "$(find many.part.$pid -name 00003.jpg 2>/dev/null)" ] || ! kill -0 $pid || [ $n -gt 3000 ]; do
        n=$((n + 1))
        sleep 0.02
    done
    kill -KILL $pid
    wait $pid 2>/dev/null
    [ -d many.part.$pid ] || complain "nothing was left by SIGKILL"
    mkdir -p many.part.$$ many.part.x many.part.$pid.old more.part.$pid
    expect 0 dataset draw ./many/ --classes 3 --train 6 --val 3 --size 16
    [ ! -e many.part.$pid ] || complain "the folder of a killed run is still there: $(ls -R many.part.$pid | head -5)"
    rmdir many.part.$$ many.part.x many.part.$pid.old more.part.$pid || complain "a folder that is no leftover was removed"
    rm -r many
done

# --- beginning with weights ---------------------------------------------------------------------------
expect 0 train set --arch ssd320 --pretrained-weights fresh.safetensors $step
log_names 296 "'fresh.safetensors'" 2 heads.class.weight heads.class.bias # its backbone, too
expect 0 train set --pretrained-weights fresh.safetensors $step
log_names train: "'fresh.safetensors'" --arch
says '^train: ssd320, 2 classes, '
expect 2 train set --arch resnet18 --pretrained-weights fresh.safetensors $step
error_names "ssd320" "--arch"

# --- what is left out is said -------------------------------------------------------------------------
cp -r set few
sed 's/"bbox": *\[[^]]*\]/"bbox": [0, 0, 0, 5]/' set/annotations/instances_val.json >few/annotations/instances_val.json
expect 0 evaluate few --weights fresh.safetensors --threads 1 -b 2 --labels-by-order
warning_names "'few/annotations/instances_val.json'" "'tandem dataset check'" 'annotation 1' '0 x 5'

sed 's/"bbox": *\[[^]]*\]/"bbox": [0, 0, 0, 5]/' set/annotations/instances_train.json >few/annotations/instances_train.json
expect 0 train few --arch ssd320 --backbone resnet18 $step
warning_names "'few/train'"

finish
