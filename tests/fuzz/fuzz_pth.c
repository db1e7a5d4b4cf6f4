/*
 * fuzz_pth.c -- any bytes: an error in words, or tensors whose every byte can be read
 *
 * The input is tried as a file of PyTorch's, zip or legacy, and as a bare pickle: a zip archive's
 * check values keep most damage away from what stands behind them.
 */
#include "pth/pth.h"

#include <string.h>

#include "io/digest.h"
#include "pth/pickle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void read_all(const td_tensors *t)
{
    td_digest d;
    td_digest_init(&d);
    for (size_t i = 0; i < td_tensors_count(t); i++) {
        const td_tensor *x = td_tensors_at(t, i);
        size_t n = td_dtype_bytes(x->dtype);
        TD_CHECK(td_tensors_get(t, x->name) == x);
        TD_CHECK(n > 0 && x->rank >= 0 && x->rank <= TD_TENSOR_RANK_MAX);
        for (int k = 0; k < x->rank; k++)
            n *= (size_t)x->dim[k];
        TD_CHECK(n == x->n_bytes);
        td_digest_add(&d, x->data, x->n_bytes);
    }
    for (size_t i = 0; i < td_tensors_meta_count(t); i++)
        TD_CHECK(td_tensors_meta(t, td_tensors_meta_key(t, i)));
    (void)td_digest_value(&d);
}

static void try_file(const uint8_t *data, size_t n_bytes, bool is_ema)
{
    td_tensors *t;
    if (td_pth_parse(data, n_bytes, "input", is_ema, &t) != TD_OK) {
        TD_CHECK(!t && *td_error_message());
        return;
    }
    TD_CHECK(td_pth_is(data, n_bytes));
    read_all(t);
    TD_CHECK(td_tensors_widen(t) == TD_OK);
    read_all(t);
    td_tensors_free(t);
}

static void try_training(const uint8_t *data, size_t n_bytes)
{
    td_tensors *t;
    if (td_pth_parse_training(data, n_bytes, "input", &t) != TD_OK) {
        TD_CHECK(!t && *td_error_message());
        return;
    }
    TD_CHECK(td_tensors_meta(t, "torch.param_groups") && td_tensors_meta(t, "torch.epoch"));
    read_all(t);
    td_tensors_free(t);
}

static void try_pickle(const uint8_t *data, size_t n_bytes)
{
    td_pickle *p;
    if (td_pickle_load(data, n_bytes, 0, "input", &p) != TD_OK) {
        TD_CHECK(!p && *td_error_message());
        return;
    }
    TD_CHECK(td_pickle_end(p) <= n_bytes);
    for (const td_pvalue *v = td_pickle_values(p); v; v = v->next) {
        const uint8_t *text = v->kind == TD_PICKLE_TEXT ? (const uint8_t *)v->text.bytes : data;
        TD_CHECK(text >= data && text <= data + n_bytes);
        TD_CHECK(*td_pickle_kind_name(v->kind));
        (void)td_pickle_get(v, "state_dict");
    }
    td_pickle_free(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    try_file(data, n_bytes, false);
    try_file(data, n_bytes, true);
    try_training(data, n_bytes);
    try_pickle(data, n_bytes);
    return 0;
}
