/*
 * cmd_train.c -- tandem train DATA
 */
#include <math.h>
#include <string.h>

#include "cli/evaluation.h"
#include "cli/own_ranks_start.h"
#include "cli/verb.h"
#include "tandem/benchmark.h"
#include "tandem/detection.h"
#include "tandem/evaluate.h"
#include "tandem/graph.h"
#include "tandem/inference.h"
#include "tandem/recipes.h"
#include "tandem/train.h"

static void groups(void *opts, td_field_group *out)
{
    td_train_groups(opts, out);
}

/*
 * Note the paths of results given on the command line, before a checkpoint's options are applied.
 */
static void note_named(td_train_opts *o)
{
    o->launch.named_workspace = o->output.workspace ? o->output.workspace : o->launch.model_dir;
    o->launch.named_report = o->report.file;
}

static td_status preset(void *opts, const td_field_group *groups, td_arena *arena)
{
    TD_TRY(td_train_preset(opts, groups, arena));
    note_named(opts);
    return td_train_find_checkpoint(opts, arena);
}

static td_status resolve(const td_call *call)
{
    td_train_opts *o = call->opts;
    if (call->n_args > 0)
        o->input.data = call->args[0];
    return td_train_resolve(o);
}

static td_status check(const void *opts)
{
    return td_train_check_line(opts);
}

static bool is_mode(const td_train_opts *o, const char *mode)
{
    return o->launch.mode && strcmp(o->launch.mode, mode) == 0;
}

static bool is_evaluation(const td_train_opts *o)
{
    return o->validation.evaluate_only || is_mode(o, "evaluate") || is_mode(o, "evaluation");
}

/*
 * Evaluation and prediction accept weight files that are not checkpoints and report errors
 * themselves.
 */
static td_status read_stored_options(const td_train_opts *o, char **json)
{
    const bool takes_any = is_evaluation(o) || is_mode(o, "predict") ||
                           is_mode(o, "inference_benchmark") || is_mode(o, "benchmark-inference");
    const td_status st = td_train_stored_options(o->start.resume, json);
    return st == TD_EFORMAT && takes_any ? TD_OK : st;
}

/*
 * --resume uses the checkpoint's options.  Without --workspace td_train writes the results to the
 * checkpoint's folder; a preset's workspace is discarded.
 */
static td_status stored_options(void *opts, td_arena *arena, char **json)
{
    td_train_opts *o = opts;
    (void)arena;
    if (!o->start.resume)
        return TD_OK;
    o->output.workspace = NULL;
    return read_stored_options(o, json);
}

/* -1: there was no validation */
static double fraction(double v)
{
    return v < 0 ? NAN : v;
}

static void add_json(const td_train_opts *o, const td_train_result *r, td_text *out)
{
    td_text_add(out, "{");
    td_json_add_text(out, "arch", r->arch);
    td_json_add(out, "epoch", (double)r->epoch);
    td_json_add(out, "steps", (double)r->steps);
    td_json_add(out, "train_loss", r->train_loss);
    if (r->detects) {
        td_cli_add_boxes(out, "", r->boxes);
        td_json_add(out, "best_AP", r->best_ap);
        if (r->has_ema)
            td_cli_add_boxes(out, "ema_", r->ema_boxes);
    } else if (r->is_multi_label) {
        td_json_add(out, "val_loss", r->map < 0 ? NAN : r->val_loss);
        td_json_add(out, "mAP", fraction(r->map));
        td_json_add(out, "micro_f1", fraction(r->micro_f1));
        td_json_add(out, "macro_f1", fraction(r->macro_f1));
        td_json_add(out, "best_mAP", fraction(r->best_map));
    } else {
        td_json_add(out, "val_loss", r->top1 < 0 ? NAN : r->val_loss);
        td_cli_add_accuracy(out, r->top1 < 0 ? NAN : r->top1, r->top1 < 0 ? NAN : r->topk,
                            o->validation.topk);
        td_json_add(out, "best_top1", r->top1 < 0 || r->best_top1 < 0 ? NAN : r->best_top1);
    }
    if (r->has_ema && r->is_multi_label) {
        td_json_add(out, "ema_mAP", r->ema_map);
        td_json_add(out, "ema_micro_f1", r->ema_micro_f1);
        td_json_add(out, "ema_loss", r->ema_loss);
    } else if (r->has_ema && !r->detects)
        td_cli_add_averages(out, r->ema_top1, r->ema_topk, r->ema_loss);
    td_json_add(out, "images_per_s", r->images_per_s);
    if (r->detects)
        td_json_add(out, "last_quarter_images_per_s", r->last_quarter_ips);
    td_json_add(out, "skipped_steps", (double)r->skipped);
    td_json_add(out, "loss_scale", r->loss_scale);
    td_json_add_text(out, "best_weights", *r->best ? r->best : NULL);
    td_text_add(out, ", \"was_stopped\": %s", r->was_stopped ? "true" : "false");
    td_json_add_text(out, "checkpoint", *r->checkpoint ? r->checkpoint : NULL);
    if (r->profile)
        td_text_add(out, ", \"profile\": %s", r->profile);
    td_text_add(out, "}\n");
}

/* Label smoothing of the validation loss: none with mixup or cutmix, as in the references. */
static double validation_smoothing(const td_train_opts *o)
{
    return o->loss.mixup > 0 || o->loss.cutmix > 0 ? 0 : o->loss.label_smoothing;
}

/* Note that the validation loss has label smoothing, if it has. */
static void add_smoothing(const td_train_opts *o, td_text *out)
{
    const double smoothing = validation_smoothing(o);
    if (smoothing > 0)
        td_text_add(out,
                    ", with label smoothing %g; 'tandem evaluate' leaves it out unless "
                    "--label-smoothing %g",
                    smoothing, smoothing);
    else if (o->loss.label_smoothing > 0)
        td_text_add(out, ", without label smoothing, as with --mixup; the same as 'tandem "
                         "evaluate' prints");
}

/* The averages' scores, as tandem evaluate prints them. */
static void add_averages(const td_train_opts *o, const td_train_result *r, td_text *out)
{
    char word[TD_REAL_WORD];
    if (r->has_ema && r->detects)
        td_text_add(out, "averages      AP %.4f, AP50 %.4f\n", r->ema_boxes[TD_BOX_AP],
                    r->ema_boxes[TD_BOX_AP50]);
    else if (r->has_ema && r->is_multi_label)
        td_text_add(out, "averages      mAP %.4f, micro F1 %.4f, loss %s\n", r->ema_map,
                    r->ema_micro_f1, td_real_word(r->ema_loss, 5, word));
    else if (r->has_ema)
        td_text_add(out, "averages      top1 %.2f %%, top%d %.2f %%, loss %s\n", r->ema_top1,
                    o->validation.topk, r->ema_topk, td_real_word(r->ema_loss, 5, word));
}

static void add_text(const td_train_opts *o, const td_train_result *r, td_text *out)
{
    char word[TD_REAL_WORD];
    td_text_add(out, "epoch         %lld\n", (long long)r->epoch);
    td_text_add(out, "steps         %lld\n", (long long)r->steps);
    if (r->skipped || r->loss_scale != 1)
        td_text_add(out, "skipped       %lld, loss scale %g\n", (long long)r->skipped,
                    r->loss_scale);
    td_text_add(out, "train loss    %s\n", td_real_word(r->train_loss, 5, word));
    if (r->detects && r->boxes[TD_BOX_AP] >= 0)
        td_text_add(out, "AP            %.4f (best %.4f)\nAP50          %.4f\n",
                    r->boxes[TD_BOX_AP], r->best_ap, r->boxes[TD_BOX_AP50]);
    if (r->top1 >= 0 || r->map >= 0) {
        td_text_add(out, "val loss      %s", td_real_word(r->val_loss, 5, word));
        add_smoothing(o, out);
        td_text_add(out, "\n");
    }
    if (r->map >= 0) {
        td_text_add(out, "mAP           %.4f (best %.4f)\n", r->map, r->best_map);
        td_text_add(out, "micro F1      %.4f\nmacro F1      %.4f\n", r->micro_f1, r->macro_f1);
    } else if (r->top1 >= 0) {
        td_text_add(out, "top1          %.2f %%", r->top1);
        if (r->best_top1 >= 0)
            td_text_add(out, " (best %.2f %%)", r->best_top1);
        td_text_add(out, "\n");
        td_text_add(out, "top%-10d %.2f %%\n", o->validation.topk, r->topk);
    }
    add_averages(o, r, out);
    if (r->images_per_s > 0) /* 0: there was nothing left to train */
        td_text_add(out, "images/s      %.2f\n", r->images_per_s);
    if (!o->validation.is_enabled && r->n_lines > 0)
        td_text_add(out, "performance   %.2f images/s, the mean of the last %d of %d lines\n",
                    r->last_quarter_ips, r->n_lines_kept, r->n_lines);
    if (*r->checkpoint)
        td_text_add(out, "checkpoint    %s\n", r->checkpoint);
    if (*r->best)
        td_text_add(out, "best weights  %s\n", r->best);
    if (r->profile)
        td_text_add(out, "\n%s", r->profile);
}

/* --evaluate: copy the options of validation to those of `tandem evaluate`. */
static td_status evaluate_only(const td_train_opts *o, const td_call *call)
{
    td_evaluate_opts e;
    td_evaluate_defaults(&e);
    e.is_fresh = !o->start.resume && !o->start.pretrained_weights;
    e.model = o->model;
    e.input = o->input;
    e.amp = td_train_amp(o);
    e.boxes = o->boxes;
    e.input.annotations = o->input.val_annotations;
    if (o->input.val_list) {
        e.input.data = o->input.val_list;
        e.input.data_backend = TD_DATA_LIST;
    }
    e.batch_size = o->validation.batch_size ? o->validation.batch_size : o->batch.size;
    e.weights = o->start.resume ? o->start.resume : o->start.pretrained_weights;
    e.topk = o->validation.topk;
    e.label_smoothing = validation_smoothing(o); /* as in training */
    e.seed = o->batch.seed;
    e.device = o->device;
    e.require = o->validation.require;
    e.log = o->log;
    e.print_freq = o->metrics.print_freq;
    e.report.log_format = o->report.log_format;
    e.report.is_compat = o->report.is_compat;
    e.report.naming = o->report.naming;
    e.report.warmup = o->report.warmup;
    e.prof = o->profile.iterations;
    e.ema_too = o->optimizer.ema >= 0;
    e.workspace = o->launch.named_workspace;
    e.report.file = o->launch.named_report;
    if (o->report.is_compat) /* otherwise keep the training's report */
        e.report.file = o->report.file ? o->report.file : "experiment_raport.json";
    return td_cli_evaluate(&e, call);
}

/* Write results only to a file or folder that was named. */
static void take_report(const td_train_opts *o, td_benchmark_opts *b)
{
    b->workspace = o->launch.named_workspace;
    b->report.file = o->launch.named_report;
    b->print_freq = o->metrics.print_freq;
    b->report.log_format = o->report.log_format;
    b->report.is_compat = o->report.is_compat;
    b->report.naming = is_mode(o, "training_benchmark") || is_mode(o, "inference_benchmark")
                           ? TD_REPORT_NAMING_TF
                           : o->report.naming;
}

/* --mode training_benchmark, inference_benchmark, benchmark_inference: tandem benchmark's job */
static td_status benchmark_only(const td_train_opts *o, bool is_training, const td_call *call)
{
    td_benchmark_opts b;
    bool is_in_batches = o->launch.iter_unit == TD_ITER_BATCHES;
    char *json;
    td_benchmark_defaults(&b);
    b.mode = is_training ? TD_BENCHMARK_TRAINING : TD_BENCHMARK_INFERENCE;
    b.model = o->model;
    b.input = o->input;
    b.amp = td_train_amp(o);
    b.batch_size =
        !is_training && o->validation.batch_size ? o->validation.batch_size : o->batch.size;
    b.warmup = o->launch.warmup_steps;
    b.weights = o->start.resume ? o->start.resume : o->start.pretrained_weights;
    b.memory_limit = o->memory_limit;
    b.trace = o->profile.trace;
    take_report(o, &b);
    if (is_training && b.weights)
        return td_error(TD_EUSAGE, "--mode %s measures fresh weights: --%s '%s' has no effect",
                        o->launch.mode, o->start.resume ? "resume" : "pretrained-weights",
                        b.weights);
    if (o->launch.num_iter > 0 && !is_in_batches)
        return td_error(TD_EUSAGE, "--mode %s requires --iter-unit batch", o->launch.mode);
    b.iters = o->launch.benchmark_iterations > 0 ? o->launch.benchmark_iterations
              : o->launch.num_iter > 0           ? o->launch.num_iter
              : o->profile.iterations > 0        ? o->profile.iterations
              : strchr(o->launch.mode, '-')      ? 20 /* as in SSD300's program */
                                                 : 100;
    b.device = o->device;
    b.log = o->log;
    TD_TRY(td_benchmark(&b, &json));
    td_text_add(call->out, td_text_ends(json, "\n") ? "%s" : "%s\n", json);
    td_text_free(json);
    return TD_OK;
}

/* Print one image's classes; if it cannot be read, the run fails with its message. */
static td_status print_prediction(void *ctx, const td_prediction *p)
{
    td_text *out = ctx;
    if (p->st != TD_OK)
        return td_error(p->st, "'%s': %s", p->path, p->message);
    td_text_add(out, "%s\n", p->path);
    for (int i = 0; i < p->n; i++)
        td_text_add(out, "%s: %.1f%%\n", p->name[i], 100 * p->probability[i]);
    return td_text_status(out);
}

/* --mode predict --to-predict FILE: tandem classify's job */
static td_status predict_only(const td_train_opts *o, const td_call *call)
{
    td_classify_opts c;
    if (!o->launch.to_predict)
        return td_error(TD_EUSAGE, "--mode predict requires --to-predict FILE");
    td_classify_defaults(&c);
    c.model = o->model;
    c.amp = td_train_amp(o);
    c.weights = o->start.resume ? o->start.resume : o->start.pretrained_weights;
    if (!c.weights)
        return td_error(TD_EUSAGE, "--mode predict requires --resume or --pretrained-weights FILE");
    c.interpolation = o->input.interpolation;
    c.stored_orientation = o->input.stored_orientation;
    c.workers = o->input.workers;
    c.device = o->device;
    c.log = o->log;
    return td_classify(&c, 1, &o->launch.to_predict, print_prediction, call->out);
}

static td_status train(td_train_opts *o, const td_call *call)
{
    td_train_result r;
    o->profile.as_json = call->json;
    td_status st = td_train(o, &r);
    if (st != TD_OK && st != TD_EREQUIRED)
        return st;
    if (r.rank > 0) { /* only rank 0 prints */
        td_text_free(r.profile);
        return r.was_stopped ? td_error(TD_ESTOPPED, "interrupted by a signal") : st;
    }
    if (call->json)
        add_json(o, &r, call->out);
    else
        add_text(o, &r, call->out);
    td_text_free(r.profile);
    if (!r.was_stopped)
        return st;
    return *r.checkpoint
               ? td_error(TD_ESTOPPED, "interrupted by a signal; saved '%s' after step %lld",
                          r.checkpoint, (long long)r.steps)
               : td_error(TD_ESTOPPED, "interrupted by a signal after step %lld; nothing was saved",
                          (long long)r.steps);
}

static td_status list_presets(const td_train_opts *o, td_text *out)
{
    char *text;
    TD_TRY(td_train_presets(o->launch.cfg_file, &text));
    td_text_add(out, "%s", text);
    td_text_free(text);
    return TD_OK;
}

static bool is_benchmark(const td_train_opts *o)
{
    return is_mode(o, "training_benchmark") || is_mode(o, "benchmark-training") ||
           is_mode(o, "inference_benchmark") || is_mode(o, "benchmark-inference") ||
           (is_mode(o, "benchmark_inference") && !o->input.data);
}

static const char *job(const td_call *call)
{
    const td_train_opts *o = call->opts;
    if (o->launch.preset && strcmp(o->launch.preset, "list") == 0)
        return "presets";
    return is_mode(o, "predict") ? "predict"
           : is_benchmark(o)     ? "benchmark"
           : is_evaluation(o)    ? "evaluate"
                                 : NULL;
}

static td_status start(const td_call *call, bool *is_done)
{
    const td_train_opts *o = call->opts;
    if (job(call))
        return TD_OK;
    return td_cli_own_ranks(
        call,
        &(td_own_ranks){ .module = "train",
                         .to_prevent = "--ranks 1",
                         .device = o->device.name,
                         .batch = o->batch.size,
                         .wanted = o->n_ranks,
                         .is_named = td_options_given_on_line(td_train_fields(), o, "ranks"),
                         .threads = o->device.threads,
                         .is_whole = o->batch.is_reproducible,
                         .log = o->log },
        is_done);
}

static td_status run(const td_call *call)
{
    td_train_opts *o = call->opts;
    if (o->launch.preset && strcmp(o->launch.preset, "list") == 0)
        return list_presets(o, call->out);
    if (is_mode(o, "predict"))
        return predict_only(o, call);
    if (is_mode(o, "training_benchmark") || is_mode(o, "benchmark-training"))
        return benchmark_only(o, true, call);
    if (is_mode(o, "inference_benchmark") || is_mode(o, "benchmark-inference") ||
        (is_mode(o, "benchmark_inference") && !o->input.data))
        return benchmark_only(o, false, call);
    TD_TRY(td_train_check(o));
    TD_TRY(td_cli_data(&o->input, call));
    return is_evaluation(o) ? evaluate_only(o, call) : train(o, call);
}

const td_verb td_verb_train = {
    .name = "train",
    .arguments = "DATA",
    .summary = "train a network on a folder of images",
    .about =
        "DATA is a folder with train/ and val/, each with one folder of images per class, or\n"
        "a pack, or a .safetensors file for --data-backend tensors. --data-backend synthetic\n"
        "needs no DATA.\n\n"
        "Ctrl-C (SIGINT, SIGTERM, SIGHUP or SIGUSR1) finishes the current batch, saves a\n"
        "checkpoint and exits with code 3. A second signal exits at once and leaves the last\n"
        "checkpoint intact. --resume continues from a checkpoint and ends with the same\n"
        "weights, bit by bit, as an uninterrupted run. It writes to the checkpoint's folder\n"
        "unless --workspace is given. Paths, including DATA, are not stored in the checkpoint\n"
        "and must be given again.\n\n"
        "--preset selects the published recipe of a network. Options in --config FILE\n"
        "override the preset, and options on the command line override both. --print-config\n"
        "prints the result as YAML, which --config can read. A run that saves checkpoints\n"
        "writes it to config.yaml in the workspace.\n\n"
        "On a machine with several NUMA nodes a rank runs on each, and the ranks share the\n"
        "batches of --batch-size images; --ranks 1 keeps one process. docs/distributed.md\n"
        "describes when.",
    .examples = "tandem train flowers --arch resnet18 --epochs 10 --lr-schedule cosine --warmup 3\n"
                "tandem train imagenet --preset resnet50/90 -b 64\n"
                "tandem train imagenet --preset resnet50/DGXA100/AMP/250\n"
                "tandem train imagenet --model resnet50 --precision AMP --platform DGXA100 --mode "
                "convergence\n"
                "tandem train flowers --config run.yaml --lr 0.1 --print-config\n"
                "tandem train flowers --resume checkpoint.safetensors\n"
                "tandem train flowers --pretrained-weights resnet50.safetensors --lr 0.01\n"
                "tandem train --data-backend synthetic --arch resnet50 -b 32 --prof 10",
    .usual = "arch,image_size,batch_size,epochs,lr,lr_schedule,amp,pretrained_weights,resume,"
             "workspace",
    .n_args_max = 1,
    .has_json = true,
    .opts_bytes = sizeof(td_train_opts),
    .groups = groups,
    .n_config_groups = 5,
    .preset = preset,
    .stored_options = stored_options,
    .check = check,
    .resolve = resolve,
    .start = start,
    .job = job,
    .run = run,
};
