/*
 * inspect_files.c -- shows the content of a file, a data set, and this build
 */
#include "inspect/inspect.h"

#include <string.h>

#include "checkpoint/weight_file.h"
#include "device/gpu_plugin.h"
#include "io/safetensors.h"
#include "ops/ops.h"
#include "options/field.h"
#include "tandem/dataset.h"
#include "tandem/program.h"

/* --- checkpoint ------------------------------------------------------------------------------- */

static void tensor_text(const td_tensor *t, td_text *out)
{
    td_text_add(out, "  %-48s %s[", t->name, td_dtype_name(t->dtype));
    for (int d = 0; d < t->rank; d++)
        td_text_add(out, d ? ",%lld" : "%lld", (long long)t->dim[d]);
    td_text_add(out, "]\n");
}

static void tensor_json(const td_tensor *t, td_text *out)
{
    td_text_add(out, "{");
    td_json_add_text(out, "name", t->name);
    td_json_add_text(out, "dtype", td_dtype_name(t->dtype));
    td_text_add(out, ", \"shape\": [");
    for (int d = 0; d < t->rank; d++)
        td_text_add(out, d ? ", %lld" : "%lld", (long long)t->dim[d]);
    td_text_add(out, "]}");
}

static void file_json(const td_tensors *file, const char *path, double n_bytes, td_text *out)
{
    td_text_add(out, "{");
    td_json_add_text(out, "path", path);
    td_json_add(out, "bytes", n_bytes);
    td_text_add(out, ", \"metadata\": {");
    for (size_t i = 0; i < td_tensors_meta_count(file); i++) {
        const char *key = td_tensors_meta_key(file, i);
        td_text_add(out, i ? ", \"" : "\"");
        td_text_add_json(out, key);
        td_text_add(out, "\": \"");
        td_text_add_json(out, td_tensors_meta(file, key));
        td_text_add(out, "\"");
    }
    td_text_add(out, "}, \"tensors\": [");
    for (size_t i = 0; i < td_tensors_count(file); i++) {
        td_text_add(out, i ? ", " : "");
        tensor_json(td_tensors_at(file, i), out);
    }
    td_text_add(out, "]}\n");
}

static void file_text(const td_tensors *file, const char *path, double n_bytes, td_text *out)
{
    td_text_add(out, "%s\n%zu tensors, %.1f MB\n", path, td_tensors_count(file), n_bytes / 1e6);
    if (td_tensors_meta_count(file))
        td_text_add(out, "\nmetadata\n");
    for (size_t i = 0; i < td_tensors_meta_count(file); i++) {
        const char *key = td_tensors_meta_key(file, i);
        td_text_add(out, "  %s: %s\n", key, td_tensors_meta(file, key));
    }
    td_text_add(out, "\ntensors\n");
    for (size_t i = 0; i < td_tensors_count(file); i++)
        tensor_text(td_tensors_at(file, i), out);
}

td_status td_inspect_checkpoint(const td_inspection *q, td_text *out)
{
    td_tensors *file;
    double n_bytes = 0;
    TD_TRY(td_weight_file_read(q->path, false, &file));
    for (size_t i = 0; i < td_tensors_count(file); i++)
        n_bytes += (double)td_tensors_at(file, i)->n_bytes;
    if (q->opts->json)
        file_json(file, q->path, n_bytes, out);
    else
        file_text(file, q->path, n_bytes, out);
    td_tensors_free(file);
    return TD_OK;
}

/* --- dataset ---------------------------------------------------------------------------------- */

static void set_json(const td_dataset *ds, const int64_t *n_of, td_text *out)
{
    td_text_add(out, "{");
    td_json_add_text(out, "path", td_dataset_root(ds));
    td_json_add(out, "pictures", (double)td_dataset_count(ds));
    td_text_add(out, ", \"classes\": [");
    for (int i = 0; i < td_dataset_classes(ds); i++) {
        td_text_add(out, i ? ", {" : "{");
        td_json_add_text(out, "name", td_dataset_class_name(ds, i));
        td_json_add(out, td_dataset_has_boxes(ds) ? "boxes" : "pictures", (double)n_of[i]);
        td_text_add(out, "}");
    }
    td_text_add(out, "]}");
}

static void set_text(const td_dataset *ds, const int64_t *n_of, td_text *out)
{
    td_text_add(out, "%s: %lld images, %d classes\n  %-24s %s\n", td_dataset_root(ds),
                (long long)td_dataset_count(ds), td_dataset_classes(ds), "class",
                td_dataset_has_boxes(ds) ? "boxes" : "images");
    for (int i = 0; i < td_dataset_classes(ds); i++)
        td_text_add(out, "  %-24s %lld\n", td_dataset_class_name(ds, i), (long long)n_of[i]);
}

/* Count the images of each class or, in a set with boxes, the boxes. */
static void count_classes(const td_dataset *ds, int64_t *n_of)
{
    for (int64_t i = 0; i < td_dataset_count(ds); i++) {
        int n;
        const td_annotation *a = td_dataset_annotations(ds, i, &n);
        for (int k = 0; k < n; k++)
            n_of[a[k].label - 1]++;
        if (td_dataset_label(ds, i) >= 0 && td_dataset_label(ds, i) < td_dataset_classes(ds))
            n_of[td_dataset_label(ds, i)]++;
    }
}

/* Does the set have boxes, in this split or in the other one? */
static bool has_boxes(const char *path, const char *split)
{
    return td_dataset_is_annotated(path, split) ||
           (split &&
            (td_dataset_is_annotated(path, "train") || td_dataset_is_annotated(path, "val")));
}

/* Add one split (NULL: the path itself); TD_ENOTFOUND: it does not exist. */
static td_status add_set(const td_inspection *q, const char *split, int *n_done, td_text *out)
{
    td_dataset *ds = NULL;
    int64_t *n_of = NULL;
    td_status st;
    bool is_file = td_text_ends(q->path, ".safetensors");
    td_dataset_opts source = { .path = q->path, .split = is_file ? NULL : split };
    source.backend = is_file ? TD_DATA_TENSORS : TD_DATA_FOLDER;
    source.has_boxes = !is_file && has_boxes(q->path, source.split);
    TD_OUT(td_dataset_open(&source, &ds));
    n_of = td_alloc((size_t)td_dataset_classes(ds) + 1, sizeof *n_of);
    TD_OUT(n_of ? TD_OK : TD_ENOMEM);
    count_classes(ds, n_of);
    if (q->opts->json && (*n_done)++ > 0)
        td_text_add(out, ", ");
    if (q->opts->json)
        set_json(ds, n_of, out);
    else
        set_text(ds, n_of, out);
out:
    td_free(n_of);
    td_dataset_free(ds);
    return st;
}

td_status td_inspect_dataset(const td_inspection *q, td_text *out)
{
    int n_done = 0;
    if (q->opts->json)
        td_text_add(out, "{\"sets\": [");
    td_status train = add_set(q, "train", &n_done, out);
    td_status st = train;
    if (st == TD_OK || (st == TD_ENOTFOUND && !td_text_ends(q->path, ".safetensors")))
        st = td_text_ends(q->path, ".safetensors") ? TD_OK : add_set(q, "val", &n_done, out);
    if (train == TD_ENOTFOUND && st == TD_ENOTFOUND)
        st = add_set(q, NULL, &n_done, out); /* the path itself has the class folders */
    else if (st == TD_ENOTFOUND)
        st = TD_OK; /* one split is enough */
    if (q->opts->json)
        td_text_add(out, "]}\n");
    return st;
}

/* --- ops and backends ------------------------------------------------------------------------- */

td_status td_inspect_ops(const td_inspection *q, td_text *out)
{
    int n;
    const td_op *const *ops = td_op_all(&n);
    if (q->opts->json)
        td_text_add(out, "{\"ops\": [");
    for (int i = 0; i < n; i++) {
        const td_field *f = ops[i]->fields;
        if (q->opts->json) {
            td_text_add(out, i ? ", {" : "{");
            td_json_add_text(out, "name", ops[i]->name);
            td_json_add_text(out, "summary", ops[i]->summary);
            td_text_add(out, ", \"attributes\": [");
            for (int k = 0; f && f[k].kind != TD_KIND_END; k++)
                td_text_add(out, k ? ", \"%s\"" : "\"%s\"", f[k].name);
            td_text_add(out, "]}");
            continue;
        }
        td_text_add(out, "%-28s %s", ops[i]->name, ops[i]->summary);
        for (int k = 0; f && f[k].kind != TD_KIND_END; k++)
            td_text_add(out, k ? ", %s" : " {%s", f[k].name);
        td_text_add(out, f && f->kind != TD_KIND_END ? "}\n" : "\n");
    }
    if (q->opts->json)
        td_text_add(out, "]}\n");
    return TD_OK;
}

td_status td_inspect_gpu(const td_inspection *q, td_text *out)
{
    char json[TD_GPU_PROPERTIES_BYTES];
    const td_gpu_plugin *plugin;
    (void)q; /* the text is JSON in any case */
    TD_TRY(td_gpu_open(&plugin));
    TD_TRY(td_gpu_properties(json, sizeof json));
    const size_t n = strlen(json);
    td_text_add(out, "%s%s", json, n > 0 && json[n - 1] == '\n' ? "" : "\n");
    return TD_OK;
}

/* Add a list of names and texts, as returned by td_pass_name_at. */
static void add_list(const td_inspection *q, const char *title,
                     const char *(*at)(int i, const char **text), td_text *out)
{
    const char *text;
    td_text_add(out, q->opts->json ? "\"%s\": [" : "%s\n", title);
    for (int i = 0; at(i, &text); i++) {
        if (q->opts->json) {
            td_text_add(out, i ? ", {" : "{");
            td_json_add_text(out, "name", at(i, NULL));
            td_json_add_text(out, "summary", text);
            td_text_add(out, "}");
        } else {
            td_text_add(out, "  %-8s %s\n", at(i, NULL), text);
        }
    }
    td_text_add(out, q->opts->json ? "]" : "");
}

td_status td_inspect_backends(const td_inspection *q, td_text *out)
{
    td_text_add(out, q->opts->json ? "{" : "");
    add_list(q, "backends", td_backend_name_at, out);
    td_text_add(out, q->opts->json ? ", " : "\n");
    add_list(q, "passes", td_pass_name_at, out);
    td_text_add(out, q->opts->json ? "}\n" : "");
    return TD_OK;
}
