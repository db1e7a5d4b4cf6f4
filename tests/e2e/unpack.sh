# unpack.sh -- `dataset unpack` writes packs, tars, lists and TFRecords as the folders that they were made of
# ctest: timeout 120
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

records() { # DATA SPLIT FORM COUNT FILE
    "$TANDEM_BUILD/tests/tfrecord_file" "$1" "$2" "$3" 0 "$4" >"$5" || complain "cannot write $5"
}
equal() { # FOLDER FOLDER
    diff -r "$1" "$2" >&2 || complain "'$1' and '$2' differ"
}

# --- classes -----------------------------------------------------------------------------------------------
drawn set --classes 3 --train 9 --val 6
mkdir tf tars
records set train classes 9 tf/train.tfrecord
records set val classes 6 tf/val.tfrecord
expect 0 dataset unpack tf folder --json
prints '^\{"path": "folder", "pictures": 15, "bytes": [0-9]+\}$'
equal set folder
expect 0 dataset pack set set.pack
expect 0 dataset unpack set.pack unpacked
equal set unpacked
expect 0 dataset unpack set --split val only
equal set/val only/val
for image in set/train/*/*.jpg; do
    class=$(basename "$(dirname "$image")")
    name=$class-$(basename "$image" .jpg)
    cp "$image" "tars/$name.jpg"
    printf %s "$class" >"tars/$name.cls"
    echo "tars/$name.jpg,$class" >>list.csv
done
(cd tars && tar --create --sort=name --file ../all.tar .)
expect 0 dataset unpack all.tar fromtar
expect 0 dataset unpack list.csv fromlist
equal fromtar fromlist
[ "$(find fromtar/train -name '*.jpg' | wc -l)" = 9 ] || complain "not 9 images"
# classes that are numbers keep their order; names that do not sort are in classes.txt
drawn many --classes 12 --train 12 --val 12
records many train zero 12 many.tfrecord
expect 0 dataset unpack many.tfrecord numbers --label-offset 0
ls numbers/train >names
seq -w 0 11 >wanted
same names wanted
[ "$(wc -l <numbers/classes.txt)" = 12 ] || complain "not 12 names"
expect 1 dataset unpack many.tfrecord other
error_names --label-offset
# images of the same name
mkdir -p a b
image=$(find set/train -name '*.jpg' | head -1)
cp "$image" a/x.jpg
cp "$image" b/x.jpg
printf 'a/x.jpg,one\nb/x.jpg,one\nb/../a/x.jpg,two\n' >same.csv
expect 0 dataset unpack same.csv --list-outside twice
[ "$(find twice/train/one -type f | wc -l)" = 2 ] || complain "two images of one name are not two files"

# --- boxes -------------------------------------------------------------------------------------------------
expect 0 dataset draw things --boxes --train 6 --val 4 --size 64
mkdir coco
records things train boxes 6 coco/coco_train.record-00000-of-00001
records things val texts 4 coco/coco_val.record-00000-of-00001
expect 0 dataset unpack coco boxes
equal things/train boxes/train
equal things/val boxes/val
expect 0 dataset pack things things.pack
expect 0 dataset unpack things.pack again
equal things/train again/train
expect 0 dataset unpack again more
equal again more
expect 0 dataset check boxes
cp out one
expect 0 dataset check coco
grep -v '^  annotations\|^coco\|^boxes/' out >two
grep -v '^  annotations\|^coco\|^boxes/' one >three
same two three

# --- what is not possible ------------------------------------------------------------------------------------
expect 1 dataset unpack set folder
error_names "'folder'"
expect 1 dataset unpack set list.csv
error_names "'list.csv'"
expect 1 dataset unpack absent new
error_names "'absent'"
[ ! -e new ] || complain "a folder was made for no data"
expect 2 dataset unpack set
expect 0 dataset unpack set new --quality 3
warning_names --quality
finish
