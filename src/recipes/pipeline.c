/*
 * pipeline.c -- converts the fields of a pipeline.config to options
 *
 * Source of names and values: TensorFlow's object detection API (pipeline.proto and its includes),
 * ssd320_full_{1,4,8}gpus.config and ssd320_bench.config of NVIDIA's DeepLearningExamples,
 * TensorFlow/Detection/SSD.
 */
#include "recipes/pipeline.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/file_io.h"
#include "base/log.h"
#include "io/prototext.h"

typedef enum {
    SETS,    /* sets the option `with` */
    IS,      /* must equal `with`: a number, a word, or one of several separated by '|' */
    IGNORED, /* has no effect, for the reason in `with` */
    WARNED,  /* as IGNORED, but logged, since users may expect an effect */
    EXTRACTOR,
    CHECKPOINT
} effect;

typedef struct {
    const char *path;
    effect effect;
    const char *with;
} row;

#define SSD "model.ssd."
#define EXT SSD "feature_extractor."
#define BOX SSD "box_predictor.weight_shared_convolutional_box_predictor."
#define ANC SSD "anchor_generator.multiscale_anchor_generator."
#define MAT SSD "matcher.argmax_matcher."
#define COD SSD "box_coder.faster_rcnn_box_coder."
#define NMS SSD "post_processing.batch_non_max_suppression."
#define CRO "train_config.data_augmentation_options.random_crop_image."
#define OPT "train_config.optimizer."
#define MOM OPT "momentum_optimizer."
#define LRA MOM "learning_rate.cosine_decay_learning_rate."

#define HYPERPARAMS(at)                                                                            \
    { at "conv_hyperparams.activation", IS, "RELU_6" },                                            \
        { at "conv_hyperparams.regularizer.l2_regularizer.weight", SETS, "weight_decay" },         \
        { at "conv_hyperparams.batch_norm.scale", IS, "true" },                                    \
        { at "conv_hyperparams.batch_norm.center", IS, "true" },                                   \
        { at "conv_hyperparams.batch_norm.train", IS, "true" },                                    \
        { at "conv_hyperparams.batch_norm.decay", IS, "0.997" },                                   \
    {                                                                                              \
        at "conv_hyperparams.batch_norm.epsilon", IS, "0.001"                                      \
    }

/* clang-format off */
static const row rows[] = {
    { SSD "num_classes", SETS, "num_classes" },
    { SSD "inplace_batchnorm_update", IS, "true" },
    { SSD "freeze_batchnorm", IGNORED, "no effect in the reference either" },
    { SSD "encode_background_as_zeros", IS, "true" },
    { SSD "negative_class_weight", IS, "1" },
    { SSD "normalize_loss_by_num_matches", IS, "true" },
    { SSD "normalize_loc_loss_by_codesize", IS, "true" },
    { SSD "image_resizer.fixed_shape_resizer.height", SETS, "image_size" },
    { SSD "image_resizer.fixed_shape_resizer.width", SETS, "image_size" },
    { SSD "similarity_calculator.iou_similarity", IGNORED, "" },

    { EXT "type", EXTRACTOR, NULL },
    { EXT "depth_multiplier", IS, "1" },
    { EXT "min_depth", IGNORED, "no layer is so narrow" },
    { EXT "pad_to_multiple", IS, "1" },
    { EXT "fpn.min_level", IS, "3" },
    { EXT "fpn.max_level", IS, "7" },
    { EXT "fpn.additional_layer_depth", IS, "256" },
    { EXT "override_base_feature_extractor_hyperparams", IS, "true" },
    { EXT "use_depthwise", IS, "false" },
    HYPERPARAMS(EXT),
    { EXT "conv_hyperparams.initializer.truncated_normal_initializer.stddev", IS, "0.03" },
    { EXT "conv_hyperparams.initializer.truncated_normal_initializer.mean", IS, "0" },

    { COD "y_scale", IS, "10" },
    { COD "x_scale", IS, "10" },
    { COD "height_scale", IS, "5" },
    { COD "width_scale", IS, "5" },

    { MAT "matched_threshold", IS, "0.5" },
    { MAT "unmatched_threshold", IS, "0.5" },
    { MAT "ignore_thresholds", IS, "false" },
    { MAT "negatives_lower_than_unmatched", IS, "true" },
    { MAT "force_match_for_each_row", IS, "true" },
    { MAT "use_matmul_gather", IGNORED, "how it is computed" },

    { ANC "min_level", IS, "3" },
    { ANC "max_level", IS, "7" },
    { ANC "anchor_scale", IS, "4" },
    { ANC "aspect_ratios", IS, "1|2|0.5" },
    { ANC "scales_per_octave", IS, "2" },
    { ANC "normalize_coordinates", IS, "true" },

    { BOX "depth", IS, "256" },
    { BOX "num_layers_before_predictor", IS, "4" },
    { BOX "kernel_size", IS, "3" },
    { BOX "class_prediction_bias_init", IS, "-4.6" },
    { BOX "use_dropout", IS, "false" },
    { BOX "share_prediction_tower", IS, "false" },
    { BOX "use_depthwise", IS, "false" },
    { BOX "box_code_size", IS, "4" },
    HYPERPARAMS(BOX),
    { BOX "conv_hyperparams.initializer.random_normal_initializer.stddev", IS, "0.01" },
    { BOX "conv_hyperparams.initializer.random_normal_initializer.mean", IS, "0" },

    { SSD "loss.classification_loss.weighted_sigmoid_focal.alpha", IS, "0.25" },
    { SSD "loss.classification_loss.weighted_sigmoid_focal.gamma", IS, "2" },
    { SSD "loss.classification_loss.weighted_sigmoid_focal.anchorwise_output", IGNORED, "" },
    { SSD "loss.localization_loss.weighted_smooth_l1.delta", IS, "1" },
    { SSD "loss.localization_loss.weighted_smooth_l1.anchorwise_output", IGNORED, "" },
    { SSD "loss.localization_loss.weighted_smooth_l1", IGNORED, "" },
    { SSD "loss.classification_weight", IS, "1" },
    { SSD "loss.localization_weight", IS, "1" },

    { NMS "score_threshold", SETS, "min_score" },
    { NMS "iou_threshold", SETS, "nms_iou" },
    { NMS "max_detections_per_class", SETS, "max_per_class" },
    { NMS "max_total_detections", SETS, "max_boxes" },
    { SSD "post_processing.score_converter", IS, "SIGMOID" },

    { "train_config.batch_size", SETS, "batch_size" },
    { "train_config.num_steps", SETS, "num_train_steps" },
    { "train_config.fine_tune_checkpoint", CHECKPOINT, NULL },
    { "train_config.fine_tune_checkpoint_type", IS, "classification" },
    { "train_config.from_detection_checkpoint", IS, "false" },
    { "train_config.load_all_detection_checkpoint_vars", IGNORED, "" },
    { "train_config.sync_replicas", IGNORED, "ranks are always in step" },
    { "train_config.startup_delay_steps", IGNORED, "ranks are always in step" },
    { "train_config.replicas_to_aggregate", IGNORED, "ranks are always in step" },
    { "train_config.max_number_of_boxes", IS, "100" },
    { "train_config.unpad_groundtruth_tensors", IGNORED, "how it is computed" },
    { "train_config.data_augmentation_options.random_horizontal_flip", IGNORED, "always done" },
    { CRO "min_object_covered", IS, "0" },
    { CRO "min_aspect_ratio", IS, "0.75" },
    { CRO "max_aspect_ratio", IS, "3" },
    { CRO "min_area", IS, "0.75" },
    { CRO "max_area", IS, "1" },
    { CRO "overlap_thresh", IS, "0" },
    { CRO "random_coef", IS, "0" },
    { CRO "clip_boxes", IS, "true" },
    { MOM "momentum_optimizer_value", SETS, "momentum" },
    { OPT "use_moving_average", IS, "false" },
    { LRA "learning_rate_base", SETS, "lr" },
    { LRA "total_steps", SETS, "lr_total_steps" },
    { LRA "warmup_learning_rate", SETS, "warmup_lr" },
    { LRA "warmup_steps", SETS, "warmup" },

    { "train_input_reader.tf_record_input_reader.input_path", WARNED, "DATA names the images" },
    { "train_input_reader.label_map_path", WARNED, "classes are those of the annotations" },
    { "eval_input_reader.tf_record_input_reader.input_path", WARNED, "DATA names the images" },
    { "eval_input_reader.label_map_path", WARNED, "classes are those of the annotations" },
    { "eval_input_reader.shuffle", IGNORED, "the order changes no result" },
    { "eval_input_reader.num_readers", IGNORED, "--workers" },
    { "train_input_reader.shuffle", IGNORED, "always done" },
    { "train_input_reader.num_readers", IGNORED, "--workers" },
    { "eval_config.metrics_set", IS, "coco_detection_metrics" },
    { "eval_config.use_moving_averages", IS, "false" },
    { "eval_config.num_examples", IGNORED, "the whole set is judged, as in the reference" },
    { "eval_config.max_evals", IGNORED, "" },
    { "eval_config.num_visualizations", IGNORED, "tandem detect --draw" },
    { "eval_config.batch_size", SETS, "eval_batch_size" },
};

/* TensorFlow's own names of overrides, and the fields they set. */
static const char *const nicknames[][2] = {
    { "learning_rate", LRA "learning_rate_base" },
    { "initial_learning_rate", LRA "learning_rate_base" },
    { "train_steps", "train_config.num_steps" },
    { "batch_size", "train_config.batch_size" },
    { "warmup_steps", LRA "warmup_steps" },
    { "focal_loss_gamma", SSD "loss.classification_loss.weighted_sigmoid_focal.gamma" },
    { "focal_loss_alpha", SSD "loss.classification_loss.weighted_sigmoid_focal.alpha" },
    { "train_input_path", "train_input_reader.tf_record_input_reader.input_path" },
    { "eval_input_path", "eval_input_reader.tf_record_input_reader.input_path" },
    { "label_map_path", "train_input_reader.label_map_path" },
};
/* clang-format on */

enum { N_ROWS = sizeof rows / sizeof *rows };

/* The options to set, and the source of the settings, for messages. */
typedef struct {
    const td_field_group *groups;
    td_arena *arena;
    const char *what;
    const char *size_text, *decay_text; /* values so far: each occurs twice and must be the same */
} setting;

static const row *find(const char *path)
{
    for (int i = 0; i < N_ROWS; i++)
        if (strcmp(rows[i].path, path) == 0)
            return &rows[i];
    return NULL;
}

/* Is `path` a message that contains known fields? */
static bool is_prefix(const char *path)
{
    const size_t n = strlen(path);
    for (int i = 0; i < N_ROWS; i++)
        if (strncmp(rows[i].path, path, n) == 0 && rows[i].path[n] == '.')
            return true;
    return false;
}

/* Do the values agree?  "0.5" equals ".5", "True" equals "true". */
static bool is_same(const char *found, const char *wanted, size_t n)
{
    double a, b;
    char word[40];
    snprintf(word, sizeof word, "%.*s", (int)n, wanted);
    if (td_text_to_real(found, &a) && td_text_to_real(word, &b))
        return fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b));
    return strcmp(found, word) == 0 ||
           (strcasecmp(found, word) == 0 && (*word == 't' || *word == 'f'));
}

static bool is_one_of(const char *found, const char *wanted)
{
    for (const char *s = wanted;; s++) {
        const size_t n = strcspn(s, "|");
        if (is_same(found, s, n))
            return true;
        s += n;
        if (!*s)
            return false;
    }
}

static td_status refuse(const setting *s, const td_proto_field *f, const char *supported)
{
    return td_error(TD_EUSAGE, "%s: line %d: '%s' is '%s', wanted %s", s->what, f->line, f->path,
                    f->value, supported);
}

/* --- effects ---------------------------------------------------------------------------------- */

static td_status set_option(const setting *s, const td_proto_field *f, const char *name,
                            const char *value)
{
    TD_TRY_MSG(td_options_set(s->groups, name, value, s->arena), "%s: line %d: '%s'", s->what,
               f->line, f->path);
    return TD_OK;
}

/* Set an option whose number occurs in two places. */
static td_status set_both(setting *s, const td_proto_field *f, const char *name, const char **seen)
{
    if (*seen && !is_same(f->value, *seen, strlen(*seen)))
        return refuse(s, f, *seen);
    *seen = f->value;
    return set_option(s, f, name, f->value);
}

/* Set the backbone from a name such as "ssd_resnet101_v1_fpn". */
static td_status set_extractor(const setting *s, const td_proto_field *f)
{
    static const char *const known[] = { "resnet18", "resnet34", "resnet50", "resnet101",
                                         "resnet152" };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        char name[40];
        snprintf(name, sizeof name, "ssd_%s_v1_fpn", known[i]);
        if (strcmp(f->value, name) == 0)
            return set_option(s, f, "backbone", known[i]);
    }
    return refuse(s, f, "ssd_resnet50_v1_fpn, or the same with resnet18, 34, 101 or 152");
}

/* A TensorFlow checkpoint is ignored with a warning: the published configuration names one. */
static td_status set_checkpoint(const setting *s, const td_proto_field *f)
{
    if (td_text_ends(f->value, ".safetensors") || td_text_ends(f->value, ".pth") ||
        td_text_ends(f->value, ".pt") || td_text_ends(f->value, ".tar"))
        return set_option(s, f, "pretrained_weights", f->value);
    td_log(TD_LOG_WARN, "train",
           "%s: line %d: '%s': ignoring a TensorFlow checkpoint, which is not supported; "
           "--pretrained-weights accepts .safetensors and PyTorch files",
           s->what, f->line, f->value);
    return TD_OK;
}

static td_status apply_one(setting *s, const row *r, const td_proto_field *f)
{
    switch (r->effect) {
    case SETS:
        if (strcmp(r->with, "image_size") == 0)
            return set_both(s, f, r->with, &s->size_text);
        if (strcmp(r->with, "weight_decay") == 0)
            return set_both(s, f, r->with, &s->decay_text);
        return set_option(s, f, r->with, f->value);
    case IS:
        return is_one_of(f->value, r->with) ? TD_OK : refuse(s, f, r->with);
    case EXTRACTOR:
        return set_extractor(s, f);
    case CHECKPOINT:
        return set_checkpoint(s, f);
    case WARNED:
        td_log(TD_LOG_INFO, "train", "%s: line %d: ignoring '%s': %s", s->what, f->line, f->path,
               r->with);
        return TD_OK;
    case IGNORED:
        return TD_OK;
    }
    return TD_OK;
}

static td_status apply_field(setting *s, const td_proto_field *f)
{
    const row *r = find(f->path);
    if (!f->value && (r || is_prefix(f->path)))
        return TD_OK;
    if (!r || !f->value)
        return td_error(TD_EUSAGE, "%s: line %d: '%s' is not a supported field", s->what, f->line,
                        f->path);
    return apply_one(s, r, f);
}

/* --- overrides -------------------------------------------------------------------------------- */

/* The row that matches an override's name; TD_EUSAGE: none, or several. */
static td_status find_named(const char *name, const row **out)
{
    const size_t n = strlen(name);
    int n_found = 0;
    *out = find(name);
    for (size_t i = 0; !*out && i < sizeof nicknames / sizeof *nicknames; i++)
        if (strcmp(nicknames[i][0], name) == 0)
            *out = find(nicknames[i][1]);
    if (*out)
        return TD_OK;
    for (int i = 0; i < N_ROWS; i++) {
        const size_t m = strlen(rows[i].path);
        if (m > n && rows[i].path[m - n - 1] == '.' && strcmp(rows[i].path + m - n, name) == 0) {
            *out = &rows[i];
            n_found++;
        }
    }
    if (n_found == 1)
        return TD_OK;
    return td_error(TD_EUSAGE,
                    n_found
                        ? "--hparams-overrides: '%s' matches several fields, give the whole path"
                        : "--hparams-overrides: unknown field '%s'",
                    name);
}

static td_status override(setting *s, char *pair)
{
    const row *r;
    char *value = strchr(pair, '=');
    if (!value || value == pair)
        return td_error(TD_EUSAGE, "--hparams-overrides: '%s' is not a NAME=VALUE", pair);
    *value++ = '\0';
    TD_TRY(find_named(pair, &r));
    const td_proto_field f = { .path = r->path, .value = value, .line = 1 };
    s->size_text = s->decay_text = NULL; /* an override may differ from the file */
    return apply_one(s, r, &f);
}

static td_status apply_overrides(setting *s, const char *overrides)
{
    if (!overrides || !*overrides)
        return TD_OK;
    char *all = td_arena_text(s->arena, overrides);
    if (!all)
        return TD_ENOMEM;
    s->what = "--hparams-overrides";
    for (char *next = all; next;) {
        char *pair = next;
        next = strchr(pair, ',');
        if (next)
            *next++ = '\0';
        TD_TRY(override(s, pair));
    }
    return TD_OK;
}

/* --- the whole file --------------------------------------------------------------------------- */

td_status td_pipeline_apply(const char *text, size_t n, const char *what, const char *overrides,
                            const td_field_group *groups, td_arena *arena)
{
    td_prototext p;
    setting s = { .groups = groups, .arena = arena, .what = what };
    TD_TRY(td_prototext_parse(text, n, what, &p));
    td_status st = TD_OK;
    for (size_t i = 0; i < p.n && st == TD_OK; i++)
        st = apply_field(&s, &p.fields[i]);
    if (st == TD_OK)
        st = apply_overrides(&s, overrides);
    td_prototext_release(&p);
    return st;
}

td_status td_pipeline_read(const char *path, const char *overrides, const td_field_group *groups,
                           td_arena *arena)
{
    char *text;
    size_t n;
    TD_TRY(td_file_read(path, TD_PROTOTEXT_BYTES_MAX, &text, &n));
    td_status st = td_pipeline_apply(text, n, path, overrides, groups, arena);
    td_free(text);
    return st;
}
