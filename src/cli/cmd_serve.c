/*
 * cmd_serve.c -- tandem serve --weights FILE
 */
#include "tandem/serve.h"

#include <string.h>

#include "cli/verb.h"
#include "tandem/amp.h"
#include "tandem/detection.h"
#include "tandem/model.h"

static void groups(void *opts, td_field_group *out)
{
    td_serve_opts *o = opts;
    out[0] = (td_field_group){ "Network", td_model_fields(), &o->model };
    out[1] = (td_field_group){ "Precision", td_amp_fields(), &o->amp };
    out[2] = (td_field_group){ "Boxes", td_box_limits_fields(), &o->boxes };
    out[3] = (td_field_group){ "Serving", td_serve_fields(), o };
}

/* the address goes out at once: somebody may wait for it */
static td_status show(void *ctx, const td_serve_address *a)
{
    const td_call *call = ctx;
    td_text *out = call->out;
    bool is_v6 = strchr(a->host, ':') != NULL;
    td_text url = { 0 };
    td_text_add(&url, is_v6 ? "http%s://[%s]:%d/" : "http%s://%s:%d/", a->is_tls ? "s" : "",
                a->host, a->port);
    if (call->json) {
        td_text_add(out, "{");
        td_json_add_text(out, "model", a->name);
        td_json_add_text(out, "url", td_text_get(&url));
        td_json_add_text(out, "host", a->host);
        td_json_add(out, "port", a->port);
        td_text_add(out, "}\n");
    } else {
        td_text_add(out, "serving %s at %s\n", a->name, td_text_get(&url));
    }
    td_text_release(&url);
    TD_TRY(td_text_status(out));
    if (td_verb_print(out, 0) != 0)
        return td_error(TD_EIO, "the address cannot be told");
    td_text_release(out);
    return TD_OK;
}

static td_status check(const void *opts)
{
    return td_amp_check(&((const td_serve_opts *)opts)->amp);
}

static td_status run(const td_call *call)
{
    return td_serve(call->opts, show, (void *)(uintptr_t)call);
}

const td_verb td_verb_serve = {
    .name = "serve",
    .arguments = "",
    .summary = "answer requests for classes or boxes over HTTP",
    .about =
        "Images go to POST /classify, of a detector to POST /detect, tensors to KServe's "
        "inference\n"
        "protocol below /v2; / is a page for trying an image in a browser, /metrics is for\n"
        "Prometheus.  Requests that wait are computed together.  The address is printed when "
        "requests are taken.  SIGINT or SIGTERM\n"
        "ends it: no new connections, what was received is answered, exit code 0.  docs/serve.md\n"
        "has the endpoints.  Without --host only this machine reaches it; for others there are\n"
        "--token-file and --tls-cert.",
    .examples = "tandem serve --weights model_best.safetensors --port 8000\n"
                "curl --data-binary @rose.jpg http://127.0.0.1:8000/classify\n"
                "tandem serve --weights detector.safetensors --min-score 0.5\n"
                "curl --data-binary @street.jpg http://127.0.0.1:8000/detect",
    .has_json = true,
    .opts_bytes = sizeof(td_serve_opts),
    .groups = groups,
    .check = check,
    .run = run,
};
