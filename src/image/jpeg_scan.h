/*
 * image/jpeg_scan.h -- a fast decoder of baseline JPEG: entropy code, transform, colours
 *
 * jpeg.c reads the header with libjpeg and then tries this decoder first.  It leaves unusual or
 * damaged files to libjpeg, whose state is still at the start of the scan; both give the same
 * pixels.
 */
#ifndef TD_IMAGE_JPEG_SCAN_H
#define TD_IMAGE_JPEG_SCAN_H

#include <stdio.h>

#include <jpeglib.h>

#include "image/image.h"

/**
 * Decode `box` of the image at full size into *out, RGB, if `c`, after jpeg_read_header, is
 * baseline and the necessary data is valid; *done: whether it was decoded.  `is_fast`:
 * nearest-sample chroma.  Temporary memory is libjpeg's, and a failure to allocate it leaves
 * through c->err.  TD_ENOMEM and TD_ELIMIT of *out.
 */
TD_CHECKED td_status td_jpeg_scan(struct jpeg_decompress_struct *c, td_box box, bool is_fast,
                                  td_image *out, bool *done);

#endif
