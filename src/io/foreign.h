/*
 * io/foreign.h -- recognises files of other programs that Tandem cannot read
 *
 * A user who names a TFRecord file as data, or a TensorFlow checkpoint as weights, should learn
 * what the file is, rather than that its header is wrong.
 *
 *     TFRecord      its first 8 bytes, a length, are followed by their masked CRC-32C
 *     checkpoint    .index ends in the magic number of LevelDB's tables; .data-00000-of-00001 is
 *                   known by its name; `checkpoint` is a text; their common prefix is not a file
 *     ONNX          protobuf whose first field is ir_version
 *     SavedModel    protobuf that begins as saved_model.pb does, or a folder that has this file
 *     HDF5          Keras's weights
 */
#ifndef TD_IO_FOREIGN_H
#define TD_IO_FOREIGN_H

#include "base/status.h"

/** "a TFRecord file"; NULL: none of these, or unreadable. */
const char *td_foreign_kind(const char *path);

/**
 * TD_EUNSUPPORTED if the file or folder is one of these: "'x' is a TFRecord file, wanted WANTED".
 * TD_OK if it is not, or does not exist.
 */
TD_CHECKED td_status td_foreign_refuse(const char *path, const char *wanted);

/** The same for files in the folder `path`: "'x' holds ..., such as 'y', wanted WANTED". */
TD_CHECKED td_status td_foreign_refuse_folder(const char *path, const char *wanted);

#endif
