/*
 * describe.c -- answers about the server: health, metadata, configuration, statistics
 */
#include "serve/kind.h"
#include "tandem/status.h"

size_t td_output_row(const td_service *s, const td_work *w, int i)
{
    int dim[2];
    size_t n = 1;
    for (int k = s->kind->dims(s, w, i, dim); k > 0; k--)
        n *= (size_t)dim[k - 1];
    return n;
}

static void describe_output(const td_service *s, int i, td_text *out)
{
    const td_kind_output *o = &s->kind->outputs[i];
    int dim[2], n = s->kind->dims(s, NULL, i, dim);
    td_text_add(out, "%s{\"name\": \"%s\", \"datatype\": \"%s\", \"shape\": [-1", i ? ", " : "",
                o->name, o->is_int ? "INT64" : "FP32");
    for (int k = 0; k < n; k++)
        td_text_add(out, ",%d", dim[k]);
    td_text_add(out, "]}");
}

static void describe_model(const td_service *s, td_text *out)
{
    int size = s->transform.size;
    td_text_add(out, "{");
    td_json_add_text(out, "name", s->name);
    td_text_add(out, ", \"versions\": [\"1\"], \"platform\": \"tandem\", \"inputs\": [");
    td_text_add(out, "{\"name\": \"images\", \"datatype\": \"FP32\", \"shape\": [-1,%d,%d,%d]}], ",
                td_transform_channels(&s->transform), size, size);
    td_text_add(out, "\"outputs\": [");
    for (int i = 0; i < s->kind->n_outputs; i++)
        describe_output(s, i, out);
    td_text_add(out, "], \"parameters\": {");
    td_json_add_text(out, "precision", s->precision);
    s->kind->describe(s, out);
    td_text_add(out, "}}\n");
}

/* --- the configuration, in Triton's format ---------------------------------------------------- */

static void add_config_output(const td_service *s, int i, td_text *out)
{
    const td_kind_output *o = &s->kind->outputs[i];
    int dim[2], n = s->kind->dims(s, NULL, i, dim);
    td_text_add(out, "%s{\"name\": \"%s\", \"data_type\": \"TYPE_%s\", \"dims\": [", i ? ", " : "",
                o->name, o->is_int ? "INT64" : "FP32");
    for (int k = 0; k < n; k++)
        td_text_add(out, "%s%d", k ? ", " : "", dim[k]);
    /* one number per row: the reshape removes the only dimension */
    td_text_add(out, n ? "]}" : "1], \"reshape\": {\"shape\": []}}");
}

static void add_config(const td_service *s, td_text *out)
{
    const int size = s->transform.size;
    td_text_add(out, "{");
    td_json_add_text(out, "name", s->name);
    td_text_add(out,
                ", \"platform\": \"tandem\", \"backend\": \"tandem\", "
                "\"version_policy\": {\"latest\": {\"num_versions\": 1}}, \"max_batch_size\": %d, ",
                TD_ROWS_MAX);
    td_text_add(out,
                "\"input\": [{\"name\": \"images\", \"data_type\": \"TYPE_FP32\", "
                "\"dims\": [%d, %d, %d]}], \"output\": [",
                td_transform_channels(&s->transform), size, size);
    for (int i = 0; i < s->kind->n_outputs; i++)
        add_config_output(s, i, out);
    td_text_add(out,
                "], \"instance_group\": [{\"name\": \"streams\", \"count\": %d}], "
                "\"dynamic_batching\": {\"preferred_batch_size\": [%d], "
                "\"max_queue_delay_microseconds\": %lld}}\n",
                s->streams, s->max_batch, (long long)(s->max_delay_ms * 1e3));
}

void td_api_describe(const td_service *s, td_route route, bool is_ready, td_reply *reply)
{
    td_text *out = &reply->body;
    reply->status = 200;
    reply->type = TD_JSON_TYPE;
    switch (route) {
    case TD_ROUTE_PAGE:
        reply->type = "text/html; charset=utf-8";
        s->kind->page(s, out);
        break;
    case TD_ROUTE_ICON:
        reply->status = 204;
        reply->type = NULL;
        break;
    case TD_ROUTE_SERVER:
        td_text_add(out,
                    "{\"name\": \"tandem\", \"version\": \"%s\", \"extensions\": "
                    "[\"binary_tensor_data\", \"model_configuration\", \"statistics\"%s]}\n",
                    td_version(), s->kind->has_classes ? ", \"classification\"" : "");
        break;
    case TD_ROUTE_LIVE:
        td_text_add(out, "{\"live\": true}\n");
        break;
    case TD_ROUTE_READY:
        reply->status = is_ready ? 200 : 503;
        td_text_add(out, "{\"ready\": %s}\n", is_ready ? "true" : "false");
        break;
    case TD_ROUTE_MODEL_READY:
        reply->status = is_ready ? 200 : 503;
        td_text_add(out, "{\"name\": \"%s\", \"ready\": %s}\n", s->name,
                    is_ready ? "true" : "false");
        break;
    case TD_ROUTE_CONFIG:
        add_config(s, out);
        break;
    case TD_ROUTE_STATISTICS:
        td_text_add(out, "{\"model_stats\": [");
        td_metrics_statistics(s->metrics, s->name, out);
        td_text_add(out, "]}\n");
        break;
    case TD_ROUTE_INDEX:
        td_text_add(out,
                    "[{\"name\": \"%s\", \"version\": \"1\", \"state\": \"%s\", "
                    "\"reason\": \"%s\"}]\n",
                    s->name, is_ready ? "READY" : "UNAVAILABLE", is_ready ? "" : "shutting down");
        break;
    default:
        describe_model(s, out);
        break;
    }
}
