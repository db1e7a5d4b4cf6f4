/*
 * io/foreign.h -- recognises files of other programs that Tandem cannot read
 *
 * If a user gives an HDF5 file as data, or a TensorFlow checkpoint as weights, the message
 * should name the file's format instead of reporting an invalid header.
 *
 *     TFRecord      its first 8 bytes, a length, are followed by their masked CRC-32C
 *     checkpoint    .index ends in the magic number of LevelDB's tables; .data-00000-of-00001 is
 *                   recognised by its name; `checkpoint` is a text; their prefix is not a file
 *     ONNX          protobuf whose first field is ir_version
 *     SavedModel    protobuf that begins like saved_model.pb, or a folder with this file
 *     HDF5          weights of Keras
 */
#ifndef TD_IO_FOREIGN_H
#define TD_IO_FOREIGN_H

#include "base/status.h"

#define TD_FOREIGN_ONNX "an ONNX file"

/** "a TFRecord file"; NULL: none of these, or unreadable. */
const char *td_foreign_kind(const char *path);

/**
 * TD_EUNSUPPORTED if the file or folder is one of these: "'x' is a TFRecord file, wanted WANTED".
 * TD_OK if it is not, or if it does not exist.
 */
TD_CHECKED td_status td_foreign_refuse(const char *path, const char *wanted);

/** The same for files in the folder `path`: "'x' holds ..., such as 'y', wanted WANTED". */
TD_CHECKED td_status td_foreign_refuse_folder(const char *path, const char *wanted);

#endif
