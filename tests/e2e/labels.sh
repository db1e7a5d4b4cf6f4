# labels.sh -- classes of a data set and outputs of a network: matched by name, by a map, by ImageNet's ids, in order;
# class names from a file; everything that does not fit is an error.  A renamed copy of a data set is judged as the
# data set itself when the map says what was renamed.
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

drawn set --classes 5 --train 40 --val 20
small_model small.td 32 5
one="--threads 1 --workers 1"
expect 0 train set --model small.td $one --seed 1 --lr 0.05 -b 8 --epochs 3 --workspace run --no-checkpoints \
    --final-weights named.safetensors
counts() {
    sed -n 's/.*"n": \([0-9]*\), "n_top1": \([0-9]*\), "n_topk": \([0-9]*\), .*"loss": \([0-9.]\{6\}\).*/\1 \2 \3 \4/p' out
}
judge="$one --topk 2 --json"
expect 0 evaluate set --weights named.safetensors $judge
counts >want
[ "$(wc -w <want)" = 4 ] || complain "no counts: $(cat out)"

# the same images in folders of other names and another order, "1 stripes" ..., and two of the five
mkdir -p other/val few/val
ls set/val >names
n=0
for class in $(tac names); do
    n=$((n + 1))
    cp -r "set/val/$class" "other/val/$n $class"
done
cp -r "set/val/$(sed -n 1p names)" "set/val/$(sed -n 3p names)" few/val

# --- names in the weight file --------------------------------------------------------------------
expect 0 evaluate few --weights named.safetensors $judge --per-class
log_names classes: 2 "'few/val'" 5
for class in $(cat names); do
    wanted=0
    [ ! -d "few/val/$class" ] || wanted=4
    prints "\"name\": \"$class\", \"n\": $wanted,"
done
expect 1 evaluate other --weights named.safetensors
error_names "'other/val'" 5 "'named.safetensors'" "'$(head -1 names)'"
error_names --label-map --classes --labels-by-order
silent
expect 0 dataset pack few few.pack
expect 0 evaluate few --weights named.safetensors $judge
counts >of_folder
expect 0 evaluate few.pack --weights named.safetensors $judge
log_names 2 "'few.pack/val'" 5
[ "$(counts)" = "$(cat of_folder)" ] || complain "a pack has $(counts), its folder $(cat of_folder)"

# --- a map ---------------------------------------------------------------------------------------
for class in $(cat names); do # lines, with spaces in the folders' names, a tab and a carriage return
    printf '%s\t%d\r\n' "$(basename other/val/*" $class")" $(($(grep -n "^$class$" names | cut -d: -f1) - 1))
done >map.txt
sed 's/\(.*\)\t\([0-9]*\).*/"\1": \2/' map.txt | paste -sd, | sed 's/.*/{&}/' >map.json
sed 's/"\([0-9]\) \([^"]*\)": [0-9]*/"\1 \2": "\2"/g' map.json >by_name.json
for map in map.txt map.json by_name.json; do
    expect 0 evaluate other --weights named.safetensors $judge --label-map $map --per-class --confusion c.csv
    log_names 5 "'other/val'" "'$map'"
    [ "$(counts)" = "$(cat want)" ] || complain "with $map $(counts), wanted $(cat want)"
    [ "$(head -1 c.csv)" = "class,$(paste -sd, names)" ] || complain "the table is of $(head -1 c.csv)"
done
expect 0 evaluate other --weights named.safetensors $judge --labels-by-order
log_names 0 4 --labels-by-order
expect 2 evaluate other --weights named.safetensors --labels-by-order --label-map map.txt
error_names --labels-by-order --label-map
refuses() { # WORDS CONTENT
    printf "$2" >bad.map
    expect 1 evaluate other --weights named.safetensors --label-map bad.map
    error_names bad.map $1
    silent
}
refuses "'other/val'" ''
refuses "'other/val'" '{}'
refuses "5 'a' 0 4" 'a 5\n'
refuses "-1 'a' 0 4" '{"a": -1}'
refuses "'a'" 'a 1\na 2\n'
refuses "line 2 'b'" 'a 1\nb\n'
refuses "line 6" "$(tr -d '\r' <map.txt)\n 3\n" # no class before the number
refuses "'cow' 'a'" '{"a": "cow"}'
refuses empty '{"": 3}'
refuses 'JSON object' '["a"]'
refuses 'line 1' '{"a": 1'
refuses text 'a\0 1\n'
expect 1 evaluate other --weights named.safetensors --label-map absent
says "'absent'"
expect 0 dataset check set/val --image-size 32 --dump-tensors val.safetensors
expect 2 evaluate val.safetensors --data-backend tensors --weights named.safetensors --label-map map.txt
error_names "'val.safetensors'"

# labels that are numbers: those of image files have a map, which names the ones with images
find set/val -name '*.jpg' | sort | awk -F/ '!($3 in n) { n[$3] = 100 + k++ } { print $0 "," n[$3] }' >numbers.csv
for k in 0 1 2 3 4; do echo "$((100 + k)) $k"; done >numbers.map
expect 0 evaluate set --weights named.safetensors $judge
grep -o '"n": .*"loss": [0-9.]\{8\}' out >kept
expect 0 evaluate numbers.csv --weights named.safetensors $judge --label-map numbers.map
grep -o '"n": .*"loss": [0-9.]\{8\}' out >given
same kept given
expect 1 evaluate numbers.csv --weights named.safetensors
error_names "'numbers.csv'" 105
sed 1d numbers.map >short.map
expect 1 evaluate numbers.csv --weights named.safetensors --label-map short.map
error_names --label-map "'short.map'" "'100'"
expect 2 evaluate numbers.csv --weights named.safetensors --labels-by-order
error_names --labels-by-order "'numbers.csv'"

# --- no names ------------------------------------------------------------------------------------
nine="--arch resnet18 --image-size 32 --seed 1"
expect 0 init $nine --num-classes 9 -o nine.safetensors
expect 1 evaluate set --weights nine.safetensors
error_names "'set/val'" 5 "'nine.safetensors'" 9 --label-map FILE
silent
expect 1 train set --evaluate --pretrained-weights nine.safetensors $nine
error_names "'set/val'" 5 "'nine.safetensors'" 9
expect 0 evaluate few --weights nine.safetensors $judge --labels-by-order
log_names 0 1 --labels-by-order
{ cat names && printf 'v\nw\ny\nz'; } >nine.txt
expect 0 evaluate few --weights nine.safetensors $judge --classes nine.txt --per-class
log_names 2 "'few/val'" 9
counts >by_name
sed 's/^.*$/circle/' nine.txt >same.txt
expect 1 evaluate set --weights nine.safetensors --classes same.txt
error_names "'nine.safetensors'"
expect 0 convert nine.safetensors named9.safetensors --classes nine.txt
expect 0 inspect checkpoint named9.safetensors
prints "tandem.classes: \\[\"$(head -1 names)\", .*, \"z\"\\]"
expect 0 evaluate few --weights named9.safetensors $judge
[ "$(counts)" = "$(cat by_name)" ] || complain "names in the file: $(counts), beside it: $(cat by_name)"
expect 0 convert nine.safetensors nine.pth --classes nine.txt
expect 0 convert nine.pth again.safetensors
expect 0 inspect checkpoint again.safetensors
prints '^  tandem.classes: \["'
expect 0 convert named9.safetensors named9.onnx --classes nine.txt
grep -q '"y", "z"\]' named9.onnx || complain "no names in the ONNX file"

# --- files of names ------------------------------------------------------------------------------
image=$(ls set/val/*/* | head -1)
ask="classify --weights nine.safetensors $one --top 9 --json $image"
expect 0 $ask --classes nine.txt
prints '"label": 8, "name": "z"'
sed 's/, "seconds.*//' out >want
sed 's/.*/"&"/' nine.txt | paste -sd, | sed 's/.*/[&]/' >list.json
awk '{ printf "%s\"%d\": \"%s\"", (NR > 1) ? ", " : "{", NR - 1, $0 } END { print "}" }' nine.txt >index.json
awk '{ printf "%s\"%d\": [\"n0%07d\", \"%s\"]", (NR > 1) ? ", " : "{", NR - 1, NR, $0 } END { print "}" }' nine.txt >keras.json
{ cat nine.txt; echo; } | tac | awk '{ printf "%s\"%s\": %d", (NR > 1) ? ", " : "{", $0, 9 - NR } END { print "}" }' >class_to_idx.json
{ printf '\357\273\277'; sed 's/$/\r/' nine.txt; printf '\n\n'; } >windows.txt
for file in list.json index.json keras.json class_to_idx.json windows.txt; do
    expect 0 $ask --classes $file
    sed 's/, "seconds.*//' out | cmp -s - want || complain "other names: $(cat out)"
done
misnamed() { # WORDS CONTENT
    printf "$2" >bad.names
    expect 1 $ask --classes bad.names
    error_names bad.names $1
}
misnamed '' ''
misnamed '' '{}'
misnamed '' ' \n\n'
misnamed "2 'nine.safetensors' 9" 'a\nb\n'
misnamed '2 0x1b' '["a", "b\\u001b[31m"]'
misnamed 'line 2' 'a\n\nb\n'
misnamed UTF-8 'a\n\377\n'
misnamed text 'a\0b\n'
misnamed '0' '{"0": "a", "00": "b"}'
misnamed '2 0 1' '{"1": "a", "2": "b"}'
misnamed "'cat'" '{"cat": "a"}'
misnamed 'integer string' '[1, 2]'
misnamed 'line 1' '["a", '
expect 1 $ask --classes absent.names
says "'absent.names'"
expect 1 $ask --classes .
expect 1 serve --weights nine.safetensors --classes bad.names --port 0
error_names bad.names
silent

# --- ImageNet ------------------------------------------------------------------------------------
expect 0 init --arch resnet18 --image-size 32 --seed 1 -o thousand.safetensors
expect 0 classify --weights thousand.safetensors $one --image-size 32 --top 10 "$image"
log_names classes: "'thousand.safetensors'" 1000
if grep -q 'class [0-9]' out; then complain "a class without a name: $(cat out)"; fi
[ "$(wc -l <"$TANDEM_SOURCE/data/imagenet_classes.txt")" = 1000 ] || complain "not 1000 classes"
LC_ALL=C sort -c "$TANDEM_SOURCE/data/imagenet_classes.txt" || complain "ids are not sorted"
mkdir -p ids/val
n=0
for id in n01440764 n01443537 n02085620 n15075141; do
    n=$((n + 1))
    cp -r "set/val/$(sed -n ${n}p names)" ids/val/$id
done
expect 0 evaluate ids --weights thousand.safetensors --image-size 32 $judge --per-class
log_names 4 "'ids/val'" ILSVRC 2012
for class in tench goldfish Chihuahua 'toilet tissue'; do
    prints "\"name\": \"$class\", \"n\": 4,"
done
counts >by_id
printf 'n01440764 0\nn01443537 1\nn02085620 151\nn15075141 999\n' >ids.map
expect 0 evaluate ids --weights thousand.safetensors --image-size 32 $judge --label-map ids.map
[ "$(counts)" = "$(cat by_id)" ] || complain "ids are not the places $(counts), $(cat by_id)"
cut -d' ' -f2- "$TANDEM_SOURCE/data/imagenet_classes.txt" >imagenet.names
for file in imagenet.names "$TANDEM_SOURCE/data/imagenet_classes.txt"; do # names alone, and lines of a synset list
    expect 0 evaluate ids --weights thousand.safetensors --image-size 32 $judge --classes "$file"
    [ "$(counts)" = "$(cat by_id)" ] || complain "with $file: $(counts)"
done
mv ids/val/n15075141 ids/val/n00000001
expect 1 evaluate ids --weights thousand.safetensors --image-size 32
error_names "'ids/val'" 1 4 1000 "'thousand.safetensors'" "'n00000001'"
expect 1 evaluate set --weights thousand.safetensors --image-size 32
error_names "'set/val'" 5 "'thousand.safetensors'" 1000
finish
