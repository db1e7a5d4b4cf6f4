/*
 * fuzz_sizes.c -- any text: an error in words, or image sizes in range and in order of epochs
 */
#include "data/sizes.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    char text[1024];
    td_sizes s;
    size_t n = n_bytes < sizeof text ? n_bytes : sizeof text - 1;
    memcpy(text, data, n);
    text[n] = '\0';
    if (td_sizes_parse(text, &s) != TD_OK) {
        TD_CHECK(s.n == 0 && *td_error_message());
        return 0;
    }
    TD_CHECK(s.n >= 1 && s.n <= TD_SIZE_STEPS_MAX && s.epoch[0] == 0);
    for (int i = 0; i < s.n; i++) {
        TD_CHECK(s.size[i] >= 1 && s.size[i] <= td_sizes_largest(&s, 0));
        TD_CHECK(i == 0 || s.epoch[i] > s.epoch[i - 1]);
        TD_CHECK(td_sizes_at(&s, s.epoch[i], 0) == s.size[i]);
    }
    return 0;
}
