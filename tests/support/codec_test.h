/*
 * support/codec_test.h -- tests that every image codec shares: values, cut files, flipped bits
 */
#ifndef TD_TEST_CODEC_TEST_H
#define TD_TEST_CODEC_TEST_H

#include <stddef.h>

#include "support/images.h"

typedef struct {
    const char *name, *colour; /* in tests/data/images */
    int bits, width, height;   /* as stored */
} td_codec_case;

typedef struct {
    const td_codec_case *files;
    int n;
    const char *format;
    size_t spare_bytes; /* the last bytes without which a file can still be read */
} td_codec_cases;

/** Each file has its golden pixels, and td_image_probe describes it. */
void td_codec_decodes(const td_codec_cases *c);

/** A file that ends early is refused (TD_EFORMAT), except for the last spare bytes. */
void td_codec_refuses_cut_files(const td_codec_cases *c);

/** A file with a flipped bit is decoded or refused with a sentence. */
void td_codec_bears_flipped_bits(const td_codec_cases *c);

#endif
