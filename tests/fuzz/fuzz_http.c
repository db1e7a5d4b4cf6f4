/*
 * fuzz_http.c -- any method, path, headers and body: a status, and JSON where the answer says so
 *
 * The input is lines, as a request has them, a blank line, and the body:
 *
 *     POST /v2/models/net/infer
 *     Inference-Header-Content-Length: 12
 *
 *     {"inputs": ...
 *
 * The network is a stand-in: its results are numbers made up from the row.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/json.h"
#include "serve/api.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

enum { CLASSES = 3, SIZE = 2, HEAD_BYTES = 2048 };

static const char *class_name(const void *ctx, int i, char room[24])
{
    static const char *const names[CLASSES] = { "a", "b \"quoted\"", "c\n" };
    (void)ctx;
    (void)room;
    return names[i];
}

static const td_service service = { .name = "net",
                                    .precision = "fp32",
                                    .n_classes = CLASSES,
                                    .topk = 2,
                                    .transform = { .size = SIZE, .padding = 1 },
                                    .class_name = class_name };

/* the value of a header line, or NULL; cuts the head into lines */
static const char *header(char *head, const char *name)
{
    size_t n = strlen(name);
    for (char *line = head; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, n) == 0 && strncmp(line + n, ": ", 2) == 0)
            return line + n + 2;
    }
    return NULL;
}

static char *cut(const char *value)
{
    char *copy = value ? td_copy_text(value) : NULL;
    if (copy)
        copy[strcspn(copy, "\n")] = '\0';
    return copy;
}

/* an error has a sentence, every JSON answer parses */
static void check_reply(const td_reply *r)
{
    const char *text;
    TD_CHECK(r->status >= 200 && r->status < 600);
    TD_CHECK(td_text_status(&r->body) == TD_OK);
    if (!r->type || strncmp(r->type, "application/json", 16) != 0)
        return;
    td_json *doc;
    TD_CHECK(td_json_parse(r->body.data, r->body.len, "answer", &doc) == TD_OK);
    if (r->status >= 400 && td_json_get(doc, "error"))
        TD_CHECK(td_json_text(doc, "error", &text) == TD_OK && *text);
    td_json_free(doc);
}

static void compute(td_work *w)
{
    size_t n = (size_t)w->n * CLASSES, row = 3 * SIZE * SIZE;
    for (size_t i = 0; i < n; i++) {
        float x = w->images[i / CLASSES * row + i % row];
        TD_CHECK(isfinite(x));
        w->results[i] = x;
        w->results[n + i] = (float)(i % CLASSES) / CLASSES;
    }
}

static void answer(char *head, const char *body, size_t n_body, td_transformer *buffers,
                   td_reply *reply)
{
    td_work w = { 0 };
    char *method = cut(head), *path = method ? strchr(method, ' ') : NULL;
    if (path)
        *path++ = '\0';
    w.route = td_api_route(&service, method ? method : "", path ? path : "", reply);
    if (w.route == TD_ROUTE_CLASSIFY || w.route == TD_ROUTE_INFER) {
        char *topk = cut(header(head, "Topk")), *type = cut(header(head, "Content-Type"));
        char *json = cut(header(head, "Inference-Header-Content-Length"));
        td_request rq = { topk, type, json, body, n_body };
        if (td_api_read(&service, &rq, buffers, &w, reply)) {
            compute(&w);
            td_api_write(&service, &w, reply);
            TD_CHECK(reply->json_bytes <= reply->body.len);
        } else {
            TD_CHECK(reply->status >= 400 && reply->status < 500);
        }
        td_free(topk);
        td_free(type);
        td_free(json);
    } else if (w.route != TD_ROUTE_NONE && w.route != TD_ROUTE_METRICS) {
        td_api_describe(&service, w.route, true, reply);
    } else if (w.route == TD_ROUTE_METRICS) {
        reply->status = 200; /* needs a server */
    }
    td_free(method);
    td_work_release(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static td_transformer buffers; /* kept, as a worker's are */
    char head[HEAD_BYTES] = "";
    td_reply reply = { 0 };
    const char *text = (const char *)data;
    const char *blank = n_bytes ? memmem(text, n_bytes, "\n\n", 2) : NULL;
    size_t n_head = blank ? (size_t)(blank - text) : n_bytes;
    size_t from = blank ? n_head + 2 : n_bytes;

    memcpy(head, text ? text : "", n_head < sizeof head - 1 ? n_head : sizeof head - 1);
    answer(head, text ? text + from : "", n_bytes - from, &buffers, &reply);
    check_reply(&reply);
    td_text_release(&reply.body);
    return 0;
}
