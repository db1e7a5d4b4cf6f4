/*
 * input_options.c -- the options of a job's data: the source of images, and how they are read
 */
#include "options/field.h"
#include "options/rows.h"
#include "tandem/input.h"

static const char *const backends[] = { "folder|pytorch", "synthetic|syntetic", "tensors",
                                        "dali-cpu",       "dali-gpu",           "list",
                                        "webdataset",     "tfrecord",           NULL };
static const char *const train_interpolations[] = { "same", "bilinear", "bicubic", "random", NULL };
static const char *const crops[] = { "auto", "torchvision", "dali", "tf", NULL };
static const char *const norms[] = { "torch", "tf", NULL };
static const char *const decodes[] = { "exact", "fast", NULL };
static const char *const label_ids[] = { "dense", "keep", NULL };
static const char *const augmentations[] = { "none", "autoaugment", NULL };
static const char *const auto_augments[] = { "none", "imagenet", "ra", "ta_wide", NULL };

/* clang-format off */
static const td_field input_fields[] = {
    TD_GIVEN  (td_input_opts, given),
    TD_TEXT   (td_input_opts, data, NULL, "PATH",
               "data set: folder with train/ and val/, a pack, a list, or a .safetensors file; "
               "same as DATA"),
    TD_ENUM   (td_input_opts, data_backend, TD_DATA_FOLDER, backends,
               "data source; dali-cpu and dali-gpu: a folder, with DALI's crop and resize; list: a "
               "file of images and labels, as DATA that ends in .csv, .tsv or .txt is without it; "
               "webdataset: tar files with images and labels, as DATA is that ends in .tar, or a "
               "folder of these; tfrecord: TFRecords of ImageNet, or for detectors of COCO, as "
               "DATA is that begins like one, or a folder of these"),
    TD_TEXT   (td_input_opts, val_list, NULL, "FILE",
               "list of images and labels, tar files or TFRecords for validation in training; "
               "default: the rows or files of DATA whose split is val"),
    TD_REAL   (td_input_opts, val_split, 0, 0, 0.99,
               "data without validation images: fraction of the training images of each class "
               "that is used for validation instead, chosen by --seed"),
    TD_BOOL   (td_input_opts, list_outside, false,
               "allow lists to name files outside of their folder"),
    TD_TEXT   (td_input_opts, list_delimiter, NULL, "C",
               "lists: an image has any number of labels, with this character between them, for "
               "example ';'; default: one label, or where there is no column of labels, a column "
               "of 0 and 1 for each class"),
    TD_ENUM   (td_input_opts, interpolation, TD_INTERPOLATE_BILINEAR, td_interpolation_names,
               "interpolation of the resize"),
    TD_ENUM   (td_input_opts, train_interpolation, TD_TRAIN_INTERPOLATE_SAME, train_interpolations,
               "interpolation of training images; same: --interpolation; random: bilinear or "
               "bicubic, drawn for each image and each operation of --aa"),
    TD_ENUM   (td_input_opts, crop, TD_RULES_AUTO, crops,
               "library whose crop and resize rules are used; auto: torchvision, or dali for "
               "the dali data backends"),
    TD_BOOL_ONLY(td_input_opts, antialias, "antialias", NULL, false,
               "antialias when shrinking images; default: yes with --crop torchvision or "
               "triangular interpolation"),
    TD_BOOL_AS(td_input_opts, point_sampled, "no-antialias", NULL, false,
               "resize without antialiasing"),
    TD_ENUM   (td_input_opts, normalization, TD_NORMALIZE_TORCH, norms,
               "mean and standard deviation of the normalization: PyTorch's or TensorFlow's"),
    TD_ENUM   (td_input_opts, augmentation, TD_AUGMENTATION_NONE, augmentations,
               "augmentation of training images in addition to crop and flip"),
    TD_ENUM   (td_input_opts, auto_augment, TD_AUTO_AUGMENT_NONE, auto_augments,
               "torchvision's augmentation of training images after the flip; imagenet: "
               "AutoAugment; ra: RandAugment; ta_wide: TrivialAugmentWide"),
    TD_TEXT_AS(td_input_opts, timm_augment, "aa", NULL, NULL, "POLICY",
               "timm's RandAugment of training images after the flip, for example "
               "rand-m7-mstd0.5-inc1: magnitude 7 of 10 with a standard deviation of 0.5, every "
               "operation stronger with it; further parts nN (operations, 2), pX (probability of "
               "each, 0.5), mmaxN"),
    TD_INT    (td_input_opts, ra_ops, 2, 1, 16, "ra: number of operations on an image"),
    TD_INT    (td_input_opts, ra_magnitude, 9, 0, 999, "ra: strength, below --augment-bins"),
    TD_INT    (td_input_opts, augment_bins, 31, 2, 1000,
               "ra and ta_wide: number of strengths of an operation"),
    TD_BOOL   (td_input_opts, color_jitter, false,
               "change the colors of training images at random; always on for ssd300"),
    TD_TEXT   (td_input_opts, jitter_strength, "0.4,0.4,0.4,0", "B,C,S,H",
               "classifiers: strength of --color-jitter in brightness, contrast, saturation and "
               "hue, as torchvision's ColorJitter"),
    TD_REAL   (td_input_opts, random_erase, 0, 0, 1,
               "probability that a box of a training image is erased, as torchvision's "
               "RandomErasing"),
    TD_INT_AS (td_input_opts, workers, "workers", "j", 0, 0, 1024, NULL,
               "number of decoding threads; 0: automatic"),
    TD_INT    (td_input_opts, prefetch, 2, 1, 1024, "number of batches loaded in advance"),
    TD_REAL   (td_input_opts, max_bad, 0.01, 0, 1, "fraction of images that may be unreadable"),
    TD_BOOL_AS(td_input_opts, stored_orientation, "ignore_orientation", NULL, false,
               "ignore the EXIF orientation of images"),
    TD_ENUM   (td_input_opts, decode, TD_DECODE_EXACT, decodes,
               "decoding of training JPEGs; exact: same pixels as PIL; fast: reduced size, "
               "simple chroma upsampling"),
    TD_BOOL   (td_input_opts, exact_decode, false, "same as --decode exact"),
    TD_TITLE_SECONDARY("TFRecords"),
    TD_INT    (td_input_opts, label_offset, 1, 0, 1,
               "TFRecords: number of the first class in image/class/label; 1, as TensorFlow's "
               "programs write ImageNet, whose 0 is the background and is refused; or 0"),
    TD_TITLE_SECONDARY("Boxes"),
    TD_TEXT   (td_input_opts, annotations, NULL, "FILE",
               "detectors: COCO annotation file; default: annotations/instances_SPLIT.json "
               "or a similar name in DATA"),
    TD_TEXT   (td_input_opts, val_annotations, NULL, "FILE",
               "detectors: COCO annotation file of the validation during training"),
    TD_ENUM   (td_input_opts, label_ids, TD_LABEL_IDS_DENSE, label_ids,
               "detectors: class numbers; dense: 1, 2, ... in order of category ids; keep: the "
               "category ids"),
    TD_BOOL   (td_input_opts, strict, false,
               "detectors: fail on invalid annotations instead of listing and skipping them"),
    TD_END,
};
/* clang-format on */

const td_field *td_input_fields(void)
{
    return input_fields;
}
