/*
 * cmd_detect.c -- tandem detect FILE...
 */
#include "cli/files.h"
#include "tandem/train.h"

/* What the pictures' results go through.  JSON has three lists, so two of them wait. */
typedef struct {
    const td_call *call;
    td_cli_outcome outcome;
    td_text detections, categories; /* of the JSON object */
    int64_t seen[1024];             /* categories that are listed already */
    int n_seen;
    bool are_known; /* the network's classes, which are listed */
} listing;

static void groups(void *opts, td_field_group *out)
{
    td_detect_opts *o = opts;
    out[0] = (td_field_group){ "Network", td_model_fields(), &o->model };
    out[1] = (td_field_group){ "Precision", td_amp_fields(), &o->amp };
    out[2] = (td_field_group){ "Boxes", td_boxes_fields(), &o->boxes };
    out[3] = (td_field_group){ "Detection", td_detect_fields(), o };
}

/* --- JSON ------------------------------------------------------------------------------------- */

static void list_category(td_text *list, int64_t id, const char *name)
{
    td_text_add(list, list->len ? ", {" : "{");
    td_json_add(list, "id", (double)id);
    td_json_add_text(list, "name", name);
    td_text_add(list, "}");
}

/* of a network that names its classes, all of them, found or not */
static void add_categories(listing *l, const td_found *f)
{
    for (int i = 0; i < f->n_classes && !l->are_known; i++)
        list_category(&l->categories, f->categories[i], f->class_names[i]);
    l->are_known = l->are_known || f->n_classes > 0;
}

/* else those that were found */
static void add_category(listing *l, const td_found_box *b)
{
    if (l->are_known)
        return;
    for (int i = 0; i < l->n_seen; i++)
        if (l->seen[i] == b->category)
            return;
    if (l->n_seen == (int)(sizeof l->seen / sizeof *l->seen))
        return;
    list_category(&l->categories, b->category, b->name);
    l->seen[l->n_seen++] = b->category;
}

static void add_json_box(listing *l, const td_found_box *b)
{
    td_text *out = &l->detections;
    add_category(l, b);
    td_text_add(out, out->len ? ", {" : "{");
    td_json_add(out, "image_id", (double)(l->outcome.n + 1));
    td_json_add(out, "category_id", (double)b->category);
    td_text_add(out, ", \"bbox\": [%.2f, %.2f, %.2f, %.2f]", b->x, b->y, b->width, b->height);
    td_json_add(out, "score", b->score);
    td_text_add(out, "}");
}

static void add_json(listing *l, const td_found *f)
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
    add_categories(l, f);
    for (int i = 0; i < f->n; i++)
        add_json_box(l, &f->boxes[i]);
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
        add_json(l, f);
    else
        add_text(f, out);
    td_cli_outcome_add(&l->outcome, f->path, f->st, f->message);
    TD_TRY(td_text_status(&l->detections));
    return td_cli_outcome_show(&l->outcome, out);
}

/* --- the verb --------------------------------------------------------------------------------- */

static td_status check(const void *opts)
{
    return td_amp_check(&((const td_detect_opts *)opts)->amp);
}

static void end_json(listing *l, td_text *out)
{
    td_text_add(out, "], \"categories\": [");
    td_text_add_bytes(out, td_text_get(&l->categories), l->categories.len);
    td_text_add(out, "], \"detections\": [");
    td_text_add_bytes(out, td_text_get(&l->detections), l->detections.len);
    td_text_add(out, "]}\n");
    if (td_text_status(&l->categories) != TD_OK || td_text_status(&l->detections) != TD_OK)
        out->st = TD_ENOMEM;
}

static td_status detect(const td_call *call, const td_cli_files *files, listing *l)
{
    if (call->json)
        td_text_add(call->out, "{\"images\": [");
    td_status st = td_detect(call->opts, (int)files->n, files->items, each, l);
    if (call->json)
        end_json(l, call->out);
    return td_cli_outcome_end(&l->outcome, st, call->out);
}

static td_status run(const td_call *call)
{
    listing l = { .call = call };
    td_cli_files files = { 0 };
    td_status st = td_cli_files_gather(call, "detect", NULL, &files);
    if (st == TD_OK)
        st = detect(call, &files, &l);
    td_cli_files_release(&files);
    td_text_release(&l.detections);
    td_text_release(&l.categories);
    return st;
}

const td_verb td_verb_detect = {
    .name = "detect",
    .arguments = "FILE|FOLDER|-...",
    .summary = "what is where on pictures",
    .about =
        "For each picture its path and what was found: class, score, and the box as left edge, "
        "top\n"
        "edge, width and height in pixels.  --draw writes the pictures with boxes and names on "
        "them.\n"
        "A folder stands for the pictures below it, by folder, then by name; - for a list of paths "
        "on\n"
        "standard input, one a line.  --json is one object with COCO's lists: images, categories,\n"
        "detections.  A picture that cannot be read is listed with the reason and does not end "
        "the\n"
        "run; the exit code is 1 only when none could be read.",
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
