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
# a pack of them holds the same; one of a set with other classes in val is refused
for data in all.tar list.csv tf; do
    rm -rf x.pack frompack
    expect 0 dataset pack $data x.pack --json
    prints '^\{"path": "x.pack", "pictures": (9|15), "shrunk": 0, '
    expect 0 dataset unpack x.pack frompack
    [ $data = tf ] && equal set frompack || equal fromtar frompack
    expect 0 dataset check x.pack
done
expect 0 dataset pack list.csv small.pack --short-side 16 --threads 2
expect 0 dataset check small.pack
prints '^  images +9, 9 readable'
[ "$(wc -c <small.pack)" -lt "$(wc -c <x.pack)" ] || complain "no image was shrunk"
grep -v "$(sed -n '1s/.*,//p' list.csv)" list.csv | sed 's/$/,val/' >split.csv
sed 's/$/,train/; s/^tars/.\/tars/' list.csv >>split.csv
expect 1 dataset pack split.csv gap.pack
error_names "'split.csv'" class
[ ! -e gap.pack ] || complain "a refused pack is left"
# a disk that is full: no part of an image stays, and the folder is called incomplete
last="dataset unpack, no file larger than 512 bytes"
(
    ulimit -f 1
    "$TANDEM" dataset unpack set.pack cut >out 2>err
    [ $? = 1 ]
) || complain "the exit code is not 1"
error_names "'cut'" incomplete
[ -z "$(find cut -type f)" ] || complain "a part of an image is left: $(find cut -type f)"
# classes that are numbers keep their order; names that do not sort are in classes.txt
drawn many --classes 12 --train 12 --val 12
records many train zero 12 many.tfrecord
expect 0 dataset unpack many.tfrecord numbers --label-offset 0
ls numbers/train >names
seq -w 0 11 >wanted
same names wanted
expect 0 dataset pack many.tfrecord numbers.pack --label-offset 0
expect 0 dataset unpack numbers.pack again12
equal numbers/train again12/train
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

expect 0 dataset pack same.csv same.pack --list-outside
expect 0 dataset unpack same.pack twice2
equal twice twice2

# --- boxes -------------------------------------------------------------------------------------------------
expect 0 dataset draw things --boxes --train 6 --val 4 --size 64
mkdir coco
records things train boxes 6 coco/coco_train.record-00000-of-00001
records things val texts 4 coco/coco_val.record-00000-of-00001
expect 0 dataset unpack coco boxes
equal things/train boxes/train
equal things/val boxes/val
expect 0 dataset pack coco coco.pack
expect 0 dataset unpack coco.pack packed
equal boxes packed
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
