/*
 * input_options.c -- the options of a job's data: where images come from, how they are read
 */
#include "options/field.h"
#include "options/rows.h"
#include "tandem/input.h"

static const char *const backends[] = { "folder|pytorch", "synthetic|syntetic", "tensors",
                                        "dali-cpu",       "dali-gpu",           NULL };
static const char *const crops[] = { "auto", "torchvision", "dali", "tf", NULL };
static const char *const norms[] = { "torch", "tf", NULL };
static const char *const decodes[] = { "exact", "fast", NULL };
static const char *const label_ids[] = { "dense", "keep", NULL };
static const char *const augmentations[] = { "none", "autoaugment", NULL };

/* clang-format off */
static const td_field input_fields[] = {
    TD_TEXT   (td_input_opts, data, NULL, "PATH",
               "folder of train/ and val/, or a .safetensors; same as DATA"),
    TD_ENUM   (td_input_opts, data_backend, 0, backends,
               "where images come from; dali-cpu and dali-gpu: a folder, by DALI's rules"),
    TD_ENUM   (td_input_opts, interpolation, 0, td_interpolation_names, "of the resize"),
    TD_ENUM   (td_input_opts, crop, 0, crops,
               "whose rules crop and resize; auto: torchvision's, or of the back end"),
    TD_BOOL   (td_input_opts, antialias, false,
               "average what shrinks: torchvision's rule, not dali's but for triangular"),
    TD_BOOL_AS(td_input_opts, no_antialias, "no-antialias", NULL, false,
               "resize without antialiasing"),
    TD_ENUM   (td_input_opts, normalization, 0, norms, "whose means and deviations"),
    TD_ENUM   (td_input_opts, augmentation, 0, augmentations,
               "of training images besides crop and flip"),
    TD_INT_AS (td_input_opts, workers, "workers", "j", 0, 0, 1024, NULL,
               "decoding threads; 0: chosen"),
    TD_INT    (td_input_opts, prefetch, 2, 1, 1024, "batches prepared ahead"),
    TD_REAL   (td_input_opts, max_bad, 0.01, 0, 1, "share of the images that may be unreadable"),
    TD_BOOL   (td_input_opts, ignore_orientation, false,
               "leave EXIF-rotated images as they are stored"),
    TD_ENUM   (td_input_opts, decode, 0, decodes,
               "of training JPEGs; exact: as PIL, to the bit; fast: reduced size, plain colours"),
    TD_BOOL   (td_input_opts, exact_decode, false, "the same as --decode exact"),
    TD_TITLE_BEHIND("Boxes"),
    TD_TEXT   (td_input_opts, annotations, NULL, "FILE",
               "detectors: COCO instances; default: where data sets have them"),
    TD_TEXT   (td_input_opts, val_annotations, NULL, "FILE",
               "detectors: the same for validation while training"),
    TD_ENUM   (td_input_opts, label_ids, 0, label_ids,
               "detectors: categories become classes 1, 2, ... in order, or keep their ids"),
    TD_BOOL   (td_input_opts, strict, false,
               "detectors: a bad annotation is an error; else it is listed and left out"),
    TD_BOOL   (td_input_opts, color_jitter, false,
               "detectors: change colours of training images; ssd300 does so anyway"),
    TD_END,
};
/* clang-format on */

const td_field *td_input_fields(void)
{
    return input_fields;
}
