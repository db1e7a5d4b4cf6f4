/*
 * cmd_detect.c -- tandem detect FILE...
 */
#include "cli/files.h"
#include "tandem/amp.h"
#include "tandem/detection.h"
#include "tandem/graph.h"
#include "tandem/inference.h"
#include "tandem/model.h"

/*
 * Context of the callback that prints each image's result.  The JSON result has three lists: two of
 * them are collected until the end.
 */
typedef struct {
    const td_call *call;
    td_cli_outcome outcome;
    td_coco_results *lists; /* collected for the JSON object */
} listing;

static void groups(void *opts, td_field_group *out)
{
    td_detect_opts *o = opts;
    out[0] = (td_field_group){ "Network", td_model_fields(), &o->model };
    out[1] = (td_field_group){ "Precision", td_amp_fields(), &o->amp };
    out[2] = (td_field_group){ "Boxes", td_box_limits_fields(), &o->boxes };
    out[3] = (td_field_group){ "Detection", td_detect_fields(), o };
}

/* --- JSON ------------------------------------------------------------------------------------- */

static td_status add_json(listing *l, const td_found *f)
{
    td_text *out = l->call->out;
    td_text_add(out, l->outcome.n ? ", {" : "{");
    td_json_add(out, "id", (double)(l->outcome.n + 1));
    td_json_add_text(out, "file_name", f->path);
    if (f->st == TD_OK) {
        td_json_add(out, "width", f->width);
        td_json_add(out, "height", f->height);
    } else {
        td_json_add_text(out, "error", f->message);
    }
    if (f->drawn)
        td_json_add_text(out, "drawn", f->drawn);
    td_text_add(out, "}");
    return td_coco_results_add(l->lists, f, l->outcome.n + 1);
}

/* --- text ------------------------------------------------------------------------------------- */

static void add_text(const td_found *f, td_text *out)
{
    td_text_add(out, "%s\n", f->path);
    for (int i = 0; i < f->n; i++) {
        const td_found_box *b = &f->boxes[i];
        td_text_add(out, "  %s: %.1f%% at %.0f, %.0f, %.0f x %.0f\n", b->name, 100 * b->score, b->x,
                    b->y, b->width, b->height);
    }
    if (f->st != TD_OK)
        td_text_add(out, "  unreadable: %s\n", f->message);
    else if (f->n == 0)
        td_text_add(out, "  nothing\n");
    if (f->drawn)
        td_text_add(out, "  drawn: %s\n", f->drawn);
}

static td_status each(void *ctx, const td_found *f)
{
    listing *l = ctx;
    td_text *out = l->call->out;
    if (l->call->json)
        TD_TRY(add_json(l, f));
    else
        add_text(f, out);
    td_cli_outcome_add(&l->outcome, f->path, f->st, f->message);
    return td_cli_outcome_show(&l->outcome, out);
}

/* --- the verb --------------------------------------------------------------------------------- */

static td_status check(const void *opts)
{
    return td_amp_check(&((const td_detect_opts *)opts)->amp);
}

static td_status end_json(const listing *l, td_text *out)
{
    char *lists;
    TD_TRY(td_coco_results_text(l->lists, &lists));
    td_text_add(out, "], %s}\n", lists);
    td_text_free(lists);
    return TD_OK;
}

static td_status detect(const td_call *call, const td_cli_files *files, listing *l)
{
    if (call->json)
        td_text_add(call->out, "{\"images\": [");
    td_status st = td_detect(call->opts, (int)files->n, files->items, each, l);
    if (call->json && end_json(l, call->out) != TD_OK)
        st = TD_ENOMEM;
    return td_cli_outcome_end(&l->outcome, st, call->json, call->out);
}

static td_status run(const td_call *call)
{
    listing l = { .call = call };
    td_cli_files files = { 0 };
    td_status st = td_cli_files_gather(call, "detect", NULL, &files);
    if (st == TD_OK)
        st = td_coco_results_new(&l.lists);
    if (st == TD_OK)
        st = detect(call, &files, &l);
    td_cli_files_release(&files);
    td_coco_results_free(l.lists);
    return st;
}

const td_verb td_verb_detect = {
    .name = "detect",
    .arguments = "FILE|FOLDER|-...",
    .summary = "detect objects in images",
    .about =
        "Prints the path of each image and its detections: class, score and box as left edge,\n"
        "top edge, width and height in pixels. --draw writes the images with boxes and class\n"
        "names drawn on them. FOLDER means all images below it, sorted by folder and\n"
        "name; - reads a list of paths from standard input, one per line. --json prints one\n"
        "object with the lists images, categories and detections in COCO's format. An image\n"
        "that cannot be read is reported with the reason and does not end the run; the exit\n"
        "code is 1 only if no image could be read.",
    .examples =
        "tandem detect --weights model_best.safetensors street.jpg\n"
        "tandem detect --weights model_best.safetensors --draw drawn --min-score 0.5 holiday/\n"
        "tandem detect --weights model_best.safetensors --json *.jpg\n"
        "find . -name '*.jpg' | tandem detect --weights model_best.safetensors -",
    .n_args_max = -1,
    .has_json = true,
    .opts_bytes = sizeof(td_detect_opts),
    .groups = groups,
    .check = check,
    .run = run,
};
