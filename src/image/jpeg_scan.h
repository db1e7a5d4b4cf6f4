/*
 * image/jpeg_scan.h -- the usual JPEG, decoded here: entropy code, transform, colours
 *
 * jpeg.c reads the header with libjpeg and then asks here first.  Whatever is unusual or wrong is
 * left to libjpeg, which has not moved from the start of the scan: both give the same pixels.
 */
#ifndef TD_IMAGE_JPEG_SCAN_H
#define TD_IMAGE_JPEG_SCAN_H

#include <stdio.h>

#include <jpeglib.h>

#include "image/image.h"

/**
 * Decode `box` of the image at full size into *out, RGB, when `c`, after jpeg_read_header, is of
 * the usual kind and its data is sound as far as it is needed; *done says whether that was so.
 * `is_fast`: the colours of the nearest sample.  Temporary memory is libjpeg's, and so are failures
 * to get it: they leave through c->err.  TD_ENOMEM and TD_ELIMIT of *out.
 */
TD_CHECKED td_status td_jpeg_scan(struct jpeg_decompress_struct *c, td_box box, bool is_fast,
                                  td_image *out, bool *done);

#endif
