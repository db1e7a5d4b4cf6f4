/*
 * checkpoint.c -- writes a run's state to a file and reads it back
 */
#include "checkpoint/checkpoint.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/file_io.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/class_list.h"
#include "checkpoint/weights.h"
#include "image/image.h"
#include "image/norm_text.h"
#include "model/arch.h"
#include "model/own_graph.h"

#define VERSION "1"

enum { IMAGE_SIZE_OF_FILE = 2048 }; /* the largest image size that a file may set */

static td_status set_number(td_tensors *t, const char *key, int64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)value);
    return td_tensors_set_meta(t, key, text);
}

static td_status set_epsilon(td_tensors *t, double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.17g", value);
    return td_tensors_set_meta(t, TD_EPSILON_META, text);
}

/* Store the network of a graph file as text. */
static td_status set_graph(td_tensors *t, const td_model_opts *model)
{
    char *text;
    size_t n;
    TD_TRY(td_model_graph_text(model, &text));
    if (text) {
        const td_status st = td_tensors_set_meta(t, "tandem.graph", text);
        td_text_free(text);
        return st;
    }
    if (model->model_text)
        return td_tensors_set_meta(t, "tandem.graph", model->model_text);
    TD_TRY(td_file_read(model->model, (size_t)64 << 20, &text, &n));
    td_status st = td_tensors_set_meta(t, "tandem.graph", text);
    td_free(text);
    return st;
}

static td_status set_categories(td_tensors *t, const td_weight_metadata *f)
{
    td_text ids = { 0 };
    td_text_add(&ids, "[");
    for (int i = 0; i < f->n_names; i++)
        td_text_add(&ids, i ? ", %lld" : "%lld", (long long)f->categories[i]);
    td_text_add(&ids, "]");
    td_status st = td_text_status(&ids);
    if (st == TD_OK)
        st = td_tensors_set_meta(t, "tandem.categories", td_text_get(&ids));
    td_text_release(&ids);
    return st;
}

td_status td_weight_norm_store(td_tensors *t, const td_model_opts *model)
{
    char mean[TD_NORM_TEXT], std[TD_NORM_TEXT];
    const td_norm *n = &model->norm;
    const int channels = td_model_channels(model);
    if (!(n->std[0] > 0) || memcmp(n, td_norm_of_channels(channels), sizeof *n) == 0)
        return TD_OK;
    td_norm_print(n->mean, channels, mean);
    td_norm_print(n->std, channels, std);
    TD_TRY(td_tensors_set_meta(t, TD_NORM_META_MEAN, mean));
    return td_tensors_set_meta(t, TD_NORM_META_STD, std);
}

td_status td_weight_metadata_store(td_tensors *t, const char *kind, const td_weight_metadata *f)
{
    td_status st = TD_OK;
    td_text names = { 0 };
    TD_OUT(td_tensors_set_meta(t, "format", "pt")); /* required by Hugging Face's loaders */
    TD_OUT(td_tensors_set_meta(t, "tandem.kind", kind));
    TD_OUT(td_tensors_set_meta(t, "tandem.version", VERSION));
    if (f->model->model || f->model->model_text)
        TD_OUT(set_graph(t, f->model));
    else
        TD_OUT(td_tensors_set_meta(t, "tandem.arch", f->model->arch));
    TD_OUT(set_number(t, "tandem.num_classes", f->num_classes));
    if (f->model->image_size)
        TD_OUT(set_number(t, "tandem.image_size", f->model->image_size));
    if (td_model_channels(f->model) != 3)
        TD_OUT(set_number(t, "tandem.channels", td_model_channels(f->model)));
    if (f->model->val_resize)
        TD_OUT(set_number(t, "tandem.val_resize", f->model->val_resize));
    if (f->model->multi_label)
        TD_OUT(set_number(t, "tandem.multi_label", 1));
    TD_OUT(set_number(t, "tandem.se_form", f->model->se_form));
    if (f->model->variant == TD_VARIANT_TENSORFLOW)
        TD_OUT(td_tensors_set_meta(t, "tandem.variant", td_variant_name(TD_VARIANT_TENSORFLOW)));
    TD_OUT(td_weight_norm_store(t, f->model));
    if (f->model->bn_epsilon >= 0 && !td_model_lacks(f->model, "bn_epsilon"))
        TD_OUT(set_epsilon(t, f->model->bn_epsilon));
    if (td_model_detector(f->model) && !td_model_lacks(f->model, "backbone"))
        TD_OUT(td_tensors_set_meta(t, "tandem.backbone", f->model->backbone));
    if (f->n_names) {
        TD_OUT(td_classes_to_json(f->n_names, f->names, &names));
        TD_OUT(td_tensors_set_meta(t, "tandem.classes", td_text_get(&names)));
    }
    if (f->n_names && f->categories)
        TD_OUT(set_categories(t, f));
out:
    td_text_release(&names);
    return st;
}

/* Add a number, or null if it is not finite, which JSON cannot express. */
static void add_real(td_text *j, const char *key, double value)
{
    td_text_add(j, ", \"%s\": ", key);
    td_text_add(j, isfinite(value) ? "%.17g" : "null", value);
}

static void add_scaler(td_text *j, const td_run_state *s)
{
    td_text_add(j, ", \"epoch_skipped\": %lld, \"scaler\": {\"kind\": \"%s\"",
                (long long)s->epoch_skipped, td_scaler_kind_name(s->scaler.kind));
    add_real(j, "scale", s->scaler.scale);
    td_text_add(j, ", \"good\": %lld, \"skipped\": %lld, \"in_row\": %lld}",
                (long long)s->scaler.good_steps, (long long)s->scaler.skipped,
                (long long)s->scaler.skipped_in_row);
}

/* Add the position inside a step; nothing if a step has one batch. */
static void add_step(td_text *j, const td_step_state *s)
{
    if (s->n_batches <= 1)
        return;
    td_text_add(j, ", \"step\": {\"done\": %lld, \"of\": %lld, \"in_epoch\": %lld",
                (long long)s->done, (long long)s->n_batches, (long long)s->in_epoch);
    add_real(j, "loss_sum", s->loss_sum);
    add_real(j, "ema_before", s->ema_before);
    td_text_add(j, "}");
}

static void add_boxes(td_text *j, const double *boxes)
{
    td_text_add(j, ", \"best_boxes\": [");
    for (int i = 0; i < TD_BOX_METRICS; i++)
        td_text_add(j, i ? ", %.17g" : "%.17g", boxes[i]);
    td_text_add(j, "]");
}

/* Names of the scores of a classifier and of a detector. */
static const char *const score_names[3][3] = { { "best_top1", "top1", "topk" },
                                               { "best_ap", "ap", "ap50" },
                                               { "best_map", "map", "micro_f1" } };

/* ... and of a multi-label classifier. */
static const char *const *score_names_of(const td_run_state *s)
{
    return score_names[s->detects ? 1 : s->is_multi_label ? 2 : 0];
}

td_status td_checkpoint_set_state(td_tensors *t, const td_run_state *s)
{
    td_text j = { 0 };
    const char *const *names = score_names_of(s);
    td_text_add(&j, "{\"epoch\": %lld, \"iteration\": %lld, \"steps\": %lld, ", (long long)s->epoch,
                (long long)s->iteration, (long long)s->steps);
    td_text_add(&j, "\"batches_tracked\": %lld, \"seed\": %lld, \"best_epoch\": %lld",
                (long long)s->batches_tracked, (long long)s->seed, (long long)s->best_epoch);
    td_text_add(&j, ", \"without_best\": %lld", (long long)s->n_without_best);
    add_real(&j, names[0], s->best);
    if (s->detects && s->best >= 0 && s->best_boxes[TD_BOX_AP] >= 0)
        add_boxes(&j, s->best_boxes);
    add_real(&j, "loss_sum", s->loss_sum);
    add_real(&j, "train_loss", s->last_train_loss);
    add_real(&j, "val_loss", s->last_val_loss);
    add_real(&j, names[1], s->last);
    add_real(&j, names[2], s->last_second);
    add_scaler(&j, s);
    add_step(&j, &s->step);
    if (s->ranks > 1)
        td_text_add(&j, ", \"ranks\": %lld", (long long)s->ranks);
    td_text_add(&j, "}");
    td_status st = td_text_status(&j);
    if (st == TD_OK)
        st = td_tensors_set_meta(t, "tandem.state", td_text_get(&j));
    td_text_release(&j);
    return st;
}

static td_status check_finite(const td_tensors *t, bool with_step, const char *path)
{
    const td_status st = td_weights_check_finite(t, with_step);
    return st == TD_OK
               ? st
               : td_error_context(st, "'%s' was not written and keeps its previous contents", path);
}

td_status td_checkpoint_save(const char *path, td_program *p, const td_run_state *s,
                             const td_weight_metadata *metadata, const char *config_json)
{
    td_status st = TD_OK;
    td_tensors *t;
    TD_TRY(td_tensors_new(&t));
    TD_OUT(td_weight_metadata_store(t, "checkpoint", metadata));
    TD_OUT(td_checkpoint_set_state(t, s));
    TD_OUT(td_tensors_set_meta(t, "tandem.config", config_json));
    TD_OUT(td_weights_save(p, TD_SAVE_STATE | TD_SAVE_EMA | (s->step.done ? TD_SAVE_STEP : 0),
                           s->batches_tracked, metadata->tracked, t));
    TD_OUT(check_finite(t, s->scaler.kind == TD_SCALER_NONE, path));
    TD_OUT(td_tensors_write(t, path));
out:
    td_tensors_free(t);
    return st;
}

td_status td_weight_file_save(const char *path, td_program *p, unsigned what, int64_t batches,
                              const td_weight_metadata *metadata)
{
    td_status st = TD_OK;
    td_tensors *t;
    TD_TRY(td_tensors_new(&t));
    TD_OUT(td_weight_metadata_store(t, "weights", metadata));
    TD_OUT(td_weights_save(p, what, batches, metadata->tracked, t));
    TD_OUT(check_finite(t, true, path));
    TD_OUT(td_tensors_write(t, path));
out:
    td_tensors_free(t);
    return st;
}

static td_status read_real(const td_json *j, const char *key, double *out)
{
    const td_json *v = td_json_get(j, key);
    if (v && td_json_kind_of(v) == TD_JSON_NULL) {
        *out = NAN;
        return TD_OK;
    }
    return td_json_number(j, key, out);
}

static td_status read_kind(const td_json *j, td_scaler_kind *out)
{
    const char *name;
    TD_TRY(td_json_text(j, "kind", &name));
    for (int k = TD_SCALER_NONE; k <= TD_SCALER_DYNAMIC; k++)
        if (strcmp(name, td_scaler_kind_name((td_scaler_kind)k)) == 0) {
            *out = (td_scaler_kind)k;
            return TD_OK;
        }
    return td_error(TD_EFORMAT, "unknown loss scaling '%s'", name);
}

/* Files without these members are older than loss scaling. */
static td_status read_scaler(const td_json *state, td_run_state *s)
{
    const td_json *j = td_json_get(state, "scaler");
    td_scaler_begin(&s->scaler, TD_SCALER_NONE, TD_SCALER_TF, 0, 0);
    if (!j)
        return TD_OK;
    TD_TRY(td_json_int(state, "epoch_skipped", &s->epoch_skipped));
    TD_TRY(read_kind(j, &s->scaler.kind));
    TD_TRY(td_json_number(j, "scale", &s->scaler.scale));
    TD_TRY(td_json_int(j, "good", &s->scaler.good_steps));
    TD_TRY(td_json_int(j, "skipped", &s->scaler.skipped));
    TD_TRY(td_json_int(j, "in_row", &s->scaler.skipped_in_row));
    if (!(s->scaler.scale >= (double)FLT_MIN && s->scaler.scale <= (double)FLT_MAX))
        return td_error(TD_EFORMAT, "its loss scale is %g, wanted a positive number",
                        s->scaler.scale);
    if (s->scaler.good_steps < 0 || s->scaler.skipped < 0 || s->scaler.skipped_in_row < 0 ||
        s->epoch_skipped < 0 || s->epoch_skipped > s->iteration)
        return td_error(TD_EFORMAT, "a loss scaling counter is out of range");
    return TD_OK;
}

/* Steps with one batch do not have these members. */
static td_status read_step(const td_json *state, td_step_state *s)
{
    const td_json *j = td_json_get(state, "step");
    *s = (td_step_state){ .n_batches = 1, .ema_before = 1 };
    if (!j)
        return TD_OK;
    TD_TRY(td_json_int(j, "done", &s->done));
    TD_TRY(td_json_int(j, "of", &s->n_batches));
    TD_TRY(td_json_int(j, "in_epoch", &s->in_epoch));
    TD_TRY(read_real(j, "loss_sum", &s->loss_sum));
    TD_TRY(td_json_number(j, "ema_before", &s->ema_before));
    if (s->ema_before == -1) /* older files, of runs without averages */
        s->ema_before = 1;
    if (s->n_batches < 1 || s->done < 0 || s->done >= s->n_batches || s->in_epoch < 0 ||
        s->in_epoch > s->done || !(s->ema_before >= 0 && s->ema_before <= 1))
        return td_error(TD_EFORMAT, "its position inside an optimizer step is out of range");
    return TD_OK;
}

/* Older files lack them. */
static td_status read_boxes(const td_json *state, double *boxes)
{
    const td_json *j = td_json_get(state, "best_boxes");
    for (int i = 0; i < TD_BOX_METRICS; i++)
        boxes[i] = -1;
    if (!j)
        return TD_OK;
    if (td_json_count(j) != TD_BOX_METRICS)
        return td_error(TD_EFORMAT, "best_boxes has %zu numbers, wanted %d", td_json_count(j),
                        TD_BOX_METRICS);
    for (int i = 0; i < TD_BOX_METRICS; i++) {
        TD_TRY(td_json_as_number(td_json_at(j, (size_t)i), &boxes[i]));
        if (!(boxes[i] >= -1 && boxes[i] <= 1))
            return td_error(TD_EFORMAT, "best_boxes has %g, wanted -1 to 1", boxes[i]);
    }
    return TD_OK;
}

static td_status read_state(const td_json *j, td_run_state *s)
{
    int64_t seed;
    TD_TRY(td_json_int(j, "epoch", &s->epoch));
    TD_TRY(td_json_int(j, "iteration", &s->iteration));
    TD_TRY(td_json_int(j, "steps", &s->steps));
    TD_TRY(td_json_int(j, "batches_tracked", &s->batches_tracked));
    TD_TRY(td_json_int(j, "seed", &seed));
    TD_TRY(td_json_int(j, "best_epoch", &s->best_epoch));
    s->n_without_best = -1;
    if (td_json_get(j, "without_best"))
        TD_TRY(td_json_int(j, "without_best", &s->n_without_best));
    s->detects = td_json_get(j, score_names[1][0]) != NULL;
    s->is_multi_label = td_json_get(j, score_names[2][0]) != NULL;
    const char *const *names = score_names_of(s);
    TD_TRY(td_json_number(j, names[0], &s->best));
    TD_TRY(read_boxes(j, s->best_boxes));
    TD_TRY(td_json_number(j, "loss_sum", &s->loss_sum));
    TD_TRY(read_real(j, "train_loss", &s->last_train_loss));
    TD_TRY(read_real(j, "val_loss", &s->last_val_loss));
    TD_TRY(td_json_number(j, names[1], &s->last));
    TD_TRY(td_json_number(j, names[2], &s->last_second));
    s->seed = (uint64_t)seed;
    s->ranks = 1;
    if (td_json_get(j, "ranks"))
        TD_TRY(td_json_int(j, "ranks", &s->ranks));
    if (s->ranks < 1 || s->ranks > 1000000)
        return td_error(TD_EFORMAT, "its number of ranks is %lld", (long long)s->ranks);
    if (s->epoch < 0 || s->iteration < 0 || s->steps < 0 || s->n_without_best < -1)
        return td_error(TD_EFORMAT, "a counter is negative");
    TD_TRY(read_step(j, &s->step));
    return read_scaler(j, s);
}

td_status td_checkpoint_state(const td_tensors *t, const char *path, td_run_state *out)
{
    const char *kind = td_tensors_meta(t, "tandem.kind");
    const char *version = td_tensors_meta(t, "tandem.version");
    const char *state = td_tensors_meta(t, "tandem.state");
    td_json *j;
    *out = (td_run_state){ 0 };
    if (!kind || strcmp(kind, "checkpoint") != 0 || !version || !state)
        return td_error(
            TD_EFORMAT,
            "'%s' is not a checkpoint%s; use --pretrained-weights for a file of weights only", path,
            kind ? " but a weight file" : "");
    if (strcmp(version, VERSION) != 0)
        return td_error(
            TD_EFORMAT,
            "'%s' is a checkpoint of version %s, this program supports version " VERSION, path,
            version);
    TD_TRY_MSG(td_json_parse(state, strlen(state), "tandem.state", &j), "'%s'", path);
    td_status st = read_state(j, out);
    td_json_free(j);
    return st == TD_OK ? st : td_error_context(st, "'%s': tandem.state", path);
}

static int meta_number(const td_tensors *t, const char *key)
{
    int64_t v;
    const char *text = td_tensors_meta(t, key);
    return text && td_text_to_int(text, &v) && v >= 0 && v <= 1 << 24 ? (int)v : 0;
}

/* The variant: our files name it unless it is PyTorch's; in other programs' files it is unknown. */
static td_variant meta_variant(const td_tensors *t)
{
    const char *text = td_tensors_meta(t, "tandem.variant");
    if (text && strcmp(text, td_variant_name(TD_VARIANT_TENSORFLOW)) == 0)
        return TD_VARIANT_TENSORFLOW;
    return td_tensors_meta(t, "tandem.arch") ? TD_VARIANT_PYTORCH : TD_VARIANT_AUTO;
}

void td_weight_variant_apply(const td_tensors *t, td_model_opts *model)
{
    model->weights_variant = meta_variant(t);
    if (!model->variant && !model->model && !model->model_text)
        model->variant = model->weights_variant;
}

/* The architecture named by the file, or NULL. */
static const td_arch *meta_arch(const td_tensors *t)
{
    const char *arch = td_tensors_meta(t, "tandem.arch");
    return arch ? td_arch_known(arch) : NULL;
}

/*
 * Does the file have the names that RetinaNet's layers had before torchvision 0.13?  Those of the
 * published weights, COCO_V1; their norms were trained with epsilon 0.
 */
static bool has_early_names(const td_tensors *t)
{
    return td_tensors_get(t, "head.classification_head.conv.6.weight") &&
           !td_tensors_meta(t, "tandem.kind");
}

/* The file's epsilon; -1: unknown. */
static double meta_epsilon(const td_tensors *t)
{
    double v;
    const char *text = td_tensors_meta(t, TD_EPSILON_META);
    if (text && td_text_to_real(text, &v) && v >= 0 && v <= 1)
        return v;
    return has_early_names(t) ? 0 : -1;
}

td_status td_weight_epsilon_copy(const td_tensors *from, td_tensors *to)
{
    const double file = meta_epsilon(from);
    return file < 0 ? TD_OK : set_epsilon(to, file);
}

void td_weight_epsilon_apply(const td_tensors *t, td_model_opts *model)
{
    const double file = meta_epsilon(t);
    const td_arch *is = meta_arch(t), *wanted = td_arch_known(model->arch);
    if (file < 0 || model->model || model->model_text || !wanted)
        return;
    if (is ? is != wanted : wanted->detector != TD_DETECTOR_RETINANET)
        return;
    if (td_options_chosen(td_model_fields(), model, "bn_epsilon")) {
        if (model->bn_epsilon != file)
            td_log(TD_LOG_WARN, "weights", "the weights' --bn-epsilon is %g, now it is %g", file,
                   model->bn_epsilon);
        return;
    }
    model->bn_epsilon = file;
    if (has_early_names(t))
        td_log(TD_LOG_INFO, "weights",
               "--bn-epsilon 0, as for torchvision's COCO_V1 weights, whose names these are; set "
               "1e-5 if the network was trained from ImageNet's weights");
}

void td_weight_backbone_apply(const td_tensors *t, td_model_opts *model)
{
    const td_arch *arch = meta_arch(t);
    const char *backbone = td_tensors_meta(t, "tandem.backbone");
    const td_arch *row = backbone ? td_arch_known(backbone) : NULL;
    const bool is_chosen = td_options_chosen(td_model_fields(), model, "backbone");
    if (row && !is_chosen && arch && arch->detector && td_arch_known(model->arch) == arch)
        model->backbone = row->name;
}

td_status td_weight_channels_check(const td_tensors *t, const char *path,
                                   const td_model_opts *model)
{
    if (td_model_detector(model) || model->channels != 3 || td_weights_channels(t, model) != 1)
        return TD_OK;
    return td_error(TD_EUSAGE,
                    "'%s' contains weights for gray images, which --channels 3 cannot load", path);
}

td_status td_weight_metadata_check(const td_tensors *t, const char *path,
                                   const td_model_opts *model)
{
    const td_arch *is = meta_arch(t), *wanted = td_arch_known(model->arch);
    const char *backbone = td_tensors_meta(t, "tandem.backbone");
    const char *name = td_tensors_meta(t, "tandem.arch");
    if (name && !is && !wanted && !model->model && !model->model_text)
        return td_error(TD_EFORMAT,
                        "'%s' is for the architecture '%.200s', which this version does not know; "
                        "--arch names another",
                        path, name);
    TD_TRY(td_weight_channels_check(t, path, model));
    if (!is || !wanted || model->model || model->model_text)
        return TD_OK;
    if (is != wanted && (is->detector || wanted->detector))
        return td_error(TD_EUSAGE, "'%s' contains weights of %s, which --arch %s cannot load", path,
                        is->name, wanted->name);
    if (is->detector && backbone && td_arch_known(backbone) != td_arch_known(model->backbone))
        return td_error(
            TD_EUSAGE,
            "'%s' contains weights of %s with the backbone %s, which --backbone %s cannot load",
            path, is->name, backbone, model->backbone);
    return TD_OK;
}

bool td_weight_arch_apply(const td_tensors *t, td_model_opts *model)
{
    const char *arch = td_tensors_meta(t, "tandem.arch");
    model->model_text = td_tensors_meta(t, "tandem.graph");
    if (arch) {
        model->arch = arch;
        td_options_mark(td_model_fields(), model, "arch");
    }
    if (arch && td_tensors_meta(t, "tandem.se_form"))
        model->se_form = meta_number(t, "tandem.se_form") ? TD_SE_FORM_RATIO : TD_SE_FORM_CONST;
    return arch || model->model_text;
}

/* Limited, so that a hostile file cannot make one image take minutes and gigabytes. */
int td_weight_image_size(const td_tensors *t)
{
    const char *text = td_tensors_meta(t, "tandem.image_size");
    const int n = meta_number(t, "tandem.image_size");
    if (!text || (n > 0 && n <= IMAGE_SIZE_OF_FILE))
        return n;
    td_log(TD_LOG_WARN, "weights",
           "ignoring the file's image size '%.20s', wanted 1 to %d: set it with --image-size", text,
           IMAGE_SIZE_OF_FILE);
    return 0;
}

void td_weight_resize_apply(const td_tensors *t, td_model_opts *model)
{
    const int n = meta_number(t, "tandem.val_resize");
    const bool is_in_range = n >= model->image_size && n <= IMAGE_SIZE_OF_FILE;
    if (!n || model->val_resize || model->image_size != meta_number(t, "tandem.image_size"))
        return; /* of another image size */
    if (is_in_range)
        model->val_resize = n;
    else
        td_log(TD_LOG_WARN, "weights",
               "ignoring the file's --val-resize %d, wanted %d, its image size, to %d", n,
               model->image_size, IMAGE_SIZE_OF_FILE);
}

/* Warn if the file is another program's, which may have been trained with another image size. */
static void log_unknown_size(const td_tensors *t, const td_model_opts *model)
{
    const td_arch *arch = model->model || model->model_text ? NULL : td_arch_known(model->arch);
    if (arch && !td_tensors_meta(t, "tandem.kind"))
        td_log(TD_LOG_WARN, "weights",
               "image size %d: the weight file does not name one (--image-size sets it)",
               arch->image_size);
}

/* The file's; ImageNet's if it names none.  False: unknown, a file of another program. */
static td_status meta_norm(const td_tensors *t, int channels, td_norm *out, bool *is_known)
{
    const char *mean = td_tensors_meta(t, TD_NORM_META_MEAN),
               *std = td_tensors_meta(t, TD_NORM_META_STD);
    *out = *td_norm_of_channels(channels);
    *is_known = mean || std || td_tensors_meta(t, "tandem.kind");
    td_status st = mean ? td_norm_parse_mean(mean, TD_NORM_META_MEAN, channels, out->mean) : TD_OK;
    if (st == TD_OK && std)
        st = td_norm_parse_std(std, TD_NORM_META_STD, channels, out->std);
    return st == TD_OK ? st : td_error_set(TD_EFORMAT, td_error_message());
}

static td_status compare_norm(const td_tensors *t, const char *path, bool is_same, int channels,
                              const char *option, const float file[3], const float given[3])
{
    char has[TD_NORM_TEXT], wanted[TD_NORM_TEXT];
    const char *nodes = td_tensors_meta(t, TD_NORM_META_NODES);
    if (memcmp(file, given, 3 * sizeof *file) == 0)
        return TD_OK;
    td_norm_print(file, channels, has);
    td_norm_print(given, channels, wanted);
    if (nodes)
        return td_error(TD_EUSAGE,
                        "'%s' normalizes its images by itself (%.200s), as --%s %s does, but --%s "
                        "is %s",
                        path, nodes, option, has, option, wanted);
    if (is_same)
        return td_error(TD_EUSAGE, "'%s' was trained with --%s %s, but --%s is %s", path, option,
                        has, option, wanted);
    td_log(TD_LOG_WARN, "weights", "'%s' was trained with --%s %s, now --%s is %s", path, option,
           has, option, wanted);
    return TD_OK;
}

td_status td_weight_norm_apply(const td_tensors *t, const char *path, bool is_same,
                               td_model_opts *model)
{
    td_norm file;
    bool is_known;
    const int has = td_weights_channels(t, model), channels = has ? has : td_model_channels(model);
    TD_TRY_MSG(meta_norm(t, channels, &file, &is_known), "'%s'", path);
    if (td_model_detector(model)) /* its values are fixed */
        return td_model_resolve_norm(model);
    if (channels != td_model_channels(model)) /* those of red, green and blue are not gray's */
        return td_model_resolve_norm(model);
    if (td_tensors_meta(t, TD_NORM_META_MEAN) || td_tensors_meta(t, TD_NORM_META_STD))
        model->norm = file;
    TD_TRY(td_model_resolve_norm(model));
    if (is_known && model->mean)
        TD_TRY(compare_norm(t, path, is_same, channels, "mean", file.mean, model->norm.mean));
    if (is_known && model->std)
        TD_TRY(compare_norm(t, path, is_same, channels, "std", file.std, model->norm.std));
    return TD_OK;
}

void td_weight_metadata_apply(const td_tensors *t, bool take_arch, td_model_opts *model)
{
    if (take_arch)
        (void)td_weight_arch_apply(t, model);
    td_weight_backbone_apply(t, model);
    td_weight_variant_apply(t, model);
    td_weight_epsilon_apply(t, model);
    model->multi_label = model->multi_label || meta_number(t, "tandem.multi_label") == 1;
    if (!model->channels)
        model->channels = td_weights_channels(t, model);
    if (!model->num_classes)
        model->num_classes = meta_number(t, "tandem.num_classes");
    if (!model->num_classes)
        model->num_classes = td_weights_classes(t, model);
    if (!model->image_size)
        model->image_size = td_weight_image_size(t);
    if (!model->image_size)
        model->image_size = td_weights_side(t, model);
    if (!model->image_size)
        log_unknown_size(t, model);
    td_weight_resize_apply(t, model);
}
