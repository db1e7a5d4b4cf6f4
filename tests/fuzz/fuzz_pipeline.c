/*
 * fuzz_pipeline.c -- any bytes as a pipeline.config: an error in words, or options in their ranges
 */
#include <stdint.h>
#include <string.h>

#include "io/prototext.h"
#include "tandem/train.h"
#include "train/pipeline.h"

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    td_train_opts o;
    td_field_group groups[7];
    td_arena arena;
    td_error_clear();
    check_fields((const char *)data, n_bytes);
    td_arena_init(&arena);
    td_train_defaults(&o);
    td_train_groups(&o, groups);
    if (td_pipeline_apply((const char *)data, n_bytes, "input", NULL, groups, &arena) != TD_OK)
        TD_CHECK(*td_error_message());
    for (int i = 0; groups[i].fields; i++)
        TD_CHECK(td_fields_check(groups[i].fields, groups[i].base) == TD_OK);
    td_arena_release(&arena);
    return 0;
}
