/*
 * cmd_classify.c -- tandem classify FILE...
 */
#include <stdio.h>
#include <string.h>

#include "cli/verb.h"
#include "tandem/train.h"

enum {
    LIST_BYTES = 256 << 20, /* of a list on standard input, at most */
    SHOWN_BYTES = 1 << 16   /* of results that wait to be written */
};

/* What the pictures' results go through. */
typedef struct {
    const td_call *call;
    bool is_lines;
    int64_t n_files, n_bad;
    td_text first_error; /* of the first bad picture */
} listing;

static void groups(void *opts, td_field_group *out)
{
    td_classify_opts *o = opts;
    out[0] = (td_field_group){ "Network", td_model_fields(), &o->model };
    out[1] = (td_field_group){ "Precision", td_amp_fields(), &o->amp };
    out[2] = (td_field_group){ "Classification", td_classify_fields(), o };
}

static void add_json(const td_prediction *p, td_text *out)
{
    td_text_add(out, "{");
    td_json_add_text(out, "path", p->path);
    if (p->st != TD_OK)
        td_json_add_text(out, "error", p->message);
    td_text_add(out, ", \"classes\": [");
    for (int i = 0; i < p->n; i++) {
        td_text_add(out, i ? ", {" : "{");
        td_json_add(out, "label", p->label[i]);
        td_json_add_text(out, "name", p->name[i]);
        td_json_add(out, "probability", p->probability[i]);
        td_text_add(out, "}");
    }
    td_text_add(out, "]}");
}

static void add_text(const td_prediction *p, td_text *out)
{
    td_text_add(out, "%s\n", p->path);
    for (int i = 0; i < p->n; i++)
        td_text_add(out, "  %s: %.1f%%\n", p->name[i], 100 * p->probability[i]);
    if (p->st != TD_OK)
        td_text_add(out, "  unreadable: %s\n", p->message);
}

static td_status each(void *ctx, const td_prediction *p)
{
    listing *l = ctx;
    td_text *out = l->call->out;
    if (p->st != TD_OK && l->n_bad++ == 0)
        td_text_add(&l->first_error, "'%s': %s", p->path,
                    p->message ? p->message : td_status_text(p->st));
    if (l->is_lines || l->call->json) {
        if (l->n_files && !l->is_lines)
            td_text_add(out, ", ");
        add_json(p, out);
        if (l->is_lines)
            td_text_add(out, "\n");
    } else {
        add_text(p, out);
    }
    l->n_files++;
    if (out->len < SHOWN_BYTES)
        return TD_OK;
    TD_TRY(td_text_status(out));
    if (td_verb_print(out, 0) != 0)
        return td_error(TD_EIO, "after %lld pictures", (long long)l->n_files);
    out->len = 0;
    return TD_OK;
}

/* --- paths ------------------------------------------------------------------------------------ */

static td_status read_list(td_text *list)
{
    char part[1 << 14];
    size_t n;
    while ((n = fread(part, 1, sizeof part, stdin)) > 0) {
        td_text_add_bytes(list, part, n);
        TD_TRY(td_text_status(list));
        if (list->len > LIST_BYTES)
            return td_error(TD_ELIMIT, "the list on standard input is longer than %d MiB",
                            LIST_BYTES >> 20);
    }
    if (ferror(stdin))
        return td_error_errno(TD_EIO, "cannot read the list on standard input");
    return strlen(td_text_get(list)) == list->len
               ? TD_OK
               : td_error(TD_EFORMAT, "the list on standard input has a NUL byte, wanted a path "
                                      "on each line");
}

typedef struct {
    const char **items;
    size_t n, cap;
} paths;

static td_status add_path(paths *p, const char *path)
{
    TD_TRY(td_reserve(&p->items, &p->cap, p->n + 1, sizeof *p->items));
    p->items[p->n++] = path;
    return TD_OK;
}

/* cut at line ends, in place; empty lines are skipped */
static td_status add_lines(paths *p, td_text *list)
{
    for (char *s = list->data, *end; s && *s; s = end) {
        end = s + strcspn(s, "\n");
        if (*end)
            *end++ = '\0';
        if (*s)
            TD_TRY(add_path(p, s));
    }
    return TD_OK;
}

/* the arguments, and in the place of "-" what the list says */
static td_status gather(const td_call *call, td_text *list, paths *out)
{
    const char *image = ((const td_classify_opts *)call->opts)->image;
    bool is_read = false;
    if (image)
        TD_TRY(add_path(out, image));
    for (int i = 0; i < call->n_args; i++) {
        if (strcmp(call->args[i], "-") != 0) {
            TD_TRY(add_path(out, call->args[i]));
            continue;
        }
        if (is_read)
            return td_error(TD_EUSAGE, "- stands twice among the files");
        is_read = true;
        TD_TRY(read_list(list));
        TD_TRY(add_lines(out, list));
    }
    if (out->n == 0 && is_read)
        return td_error(TD_EARG, "the list on standard input is empty");
    if (out->n == 0)
        return td_error(TD_EUSAGE, "classify wants FILE|FOLDER|-...");
    return out->n <= INT32_MAX ? TD_OK : td_error(TD_ELIMIT, "%zu files are too many", out->n);
}

/* --- the verb --------------------------------------------------------------------------------- */

static td_status check(const void *opts)
{
    return td_amp_check(&((const td_classify_opts *)opts)->amp);
}

static td_status classify(const td_call *call, const paths *files)
{
    const td_classify_opts *o = call->opts;
    listing l = { .call = call, .is_lines = o->json_lines };
    bool is_object = call->json && !o->json_lines;
    if (is_object)
        td_text_add(call->out, "{\"predictions\": [");
    td_status st = td_classify(o, (int)files->n, files->items, each, &l);
    if (is_object)
        td_text_add(call->out, "]}\n");
    if (l.n_files == 0)
        td_text_release(call->out); /* it failed before the first picture */
    if (st == TD_OK && l.n_bad == l.n_files)
        st = td_error(TD_EFORMAT, "none of %lld files can be read: %s", (long long)l.n_files,
                      td_text_get(&l.first_error));
    td_text_release(&l.first_error);
    return st;
}

static td_status run(const td_call *call)
{
    td_text list = { 0 };
    paths files = { 0 };
    td_status st = gather(call, &list, &files);
    if (st == TD_OK)
        st = classify(call, &files);
    td_free(files.items);
    td_text_release(&list);
    return st;
}

const td_verb td_verb_classify = {
    .name = "classify",
    .arguments = "FILE|FOLDER|-...",
    .summary = "the most probable classes of pictures",
    .about =
        "For each picture its path and the best classes with their probabilities.  A folder "
        "stands\n"
        "for the pictures below it, by folder, then by name; - for a list of paths on standard\n"
        "input, one a line.  Network and class names come from the weight file where it has them.\n"
        "A picture that cannot be read is listed with the reason and does not end the run; the\n"
        "exit code is 1 only when none could be read.",
    .examples = "tandem classify --weights model_best.safetensors rose.jpg\n"
                "tandem classify --weights resnet50.safetensors --arch resnet50 --json *.jpg\n"
                "tandem classify --weights model_best.safetensors --json-lines holiday/\n"
                "find . -name '*.jpg' | tandem classify --weights model_best.safetensors -",
    .n_args_max = -1,
    .has_json = true,
    .opts_bytes = sizeof(td_classify_opts),
    .groups = groups,
    .check = check,
    .run = run,
};
