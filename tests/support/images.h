/*
 * images.h -- the small image files of tests/data/images and what PIL makes of them
 */
#ifndef TD_TEST_IMAGES_H
#define TD_TEST_IMAGES_H

#include "image/image.h"

typedef struct {
    uint8_t *bytes; /* exactly n, so that a sanitizer sees a read past the end */
    size_t n;
} td_test_file;

/** A file of tests/data/images; fails the test when it is missing. */
td_test_file td_test_image(const char *name);

/** The same bytes in a block of their own. */
td_test_file td_test_copy(const uint8_t *bytes, size_t n);
void td_test_file_release(td_test_file *f);

/** Decode everything, upright; fails the test when that fails. */
td_image td_test_decode(const td_test_file *f);

/** Are these the pixels tests/golden/image holds for `name`? */
void td_test_expect_golden(const char *name, const td_image *img);

/** Does `part`, decoded with `where`, hold in `region` what `whole` holds there? */
bool td_test_region_equal(const td_image *whole, const td_image *part, const td_decoded *where,
                          td_box region);

/** n bytes of golden file tests/golden/image/NAME; td_free it. */
uint8_t *td_test_golden(const char *name, size_t *n);

#endif
