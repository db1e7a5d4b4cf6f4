/*
 * test_serve_api.c -- routes, forms, tensors in JSON, answers of a classifier and a detector
 */
#include <math.h>
#include <string.h>

#include <zlib.h>

#include "base/arena.h"
#include "base/json.h"
#include "serve/kind.h"
#include "support/expect.h"

enum { CLASSES = 3 };

static const char *class_name(const void *ctx, int i, char room[24])
{
    static const char *const names[CLASSES] = { "cat", "dog", "say \"hi\"" };
    (void)ctx;
    (void)room;
    return names[i];
}

static td_metrics metrics = { .lock = PTHREAD_MUTEX_INITIALIZER };

static const td_service service = { .kind = &td_kind_classifier,
                                    .name = "net",
                                    .precision = "fp32",
                                    .n_classes = CLASSES,
                                    .topk = 2,
                                    .transform = { .size = 2, .padding = 1, .max_pixels = 50 },
                                    .max_batch = 4,
                                    .metrics = &metrics,
                                    .class_name = class_name };

/* the CRC of a PNG chunk, big-endian behind its name and data */
static void fix_png_crc(uint8_t *chunk, size_t n)
{
    const uint32_t crc = (uint32_t)crc32(0, chunk, (unsigned)n);
    for (int i = 0; i < 4; i++)
        chunk[n + (size_t)i] = (uint8_t)(crc >> (24 - 8 * i));
}

static int route_status(const char *method, const char *path, td_route wanted)
{
    td_reply reply = { 0 };
    assert_int_equal(td_api_route(&service, method, path, &reply), wanted);
    int status = reply.status;
    td_text_release(&reply.body);
    return status;
}

static void routes_are_found(void **state)
{
    (void)state;
    route_status("GET", "/", TD_ROUTE_PAGE);
    route_status("POST", "/classify", TD_ROUTE_IMAGE);
    route_status("GET", "/v2/models/net", TD_ROUTE_MODEL);
    route_status("POST", "/v2/models/net/versions/1/infer", TD_ROUTE_INFER);
    assert_int_equal(route_status("GET", "/classify", TD_ROUTE_NONE), 405);
    assert_int_equal(route_status("GET", "/classify/", TD_ROUTE_NONE), 404);
    assert_int_equal(route_status("POST", "/v2/models/ne/infer", TD_ROUTE_NONE), 404);
    assert_int_equal(route_status("POST", "/v2/models/nett/infer", TD_ROUTE_NONE), 404);
    assert_int_equal(route_status("POST", "/v2/models/net/versions/11/infer", TD_ROUTE_NONE), 404);
    assert_int_equal(route_status("GET", "", TD_ROUTE_NONE), 404);
    route_status("GET", "/v2/models/net/config", TD_ROUTE_CONFIG);
    route_status("GET", "/v2/models/net/versions/1/stats", TD_ROUTE_STATISTICS);
    route_status("GET", "/v2/models/stats", TD_ROUTE_STATISTICS);
    route_status("POST", "/v2/repository/index", TD_ROUTE_INDEX);
    assert_int_equal(route_status("GET", "/v2/repository/index", TD_ROUTE_NONE), 405);
    assert_int_equal(route_status("POST", "/v2/repository/models/net/load", TD_ROUTE_NONE), 501);
    assert_int_equal(route_status("POST", "/v2/repository/models/x/unload", TD_ROUTE_NONE), 501);
    assert_int_equal(route_status("GET", "/v2/repository/models/x/unload", TD_ROUTE_NONE), 405);
    assert_int_equal(route_status("POST", "/v2/repository/models/x", TD_ROUTE_NONE), 404);
}

static td_json *describe(const td_service *s, td_route route)
{
    td_json *doc;
    td_reply reply = { 0 };
    td_api_describe(s, route, true, &reply);
    assert_int_equal(reply.status, 200);
    expect_ok(td_json_parse(reply.body.data, reply.body.len, "description", &doc));
    td_text_release(&reply.body);
    return doc;
}

static int64_t int_at(const td_json *object, const char *key)
{
    int64_t x = -1;
    expect_ok(td_json_int(object, key, &x));
    return x;
}

static void clients_learn_configuration_and_statistics(void **state)
{
    (void)state;
    td_json *doc = describe(&service, TD_ROUTE_CONFIG);
    assert_int_equal(int_at(doc, "max_batch_size"), TD_ROWS_MAX);
    const td_json *output = td_json_at(td_json_get(doc, "output"), 1);
    assert_int_equal(td_json_count(td_json_get(output, "dims")), 1);
    td_json_free(doc);

    metrics = (td_metrics){ .lock = PTHREAD_MUTEX_INITIALIZER };
    td_metrics_request(&metrics, true, &(td_spans){ 1, 20, 300, 4000 });
    td_metrics_request(&metrics, true, &(td_spans){ 1, 20, 300, 4000 });
    td_metrics_request(&metrics, false, &(td_spans){ 7, 0, 0, 0 });
    td_metrics_batch(&metrics, 3, &(td_spans){ 0, 5, 600, 7 });
    doc = describe(&service, TD_ROUTE_STATISTICS);
    const td_json *model = td_json_at(td_json_get(doc, "model_stats"), 0);
    assert_int_equal(int_at(model, "inference_count"), 3);
    assert_int_equal(int_at(model, "execution_count"), 1);
    assert_true(int_at(model, "last_inference") > 0);
    const td_json *stats = td_json_get(model, "inference_stats");
    assert_int_equal(int_at(td_json_get(stats, "success"), "count"), 2);
    assert_int_equal(int_at(td_json_get(stats, "success"), "ns"), 8642);
    assert_int_equal(int_at(td_json_get(stats, "compute_infer"), "ns"), 600);
    assert_int_equal(int_at(td_json_get(stats, "fail"), "ns"), 7);
    const td_json *batch = td_json_at(td_json_get(model, "batch_stats"), 0);
    assert_int_equal(int_at(batch, "batch_size"), 3);
    assert_int_equal(int_at(td_json_get(batch, "compute_infer"), "ns"), 600);
    td_json_free(doc);

    doc = describe(&service, TD_ROUTE_INDEX);
    const char *text;
    expect_ok(td_json_text(td_json_at(doc, 0), "state", &text));
    assert_string_equal(text, "READY");
    td_json_free(doc);
}

enum { WIDTH_AT = 18, HEIGHT_AT = 22, HEAD = 33 }; /* of a PNG */

/* the header alone decides */
static void costly_images_are_known_before_they_are_decoded(void **state)
{
    static uint8_t png[HEAD + 1] =
        "\211PNG\r\n\032\n\0\0\0\rIHDR\0\0\017\240\0\0\017\240\010\002\0\0\0";

    td_request rq = { .body = png, .n_body = HEAD };
    td_work w = { .route = TD_ROUTE_IMAGE };
    td_transformer buffers = { 0 };
    td_reply reply = { 0 };
    (void)state;
    fix_png_crc(png + 12, 17);
    assert_true(td_image_is_large(&rq)); /* 4000 x 4000 */
    assert_false(td_api_read(&service, &rq, &buffers, &w, &reply));
    assert_int_equal(reply.status, 413);
    assert_non_null(strstr(td_text_get(&reply.body), "has 4000 x 4000 pixels, the limit is 50"));
    td_text_release(&reply.body);
    png[WIDTH_AT] = png[HEIGHT_AT] = 0; /* 160 x 160 */
    fix_png_crc(png + 12, 17);
    assert_false(td_image_is_large(&rq));
    rq.n_body = 20;
    assert_false(td_image_is_large(&rq)); /* cut: td_image_read says so */
    rq.n_body = 9 << 20;
    assert_true(td_infer_is_large(&rq)); /* so much JSON */
    rq.json_bytes = "100";
    assert_false(td_infer_is_large(&rq)); /* the rest is bytes */
    td_work_release(&w);
    td_transformer_release(&buffers);
}

static void forms_give_their_image(void **state)
{
    static const char form[] = "--B\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\n1\r\n"
                               "--B\r\ncontent-disposition: form-data; name=f; filename=a\r\n\r\n"
                               "first\r\n--B\r\nContent-Disposition: form-data; name=\"image\""
                               "\r\n\r\nsec\r\n--ond\r\n--B--\r\n";
    const char *type = "multipart/form-data; charset=x; boundary=B", *bytes;
    size_t n;
    (void)state;
    expect_ok(td_multipart_find(type, form, sizeof form - 1, &bytes, &n));
    assert_int_equal(n, 10); /* "sec\r\n--ond" */
    assert_memory_equal(bytes, "sec\r\n--ond", n);
    expect_error(td_multipart_find(type, form, 115, &bytes, &n), TD_EFORMAT, "ends inside a part");
    expect_error(td_multipart_find(type, form, 20, &bytes, &n), TD_EFORMAT,
                 "no end of its headers");
    expect_error(td_multipart_find(type, "", 0, &bytes, &n), TD_EFORMAT, "no part 'image'");
    expect_error(td_multipart_find("multipart/form-data", form, 9, &bytes, &n), TD_EFORMAT,
                 "names no boundary");
}

static td_status numbers_of(const char *json, float *out, size_t *n, td_text *rest)
{
    float *numbers;
    td_status st = td_tensor_json_read(json, strlen(json), 6, rest, &numbers, n);
    if (st == TD_OK && *n)
        memcpy(out, numbers, *n * sizeof *out);
    td_free(numbers);
    return st;
}

static void numbers_leave_the_json(void **state)
{
    static const struct {
        const char *json, *says;
    } bad[] = {
        { "{\"inputs\":[{\"data\":[1,]}]}", "wanted a number" },
        { "{\"inputs\":[{\"data\":[1 2]}]}", "wanted a comma" },
        { "{\"inputs\":[{\"data\":[1", "ends at byte" },
        { "{\"inputs\":[{\"data\":[\"1\"]}]}", "wanted a number" },
        { "{\"inputs\":[{\"data\":[1e39]}]}", "float32 can hold" },
        { "{\"inputs\":[{\"data\":[nan]}]}", "wanted a number" },
        { "{\"inputs\":[{\"data\":[1,2,3,4,5,6,7]}]}", "more than 6" },
        { "{\"inputs\":[{\"data\":[[[[[[[[[1]]]]]]]]]}]}", "wanted a number" },
        { "{\"inputs\":[{\"data\":[1]},{\"data\":[2]}]}", "two inputs" },
        { "{\"inputs\":[{\"data\":7}]}", "wanted an array" },
        { "{\"inputs\":\"", "end of a string" },
    };
    float x[6];
    size_t n;
    td_text rest = { 0 };
    (void)state;
    expect_ok(numbers_of("{\"a\":\"da\\\"ta\", \"inputs\" : [{\"data\" : [[1, -2.5],[3e2]], "
                         "\"k\":[4]}], \"data\":[9]}",
                         x, &n, &rest));
    assert_int_equal(n, 3);
    assert_true(x[0] == 1 && x[1] == -2.5f && x[2] == 300);
    assert_string_equal(td_text_get(&rest), "{\"a\":\"da\\\"ta\", \"inputs\" : [{\"data\" : null, "
                                            "\"k\":[4]}], \"data\":[9]}");
    td_text_release(&rest);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        td_status st = numbers_of(bad[i].json, x, &n, &rest);
        assert_true(st == TD_EFORMAT || st == TD_ELIMIT);
        if (!strstr(td_error_message(), bad[i].says))
            fail_msg("%s: %s", bad[i].json, td_error_message());
        td_text_release(&rest);
    }
}

static const char infer[] = "{\"id\":\"x\",\"inputs\":[{\"name\":\"images\",\"datatype\":\"FP32\","
                            "\"shape\":[1,3,2,2],\"data\":[0,1,2,3,4,5,6,7,8,9,10,11]}]";

/* read, give it results, write */
static void answer(td_route route, const td_request *rq, const float *results, td_reply *reply)
{
    td_work w = { .route = route };
    td_transformer buffers = { 0 };
    *reply = (td_reply){ 0 };
    if (td_api_read(&service, rq, &buffers, &w, reply)) {
        memcpy(w.results, results, 2 * CLASSES * sizeof *results);
        td_api_write(&service, &w, reply);
    }
    td_work_release(&w);
    td_transformer_release(&buffers);
}

static void tensors_are_answered(void **state)
{
    static const float results[] = { -1, 2, 0.5f, 0.25f, 0.5f, 0.125f };
    td_text body = { 0 };
    td_reply reply;
    (void)state;
    td_text_add(&body, "%s}", infer);
    answer(TD_ROUTE_INFER, &(td_request){ .body = body.data, .n_body = body.len }, results, &reply);
    assert_int_equal(reply.status, 200);
    assert_string_equal(td_text_get(&reply.body),
                        "{\"model_name\": \"net\", \"model_version\": \"1\", \"id\": \"x\", "
                        "\"outputs\": [{\"name\": \"logits\", \"datatype\": \"FP32\", \"shape\": "
                        "[1,3], \"data\": [-1,2,0.5]}, {\"name\": \"probabilities\", "
                        "\"datatype\": \"FP32\", \"shape\": [1,3], \"data\": [0.25,0.5,0.125]}]}");
    td_text_release(&reply.body);
    td_text_release(&body);
    td_text_add(&body, "%s,\"outputs\":[{\"name\":\"probabilities\",\"parameters\":{", infer);
    td_text_add(&body, "\"classification\":2}},{\"name\":\"logits\",\"parameters\":{");
    td_text_add(&body, "\"binary_data\":true}}]}");
    answer(TD_ROUTE_INFER, &(td_request){ .body = body.data, .n_body = body.len }, results, &reply);
    assert_int_equal(reply.status, 200);
    assert_int_equal(reply.body.len, reply.json_bytes + CLASSES * sizeof(float));
    assert_memory_equal(reply.body.data + reply.json_bytes, results, CLASSES * sizeof(float));
    assert_non_null(strstr(reply.body.data, "\"data\": [\"0.5:1:dog\", \"0.25:0:cat\"]"));
    td_text_release(&reply.body);
    td_text_release(&body);
}

/* BYTES as bytes: each after its length, in the order of the outputs */
static void classes_are_bytes(void **state)
{
    static const float results[] = { -1, 2, 0.5f, 0.25f, 0.5f, 0.125f };
    static const char wanted[] = "\011\0\0\0000.5:1:dog\012\0\0\0000.25:0:cat\0\0\200\277";
    td_text body = { 0 };
    td_reply reply;
    (void)state;
    td_text_add(&body, "%s,\"outputs\":[{\"name\":\"probabilities\",\"parameters\":{", infer);
    td_text_add(&body, "\"classification\":2,\"binary_data\":true}},{\"name\":\"logits\",");
    td_text_add(&body, "\"parameters\":{\"binary_data\":true}}]}");
    answer(TD_ROUTE_INFER, &(td_request){ .body = body.data, .n_body = body.len }, results, &reply);
    assert_int_equal(reply.status, 200);
    assert_non_null(strstr(reply.body.data, "\"datatype\": \"BYTES\", \"shape\": [1,2], "
                                            "\"parameters\": {\"binary_data_size\": 27}}"));
    assert_int_equal(reply.body.len, reply.json_bytes + 27 + CLASSES * sizeof(float));
    assert_memory_equal(reply.body.data + reply.json_bytes, wanted, sizeof wanted - 1);
    td_text_release(&reply.body);
    td_text_release(&body);
}

static void failures_are_sentences(void **state)
{
    static const float broken[] = { 1, 2, 3, 0.5f, NAN, 0 };
    td_text body = { 0 };
    td_reply reply;
    (void)state;
    answer(TD_ROUTE_IMAGE, &(td_request){ .body = NULL }, broken, &reply);
    assert_int_equal(reply.status, 400);
    assert_non_null(strstr(td_text_get(&reply.body), "{\"error\": \""));
    td_text_release(&reply.body);
    td_text_add(&body, "%s}", infer);
    answer(TD_ROUTE_INFER, &(td_request){ .body = body.data, .n_body = body.len }, broken, &reply);
    assert_int_equal(reply.status, 500);
    assert_non_null(strstr(td_text_get(&reply.body), "no finite probabilities"));
    td_text_release(&reply.body);
    td_text_release(&body);
}

/* every allocation on the way fails once: an error, no leak */
static void memory_may_run_out(void **state)
{
    static const float results[2 * CLASSES] = { 0 };
    td_text body = { 0 };
    td_reply reply;
    (void)state;
    td_text_add(&body, "%s}", infer);
    td_request rq = { .body = body.data, .n_body = body.len };
    int64_t live = td_alloc_live();
    int n = 0, status;
    do {
        td_work w = { .route = TD_ROUTE_INFER };
        td_transformer buffers = { 0 };
        reply = (td_reply){ 0 };
        td_alloc_fail_at(++n);
        bool is_read = td_api_read(&service, &rq, &buffers, &w, &reply);
        td_alloc_fail_at(0);
        if (is_read) {
            memcpy(w.results, results, sizeof results);
            td_api_write(&service, &w, &reply);
        }
        status = reply.status;
        td_work_release(&w);
        td_transformer_release(&buffers);
        td_text_release(&reply.body);
        assert_int_equal(td_alloc_live(), live);
    } while (status != 200 && n < 200);
    assert_int_equal(status, 200);
    assert_true(n > 3);
    td_text_release(&body);
}

/* --- a detector ------------------------------------------------------------------------------- */

enum { ANCHORS = 138, IMAGE = 2 };

static float deltas[ANCHORS * 4], scores[ANCHORS * (CLASSES + 1)];

/* anchor 60 is a dog, anchor 0 a cat, nothing else is anything; the boxes are the anchors' own */
static td_nms_pool *nms;

static void open_detector(td_service *s, td_anchors **anchors)
{
    static char text[CLASSES][16] = { "cat", "dog", "say \"hi\"" };
    static char *names[CLASSES] = { text[0], text[1], text[2] };
    static int64_t categories[CLASSES] = { 7, 5, 90 };
    static const td_box_classes classes = { "w", CLASSES, CLASSES, CLASSES, names, categories };
    expect_ok(td_anchors_new(TD_DETECTOR_SSD320, 32, anchors));
    assert_int_equal((*anchors)->n, ANCHORS);
    *s = (td_service){ .kind = &td_kind_detector,
                       .name = "net",
                       .precision = "bf16",
                       .n_classes = CLASSES,
                       .transform = { .size = IMAGE, .detector = TD_DETECTOR_SSD320 },
                       .boxes = { .min_score = -1, .nms_iou = -1, .max_boxes = 3 },
                       .classes = &classes,
                       .n_anchors = ANCHORS };
    expect_ok(td_nms_pool_new(*anchors, CLASSES + 1, 1, &nms));
    for (size_t i = 0; i < sizeof scores / sizeof *scores; i++)
        scores[i] = -20;
    memset(deltas, 0, sizeof deltas);
    scores[60 * (CLASSES + 1) + 2] = 3;
    scores[0 * (CLASSES + 1) + 1] = 1;
}

static void close_detector(td_anchors *anchors)
{
    td_nms_pool_free(nms);
    td_anchors_free(anchors);
}

/* as `answer` above */
static void find(const td_service *s, td_route route, const td_request *rq, td_reply *reply)
{
    const float *const results[2] = { deltas, scores };
    td_work w = { .route = route };
    td_transformer buffers = { 0 };
    *reply = (td_reply){ 0 };
    if (td_api_read(s, rq, &buffers, &w, reply)) {
        td_status st = s->kind->store_results(s, nms, &(td_row){ &w, 0 }, 1, results);
        if (st == TD_OK)
            td_api_write(s, &w, reply);
        else
            td_reply_failure(reply, st);
    }
    td_work_release(&w);
    td_transformer_release(&buffers);
}

static void says(td_reply *reply, int status, const char *part)
{
    if (reply->status != status || !strstr(td_text_get(&reply->body), part))
        fail_msg("%d: %s", reply->status, td_text_get(&reply->body));
    td_text_release(&reply->body);
}

static void find_text(const td_service *s, const char *text, td_reply *reply)
{
    find(s, TD_ROUTE_INFER, &(td_request){ .body = text, .n_body = strlen(text) }, reply);
}

static void boxes_are_tensors(void **state)
{
    td_service s;
    td_anchors *anchors;
    td_text body = { 0 };
    td_reply reply;
    float box[4];
    (void)state;
    open_detector(&s, &anchors);
    td_text_add(&body, "%s}", infer);
    find_text(&s, body.data, &reply);
    assert_int_equal(reply.status, 200);
    assert_non_null(strstr(reply.body.data, "{\"name\": \"detection_boxes\", \"datatype\": "
                                            "\"FP32\", \"shape\": [1,3,4]"));
    assert_non_null(strstr(reply.body.data, "\"shape\": [1,3], \"data\": [0.952574134,0.731058"));
    assert_non_null(strstr(reply.body.data, "\"INT64\", \"shape\": [1,3], \"data\": [2,1,0]}"));
    says(&reply, 200,
         "\"num_detections\", \"datatype\": \"INT64\", \"shape\": [1], \"data\": [2]}]}");
    td_text_release(&body);

    td_text_add(&body, "%s,\"parameters\":{\"max_boxes\":1,\"other\":[]},\"outputs\":[", infer);
    td_text_add(&body, "{\"name\":\"detection_boxes\",\"parameters\":{\"binary_data\":true}},");
    td_text_add(&body, "{\"name\":\"num_detections\"}]}");
    find_text(&s, body.data, &reply);
    assert_int_equal(reply.body.len, reply.json_bytes + sizeof box);
    memcpy(box, reply.body.data + reply.json_bytes, sizeof box);
    const td_rect *r = &anchors->corner[60];
    assert_true(fabsf(box[0] - fmaxf(r->ymin, 0)) < 1e-5f);
    assert_true(fabsf(box[1] - fmaxf(r->xmin, 0)) < 1e-5f);
    assert_true(fabsf(box[2] - fminf(r->ymax, 1)) < 1e-5f);
    assert_true(fabsf(box[3] - fminf(r->xmax, 1)) < 1e-5f);
    says(&reply, 200, "\"data\": [1]}]}");
    td_text_release(&body);

    static const struct {
        const char *more, *says;
    } bad[] = {
        { "\"parameters\":{\"min_score\":2}", "min_score: 2 is out of range, wanted -1 to 1" },
        { "\"parameters\":{\"max_boxes\":1.5}", "max_boxes: 1.5 is not" },
        { "\"parameters\":{\"nms_iou\":[]}", "'nms_iou' is neither a number" },
        { "\"parameters\":{\"classes\":\"owl\"}", "classes: 'net' has no class 'owl'" },
        { "\"outputs\":[{\"name\":\"logits\"}]", "'detection_classes' and 'num_detections'" },
        { "\"outputs\":[{\"name\":\"num_detections\",\"parameters\":{\"classification\":1}}]",
          "'net' is a detector" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        td_text_add(&body, "%s,%s}", infer, bad[i].more);
        find_text(&s, body.data, &reply);
        says(&reply, 400, bad[i].says);
        td_text_release(&body);
    }

    td_text_add(&body, "%s}", infer);
    deltas[9] = NAN;
    find_text(&s, body.data, &reply);
    says(&reply, 500, "(bf16)");
    td_text_release(&body);
    close_detector(anchors);
}

static void images_have_boxes(void **state)
{
    /* two by one pixels, PNG */
    static const unsigned char png[] = { 0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00,
                                         0x00, 0x0d, 0x49, 0x48, 0x44, 0x52, 0x00, 0x00, 0x00, 0x02,
                                         0x00, 0x00, 0x00, 0x01, 0x08, 0x00, 0x00, 0x00, 0x00, 0xd1,
                                         0x49, 0x20, 0x56, 0x00, 0x00, 0x00, 0x0b, 0x49, 0x44, 0x41,
                                         0x54, 0x78, 0x9c, 0x63, 0x68, 0x68, 0x00, 0x00, 0x01, 0x83,
                                         0x01, 0x01, 0x18, 0x35, 0x22, 0x15, 0x00, 0x00, 0x00, 0x00,
                                         0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82 };
    td_service s;
    td_anchors *anchors;
    td_reply reply;
    td_query params[TD_PARAMS_MAX + 1] = { { "min-score", "0.8" } };
    td_request rq = { .params = params, .n_params = 1, .body = png, .n_body = sizeof png };
    (void)state;
    open_detector(&s, &anchors);
    find(&s, TD_ROUTE_IMAGE, &rq, &reply);
    says(&reply, 200,
         "{\"model\": \"net\", \"images\": [{\"id\": 1, \"width\": 2, \"height\": 1}], "
         "\"categories\": [{\"id\": 7, \"name\": \"cat\"}, {\"id\": 5, \"name\": "
         "\"dog\"}, {\"id\": 90, \"name\": \"say \\\"hi\\\"\"}], \"detections\": "
         "[{\"image_id\": 1, \"category_id\": 5, \"bbox\": [");
    params[0] = (td_query){ "classes", "cat" };
    find(&s, TD_ROUTE_IMAGE, &rq, &reply);
    says(&reply, 200, "\"detections\": [{\"image_id\": 1, \"category_id\": 7, ");
    params[0] = (td_query){ "classes", NULL };
    find(&s, TD_ROUTE_IMAGE, &rq, &reply);
    says(&reply, 400, "parameter 'classes' has no value");
    params[0] = (td_query){ "topk", "1" };
    find(&s, TD_ROUTE_IMAGE, &rq, &reply);
    says(&reply, 400, "'topk', wanted min_score, nms_iou");
    rq.n_params = TD_PARAMS_MAX + 1;
    find(&s, TD_ROUTE_IMAGE, &rq, &reply);
    says(&reply, 400, "more than 16 parameters");
    rq = (td_request){ .body = "no image", .n_body = 10 };
    find(&s, TD_ROUTE_IMAGE, &rq, &reply);
    says(&reply, 400, "{\"error\": \"");
    reply = (td_reply){ 0 };
    assert_int_equal(td_api_route(&s, "POST", "/detect", &reply), TD_ROUTE_IMAGE);
    assert_int_equal(td_api_route(&s, "POST", "/classify", &reply), TD_ROUTE_NONE);
    says(&reply, 404, "'net' is a detector, send images to /detect");
    td_api_describe(&s, TD_ROUTE_MODEL, true, &reply);
    says(&reply, 200,
         "{\"name\": \"detection_boxes\", \"datatype\": \"FP32\", \"shape\": [-1,3,4]}");
    td_api_describe(&s, TD_ROUTE_PAGE, true, &reply);
    says(&reply, 200, "$('score').value = 0.3;");

    /* every allocation on the way fails once */
    const int64_t live = td_alloc_live();
    int n = 0, status;
    rq = (td_request){ .params = params, .n_params = 1, .body = png, .n_body = sizeof png };
    params[0] = (td_query){ "classes", "cat,dog" };
    do {
        td_alloc_fail_at(++n);
        find(&s, TD_ROUTE_IMAGE, &rq, &reply);
        td_alloc_fail_at(0);
        status = reply.status;
        td_text_release(&reply.body);
        assert_true(status == 200 || status == 500);
        assert_true(td_alloc_live() >= live); /* the NMS pool keeps what it has grown */
    } while (status != 200 && n < 300);
    assert_int_equal(status, 200);
    assert_true(n > 10);
    close_detector(anchors);
    assert_int_equal(td_alloc_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(routes_are_found),
        cmocka_unit_test(forms_give_their_image),
        cmocka_unit_test(numbers_leave_the_json),
        cmocka_unit_test(tensors_are_answered),
        cmocka_unit_test(failures_are_sentences),
        cmocka_unit_test(memory_may_run_out),
        cmocka_unit_test(boxes_are_tensors),
        cmocka_unit_test(images_have_boxes),
        cmocka_unit_test(classes_are_bytes),
        cmocka_unit_test(clients_learn_configuration_and_statistics),
        cmocka_unit_test(costly_images_are_known_before_they_are_decoded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
