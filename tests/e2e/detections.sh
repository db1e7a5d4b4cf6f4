# detections.sh -- evaluate --annotations --detections: COCO's numbers of two files, and what is wrong with files
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"

cat >gt.json <<'EOF'
{"images": [{"id": 7, "file_name": "a.jpg", "width": 640, "height": 480}, {"id": 0}],
 "categories": [{"id": 18, "name": "dog"}, {"id": 3, "name": "a \"cat\""}, {"id": 90, "name": "bus"}],
 "annotations": [
  {"id": 1, "image_id": 7, "category_id": 18, "bbox": [10, 10, 100, 100], "area": 900, "iscrowd": 0},
  {"id": 2, "image_id": 0, "category_id": 3, "bbox": [50, 60, 70.5, 80], "area": 5640, "iscrowd": 0}]}
EOF
cat >dt.json <<'EOF'
[{"image_id": 7, "category_id": 18, "bbox": [400, 10, 100, 100], "score": 0.9},
 {"image_id": 7, "category_id": 18, "bbox": [10, 10, 100, 100], "score": 0.4},
 {"image_id": 0, "category_id": 3, "bbox": [50, 60, 70.5, 80], "score": 1e-3}]
EOF
both="--annotations gt.json --detections dt.json"

# --- numbers ------------------------------------------------------------------------------------
expect 0 evaluate $both
cat >lines <<'EOF'
 Average Precision  (AP) @[ IoU=0.50:0.95 | area=   all | maxDets=100 ] = 0.750
 Average Precision  (AP) @[ IoU=0.50      | area=   all | maxDets=100 ] = 0.750
 Average Precision  (AP) @[ IoU=0.75      | area=   all | maxDets=100 ] = 0.750
 Average Precision  (AP) @[ IoU=0.50:0.95 | area= small | maxDets=100 ] = 1.000
 Average Precision  (AP) @[ IoU=0.50:0.95 | area=medium | maxDets=100 ] = 1.000
 Average Precision  (AP) @[ IoU=0.50:0.95 | area= large | maxDets=100 ] = -1.000
 Average Recall     (AR) @[ IoU=0.50:0.95 | area=   all | maxDets=  1 ] = 0.500
 Average Recall     (AR) @[ IoU=0.50:0.95 | area=   all | maxDets= 10 ] = 1.000
 Average Recall     (AR) @[ IoU=0.50:0.95 | area=   all | maxDets=100 ] = 1.000
 Average Recall     (AR) @[ IoU=0.50:0.95 | area= small | maxDets=100 ] = 1.000
 Average Recall     (AR) @[ IoU=0.50:0.95 | area=medium | maxDets=100 ] = 1.000
 Average Recall     (AR) @[ IoU=0.50:0.95 | area= large | maxDets=100 ] = -1.000
EOF
cmp -s out lines || complain "the lines are not those of pycocotools"
expect 0 evaluate $both --json
prints '"AP": 0.75, "AP50": 0.75, "AP75": 0.75, "APs": 1, "APm": 1, "APl": -1, "AR1": 0.5, "AR10": 1, "AR100": 1, "ARs": 1, "ARm": 1, "ARl": -1}'
expect 0 evaluate $both --json --box-areas
prints '"APs": -1, "APm": 1, "APl": 0.5, '
expect 0 evaluate $both --per-class
prints '^dog +18 +1 +0\.5000 +0\.5000 +1\.0000$'
prints '^bus +90 +0 +- +- +-$'
expect 0 evaluate $both --per-class --json
prints '"name": "a \\"cat\\"", "category_id": 3, "n": 1, "AP": 1, '
expect 0 evaluate $both --require 'AP>=0.7'
expect 4 evaluate $both --require 'AP50>=0.8'
says 'AP50 is 0.75'

echo '[]' >dt.json
expect 0 evaluate $both --json
prints '"AP": 0, .*"APl": -1'

# --- what counts nowhere is said ------------------------------------------------------------------
echo '[{"image_id": 7, "category_id": 5, "bbox": [1, 2, 3, 4], "score": 1}]' >dt.json
expect 0 evaluate $both
warning_names 1 "'gt.json'"

# --- files that are wrong -------------------------------------------------------------------------
refused() {
    printf '%s' "$1" >dt.json
    expect 1 evaluate $both
    error_names $2
    silent
}
refused '' "'dt.json'"
refused '[{"image_id": 7, "category_id": 18, "bbox": [1, 2, 3' "'dt.json' byte"
refused '{"a": 1}' "'dt.json' object list"
refused '[{"image_id": 8, "category_id": 18, "bbox": [1, 2, 3, 4], "score": 1}]' "'dt.json' 0 8 'gt.json'"
refused '[{"image_id": "7", "category_id": 18, "bbox": [1, 2, 3, 4], "score": 1}]' "0 image_id '7'"
refused '[{"image_id": 7, "category_id": 18, "bbox": [1, 2, 3], "score": 1}]' 'bbox 3 4'
refused '[{"image_id": 7, "category_id": 18, "bbox": [1, 2, 3, 4], "score": NaN}]' '0 score'
refused '[{"image_id": 7, "category_id": 18, "bbox": [1, 2, 3, 4], "score": 1, "score": 2}]' '0 score'
refused '[{"image_id": 7, "category_id": 18, "bbox": [1, 2, 3, 1e300], "score": 1}]' '0 1e+300'
refused "$(printf '\211PNG')" "'dt.json'"
echo '[]' >dt.json
expect 1 evaluate --annotations dt.json --detections dt.json
says "'dt.json'"
expect 1 evaluate --annotations gt.json --detections gt.json
error_names "'gt.json'" object
expect 1 evaluate --annotations absent.json --detections dt.json
error_names "'absent.json'"
expect 1 evaluate --annotations gt.json --detections absent.json
error_names "'absent.json'"
expect 1 evaluate --annotations gt.json --detections .
error_names "'.'"

# --- what SSD300 finds is judged the same as a network's and as a file -------------------------------
"$TANDEM" dataset draw set --boxes --classes 2 --train 2 --val 2 --size 160 >draw.log 2>&1 || complain "no data set"
expect 0 init --arch ssd300 --backbone resnet18 --num-classes 2 --output w.safetensors
# fresh weights give every class its share, below the score that counts by default
expect 0 evaluate set --weights w.safetensors -b 2 --min-score 0.01 --detections found.json --json
grep -o '"AP": .*"ARl": [-0-9.e]*' out >of_network
[ "$(grep -c image_id found.json)" = 400 ] || complain "not 200 boxes of each of two images"
expect 0 evaluate --annotations set/annotations/instances_val.json --detections found.json --json
grep -o '"AP": .*"ARl": [-0-9.e]*' out | cmp -s - of_network || complain "network and file differ: $(cat of_network)"

# --- options that do not go together --------------------------------------------------------------
expect 2 evaluate --detections dt.json
error_names --annotations
expect 2 evaluate images $both
error_names --annotations
expect 2 evaluate $both --logits l.safetensors
error_names --logits
expect 2 evaluate $both --require 'top1>=95'
says 'top1'
finish
