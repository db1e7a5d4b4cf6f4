/*
 * fuzz_class_names.c -- bytes as a file of class names: an error in words, or printable names
 */
#include <stdint.h>
#include <string.h>

#include "base/arena.h"
#include "base/text.h"
#include "checkpoint/class_names.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    td_class_names c;
    char *text = td_alloc(n_bytes + 1, 1);
    if (!text)
        return 0;
    if (n_bytes)
        memcpy(text, data, n_bytes);
    td_error_clear();
    if (td_class_names_parse(text, n_bytes, "names", n_bytes % 2, &c) != TD_OK)
        TD_CHECK(c.n == 0 && !c.names && *td_error_message());
    else
        TD_CHECK(c.n > 0);
    for (int i = 0; i < c.n; i++) {
        TD_CHECK(*c.names[i] && td_text_is_utf8(c.names[i]));
        TD_CHECK(!strpbrk(c.names[i], "\n\033\177"));
    }
    td_class_names_release(&c);
    td_free(text);
    return 0;
}
