/*
 * image/norm_text.h -- the constants of a normalisation as text: "0.485,0.456,0.406", gray "0.449"
 *
 * Texts have torchvision's units, values of pixels from 0 to 1; a td_norm has values from 0 to 255.
 */
#ifndef TD_IMAGE_NORM_TEXT_H
#define TD_IMAGE_NORM_TEXT_H

#include "tandem/types.h"

enum { TD_NORM_TEXT = 96 };

/* names of the metadata of weight files and ONNX files that hold them */
#define TD_NORM_META_MEAN "tandem.image_mean"
#define TD_NORM_META_STD  "tandem.image_std"

/* of weights that were read from an ONNX file whose own nodes normalize: which nodes they are */
#define TD_NORM_META_NODES "tandem.image_nodes"

/**
 * Means of red, green and blue or, with 1 channel, of gray, which all of `out` get; 0 .. 1.
 * TD_EUSAGE: other text; the message begins with `what`, the name of an option or of metadata.
 * `out` is then unchanged.
 */
TD_CHECKED td_status td_norm_parse_mean(const char *text, const char *what, int channels,
                                        float out[3]);

/** The same for standard deviations, 0.0001 .. 1. */
TD_CHECKED td_status td_norm_parse_std(const char *text, const char *what, int channels,
                                       float out[3]);

/** The shortest text that gives the same values. */
void td_norm_print(const float values[3], int channels, char out[TD_NORM_TEXT]);

#endif
