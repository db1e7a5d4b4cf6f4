/*
 * fuzz_safetensors.c -- any bytes: an error in words, or a set whose every byte can be read
 *
 * What parses is written, read back and must be the same: names, types, shapes, data, metadata.
 */
#include "io/safetensors.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "io/digest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* of all that a reader can see */
static uint64_t digest_of(const td_tensors *t)
{
    td_digest d;
    td_digest_init(&d);
    for (size_t i = 0; i < td_tensors_count(t); i++) {
        const td_tensor *x = td_tensors_at(t, i);
        TD_CHECK(td_tensors_get(t, x->name) == x);
        TD_CHECK(x->rank >= 0 && x->rank <= TD_TENSOR_RANK_MAX);
        TD_CHECK(x->n_bytes == 0 || (uintptr_t)x->data % 8 == 0);
        td_digest_add(&d, x->name, strlen(x->name) + 1);
        td_digest_add(&d, &x->dtype, sizeof x->dtype);
        td_digest_add(&d, x->dim, (size_t)x->rank * sizeof *x->dim);
        td_digest_add(&d, x->data, x->n_bytes);
    }
    return td_digest_value(&d);
}

/* into a new set in the order of a file we would write; a name that no writer takes ends it */
static td_tensors *copy(const td_tensors *t)
{
    td_tensors *c;
    if (td_tensors_new(&c) != TD_OK)
        return NULL;
    for (size_t each = 8; each; each /= 2)
        for (size_t i = 0; i < td_tensors_count(t); i++) {
            const td_tensor *x = td_tensors_at(t, i);
            if (td_dtype_bytes(x->dtype) != each)
                continue;
            if (td_tensors_add(c, x->name, x->dtype, x->rank, x->dim, x->data) != TD_OK) {
                TD_CHECK(!*x->name);
                td_tensors_free(c);
                return NULL;
            }
        }
    return c;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static unsigned n_parsed;
    td_tensors *t;

    if (td_tensors_parse(data, n_bytes, "input", &t) != TD_OK) {
        TD_CHECK(!t && *td_error_message());
        return 0;
    }
    for (size_t i = 0; i < td_tensors_meta_count(t); i++)
        TD_CHECK(td_tensors_meta(t, td_tensors_meta_key(t, i)));

    td_tensors *c = copy(t), *back;
    if (c && n_parsed++ % 64 == 0) { /* files are slow */
        char path[64];
        snprintf(path, sizeof path, "/tmp/tandem-fuzz-%ld", (long)getpid());
        TD_CHECK(td_tensors_write(c, path) == TD_OK);
        TD_CHECK(td_tensors_read(path, &back) == TD_OK);
        TD_CHECK(digest_of(back) == digest_of(c));
        td_tensors_free(back);
        unlink(path);
    }
    (void)digest_of(t);
    if (td_tensors_dequantize(t, "input") == TD_OK)
        (void)digest_of(t);
    else
        TD_CHECK(*td_error_message());
    td_tensors_free(c);
    td_tensors_free(t);
    return 0;
}
