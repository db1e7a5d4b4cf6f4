/*
 * compat_options.c -- options of other programs: NVIDIA's launcher and TensorFlow's main
 *
 * Names that mean one of our options are aliases; names that stand for several are members of
 * td_launch_opts, which td_train_settle turns into options; what needs nothing here is read, and
 * what cannot be done is refused with the reason.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/os.h"
#include "base/status.h"
#include "base/text.h"
#include "boxes/anchors.h"
#include "comm/rank_env.h"
#include "options/field.h"
#include "options/rows.h"
#include "recipes/preset.h"
#include "tandem/train.h"

static const char *const units[] = { "epoch", "batch", NULL };

#define NO_QUANT     "quantisation is not among the features of this program"
#define NO_RECORD    "TFRecord files are not read; --data-dir names a folder of pictures"
#define SSD320_LR    0.02 /* for so many pictures a step */
#define SSD320_BATCH 32
#define NO_GPU       "there is no GPU"

/* clang-format off */
static const td_field fields[] = {
    TD_TITLE_BEHIND("Presets"),
    TD_TEXT   (td_launch_opts, preset, NULL, "NAME",
               "recipe, 'resnet50/90', 'resnet50/DGXA100/AMP/250'; 'list' shows all"),
    TD_TEXT   (td_launch_opts, cfg_file, NULL, "FILE",
               "table of recipes, YAML as the reference's configs.yml; default: the built-in one"),
    TD_TEXT   (td_launch_opts, platform, NULL, "NAME",
               "whose recipe: DGX1V, DGX1V-16G, DGX1V-32G, DGX2V, DGXA100, T4"),
    TD_TEXT   (td_launch_opts, mode, NULL, "NAME",
               "convergence, evaluate, benchmark_training, benchmark_training_short or "
               "benchmark_inference; or TensorFlow's train, train_and_evaluate, predict, "
               "training_benchmark or inference_benchmark; or SSD300's training, evaluation, "
               "benchmark-training or benchmark-inference"),
    TD_TITLE_BEHIND("TensorFlow's names"),
    TD_REAL   (td_launch_opts, lr_init, -1, -1, 1e6,
               "learning rate for 256 pictures, scaled by the batch; -1: --lr counts"),
    TD_INT    (td_launch_opts, num_iter, -1, -1, 1000000000, "--epochs, or batches; -1: not given"),
    TD_INT    (td_launch_opts, run_iter, -1, -1, 1000000000,
               "--run-epochs, or batches of this run; -1: not given"),
    TD_ENUM   (td_launch_opts, iter_unit, 0, units, "what these two count"),
    TD_INT    (td_launch_opts, warmup_steps, 50, 0, 1000000,
               "iterations that the benchmark modes leave out"),
    TD_BOOL_AS(td_launch_opts, cosine_lr, "cosine_lr", "use_cosine|use_cosine_lr", false,
               "the same as --lr-schedule cosine"),
    TD_TEXT   (td_launch_opts, to_predict, NULL, "FILE", "the picture of --mode predict"),

    TD_TEXT   (td_launch_opts, pipeline_config_path, NULL, "FILE",
               "a detector's pipeline.config, in place of a preset"),
    TD_TEXT   (td_launch_opts, hparams_overrides, NULL, "NAME=VALUE,...",
               "other values of its fields"),

    TD_ALIAS  ("data_dir", "data"),
    TD_ALIAS  ("results_dir", "workspace"),
    TD_ALIAS  ("log_filename", "raport-file"),
    TD_ALIAS  ("display_every", "print-freq"),
    TD_ALIAS  ("finetune_checkpoint", "pretrained-weights"),
    TD_ALIAS  ("lr_warmup_epochs", "warmup"),
    TD_ALIAS  ("weight_init", "conv-init"),
    TD_ALIAS  ("loss_scale", "static-loss-scale"),
    TD_ALIAS  ("synthetic_data_size", "image-size"),
    TD_ALIAS  ("data_format", "memory-format"),
    TD_ALIAS  ("data-backends", "data-backend"),

    TD_TITLE_BEHIND("The detectors' names"),
    TD_INT    (td_launch_opts, benchmark_iterations, -1, -1, 1000000,
               "measured iterations of --mode benchmark-training and benchmark-inference; -1: 20"),
    TD_TEXT   (td_launch_opts, model_dir, NULL, "FOLDER",
               "--workspace; without weights, --evaluate takes the checkpoint that is there"),
    TD_ALIAS  ("save", "workspace"),
    TD_ALIAS  ("num_workers", "workers"),
    TD_ALIAS  ("log_interval", "print-freq"),
    TD_ALIAS  ("json_summary", "raport-file"),
    TD_ALIAS  ("backbone_path", "pretrained-weights"),
    TD_ALIAS  ("data_layout", "memory-format"),
    TD_ALIAS  ("benchmark_warmup", "warmup-steps"),
    TD_ACCEPTED("no-cuda", NULL, NO_GPU),
    TD_ACCEPTED("allow_tf32", NULL, NO_GPU),
    TD_ACCEPTED("no-allow_tf32", NULL, NO_GPU),
    TD_ACCEPTED("allow_xla", NULL, "every graph is fused and compiled"),
    TD_ACCEPTED("sample_1_of_n_eval_on_train_examples", "N", "training data are not judged"),
    TD_REFUSED("torchvision_weights_version",
               "nothing is downloaded; --pretrained-weights takes a file of PyTorch's"),
    TD_REFUSED("eval_training_data", "'tandem evaluate --eval-training-data' judges them"),
    TD_REFUSED("checkpoint_dir", "'tandem evaluate --checkpoint-dir' judges a training's"),
    TD_REFUSED("run_once", "'tandem evaluate --checkpoint-dir --run-once' does"),

    TD_ACCEPTED("cpu", NULL, "everything runs on the CPU"),
    TD_ACCEPTED("dali", NULL, "the loader is the same for all"),
    TD_ACCEPTED("use_dali", NULL, "the loader is the same for all"),
    TD_LOGGING_ROWS,
    TD_ACCEPTED("gpu_memory_fraction", "X", NO_GPU),
    TD_ACCEPTED("gpu_id", "N", NO_GPU),
    TD_ACCEPTED("use_static_loss_scaling", NULL, "not used by the reference either"),
    TD_ACCEPTED("local_rank", "N", "one process"),
    TD_REFUSED("data_idx_dir", NO_RECORD),
    TD_REFUSED("export_dir", "a SavedModel is not written; 'tandem convert' writes weights"),
    TD_REFUSED("use_final_conv", "the reference's own graph for it cannot be built"),
    TD_REFUSED("quantize", NO_QUANT),
    TD_REFUSED("quant_delay", NO_QUANT),
    TD_REFUSED("use_qdq", NO_QUANT),
    TD_REFUSED("symmetric", NO_QUANT),
    TD_REFUSED("survival_prob", "EfficientNet is not among the networks of this program"),
    TD_REFUSED("dropout", "EfficientNet is not among the networks of this program"),
    TD_REFUSED("bn_momentum", "it is 0.1 in all networks of this program"),
    TD_REFUSED("bn_epsilon", "it is 1e-5 in all networks of this program"),
    TD_END,
};
/* clang-format on */

const td_field *td_launch_fields(void)
{
    return fields;
}

void td_train_groups(td_train_opts *o, td_field_group *out)
{
    out[0] = (td_field_group){ "Network", td_model_fields(), &o->model };
    out[1] = (td_field_group){ "Data", td_input_fields(), &o->input };
    out[2] = (td_field_group){ "Precision", td_amp_fields(), &o->amp };
    out[3] = (td_field_group){ "Training", td_train_fields(), o };
    out[4] = (td_field_group){ "Detection", td_boxes_fields(), &o->boxes };
    out[5] = (td_field_group){ "Presets", td_launch_fields(), &o->launch };
    out[6] = (td_field_group){ NULL, NULL, NULL };
}

td_status td_train_config_yaml(const td_train_opts *opts, char **yaml)
{
    td_train_opts copy = *opts;
    td_field_group groups[7];
    td_text out = { 0 };
    td_train_groups(&copy, groups);
    groups[5].fields = NULL; /* what they stood for is in the others */
    if (!copy.evaluate)
        copy.resume = NULL; /* a run that was interrupted ends as one that was not */
    td_options_yaml(groups, &out);
    return td_text_take(&out, TD_OK, yaml);
}

/* --- what they stand for ---------------------------------------------------------------------- */

static bool is_mode(const td_train_opts *o, const char *mode)
{
    return o->launch.mode && strcmp(o->launch.mode, mode) == 0;
}

static td_status settle_iterations(td_train_opts *o)
{
    const td_launch_opts *l = &o->launch;
    const char *what = NULL;
    if (l->num_iter == 0)
        what = "--num-iter";
    else if (l->run_iter == 0)
        what = "--run-iter";
    if (what)
        return td_error(TD_EUSAGE, "%s: 0 is out of range, wanted 1 or more, or -1", what);
    if (l->iter_unit == 0) {
        if (l->num_iter > 1000000 || l->run_iter > 1000000)
            return td_error(TD_EUSAGE, "--num-iter: more than 1000000 epochs");
        if (l->num_iter > 0)
            o->epochs = l->num_iter;
        if (l->run_iter > 0)
            o->run_epochs = l->run_iter;
        return TD_OK;
    }
    if (l->num_iter > 0)
        o->num_train_steps = l->num_iter;
    if (l->run_iter > 0)
        o->run_iters = l->run_iter;
    return TD_OK;
}

/* what a detector's preset left open */
static void settle_detector(td_train_opts *o, double batch)
{
    td_launch_opts *l = &o->launch;
    if (o->lr == TD_PRESET_OPEN)
        o->lr = SSD320_LR * batch / SSD320_BATCH;
    if (o->epochs == TD_PRESET_OPEN) {
        o->epochs = 1; /* the steps say how many */
    } else if (l->preset_steps && !o->resume && o->num_train_steps == l->preset_steps) {
        o->num_train_steps = -1; /* --epochs takes their place */
        o->lr_total_steps = o->lr_total_steps == l->preset_lr_steps ? -1 : o->lr_total_steps;
        o->warmup = o->warmup == l->preset_warmup ? -1 : o->warmup;
    }
}

double td_train_step_pictures(const td_train_opts *o)
{
    td_rank_place here;
    if (o->optimizer_batch_size > 0)
        return o->optimizer_batch_size;
    if (td_ranks_here(&here) != TD_OK) { /* the job itself will complain */
        td_error_clear();
        here.size = 1;
    }
    return (double)o->batch_size * here.size;
}

/* what is saved is what it means: a fixed scale, 1 where none is named */
static void settle_scaler(td_train_opts *o)
{
    if (!o->no_dynamic_loss_scale)
        return;
    o->no_dynamic_loss_scale = o->dynamic_loss_scale = false;
    o->loss_scaler = 0;
    if (o->static_loss_scale < 0)
        o->static_loss_scale = 1;
}

/* TensorFlow's programs have two folders, of results and of checkpoints; a run has one here */
static td_status settle_workspace(td_train_opts *o)
{
    const char *const dir = o->launch.model_dir, *const other = o->launch.named_workspace;
    if (!dir)
        return TD_OK;
    if (other && strcmp(other, dir) != 0 && !td_path_is_same(other, dir))
        return td_error(TD_EUSAGE,
                        "--model-dir '%s' and --workspace (--results-dir) '%s' are two folders: a "
                        "run has one, for results and checkpoints; name it once",
                        dir, other);
    o->workspace = dir;
    return TD_OK;
}

/* what --checkpoint names in SSD300's program is read there, and a file to be written here */
static td_status check_checkpoint(const td_train_opts *o)
{
    const char *const name = o->checkpoint_filename;
    if (td_model_detector(&o->model) != TD_DETECTOR_SSD300 || o->resume ||
        !td_text_ends(name, ".pt"))
        return TD_OK;
    return td_error(TD_EUSAGE,
                    "--checkpoint '%s': --resume goes on with a checkpoint or evaluates it; "
                    "--checkpoint-filename names the one that is written in --workspace",
                    name);
}

td_status td_train_settle(td_train_opts *o)
{
    const td_launch_opts *l = &o->launch;
    const double batch = td_train_step_pictures(o);
    if (td_train_is_preset_model(o))
        o->model.model = NULL;
    if (l->to_predict && !is_mode(o, "predict"))
        return td_error(TD_EUSAGE, "--to-predict belongs to --mode predict");
    if (is_mode(o, "train"))
        o->training_only = true;
    TD_TRY(settle_iterations(o));
    settle_detector(o, batch);
    settle_scaler(o);
    if (l->lr_init >= 0)
        o->lr = l->lr_init * batch / 256;
    if (l->cosine_lr)
        o->lr_schedule = 2;
    TD_TRY(check_checkpoint(o));
    return settle_workspace(o);
}

void td_train_say_preset(const td_train_opts *o)
{
    const td_launch_opts *l = &o->launch;
    const double batch = td_train_step_pictures(o);
    if (!*l->name)
        return;
    if (l->rule_lr > 0 && o->lr == l->rule_lr)
        td_log(TD_LOG_INFO, "train",
               "preset %s: lr %g for %g pictures a step, by the rule of 0.256 for 256", l->name,
               o->lr, batch);
    else
        td_log(TD_LOG_INFO, "train", "preset %s: lr %g, %g pictures a step", l->name, o->lr, batch);
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

/* the folder whose checkpoint is meant where no weights are named */
static const char *folder_of_checkpoint(const td_train_opts *o)
{
    td_train_opts d;
    if (o->launch.model_dir)
        return o->launch.model_dir;
    td_train_defaults(&d);
    return is_mode(o, "evaluate") && o->workspace != d.workspace ? o->workspace : NULL;
}

td_status td_train_find_checkpoint(td_train_opts *o, td_arena *arena)
{
    static const char *const modes[] = { "evaluate", "evaluation", "predict",
                                         "inference_benchmark" };
    const char *const folder = folder_of_checkpoint(o);
    bool is_wanted = o->evaluate;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        is_wanted = is_wanted || is_mode(o, modes[i]);
    if (!is_wanted || !folder || o->resume || o->pretrained_weights)
        return TD_OK;
    char *path = td_path_join(folder, o->checkpoint_filename);
    if (!path)
        return TD_ENOMEM;
    td_status st = TD_OK;
    if (td_path_exists(path))
        st = (o->resume = td_arena_text(arena, path)) ? TD_OK : TD_ENOMEM;
    else if (o->launch.model_dir && !is_mode(o, "inference_benchmark"))
        st = td_error(TD_ENOTFOUND,
                      "--model-dir: there is no '%s', and neither --resume nor "
                      "--pretrained-weights names weights",
                      path);
    td_free(path);
    return st;
}

td_status td_command_warn(const char *spec, const char *module, const char *lines)
{
    td_rank_place here;
    TD_TRY(td_log_configure(spec));
    if (td_ranks_here(&here) != TD_OK) { /* the job itself will complain */
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
