# foreign.sh -- TensorFlow checkpoints, ONNX and HDF5 files are called by their names wherever data or weights are wanted,
# and TFRecords where weights are; a file that only resembles one is not
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
. "$TANDEM_SOURCE/tests/e2e/lib_files.sh"

drawn set --classes 4 --train 16 --val 8
small_model small.td 32 4
own="--model small.td --threads 1 --workers 1 --seed 1"
expect 0 train set $own -b 8 --epochs 1 --workspace run --no-checkpoints --final-weights w.safetensors --tensorboard events
expect 0 convert w.safetensors net.onnx

mkdir -p records/train index folder saved coco
cp events/* records/train/train-00000-of-00001 # event files are TFRecords
cp events/* coco/coco_train.record-00000-of-00001
record=records/train/train-00000-of-00001
head -c 4000 w.safetensors >index/model.ckpt-7.data-00000-of-00001
{ head -c 100 /dev/zero; printf '\127\373\200\213\044\165\107\333'; } >index/model.ckpt-7.index
printf 'model_checkpoint_path: "model.ckpt-7"\n' >folder/checkpoint
printf '\010\001\022\321\001\012\003\010\001\022\002\010\001' >saved/saved_model.pb
printf '\211HDF\r\n\032\n0000000000000000' >keras.h5
mkdir tf && cp folder/checkpoint tf/checkpoint

named() { # FILE WORDS
    for verb in "evaluate set $own --weights $1" "train set $own --pretrained-weights $1" "train set $own --resume $1" \
        "classify set/val --weights $1" "convert $1 out.safetensors" "inspect checkpoint $1"; do
        expect 1 $verb
        error_names "'$1'" $2
        silent
    done
    [ ! -e out.safetensors ] || complain "a file was written"
}
named "$record" TFRecord
named index/model.ckpt-7.index 'TensorFlow checkpoint'
expect 1 classify set/val --weights index/model.ckpt-7.data-00000-of-00001
error_names TensorFlow checkpoint
expect 1 classify set/val --weights index/model.ckpt-7 # as TensorFlow names it
error_names "'index/model.ckpt-7'" TensorFlow
expect 1 classify set/val --weights folder/checkpoint
error_names "'folder/checkpoint'" TensorFlow
expect 1 classify set/val --weights tf
error_names "'tf'" TensorFlow
expect 1 classify set/val --weights saved
error_names "'saved'" SavedModel
expect 1 classify set/val --weights saved/saved_model.pb
error_names SavedModel
named keras.h5 HDF5
# an ONNX file is read as weights (onnx_model.sh), but no run resumes from one
expect 1 train set $own --resume net.onnx
error_names "'net.onnx'"

# --- data ----------------------------------------------------------------------------------------
# TFRecords are data (tfrecords.sh), but those of TensorBoard have no images
for data in "evaluate records/train $own --weights w.safetensors" "train records $own --workspace none" \
    "evaluate $record $own --weights w.safetensors" "dataset check $record"; do
    expect 1 $data
    error_names "'$record'" tf.train.Example
done
expect 1 evaluate $record --data-backend tensors $own --weights w.safetensors
error_names "'$record'" TFRecord
expect 1 train coco --arch ssd320 --backbone resnet18 --image-size 160 --threads 1 --workspace none
error_names "'coco/coco_train.record-00000-of-00001'" tf.train.Example
expect 1 evaluate net.onnx $own --weights w.safetensors
error_names "'net.onnx'" ONNX

# --- what only resembles one is malformed as before ------------------------------------------------
head -c 11 $record >short
{ head -c 8 $record; printf 'abcd'; tail -c +13 $record; } >damaged
for file in short damaged; do
    expect 1 classify set/val --weights $file
    if grep -q TFRecord err; then complain "a file without the checksum is called a TFRecord file"; fi
done
finish
