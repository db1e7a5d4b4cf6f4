# ctest: timeout 120
# annotated.sh -- images with boxes from the command line: draw, check, inspect and pack them; annotation files that
# are cut, empty, odd, hostile or not there
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

# exactly one error, and nothing else is said or written
fails() { # WORDS ARGUMENTS...
    words=$1
    shift
    expect 1 "$@"
    error_names $words
    [ "$(grep -c '^tandem: error: ' err)" = 1 ] || complain "not one error but $(grep -c '^tandem: error: ' err)"
    tidy .
}

# --- draw -----------------------------------------------------------------------------------------
expect 0 dataset draw set --boxes --train 20 --val 8 --size 80 --seed 3 --json
prints '^\{"path": "set", "classes": 3, "train": 20, "val": 8\}$'
expect 0 dataset draw again --boxes --train 20 --val 8 --size 80 --seed 3 --threads 1
diff -r set again >&2 || complain "the same options gave other bytes"
expect 0 dataset draw other --boxes --train 20 --val 8 --size 80 --seed 4
if cmp -s set/train/00000.jpg other/train/00000.jpg; then complain "another seed gave the same image"; fi
[ "$(find set -name '*.jpg' | wc -l)" = 28 ] || complain "not 28 images"
fails '99 1 18' dataset draw more --boxes --classes 99
fails "'set'" dataset draw set --boxes

# --- check and inspect ------------------------------------------------------------------------------
expect 0 dataset check set
prints '^set/train$'
prints '^  images      20, 20 readable, 0 not$'
prints '^  annotations set/annotations/instances_train.json$'
prints '^  boxes       [0-9]+, 0 .*: 0$'
prints '^    triangle +[0-9]+$'
boxes=$(grep -o '"image_id"' set/annotations/instances_train.json | wc -l)
prints "^  boxes       $boxes, "
expect 0 dataset check set --json
prints '"box_sides": \[0, 0, 0, [0-9]+, [0-9]+, [0-9]+, 0, 0, 0, 0, 0, 0\]'
expect 0 inspect dataset set
prints '^set/val: 8 images, 3 classes$'
expect 0 dataset check set/annotations/instances_val.json
prints '^set/val$'
expect 0 dataset check set --annotations set/annotations/instances_val.json
prints '^  images      8, 8 readable, 0 not$'
# counts have their names: of boxes here, of images in a set of class folders
prints '^    class +boxes$'
prints '^    side .* boxes$'
expect 0 inspect dataset set
prints '^  class +boxes$'
expect 0 dataset draw folders --classes 2 --train 4 --val 2 --size 32
expect 0 inspect dataset folders
prints '^  class +images$'
expect 0 dataset check folders
prints '^    class +readable images$'
# a classifier finds no classes in boxes: the message names the detectors
expect 1 train set --arch resnet18 --image-size 32 --epochs 1 --workspace never
error_names ssd320 ssd300

# --- pack -------------------------------------------------------------------------------------------
expect 0 dataset pack set set.pack --json
prints '"pictures": 28, "shrunk": 0, "unreadable": 0'
expect 0 dataset pack set.pack again.pack
same set.pack again.pack
for split in train val; do
    expect 0 dataset check set --split $split --dump-tensors folder.safetensors --image-size 64
    expect 0 dataset check set.pack --split $split --dump-tensors pack.safetensors --image-size 64
    same folder.safetensors pack.safetensors
done
expect 0 dataset check set.pack
prints "^  boxes       $boxes, "
expect 0 inspect dataset set.pack
prints '^set.pack/val: 8 images, 3 classes$'
expect 0 dataset pack set small.pack --short-side 40 --json
prints '"pictures": 28, "shrunk": 28'
expect 0 dataset check small.pack
prints '^  other size  20$'
prints '40 x 40 .* 80 x 80$'
expect 0 dataset pack set val.pack --annotations set/annotations/instances_val.json
expect 0 dataset check val.pack
prints '^  images      8, 8 readable, 0 not$'
mkdir -p half/annotations
cp -r set/train set/val half
cp set/annotations/instances_train.json half/annotations
expect 0 dataset pack half half.pack --json
prints '"pictures": 20,'
for set in half half.pack; do
    expect 0 dataset check $set --json
    prints "^\{\"sets\": \[\{\"path\": \"$set/train\", \"pictures\": 20, [^]]*\"boxes\": "
    [ "$(grep -o '"path": "' out | wc -l)" = 1 ] || complain "more than one split"
    expect 0 inspect dataset $set
    [ "$(grep -c images out)" = 1 ] || complain "more than one split"
done
head -c 20000 set.pack >cut.pack
fails "'cut.pack' cut" dataset check cut.pack --split train
fails "'set.pack" train set.pack --arch resnet18 --epochs 1 --workspace w

# --- a file with everything that is wrong with single entries -----------------------------------------
mkdir -p odd/images
cp set/train/0000[0-4].jpg odd/images
echo text >odd/images/00003.jpg
cat >odd/annotations.json <<'JSON'
{"images": [{"id": 1, "file_name": "00000.jpg", "width": 80, "height": 80},
  {"id": 2, "file_name": "00001.jpg", "width": 80, "height": 60},
  {"id": 3, "file_name": "00003.jpg", "width": 80, "height": 80},
  {"id": 4, "file_name": "absent.jpg", "width": 80, "height": 80},
  {"id": 4, "file_name": "00002.jpg", "width": 80, "height": 80},
  {"id": 5, "file_name": "../../etc/passwd", "width": 80, "height": 80}],
 "categories": [{"id": 18, "name": "caf\u00e9"}, {"id": 90, "name": "dog"}],
 "annotations": [{"id": 1, "image_id": 1, "category_id": 18, "bbox": [1, 2, 30, 40], "segmentation": [[1, 2, 3]]},
  {"id": 2, "image_id": 1, "category_id": 90, "bbox": [1, 2, 0, 40]},
  {"id": 3, "image_id": 1, "category_id": 90, "bbox": [1, 2, 1e308, 40]},
  {"id": 4, "image_id": 1, "category_id": 90, "bbox": [NaN, 2, 3, 40]},
  {"id": 5, "image_id": 1, "category_id": 90, "bbox": [-5, 2, 30, 40]},
  {"id": 6, "image_id": 77, "category_id": 90, "bbox": [5, 2, 30, 40]},
  {"id": 7, "image_id": 1, "category_id": 77, "bbox": [5, 2, 30, 40]},
  {"id": 1, "image_id": 1, "category_id": 90, "bbox": [5, 2, 30, 40]},
  {"id": 8, "image_id": 2, "category_id": 90, "bbox": [5, 2, 30, 40], "iscrowd": 1, "area": 3.5}]}
JSON
expect 0 dataset check odd --max-bad 0.9
prints '^  images      4, 2 readable, 2 not$'
prints '^  boxes       2, 1 .*: 2$'
prints '^  left out    9$'
prints "^    image 4: .*'00002.jpg' \(byte [0-9]+, line 5\)$"
prints "^    image 5: 'file_name' .*'../../etc/passwd'"
prints '^    annotation 2: .* 0 x 40 '
prints '^    annotation 3: .* 1, 2 to 1e\+308, 42 .* 80 x 80 '
prints "^    annotation 4: 'bbox' .*nan"
prints '^    annotation 6: .* 77 '
prints '^    annotation 7: .* 77 '
prints '^    annotation 1: .* id '
prints '^    odd/images/00001.jpg: 80 x 80 .* 80 x 60$'
prints '^  unreadable  odd/images/absent.jpg: .'
expect 1 dataset check odd
error_names 2 4
fails "'odd/annotations.json' 5 'file_name'" dataset check odd --strict
fails "'odd/images/absent.jpg'" dataset pack odd odd.pack
[ ! -e odd.pack ] || complain "half a pack is left"

# --- what was left out stands in the run's bad.list, once, also when the run goes on ---------------------
cp -r set worse
sed -i '0,/"bbox": \[\([0-9]*\), \([0-9]*\), [0-9]*/s//"bbox": [\1, \2, 0/' worse/annotations/instances_train.json
net="--arch ssd320 --backbone resnet18 --image-size 160 -b 2 --training-only --threads 1 --seed 1 --workspace w --overwrite"
expect 0 train worse $net --epochs 2 --run-iters 1
expect 0 train worse $net --epochs 2 --run-iters 1 --resume w/checkpoint.safetensors
tab=$(printf '\t')
grep -q "^worse/annotations/instances_train.json${tab}annotation 1: .* 0 x [0-9]* .*(byte [0-9]*, line [0-9]*)$" w/bad.list ||
    complain "bad.list says: $(cat w/bad.list)"
[ "$(wc -l <w/bad.list)" = 1 ] || complain "bad.list has $(wc -l <w/bad.list) lines"
fails "annotation 1 0" train worse $net --strict

# --- files that are none --------------------------------------------------------------------------------
good=set/annotations/instances_val.json
bytes=$(wc -c <$good)
refuse() { # WORDS
    fails "$1" dataset check set/val --annotations bad.json
}
: >bad.json
refuse "'bad.json' empty"
head -c $((bytes - 3)) $good >bad.json
refuse "'bad.json' $((bytes - 3))"
head -c 700 $good >bad.json
refuse "'bad.json' byte 700"
cp set/val/00000.jpg bad.json
refuse "'bad.json' byte 0 line 1 0xff"
echo '[{"image_id": 1}]' >bad.json
refuse "'bad.json' list COCO"
echo '{"images": [], "annotations": []}' >bad.json
refuse "'bad.json' 'categories'"
awk 'BEGIN { printf "{\"x\": "; for (i = 0; i < 100000; i++) printf "[" }' >bad.json
refuse "'bad.json' byte 69 line 1 64"
rm bad.json
refuse "'bad.json'"
mkdir bad.json
refuse "'bad.json'"
rmdir bad.json
mkfifo bad.json
refuse "'bad.json'"
rm bad.json
if [ "$(id -u)" != 0 ]; then
    cp $good bad.json
    chmod 000 bad.json
    refuse "'bad.json'"
    rm -f bad.json
fi
mkdir nothing
cp $good nothing/annotations.json
fails "'00000.jpg' 'nothing'" dataset check nothing
finish
