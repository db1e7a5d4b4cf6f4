/*
 * onnx_import/preparation.h -- the nodes with which a network normalizes its images by itself
 *
 *     images u8 or float, [N,3,H,W] or [N,H,W,3]
 *       -> Cast, Transpose, Div, Mul, Sub, Add by constants, Resize, in any order
 *       -> the network
 *
 * Together they are (x - mean) / std for each channel, which the program computes when it reads the
 * images: with these nodes in the graph, images would be normalized twice.
 */
#ifndef TD_ONNX_IMPORT_PREPARATION_H
#define TD_ONNX_IMPORT_PREPARATION_H

#include "onnx_file/onnx.h"
#include "tandem/types.h"

#define TD_ONNX_PREPARATION_MAX 16 /* nodes */

typedef struct {
    const td_onnx_node *nodes[TD_ONNX_PREPARATION_MAX]; /* that are left out of the graph */
    int n_nodes;
    bool has_norm;  /* some of them normalize */
    td_norm norm;   /* of pixels from 0 to 255; by which images have to be normalized instead */
    bool is_last;   /* the images' channels are their last dimension */
    int channels;   /* 3, or 1 */
    char text[256]; /* what was found: "u8 [N,H,W,3]: Cast, Transpose, Div, Sub, Div" */
} td_onnx_preparation;

/** Find them behind the model's only input, of rank 4.  Nothing found: n_nodes is 0. */
void td_onnx_find_preparation(const td_onnx *m, td_onnx_preparation *out);

/** Is it one of these nodes? */
bool td_onnx_is_prepared(const td_onnx_preparation *p, const td_onnx_node *n);

#endif
