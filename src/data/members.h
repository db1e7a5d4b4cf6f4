/*
 * data/members.h -- images inside of larger files: where they are, and reading them in place
 */
#ifndef TD_DATA_MEMBERS_H
#define TD_DATA_MEMBERS_H

#include <sys/stat.h>

#include "transforms/augment.h"

/** A file as it was when its members were listed. */
typedef struct {
    const char *path;
    int64_t n_bytes;
    struct timespec changed;
} td_member_file;

/** The bytes of an image in it. */
typedef struct td_member {
    const td_member_file *file;
    int64_t offset, n_bytes;
    int64_t record, record_bytes; /* the data of the TFRecord that holds it (io/tfrecord.h); 0:
                                     none */
} td_member;

/** Describe a file; `path` is kept.  TD_ENOTFOUND, TD_EIO. */
TD_CHECKED td_status td_member_file_init(const char *path, td_member_file *out);

/**
 * Read a member, and the whole record to check its checksum, into w->bytes; *bytes points into it.
 * TD_EIO: unreadable, or the file was changed since it was listed; TD_EFORMAT: a wrong checksum;
 * TD_ELIMIT larger than 256 MiB; TD_ENOMEM.
 */
TD_CHECKED td_status td_member_read(const td_member *m, td_transformer *w, const void **bytes,
                                    size_t *n_bytes);

/** Up to `room` of its first bytes; 0: unreadable. */
size_t td_member_head(const td_member *m, void *out, size_t room);

/** Ask the system to prefetch it.  A hint: cannot fail. */
void td_member_read_ahead(const td_member *m);

#endif
