/*
 * detect_data.c -- opens a detector's data sets and checks their options
 */
#include "inference/detect_data.h"

#include <string.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/log.h"
#include "base/rule.h"
#include "base/text.h"
#include "boxes/detector_rules.h"
#include "inference/inputs.h"

/* Warn of skipped annotations; `dataset check` lists them. */
static void warn_of_bad(const td_dataset *ds)
{
    const td_bad_annotation *bad;
    int64_t n_listed;
    const int64_t n = td_dataset_bad_annotations(ds, &bad, &n_listed);
    if (n && n_listed)
        td_log(
            TD_LOG_WARN, "data",
            "'%s': skipped %lld invalid entries ('tandem dataset check' lists them), the first: %s",
            td_dataset_annotation_file(ds), (long long)n, bad[0].text);
}

td_status td_boxes_open(const td_input_opts *in, const char *split, const td_model_opts *model,
                        int64_t n_images, td_dataset **out)
{
    const bool is_files =
        in->data_backend != TD_DATA_SYNTHETIC && in->data_backend != TD_DATA_TENSORS;
    const bool is_training = strcmp(split, "train") == 0;
    const td_dataset_opts o = {
        .path = in->data,
        .backend = in->data_backend,
        .split = is_files ? split : NULL,
        .allow_root = is_files && !is_training,
        .n_classes = is_files ? 0 : model->num_classes,
        .n_images = n_images,
        .has_boxes = true,
        .annotations = is_files ? in->annotations : NULL,
        .keep_ids = in->label_ids == TD_LABEL_IDS_KEEP,
        .strict = in->strict,
        .skip_empty = is_training && td_detector_rules_of(td_model_detector(model))->skips_empty
    };
    TD_TRY(td_dataset_open(&o, out));
    warn_of_bad(*out);
    return TD_OK;
}

td_loader_opts td_boxes_loader_opts(const td_input_opts *in, const td_model_opts *model, int batch)
{
    td_loader_opts lo = td_loader_opts_of(in, model, batch);
    lo.detector = td_model_detector(model);
    return lo;
}

td_status td_boxes_use_classes(td_dataset *ds, int n, const char *const *names, bool allow_subset)
{
    if (td_dataset_backend(ds) == TD_DATA_FOLDER)
        return td_dataset_use_classes(ds, n, names, allow_subset);
    if (td_dataset_classes(ds) > n)
        return td_error(TD_ESHAPE, "'%s' has %d classes, the network %d", td_dataset_root(ds),
                        td_dataset_classes(ds), n);
    return TD_OK;
}

td_status td_boxes_categories(const td_dataset *ds, int64_t **out)
{
    const int n = td_dataset_classes(ds);
    TD_TRY(TD_ALLOC(*out, (size_t)n + 1));
    for (int i = 0; i < n; i++)
        (*out)[i] = td_dataset_category(ds, i + 1);
    return TD_OK;
}

static td_status read_categories(const td_json *doc, int *n, int64_t **out)
{
    const size_t count = td_json_count(doc);
    if (td_json_kind_of(doc) != TD_JSON_ARRAY || count > (size_t)1 << 20)
        return td_error(TD_EFORMAT, "wanted a list of category ids");
    TD_TRY(TD_ALLOC(*out, count + 1));
    for (size_t i = 0; i < count; i++)
        TD_TRY(td_json_as_int(td_json_at(doc, i), &(*out)[i]));
    *n = (int)count;
    return TD_OK;
}

td_status td_boxes_categories_from_json(const char *json, const char *path, int *n, int64_t **out)
{
    td_json *doc;
    *n = 0;
    *out = NULL;
    if (!json)
        return TD_OK;
    TD_TRY_MSG(td_json_parse(json, strlen(json), "tandem.categories", &doc), "'%s'", path);
    td_status st = read_categories(doc, n, out);
    td_json_free(doc);
    if (st == TD_OK)
        return TD_OK;
    td_free(*out);
    *out = NULL;
    return td_error_context(st, "'%s': tandem.categories", path);
}

/* --- classes without boxes -------------------------------------------------------------------- */

static void log_unseen(const td_dataset *ds, const bool *is_seen)
{
    const int n_classes = td_dataset_classes(ds);
    int n_unseen = 0;
    td_text list = { 0 };
    for (int label = 1; label <= n_classes; label++)
        if (!is_seen[label] && td_dataset_category(ds, label) >= 0 && n_unseen++ < 3)
            td_text_add(&list, "%s'%s'", list.len ? ", " : "",
                        td_dataset_class_name(ds, label - 1));
    if (n_unseen)
        td_log(TD_LOG_WARN, "train", "'%s' has no boxes of %s%s: %s", td_dataset_root(ds),
               td_text_get(&list), n_unseen > 3 ? ", ..." : "",
               n_unseen < n_classes ? "they cannot be learned" : "there is nothing to learn");
    td_text_release(&list);
}

td_status td_boxes_warn_unseen(const td_dataset *ds)
{
    int n;
    bool *is_seen = td_alloc((size_t)td_dataset_classes(ds) + 1, sizeof *is_seen);
    if (!is_seen)
        return TD_ENOMEM;
    for (int64_t i = 0; i < td_dataset_count(ds); i++) {
        const td_annotation *t = td_dataset_annotations(ds, i, &n);
        for (int k = 0; k < n; k++)
            is_seen[t[k].label] = true;
    }
    log_unseen(ds, is_seen);
    td_free(is_seen);
    return TD_OK;
}

/* --- --require -------------------------------------------------------------------------------- */

static td_status parse_rule(const char *rule, td_rule *out, int *metric)
{
    TD_TRY(td_rule_parse(rule, "AP50>=0.9", out));
    for (int i = 0; i < TD_BOX_METRICS; i++)
        if (strcmp(out->name, td_box_metric_name((td_box_metric)i)) == 0) {
            *metric = i;
            return TD_OK;
        }
    return td_error(TD_EUSAGE,
                    "--require: unknown metric '%s', wanted one of AP, AP50, AP75, APs, APm, APl, "
                    "AR1, AR10, AR100, ARs, ARm, ARl",
                    out->name);
}

td_status td_boxes_require_check(const char *rule)
{
    td_rule r;
    int metric;
    return parse_rule(rule, &r, &metric);
}

td_status td_boxes_require(const char *rule, const double boxes[TD_BOX_METRICS])
{
    td_rule r;
    int metric;
    TD_TRY(parse_rule(rule, &r, &metric));
    const double is = boxes[metric];
    if (is >= 0 && (r.is_at_least ? is >= r.limit : is <= r.limit))
        return TD_OK;
    if (is < 0)
        return td_error(TD_EREQUIRED, "%s is not defined for these data, %s was required", r.name,
                        rule);
    return td_error(TD_EREQUIRED, "%s is %.4f, %s was required", r.name, is, rule);
}
