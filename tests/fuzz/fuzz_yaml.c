/*
 * fuzz_yaml.c -- any bytes: an error in words, or a bounded tree that can be walked in every way
 */
#include <stdint.h>

#include "base/yaml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* nodes seen with aliases written out */
static size_t walk(const td_yaml *y, int depth)
{
    size_t seen = 1, n = td_yaml_count(y);
    bool is_text = td_yaml_kind_of(y) == TD_YAML_TEXT;

    TD_CHECK(depth <= 32 * 32 && td_yaml_line(y) >= 1);
    TD_CHECK(is_text == (td_yaml_text(y) != NULL));
    TD_CHECK(!is_text || n == 0);
    for (size_t i = 0; i < n; i++) {
        const td_yaml *member = td_yaml_member(y, i);
        const char *key = td_yaml_key(y, i);
        TD_CHECK((td_yaml_kind_of(y) == TD_YAML_MAP) == (key != NULL));
        TD_CHECK(member && (!key || td_yaml_get(y, key) == member));
        seen += walk(member, depth + 1);
    }
    TD_CHECK(!td_yaml_member(y, n) && !td_yaml_key(y, n));
    TD_CHECK(seen <= 100000);
    return seen;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    td_yaml *doc;

    td_error_clear();
    if (td_yaml_parse((const char *)data, n_bytes, "input", &doc) != TD_OK) {
        TD_CHECK(!doc && *td_error_message());
        return 0;
    }
    walk(doc, 0);
    td_yaml_free(doc);
    return 0;
}
