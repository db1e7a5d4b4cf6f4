/*
 * resolve_options.c -- converts options of other programs and of presets to Tandem's
 *
 * Members of td_launch_opts become options of the training after all options have been read.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/paths.h"
#include "base/status.h"
#include "base/text.h"
#include "boxes/anchors.h"
#include "options/field.h"
#include "recipes/preset.h"
#include "recipes/train_options.h"
#include "tandem/compat.h"
#include "tandem/detection.h"
#include "tandem/input.h"
#include "tandem/launch.h"
#include "tandem/model.h"
#include "tandem/recipes.h"
#include "tandem/train.h"
#include "transport/rank_env.h"
#include "transport/restart.h"

#define SSD320_LR    0.02 /* for SSD320_BATCH images per step */
#define SSD320_BATCH 32

/* images per step at a rate of 1: 0.15 for 192, and 0.01 for 16 */
#define SSDLITE_IMAGES   1280
#define RETINANET_IMAGES 1600

/* what torchvision freezes if the backbone has weights: the first stages, and all norms */
#define RETINANET_FROZEN                                                                           \
    "backbone.body.conv1.*,backbone.body.layer1.*,backbone.body.*bn?.*,"                           \
    "backbone.body.*.downsample.1.*"

static bool is_mode(const td_train_opts *o, const char *mode)
{
    return o->launch.mode && strcmp(o->launch.mode, mode) == 0;
}

static td_status resolve_iterations(td_train_opts *o)
{
    const td_launch_opts *l = &o->launch;
    const char *what = NULL;
    if (l->num_iter == 0)
        what = "--num-iter";
    else if (l->run_iter == 0)
        what = "--run-iter";
    if (what)
        return td_error(TD_EUSAGE, "%s: 0 is out of range, wanted 1 or more, or -1", what);
    if (l->iter_unit == TD_ITER_EPOCHS) {
        if (l->num_iter > 1000000 || l->run_iter > 1000000)
            return td_error(TD_EUSAGE, "--num-iter: more than 1000000 epochs");
        if (l->num_iter > 0)
            o->length.epochs = l->num_iter;
        if (l->run_iter > 0)
            o->length.run_epochs = l->run_iter;
        return TD_OK;
    }
    if (l->num_iter > 0) {
        o->length.num_steps = l->num_iter;
        td_options_mark(td_train_fields(), o, "num_train_steps");
    }
    if (l->run_iter > 0)
        o->length.run_steps = l->run_iter;
    return TD_OK;
}

/* --epochs replaces a preset's number of steps, but not one that the user gave. */
static void replace_steps(td_train_opts *o)
{
    const td_field *fields = td_train_fields();
    if (o->start.resume || td_options_given(fields, o, "num_train_steps"))
        return;
    o->length.num_steps = -1;
    if (!td_options_given(fields, o, "lr_total_steps"))
        o->lr.total_steps = -1;
    if (!td_options_given(fields, o, "warmup"))
        o->lr.warmup = -1;
}

/* With another image size, a recipe's sizes of training images and of the resize are dropped. */
static void resolve_sizes(td_train_opts *o)
{
    const td_launch_opts *l = &o->launch;
    if (!l->sizes.image_size || l->sizes.image_size == o->model.image_size)
        return;
    if (o->batch.image_size_schedule == l->sizes.schedule)
        o->batch.image_size_schedule = NULL;
    if (o->model.val_resize == l->sizes.val_resize &&
        !td_options_given_on_line(td_model_fields(), &o->model, "val_resize"))
        o->model.val_resize = 0;
}

/* The learning rate for a step of so many images. */
static double detector_rate(td_detector detector, double batch)
{
    if (detector == TD_DETECTOR_SSDLITE)
        return batch / SSDLITE_IMAGES;
    if (detector == TD_DETECTOR_RETINANET)
        return batch / RETINANET_IMAGES;
    return SSD320_LR * batch / SSD320_BATCH;
}

/* torchvision's RetinaNet has constant norms and first stages if training begins with weights. */
static void freeze_backbone(td_train_opts *o)
{
    const td_field *fields = td_train_fields();
    if (td_model_detector(&o->model) != TD_DETECTOR_RETINANET || !o->start.pretrained_weights ||
        o->start.resume || td_options_chosen(fields, o, "freeze") ||
        td_options_given(fields, o, "freeze_bn"))
        return;
    o->optimizer.freeze = RETINANET_FROZEN;
    o->optimizer.freezes_bn = true;
    td_options_mark(fields, o, "freeze");
    td_options_mark(fields, o, "freeze_bn");
}

/* Set the options that a detector's preset left open. */
static void resolve_detector(td_train_opts *o, double batch)
{
    freeze_backbone(o);
    if (o->lr.peak == TD_PRESET_OPEN)
        o->lr.peak = detector_rate(td_model_detector(&o->model), batch);
    if (o->length.epochs == TD_PRESET_OPEN)
        o->length.epochs = 1; /* num_steps determines the number of epochs */
    else if (o->launch.counts_steps)
        replace_steps(o);
}

/* Replace --no-dynamic-loss-scale by its meaning, which is saved: a fixed scale, 1 unless given. */
static void resolve_scaler(td_train_opts *o)
{
    if (o->loss_scaling.allow_dynamic)
        return;
    o->loss_scaling.allow_dynamic = true;
    o->loss_scaling.is_dynamic = false;
    o->loss_scaling.scaler = TD_LOSS_SCALER_AUTO;
    if (o->loss_scaling.scale < 0)
        o->loss_scaling.scale = 1;
}

/* NVIDIA's EfficientNets name the probability that a block stays. */
static td_status resolve_survival(td_train_opts *o)
{
    const double stays = o->launch.survival_prob;
    if (stays == -1)
        return TD_OK;
    if (!(stays > 0))
        return td_error(TD_EUSAGE, "--survival-prob is %g, wanted more than 0 and at most 1",
                        stays);
    if (td_options_given_on_line(td_model_fields(), &o->model, "stochastic_depth"))
        return td_error(TD_EUSAGE, "--survival-prob and --stochastic-depth exclude each other: the "
                                   "first is 1 minus the second");
    o->model.stochastic_depth = 1 - stays;
    td_options_mark(td_model_fields(), &o->model, "stochastic_depth");
    return TD_OK;
}

/* TensorFlow's programs have separate folders for results and checkpoints; our runs have one. */
static td_status resolve_workspace(td_train_opts *o)
{
    const char *const dir = o->launch.model_dir, *const other = o->launch.named_workspace;
    if (!dir)
        return TD_OK;
    if (other && strcmp(other, dir) != 0 && !td_path_is_same(other, dir))
        return td_error(
            TD_EUSAGE,
            "--model-dir '%s' and --workspace (--results-dir) '%s' exclude each other: a run "
            "writes results and checkpoints to one folder",
            dir, other);
    o->output.workspace = dir;
    return TD_OK;
}

/* SSD300's program reads the file of --checkpoint; here it names a file to write, so refuse it. */
static td_status check_checkpoint(const td_train_opts *o)
{
    const char *const name = o->output.checkpoint_filename;
    if (td_model_detector(&o->model) != TD_DETECTOR_SSD300 || o->start.resume ||
        !td_text_ends(name, ".pt"))
        return TD_OK;
    return td_error(TD_EUSAGE,
                    "--checkpoint '%s': use --resume to continue or evaluate a checkpoint, "
                    "--checkpoint-filename to name the one written to --workspace",
                    name);
}

/* The launcher starts a run again: the checkpoint is the run's own, not that of the options. */
static td_status take_restart(td_train_opts *o)
{
    td_restart r;
    TD_TRY(td_restart_here(&r));
    if (!r.checkpoint)
        return TD_OK;
    o->start.resume = r.checkpoint;
    o->start.pretrained_weights = NULL;
    return TD_OK;
}

td_status td_train_resolve(td_train_opts *o)
{
    const td_launch_opts *l = &o->launch;
    const double batch = td_train_step_images(o);
    TD_TRY(take_restart(o));
    if (td_train_is_preset_model(o))
        o->model.model = NULL;
    if (l->to_predict && !is_mode(o, "predict"))
        return td_error(TD_EUSAGE, "--to-predict belongs to --mode predict");
    if (is_mode(o, "train"))
        o->validation.is_enabled = false;
    TD_TRY(resolve_iterations(o));
    resolve_sizes(o);
    resolve_detector(o, batch);
    resolve_scaler(o);
    TD_TRY(resolve_survival(o));
    if (l->lr_init >= 0)
        o->lr.peak = l->lr_init * batch / 256;
    if (l->cosine_lr)
        o->lr.schedule = TD_LR_COSINE;
    TD_TRY(check_checkpoint(o));
    return resolve_workspace(o);
}

td_status td_pipeline_options(const char *path, const char *overrides, td_model_opts *model,
                              td_input_opts *input, td_boxes_opts *boxes, td_arena *arena)
{
    td_train_opts t;
    td_field_group groups[7];
    td_train_defaults(&t);
    td_train_groups(&t, groups);
    t.launch.pipeline_config_path = path;
    t.launch.hparams_overrides = overrides;
    TD_TRY(td_train_preset(&t, groups, arena));
    *model = t.model;
    *boxes = t.boxes;
    input->label_ids = t.input.label_ids;
    return TD_OK;
}

/* The folder whose checkpoint is used if no weights are named. */
static const char *folder_of_checkpoint(const td_train_opts *o)
{
    if (o->launch.model_dir)
        return o->launch.model_dir;
    return is_mode(o, "evaluate") ? o->output.workspace : NULL;
}

td_status td_train_find_checkpoint(td_train_opts *o, td_arena *arena)
{
    static const char *const modes[] = { "evaluate", "evaluation", "predict",
                                         "inference_benchmark" };
    const char *const folder = folder_of_checkpoint(o);
    bool is_wanted = o->validation.evaluate_only;
    TD_TRY(take_restart(o));
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        is_wanted = is_wanted || is_mode(o, modes[i]);
    if (!is_wanted || !folder || o->start.resume || o->start.pretrained_weights)
        return TD_OK;
    char *path = td_path_join(folder, o->output.checkpoint_filename);
    if (!path)
        return TD_ENOMEM;
    td_status st = TD_OK;
    if (td_path_exists(path))
        st = (o->start.resume = td_arena_text(arena, path)) ? TD_OK : TD_ENOMEM;
    else if (o->launch.model_dir && !is_mode(o, "inference_benchmark"))
        st = td_error(TD_ENOTFOUND,
                      "--model-dir: '%s' does not exist, and neither --resume nor "
                      "--pretrained-weights is given",
                      path);
    td_free(path);
    return st;
}

td_status td_command_warn(const char *spec, const char *module, const char *lines)
{
    td_rank_place here;
    TD_TRY(td_log_configure(spec));
    if (td_ranks_here(&here) != TD_OK) { /* the job reports this */
        td_error_clear();
        here.rank = 0;
    }
    for (const char *s = lines; here.rank == 0 && *s;) {
        const size_t n = strcspn(s, "\n");
        td_log(TD_LOG_WARN, module, "%.*s", (int)n, s);
        s += n + (s[n] == '\n');
    }
    return TD_OK;
}
