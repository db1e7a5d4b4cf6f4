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
 * A line "Query: a=1&b=2" stands for what follows a path's '?'; "Kind: detector" asks a detector.
 * The networks are stand-ins: their results are numbers made up from the row.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/json.h"
#include "serve/encoding.h"
#include "serve/kind.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

enum { CLASSES = 3, SIZE = 2, HEAD_BYTES = 2048 };

static const char *class_name(const void *ctx, int i, char room[24])
{
    static const char *const names[CLASSES] = { "a", "b \"quoted\"", "c\n" };
    (void)ctx;
    (void)room;
    return names[i];
}

static td_metrics metrics = { .lock = PTHREAD_MUTEX_INITIALIZER };

static td_service services[2] = { { .kind = &td_kind_classifier,
                                    .name = "net",
                                    .precision = "fp32",
                                    .n_classes = CLASSES,
                                    .topk = 2,
                                    .transform = { .size = SIZE,
                                                   .padding = 1,
                                                   .max_pixels = 1000000,
                                                   .max_scans = 32,
                                                   .by_library = true },
                                    .metrics = &metrics,
                                    .class_name = class_name },
                                  { .kind = &td_kind_detector,
                                    .name = "net",
                                    .precision = "fp32",
                                    .n_classes = CLASSES,
                                    .transform = { .size = SIZE, .detector = TD_DETECTOR_SSD320 },
                                    .metrics = &metrics,
                                    .boxes = { .min_score = -1, .nms_iou = -1 } } };

static td_nms_pool *nms;

/* made once, and kept */
static void open_detector(td_service *s)
{
    static char text[CLASSES][16] = { "a", "b \"quoted\"", "c\n" };
    static char *names[CLASSES] = { text[0], text[1], text[2] };
    static int64_t categories[CLASSES] = { 7, 5, 90 };
    static const td_box_classes classes = { "w", CLASSES, CLASSES, CLASSES, names, categories };
    static td_anchors *anchors;
    if (anchors)
        return;
    TD_CHECK(td_anchors_new(TD_DETECTOR_SSD320, 32, &anchors) == TD_OK);
    TD_CHECK(td_nms_pool_new(anchors, CLASSES + 1, 1, &nms) == TD_OK);
    s->classes = &classes;
    s->n_anchors = anchors->n;
}

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

static void compute(const td_service *s, td_work *w)
{
    static float first[4096], second[4096];
    const size_t row = 3 * SIZE * SIZE;
    const size_t n[2] = { s->n_anchors ? 4 * (size_t)s->n_anchors : CLASSES,
                          s->n_anchors ? (CLASSES + 1) * (size_t)s->n_anchors : CLASSES };
    const float *const results[2] = { first, second };
    TD_CHECK(n[0] <= 4096 && n[1] <= 4096);
    for (int r = 0; r < w->n; r++) {
        for (size_t i = 0; i < n[0] || i < n[1]; i++) {
            float x = w->images[(size_t)r * row + i % row];
            TD_CHECK(isfinite(x));
            first[i < n[0] ? i : 0] = x;
            second[i < n[1] ? i : 0] = (float)((i * 7) % 11) / 11;
        }
        TD_CHECK(s->kind->store_results(s, nms, &(td_row){ w, r }, 1, results) == TD_OK);
    }
}

/* "a=1&b" -> pairs, in place */
static int split(char *query, td_query out[TD_PARAMS_MAX])
{
    int n = 0;
    for (char *at = query, *end; at && n < TD_PARAMS_MAX; at = end) {
        end = strchr(at, '&');
        if (end)
            *end++ = '\0';
        char *value = strchr(at, '=');
        if (value)
            *value++ = '\0';
        out[n++] = (td_query){ at, value };
    }
    return n;
}

static void ask(const td_service *s, char *head, const char *body, size_t n_body,
                td_transformer *buffers, td_work *w, td_reply *reply)
{
    td_query params[TD_PARAMS_MAX];
    char *query = cut(header(head, "Query")), *type = cut(header(head, "Content-Type"));
    char *json = cut(header(head, "Inference-Header-Content-Length"));
    char *expanded = NULL;
    const char *encoding = header(head, "Content-Encoding");
    size_t n_expanded;
    if (encoding && td_encoding_expand(body, n_body, 1 << 16, &expanded, &n_expanded) == TD_OK) {
        body = expanded;
        n_body = n_expanded;
    }
    td_request rq = { params, split(query, params), type, json, body, n_body };
    (void)td_image_is_large(&rq);
    if (td_api_read(s, &rq, buffers, w, reply)) {
        compute(s, w);
        td_api_write(s, w, reply);
        TD_CHECK(reply->json_bytes <= reply->body.len);
    } else {
        TD_CHECK(reply->status >= 400 && reply->status < 500);
    }
    td_free(query);
    td_free(type);
    td_free(json);
    td_free(expanded);
}

static void answer(char *head, const char *body, size_t n_body, td_transformer *buffers,
                   td_reply *reply)
{
    td_work w = { 0 };
    const char *kind = header(head, "Kind");
    td_service *s = &services[kind && td_text_starts(kind, "detector")];
    char *method = cut(head), *path = method ? strchr(method, ' ') : NULL;
    open_detector(&services[1]);
    if (path)
        *path++ = '\0';
    w.route = td_api_route(s, method ? method : "", path ? path : "", reply);
    if (w.route == TD_ROUTE_IMAGE || w.route == TD_ROUTE_INFER) {
        ask(s, head, body, n_body, buffers, &w, reply);
    } else if (w.route != TD_ROUTE_NONE && w.route != TD_ROUTE_METRICS) {
        td_api_describe(s, w.route, true, reply);
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
