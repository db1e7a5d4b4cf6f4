/*
 * cmd_evaluate.c -- tandem evaluate DATA
 */
#include "cli/evaluation.h"
#include "tandem/recipes.h"

#include <math.h>
#include <stdio.h>

#define TABLE_CLASSES 20 /* a larger table is too wide to read */

static void groups(void *opts, td_field_group *out)
{
    td_evaluate_opts *o = opts;
    out[0] = (td_field_group){ "Network", td_model_fields(), &o->model };
    out[1] = (td_field_group){ "Data", td_input_fields(), &o->input };
    out[2] = (td_field_group){ "Precision", td_amp_fields(), &o->amp };
    out[3] = (td_field_group){ "Detection", td_boxes_fields(), &o->boxes };
    out[4] = (td_field_group){ "Evaluation", td_evaluate_fields(), o };
}

td_status td_cli_data(td_input_opts *input, const td_call *call)
{
    if (call->n_args > 0)
        input->data = call->args[0];
    if ((!input->data || !*input->data) && input->data_backend != TD_DATA_SYNTHETIC)
        return td_error(TD_EUSAGE, "DATA is missing: give the folder of images as an argument");
    return TD_OK;
}

td_status td_cli_pipeline(const char *path, const char *overrides, const td_cli_network *to,
                          td_arena *arena)
{
    if (path)
        return td_pipeline_options(path, overrides, to->model, to->input, to->boxes, arena);
    return overrides ? td_error(TD_EUSAGE, "--hparams-overrides requires --pipeline-config-path")
                     : TD_OK;
}

void td_cli_add_accuracy(td_text *out, double top1, double topk, int k)
{
    td_text name = { 0 };
    td_text_add(&name, "top%d", k);
    td_json_add(out, "top1", top1);
    if (k > 1 && td_text_status(&name) == TD_OK)
        td_json_add(out, td_text_get(&name), topk);
    td_text_release(&name);
}

static int64_t confusion_at(const td_evaluate_result *r, int row, int column)
{
    return r->confusion[(int64_t)row * r->n_classes + column];
}

static int64_t images_of(const td_evaluate_result *r, int row)
{
    int64_t n = 0;
    for (int j = 0; j < r->n_classes; j++)
        n += confusion_at(r, row, j);
    return n;
}

static void add_classes_json(const td_evaluate_result *r, td_text *out)
{
    td_text_add(out, ", \"per_class\": [");
    for (int i = 0; i < r->n_classes; i++) {
        int64_t n = images_of(r, i);
        td_text_add(out, i ? ", {" : "{");
        td_json_add_text(out, "name", r->class_names[i]);
        td_json_add(out, "n", (double)n);
        td_json_add(out, "n_top1", (double)confusion_at(r, i, i));
        td_json_add(out, "top1", n ? 100 * (double)confusion_at(r, i, i) / (double)n : (double)NAN);
        td_text_add(out, "}");
    }
    td_text_add(out, "], \"confusion\": [");
    for (int i = 0; i < r->n_classes; i++) {
        td_text_add(out, i ? ", [" : "[");
        for (int j = 0; j < r->n_classes; j++)
            td_text_add(out, j ? ", %lld" : "%lld", (long long)confusion_at(r, i, j));
        td_text_add(out, "]");
    }
    td_text_add(out, "]");
}

static void add_classes_text(const td_evaluate_result *r, td_text *out)
{
    td_text_add(out, "\n%-24s %10s %10s %8s\n", "class", "images", "right", "top1");
    for (int i = 0; i < r->n_classes; i++) {
        int64_t n = images_of(r, i), right = confusion_at(r, i, i);
        if (!n && r->n_classes > TABLE_CLASSES)
            continue; /* if there are many classes, omit those without images */
        td_text_add(out, "%-24s %10lld %10lld", r->class_names[i], (long long)n, (long long)right);
        td_text_add(out, n ? " %6.2f %%\n" : "        -\n", 100 * (double)right / (double)n);
    }
    if (r->n_classes > TABLE_CLASSES)
        return;
    td_text_add(out, "\ntaken for%15s", "");
    for (int j = 0; j < r->n_classes; j++)
        td_text_add(out, " %6d", j);
    for (int i = 0; i < r->n_classes; i++) {
        td_text_add(out, "\n%3d %-20.20s", i, r->class_names[i]);
        for (int j = 0; j < r->n_classes; j++)
            td_text_add(out, " %6lld", (long long)confusion_at(r, i, j));
    }
    td_text_add(out, "\n");
}

void td_cli_add_boxes(td_text *out, const char *prefix, const double *boxes)
{
    for (int i = 0; i < TD_BOX_METRICS; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s%s", prefix, td_box_metric_name((td_box_metric)i));
        td_json_add(out, name, boxes[i]);
    }
}

static void add_boxes_json(const td_evaluate_result *r, td_text *out)
{
    td_text_add(out, "{");
    if (*r->arch)
        td_json_add_text(out, "arch", r->arch);
    td_json_add(out, "n", (double)r->n);
    td_json_add(out, "n_bad", (double)r->n_bad);
    td_json_add(out, "n_found", (double)r->n_found);
    td_cli_add_boxes(out, "", r->boxes);
    if (r->has_ema)
        td_cli_add_boxes(out, "ema_", r->ema_boxes);
    if (*r->arch) {
        td_json_add(out, "images_per_s", r->images_per_s);
        td_json_add(out, "latency_ms", r->latency_ms);
    }
    if (r->class_boxes)
        td_text_add(out, ", \"per_class\": [");
    for (int i = 0; i < r->n_class_boxes; i++) {
        const td_class_boxes *c = &r->class_boxes[i];
        td_text_add(out, i ? ", {" : "{");
        td_json_add_text(out, "name", c->name);
        td_json_add(out, "category_id", (double)c->category);
        td_json_add(out, "n", (double)c->n_ground_truths);
        td_json_add(out, "AP", c->ap);
        td_json_add(out, "AP50", c->ap50);
        td_json_add(out, "AR100", c->ar100);
        td_text_add(out, "}");
    }
    td_text_add(out, r->class_boxes ? "]}\n" : "}\n");
}

static void add_share(td_text *out, double v)
{
    if (v < 0)
        td_text_add(out, " %8s", "-");
    else
        td_text_add(out, " %8.4f", v);
}

static void add_class_boxes(const td_evaluate_result *r, td_text *out)
{
    td_text_add(out, "\n%-24s %10s %10s %8s %8s %8s\n", "class", "category", "boxes", "AP", "AP50",
                "AR100");
    for (int i = 0; i < r->n_class_boxes; i++) {
        const td_class_boxes *c = &r->class_boxes[i];
        td_text_add(out, "%-24s %10lld %10lld", c->name, (long long)c->category,
                    (long long)c->n_ground_truths);
        add_share(out, c->ap);
        add_share(out, c->ap50);
        add_share(out, c->ar100);
        td_text_add(out, "\n");
    }
}

/* Without a network (results from a file), print only the lines that COCO's own tools print. */
static td_status add_boxes_text(const td_evaluate_result *r, td_text *out)
{
    const bool has_network = *r->arch != 0;
    char *lines;
    TD_TRY(td_box_metrics_text(r->boxes, &lines));
    if (has_network)
        td_text_add(out, "images        %lld\n", (long long)r->n);
    if (r->n_bad)
        td_text_add(out, "unreadable    %lld\n", (long long)r->n_bad);
    if (has_network)
        td_text_add(out, "boxes found   %lld\n", (long long)r->n_found);
    td_text_add(out, "%s", lines);
    td_text_free(lines);
    if (r->has_ema)
        td_text_add(out, "averages      AP %.4f, AP50 %.4f\n", r->ema_boxes[TD_BOX_AP],
                    r->ema_boxes[TD_BOX_AP50]);
    if (has_network) {
        td_text_add(out, "images/s      %.2f\n", r->images_per_s);
        td_text_add(out, "latency       %.2f ms a batch\n", r->latency_ms);
    }
    if (r->class_boxes)
        add_class_boxes(r, out);
    return TD_OK;
}

void td_cli_add_averages(td_text *out, double top1, double topk, double loss)
{
    td_json_add(out, "ema_top1", top1);
    td_json_add(out, "ema_topk", topk);
    td_json_add(out, "ema_loss", loss);
}

static double share(int64_t n, int64_t of)
{
    return of ? (double)n / (double)of : 0;
}

static void add_labels_json(const td_evaluate_result *r, td_text *out)
{
    td_text_add(out, ", \"per_class\": [");
    for (int i = 0; i < r->n_classes; i++) {
        const td_label_scores *s = &r->labels[i];
        td_text_add(out, i ? ", {" : "{");
        td_json_add_text(out, "name", r->class_names[i]);
        td_json_add(out, "n", (double)s->n_images);
        td_json_add(out, "n_predicted", (double)s->n_predicted);
        td_json_add(out, "n_right", (double)s->n_right);
        td_json_add(out, "AP", s->ap);
        td_json_add(out, "precision", share(s->n_right, s->n_predicted));
        td_json_add(out, "recall", share(s->n_right, s->n_images));
        td_json_add(out, "f1", s->f1);
        td_text_add(out, "}");
    }
    td_text_add(out, "]");
}

/* A class that no image has is in the table: the means count it. */
static void add_labels_text(const td_evaluate_result *r, td_text *out)
{
    td_text_add(out, "\n%-24s %8s %9s %8s %8s %9s %8s %8s\n", "class", "images", "predicted",
                "right", "AP", "precision", "recall", "F1");
    for (int i = 0; i < r->n_classes; i++) {
        const td_label_scores *s = &r->labels[i];
        td_text_add(out, "%-24s %8lld %9lld %8lld %8.4f %9.4f %8.4f %8.4f\n", r->class_names[i],
                    (long long)s->n_images, (long long)s->n_predicted, (long long)s->n_right, s->ap,
                    share(s->n_right, s->n_predicted), share(s->n_right, s->n_images), s->f1);
    }
}

static void add_multi_json(const td_evaluate_result *r, td_text *out)
{
    td_text_add(out, "{");
    td_json_add_text(out, "arch", r->arch);
    td_json_add(out, "n", (double)r->n);
    td_json_add(out, "n_bad", (double)r->n_bad);
    td_json_add(out, "mAP", r->map);
    td_json_add(out, "micro_f1", r->micro_f1);
    td_json_add(out, "macro_f1", r->macro_f1);
    td_json_add(out, "threshold", r->threshold);
    td_json_add(out, "loss", r->loss);
    if (r->has_ema) {
        td_json_add(out, "ema_mAP", r->ema_map);
        td_json_add(out, "ema_micro_f1", r->ema_micro_f1);
        td_json_add(out, "ema_loss", r->ema_loss);
    }
    td_json_add(out, "images_per_s", r->images_per_s);
    td_json_add(out, "latency_ms", r->latency_ms);
    if (r->labels)
        add_labels_json(r, out);
    td_text_add(out, "}\n");
}

static void add_multi_text(const td_evaluate_result *r, td_text *out)
{
    td_text_add(out, "images        %lld\n", (long long)r->n);
    if (r->n_bad)
        td_text_add(out, "unreadable    %lld\n", (long long)r->n_bad);
    td_text_add(out, "mAP           %.4f\n", r->map);
    td_text_add(out, "micro F1      %.4f, from a probability of %g\n", r->micro_f1, r->threshold);
    td_text_add(out, "macro F1      %.4f\n", r->macro_f1);
    td_text_add(out, "loss          %.5f\n", r->loss);
    if (r->has_ema)
        td_text_add(out, "averages      mAP %.4f, micro F1 %.4f, loss %.5f\n", r->ema_map,
                    r->ema_micro_f1, r->ema_loss);
    td_text_add(out, "images/s      %.2f\n", r->images_per_s);
    td_text_add(out, "latency       %.2f ms a batch\n", r->latency_ms);
    if (r->labels)
        add_labels_text(r, out);
}

static void add_json(const td_evaluate_result *r, td_text *out)
{
    td_text_add(out, "{");
    td_json_add_text(out, "arch", r->arch);
    td_json_add(out, "n", (double)r->n);
    td_json_add(out, "n_top1", (double)r->n_top1);
    td_json_add(out, "n_topk", (double)r->n_topk);
    td_json_add(out, "n_bad", (double)r->n_bad);
    td_json_add(out, "k", r->topk_k);
    td_cli_add_accuracy(out, r->top1, r->topk, r->topk_k);
    td_json_add(out, "loss", r->loss);
    if (r->has_ema)
        td_cli_add_averages(out, r->ema_top1, r->ema_topk, r->ema_loss);
    td_json_add(out, "images_per_s", r->images_per_s);
    td_json_add(out, "latency_ms", r->latency_ms);
    if (r->n_classes)
        add_classes_json(r, out);
    td_text_add(out, "}\n");
}

static void add_text(const td_evaluate_result *r, td_text *out)
{
    td_text_add(out, "images        %lld\n", (long long)r->n);
    if (r->n_bad)
        td_text_add(out, "unreadable    %lld\n", (long long)r->n_bad);
    td_text_add(out, "top1          %.2f %% (%lld)\n", r->top1, (long long)r->n_top1);
    td_text_add(out, "top%-10d %.2f %% (%lld)\n", r->topk_k, r->topk, (long long)r->n_topk);
    td_text_add(out, "loss          %.5f\n", r->loss);
    if (r->has_ema)
        td_text_add(out, "averages      top1 %.2f %%, top%d %.2f %%, loss %.5f\n", r->ema_top1,
                    r->topk_k, r->ema_topk, r->ema_loss);
    td_text_add(out, "images/s      %.2f\n", r->images_per_s);
    td_text_add(out, "latency       %.2f ms a batch\n", r->latency_ms);
    if (r->n_classes)
        add_classes_text(r, out);
}

static td_status show(const td_evaluate_result *r, const td_call *call)
{
    if (r->detects && call->json)
        add_boxes_json(r, call->out);
    else if (r->detects)
        return add_boxes_text(r, call->out);
    else if (r->is_multi_label)
        (call->json ? add_multi_json : add_multi_text)(r, call->out);
    else if (call->json)
        add_json(r, call->out);
    else
        add_text(r, call->out);
    return TD_OK;
}

/* Print the result of each checkpoint immediately. */
static td_status show_round(void *ctx, const td_evaluate_result *r)
{
    const td_call *call = ctx;
    if (r->rank > 0) /* only rank 0 prints */
        return TD_OK;
    TD_TRY(show(r, call));
    TD_TRY(td_text_status(call->out));
    if (td_verb_print(call->out, 0) != 0)
        return td_error(TD_EIO, "cannot write the result");
    call->out->len = 0;
    return TD_OK;
}

td_status td_cli_evaluate(const td_evaluate_opts *opts, const td_call *call)
{
    td_evaluate_result r;
    td_call copy = *call;
    if (opts->checkpoint_dir)
        return td_evaluate_watch(opts, show_round, &copy);
    td_status st = td_evaluate(opts, &r);
    if (st != TD_OK && st != TD_EREQUIRED)
        return st;
    const td_status shown = r.rank == 0 ? show(&r, call) : TD_OK; /* only rank 0 prints */
    td_evaluate_release(&r);
    return st == TD_OK ? shown : st;
}

static td_status preset(void *opts, const td_field_group *groups, td_arena *arena)
{
    td_evaluate_opts *o = opts;
    (void)groups;
    return td_cli_pipeline(o->pipeline_config_path, o->hparams_overrides,
                           &(td_cli_network){ &o->model, &o->input, &o->boxes }, arena);
}

/*
 * --model-dir is the folder of a training: evaluate its checkpoint once and write the results
 * there.
 */
static void apply_model_dir(td_evaluate_opts *o)
{
    if (!o->model_dir)
        return;
    o->workspace = o->workspace ? o->workspace : o->model_dir;
    if (o->weights || o->checkpoint_dir || o->detections)
        return;
    o->checkpoint_dir = o->model_dir;
    o->run_once = true;
}

static td_status resolve(const td_call *call)
{
    td_evaluate_opts *o = call->opts;
    if (call->n_args > 0)
        o->input.data = call->args[0];
    apply_model_dir(o);
    return TD_OK;
}

static td_status check(const void *opts)
{
    const td_evaluate_opts *o = opts;
    if (!o->draw && (o->draw_limit || o->draw_min_score >= 0))
        return td_error(TD_EUSAGE, "%s requires --draw",
                        o->draw_limit ? "--draw-limit" : "--draw-min-score");
    return td_amp_check(&o->amp);
}

static bool is_of_files(const td_evaluate_opts *o)
{
    return !o->weights && !o->checkpoint_dir && o->detections;
}

static const char *job(const td_call *call)
{
    return is_of_files(call->opts) ? "files" : NULL;
}

static td_status run(const td_call *call)
{
    td_evaluate_opts *o = call->opts;
    const bool is_files = is_of_files(o);
    if (o->checkpoint_dir && o->weights)
        return td_error(TD_EUSAGE, "--weights and --checkpoint-dir exclude each other");
    if (o->run_once && !o->checkpoint_dir)
        return td_error(TD_EUSAGE, "--run-once requires --checkpoint-dir");
    if (is_files && call->n_args)
        return td_error(
            TD_EUSAGE,
            "--detections without --weights is scored against --annotations: remove DATA '%s'",
            call->args[0]);
    if (!is_files)
        TD_TRY(td_cli_data(&o->input, call));
    if (!is_files && !o->model.model && !o->weights && !o->checkpoint_dir)
        return td_error(TD_EUSAGE, "evaluate requires --weights FILE");
    return td_cli_evaluate(o, call);
}

const td_verb td_verb_evaluate = {
    .name = "evaluate",
    .arguments = "DATA",
    .summary = "evaluate accuracy or COCO metrics on a data set",
    .about =
        "DATA is a folder with val/, which has one folder of images per class, or such a\n"
        "folder itself, or a .safetensors file for --data-backend tensors. Every image counts\n"
        "exactly once; unreadable images are skipped and counted separately.\n\n"
        "Classes of the data are matched to outputs of the network by name. For a network\n"
        "with 1000 classes, folders named by ImageNet ids are matched by id. Without names\n"
        "they are matched in order if both have the same number of classes. In all other\n"
        "cases --label-map, --classes or --labels-by-order must define the mapping.\n\n"
        "For a detector, DATA holds images and COCO annotations, and the results are COCO's\n"
        "twelve metrics; --detections FILE writes the detections. Without --weights,\n"
        "--detections FILE is read instead and evaluated against --annotations FILE, without\n"
        "DATA.",
    .examples =
        "tandem evaluate flowers --weights model_best.safetensors\n"
        "tandem evaluate coco --weights detector.safetensors --detections found.json\n"
        "tandem evaluate coco --weights detector.safetensors --draw drawn --draw-limit 50\n"
        "tandem evaluate --annotations instances_val2017.json --detections found.json --json\n"
        "tandem evaluate flowers --weights model_best.safetensors --require 'top1>=95'\n"
        "tandem evaluate flowers --weights model_best.safetensors --per-class --confusion "
        "confusion.csv\n"
        "tandem evaluate batch.safetensors --data-backend tensors --weights w.safetensors "
        "--logits out.safetensors",
    .n_args_max = 1,
    .has_json = true,
    .opts_bytes = sizeof(td_evaluate_opts),
    .groups = groups,
    .preset = preset,
    .check = check,
    .resolve = resolve,
    .job = job,
    .run = run,
};
