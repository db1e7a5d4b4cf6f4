/*
 * support/formula_images.h -- the source images of tests/oracle/augmentations.py, and its records
 */
#ifndef TD_TESTS_FORMULA_IMAGES_H
#define TD_TESTS_FORMULA_IMAGES_H

#include "image/image.h"

enum { FORMULA_IMAGES = 3 };

/** 0: noise, 53 x 41; 1: a slow ramp, 96 x 96; 2: one pixel. */
void make_formula_image(int which, td_image *img);

uint32_t crc32_of(const uint8_t *p, size_t n);

/** The next little-endian number of a golden file. */
uint32_t next_u32(const uint8_t **at);

#endif
