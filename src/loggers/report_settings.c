/*
 * report_settings.c -- writes options and metadata as records
 */
#include "loggers/report_settings.h"

#include <stdio.h>
#include <string.h>

#include "base/isa.h"
#include "base/json.h"
#include "base/machine.h"
#include "checkpoint/weights.h"

td_status td_settings_json(const td_field_group *groups, td_text *out)
{
    td_text_add(out, "{");
    for (int i = 0; groups[i].fields; i++) {
        td_text part = { 0 };
        td_fields_json(groups[i].fields, groups[i].base, &part);
        const td_status st = td_text_status(&part);
        if (st == TD_OK) {
            td_text_add(out, "%s", i ? ", " : "");
            td_text_add_bytes(out, part.data + 1, part.len - 2);
        }
        td_text_release(&part);
        TD_TRY(st);
    }
    td_text_add(out, "}");
    return td_text_status(out);
}

/* Convert {"a": 1} to {"model.a": 1}; values of option tables are numbers, texts and null. */
static td_status add_prefix(const char *json, const char *prefix, td_text *out)
{
    td_json *doc;
    TD_TRY(td_json_parse(json, strlen(json), "settings", &doc));
    td_text_add(out, "{");
    for (size_t i = 0; i < td_json_count(doc); i++) {
        const td_json *value = td_json_member(doc, i);
        const char *text;
        char name[96];
        double x;
        bool flag;
        snprintf(name, sizeof name, "%s%s", prefix, td_json_key(doc, i));
        if (td_json_as_bool(value, &flag) == TD_OK)
            td_text_add(out, "%s\"%s\": %s", i ? ", " : "", name, flag ? "true" : "false");
        else if (td_json_as_number(value, &x) == TD_OK)
            td_json_add(out, name, x);
        else
            td_json_add_text(out, name, td_json_as_text(value, &text) == TD_OK ? text : NULL);
    }
    td_text_add(out, "}");
    td_json_free(doc);
    return td_text_status(out);
}

static td_status report_model(td_report *r, const td_model_opts *model)
{
    td_text plain = { 0 }, prefixed = { 0 };
    td_status st = TD_OK;
    td_model_opts m = *model;
    if (m.model || m.model_text)
        m.arch = NULL; /* the network is from a graph file */
    td_fields_json(td_model_fields(), &m, &plain);
    TD_OUT(td_text_status(&plain));
    TD_OUT(add_prefix(td_text_get(&plain), "model.", &prefixed));
    TD_OUT(td_report_parameters(r, td_text_get(&prefixed)));
out:
    td_text_release(&plain);
    td_text_release(&prefixed);
    return st;
}

static double count_parameters(const td_program *p)
{
    double n = 0;
    for (int i = 0; p && i < td_program_param_count(p); i++)
        if (strcmp(td_program_param_role(p, i), "weight") == 0) {
            const td_type t = td_program_param_type(p, i);
            double elements = 1;
            for (int d = 0; d < t.rank; d++)
                elements *= (double)t.dim[d];
            n += elements;
        }
    return n;
}

static void add_count(td_text *t, const char *name, double n)
{
    if (n > 0)
        td_json_add(t, name, n);
}

static td_status report_metadata(td_report *r, const td_run_metadata *f)
{
    td_text t = { 0 };
    td_text_add(&t, "{");
    td_json_add_text(&t, "run.job", f->job);
    td_json_add_text(&t, "run.version", td_version());
    td_json_add_text(&t, "run.cpu", td_cpu_name());
    td_json_add_text(&t, "run.isa", td_isa_name(td_isa_best()));
    td_json_add(&t, "run.cpus", td_cpu_count());
    td_json_add(&t, "run.threads", td_threads());
    add_count(&t, "run.ranks", f->ranks > 1 ? f->ranks : 0);
    td_json_add(&t, "run.memory_bytes", (double)td_memory_total_bytes());
    td_json_add_text(&t, "run.precision", td_amp_precision_name(f->amp));
    add_count(&t, "run.parameters", count_parameters(f->program));
    add_count(&t, "run.train_images", (double)f->train_images);
    add_count(&t, "run.val_images", (double)f->val_images);
    add_count(&t, "run.epoch_batches", (double)f->epoch_batches);
    td_json_add(&t, "run.begin_epoch", (double)f->begin_epoch);
    td_text_add(&t, "}");
    td_status st = td_text_status(&t);
    if (st == TD_OK)
        st = td_report_parameters(r, td_text_get(&t));
    td_text_release(&t);
    return st;
}

td_status td_report_settings(td_report *r, const char *config_json, const td_model_opts *model,
                             const td_run_metadata *metadata)
{
    if (!r)
        return TD_OK;
    TD_TRY(td_report_parameters(r, config_json));
    TD_TRY(report_model(r, model));
    return td_report_is_compat(r) ? TD_OK : report_metadata(r, metadata);
}
