/* images.c -- see images.h */
#include "support/images.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/file_io.h"
#include "support/expect.h"

td_test_file td_test_copy(const uint8_t *bytes, size_t n)
{
    td_test_file f = { .bytes = malloc(n ? n : 1), .n = n };
    assert_non_null(f.bytes);
    if (n)
        memcpy(f.bytes, bytes, n);
    return f;
}

static td_test_file read_whole(const char *folder, const char *name)
{
    char path[512], *bytes;
    size_t n;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    expect_ok(td_file_read(path, 1 << 24, &bytes, &n));
    td_test_file f = td_test_copy((const uint8_t *)bytes, n);
    td_free(bytes);
    return f;
}

td_test_file td_test_image(const char *name)
{
    return read_whole("tests/data/images", name);
}

void td_test_file_release(td_test_file *f)
{
    free(f->bytes);
    *f = (td_test_file){ 0 };
}

td_image td_test_decode(const td_test_file *f)
{
    td_image img = { 0 };
    expect_ok(td_image_decode(f->bytes, f->n, &(td_decode_opts){ 0 }, &img, NULL));
    return img;
}

uint8_t *td_test_golden(const char *name, size_t *n)
{
    td_test_file f = read_whole("tests/golden/image", name);
    uint8_t *bytes = td_alloc(f.n, 1);
    assert_non_null(bytes);
    memcpy(bytes, f.bytes, f.n);
    *n = f.n;
    td_test_file_release(&f);
    return bytes;
}

void td_test_expect_golden(const char *name, const td_image *img)
{
    char golden[512];
    size_t n;
    snprintf(golden, sizeof golden, "%s.rgb", name);
    uint8_t *wanted = td_test_golden(golden, &n);
    if (n != 3 * (size_t)img->width * (size_t)img->height || memcmp(wanted, img->px, n) != 0)
        fail_msg("%s: %d x %d pixels are not those PIL decodes", name, img->width, img->height);
    td_free(wanted);
}

bool td_test_region_equal(const td_image *whole, const td_image *part, const td_decoded *where,
                          td_box b)
{
    td_box c = where->covers;
    if (where->scale != 1 || c.x > b.x || c.y > b.y || c.x + c.width < b.x + b.width ||
        c.y + c.height < b.y + b.height || c.width != part->width || c.height != part->height)
        return false;
    for (int y = b.y; y < b.y + b.height; y++) {
        const uint8_t *p = whole->px + 3 * (y * whole->width + b.x);
        const uint8_t *q = part->px + 3 * ((y - c.y) * part->width + b.x - c.x);
        if (memcmp(p, q, 3 * (size_t)b.width) != 0)
            return false;
    }
    return true;
}
