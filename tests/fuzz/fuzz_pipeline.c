/*
 * fuzz_pipeline.c -- any bytes as a pipeline.config: an error in words, or options in their ranges
 *
 * What stands behind the last zero byte, if there is one, is taken as --hparams-overrides too.
 */
#include <stdint.h>
#include <string.h>

#include "io/prototext.h"
#include "recipes/pipeline.h"
#include "tandem/train.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void check_fields(const char *text, size_t n)
{
    td_prototext p;
    if (td_prototext_parse(text, n, "input", &p) != TD_OK) {
        TD_CHECK(!p.fields && p.n == 0 && *td_error_message());
        return;
    }
    for (size_t i = 0; i < p.n; i++) {
        const td_proto_field *f = &p.fields[i];
        TD_CHECK(f->line >= 1 && *f->path && strlen(f->path) < 256);
        TD_CHECK(i == 0 || f->line >= p.fields[i - 1].line || !f->value || f->is_text);
        TD_CHECK(!f->value || strlen(f->value) < 4096);
    }
    td_prototext_release(&p);
}

static void check_options(const char *text, size_t n, const char *overrides)
{
    td_train_opts o;
    td_field_group groups[7];
    td_arena arena;
    td_error_clear();
    td_arena_init(&arena);
    td_train_defaults(&o);
    td_train_groups(&o, groups);
    if (td_pipeline_apply(text, n, "input", overrides, groups, &arena) != TD_OK)
        TD_CHECK(*td_error_message());
    for (int i = 0; groups[i].fields; i++)
        TD_CHECK(td_fields_check(groups[i].fields, groups[i].base) == TD_OK);
    td_arena_release(&arena);
}

/* length of the text in front of the last zero byte; n: there is none */
static size_t text_length(const uint8_t *data, size_t n)
{
    for (size_t i = n; i > 0; i--)
        if (data[i - 1] == 0)
            return i - 1;
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    char overrides[512];
    const size_t n = text_length(data, n_bytes);
    td_error_clear();
    check_fields((const char *)data, n_bytes);
    check_options((const char *)data, n_bytes, NULL);
    if (n < n_bytes && n_bytes - n <= sizeof overrides) {
        const size_t n_overrides = n_bytes - n - 1;
        if (n_overrides)
            memcpy(overrides, data + n + 1, n_overrides);
        overrides[n_overrides] = '\0';
        check_options((const char *)data, n, overrides);
    }
    return 0;
}
