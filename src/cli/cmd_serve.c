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

/* Print and flush the address immediately: a script may wait for it. */
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
        return td_error(TD_EIO, "cannot write the address");
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
    .summary = "serve classification or detection over HTTP",
    .about =
        "Send images to POST /classify (classifiers) or POST /detect (detectors), tensors to\n"
        "the endpoints of KServe's inference protocol under /v2. Open / in a browser to try\n"
        "an image; /metrics returns metrics for Prometheus. Waiting requests are computed in\n"
        "batches. docs/serve.md describes all endpoints.\n\n"
        "The address is printed when the server is ready. SIGINT or SIGTERM shuts it down: it\n"
        "accepts no new connections, answers the requests it has received, and exits with\n"
        "code 0.\n\n"
        "By default the server listens on 127.0.0.1 only. To accept other machines, set\n"
        "--host, and use --token-file and --tls-cert to protect the server.",
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
