/*
 * formula_images.c -- the source images of tests/oracle/augmentations.py, and its records
 */
#include "support/formula_images.h"

#include "support/expect.h"

void make_formula_image(int which, td_image *img)
{
    static const int sizes[FORMULA_IMAGES][2] = { { 53, 41 }, { 96, 96 }, { 1, 1 } };
    const int w = sizes[which][0], h = sizes[which][1];
    expect_ok(td_image_resize_buffer(img, w, h));
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++)
            for (int c = 0; c < 3; c++) {
                const uint32_t i = (uint32_t)((y * w + x) * 3 + c);
                const int ramp = 40 + (3 * x + 2 * y + 17 * c + x * y / 50) % 150;
                img->px[i] = (uint8_t)(which == 1 ? ramp : (int)(i * 2654435761u >> 24));
            }
}

uint32_t crc32_of(const uint8_t *p, size_t n)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
    }
    return ~crc;
}

uint32_t next_u32(const uint8_t **at)
{
    const uint8_t *p = *at;
    *at += 4;
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
