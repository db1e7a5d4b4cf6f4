/*
 * io/mapping.h -- a file's bytes as memory, without the risk that goes with it
 *
 *     td_mapping *m;
 *     TD_TRY(td_mapping_open("w.safetensors", &m));
 *     use(td_mapping_bytes(m), td_mapping_size(m));
 *     TD_OUT(td_mapping_check(m));        was all of that really the file's?
 *     td_mapping_close(m);
 *
 * A page that cannot be read (the file became shorter, the disk failed) reads as zeros and is
 * remembered, where the system would end the process with SIGBUS.  What was read counts only when
 * td_mapping_check has said so afterwards.
 */
#ifndef TD_IO_MAPPING_H
#define TD_IO_MAPPING_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef struct td_mapping td_mapping;

/**
 * Map a whole file for reading.
 *
 *   TD_ENOTFOUND  no such file
 *   TD_EIO        unreadable, or no regular file
 *   TD_ELIMIT     longer than addresses, or more than TD_MAPPINGS_MAX at a time
 *   TD_ENOMEM
 */
TD_CHECKED td_status td_mapping_open(const char *path, td_mapping **out);

#define TD_MAPPINGS_MAX 64

/** Read-only; NULL for an empty file. */
const void *td_mapping_bytes(const td_mapping *m);
size_t td_mapping_size(const td_mapping *m);

/** The whole file will be read from its beginning, soon. */
void td_mapping_will_be_read(const td_mapping *m);

/** TD_EIO once a page could not be read.  From any thread. */
TD_CHECKED td_status td_mapping_check(const td_mapping *m);

void td_mapping_close(td_mapping *m); /* NULL is nothing */

#endif
