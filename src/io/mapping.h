/*
 * io/mapping.h -- maps files into memory, without the risk of SIGBUS
 *
 *     td_mapping *m;
 *     TD_TRY(td_mapping_open("w.safetensors", &m));
 *     use(td_mapping_bytes(m), td_mapping_size(m));
 *     TD_OUT(td_mapping_check(m));        could all pages be read?
 *     td_mapping_close(m);
 *
 * A page that cannot be read (the file became shorter, the disk failed) reads as zeros and is
 * recorded; otherwise the system would end the process with SIGBUS.  Do not use results before
 * td_mapping_check has succeeded.
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
 *   TD_EIO        unreadable, or not a regular file
 *   TD_ELIMIT     larger than the address space, or more than TD_MAPPINGS_MAX open
 *   TD_ENOMEM
 */
TD_CHECKED td_status td_mapping_open(const char *path, td_mapping **out);

#define TD_MAPPINGS_MAX 64

/** Read-only; NULL for an empty file. */
const void *td_mapping_bytes(const td_mapping *m);
size_t td_mapping_size(const td_mapping *m);

/** Advise the system that the whole file will be read soon, in order. */
void td_mapping_will_be_read(const td_mapping *m);

/** TD_EIO if a page could not be read.  May be called from any thread. */
TD_CHECKED td_status td_mapping_check(const td_mapping *m);

void td_mapping_close(td_mapping *m); /* m may be NULL */

#endif
