/*
 * test_serve_api.c -- routes, forms, tensors in JSON, answers
 */
#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "serve/api.h"
#include "support/expect.h"

enum { CLASSES = 3 };

static const char *class_name(const void *ctx, int i, char room[24])
{
    static const char *const names[CLASSES] = { "cat", "dog", "say \"hi\"" };
    (void)ctx;
    (void)room;
    return names[i];
}

static const td_service service = { .name = "net",
                                    .precision = "fp32",
                                    .n_classes = CLASSES,
                                    .topk = 2,
                                    .transform = { .size = 2, .padding = 1 },
                                    .class_name = class_name };

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
    route_status("POST", "/classify", TD_ROUTE_CLASSIFY);
    route_status("GET", "/v2/models/net", TD_ROUTE_MODEL);
    route_status("POST", "/v2/models/net/versions/1/infer", TD_ROUTE_INFER);
    assert_int_equal(route_status("GET", "/classify", TD_ROUTE_NONE), 405);
    assert_int_equal(route_status("GET", "/classify/", TD_ROUTE_NONE), 404);
    assert_int_equal(route_status("POST", "/v2/models/ne/infer", TD_ROUTE_NONE), 404);
    assert_int_equal(route_status("POST", "/v2/models/nett/infer", TD_ROUTE_NONE), 404);
    assert_int_equal(route_status("POST", "/v2/models/net/versions/11/infer", TD_ROUTE_NONE), 404);
    assert_int_equal(route_status("GET", "", TD_ROUTE_NONE), 404);
}

static void forms_give_their_picture(void **state)
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

static void failures_are_sentences(void **state)
{
    static const float broken[] = { 1, 2, 3, 0.5f, NAN, 0 };
    td_text body = { 0 };
    td_reply reply;
    (void)state;
    answer(TD_ROUTE_CLASSIFY, &(td_request){ .body = NULL }, broken, &reply);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(routes_are_found),       cmocka_unit_test(forms_give_their_picture),
        cmocka_unit_test(numbers_leave_the_json), cmocka_unit_test(tensors_are_answered),
        cmocka_unit_test(failures_are_sentences), cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
