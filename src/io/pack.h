/*
 * io/pack.h -- all images of a data set in one file: names, classes, index, check values
 *
 * The unchanged image files are stored one after the other, followed by the index and a tail with
 * the index's offset (docs/formats/datasets.md, "Packs").  A pack holds one or more splits
 * ("train", "val"; or one without a name), each with its own classes and its images in the order of
 * the data set: class after class.
 *
 *     td_pack *p;
 *     TD_OUT(td_pack_open("flowers.pack", &p));
 *     const td_pack_split *s = td_pack_split_at(p, 0);
 *     for (uint64_t i = s->first; i < s->first + s->n_images; i++)
 *         TD_OUT(td_pack_read(p, i, &buffer, &bytes, &n_bytes));   valid until the next call
 *     td_pack_close(p);
 *
 *     td_pack_writer *w;
 *     TD_OUT(td_pack_create("flowers.pack", 0, 0, false, &w));
 *     TD_OUT(td_pack_begin_split(w, "train", 2, (const char *const[]){ "daisy", "tulip" }));
 *     TD_OUT(td_pack_add(w, 0, "a.jpg", bytes, n_bytes));          written at once
 *     TD_OUT(td_pack_finish(w, &digest));                          the complete file appears now
 *     td_pack_writer_free(w);
 *
 * Several threads may read a pack at the same time.
 *
 * In an annotated pack each split has two classes: TD_PACK_ANNOTATIONS with one entry, COCO
 * instances as JSON, and TD_PACK_IMAGES with the images in the order of that JSON file.
 */
#ifndef TD_IO_PACK_H
#define TD_IO_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define TD_PACK_ANNOTATIONS "annotations"
#define TD_PACK_IMAGES      "pictures"

#define TD_PACK_IMAGE_BYTES_MAX (256u << 20) /* the limit for image files */

typedef struct td_pack td_pack;
typedef struct td_pack_writer td_pack_writer;

/* --- reading ---------------------------------------------------------------------------------- */

typedef struct {
    const char *name;           /* "" if the data set has no splits */
    const char *const *classes; /* [n_classes], sorted by bytes; index is the class number */
    int n_classes;
    uint64_t first, n_images; /* its images are first .. first + n_images - 1 */
} td_pack_split;

typedef struct {
    const char *name; /* relative to its class: "spring/4612.png" */
    int label;        /* class of its split */
    size_t n_bytes;
} td_pack_image;

typedef struct {
    int n_splits;
    uint64_t n_images, n_bytes; /* images in all splits; bytes of the file */
    uint64_t digest;            /* covers images, names, classes, order */
    bool is_annotated;          /* a detection data set: see the head of this file */
    int short_side, quality;    /* images were shrunk and re-encoded to these; 0: unchanged */
} td_pack_metadata;

/** Is it a regular file that begins like a pack, or whose name ends in .pack? */
bool td_pack_is(const char *path);

/**
 * Open a pack and check its head, tail and index completely; reads no image.
 *
 *   TD_ENOTFOUND     no such file
 *   TD_EIO           unreadable, or not a regular file
 *   TD_EFORMAT       not a pack, truncated, or damaged; the message names the place
 *   TD_EUNSUPPORTED  an unknown version of the format
 *   TD_ENOMEM
 */
TD_CHECKED td_status td_pack_open(const char *path, td_pack **out);

/** The same from memory, borrowed until td_pack_close; `what` names it in messages. */
TD_CHECKED td_status td_pack_parse(const void *bytes, size_t n_bytes, const char *what,
                                   td_pack **out);

/** `p` may be NULL. */
void td_pack_close(td_pack *p);

const td_pack_metadata *td_pack_metadata_of(const td_pack *p);
const td_pack_split *td_pack_split_at(const td_pack *p, int i);
td_pack_image td_pack_image_at(const td_pack *p, uint64_t i);

/** A buffer for images, reused between calls; one per thread.  Zero-initialise; release `bytes`
    with td_free. */
typedef struct {
    char *bytes;
    size_t cap_bytes;
} td_pack_buffer;

/**
 * Read an image's bytes and verify their digest; valid until the next call with `buffer`.
 *   TD_EFORMAT  the bytes differ from those that were packed
 *   TD_EIO      unreadable, or the file became shorter since it was opened
 *   TD_ENOMEM
 */
TD_CHECKED td_status td_pack_read(const td_pack *p, uint64_t i, td_pack_buffer *buffer,
                                  const void **bytes, size_t *n_bytes);

/** Ask the system to prefetch an image's pages; returns at once.  This is a hint and cannot
    fail. */
void td_pack_read_ahead(const td_pack *p, uint64_t i);

/* --- writing ---------------------------------------------------------------------------------- */

/**
 * Begin a pack, through a temporary (io/atomic.h).  The three properties are stored.
 * TD_EIO as td_atomic_open; TD_ENOMEM.
 */
TD_CHECKED td_status td_pack_create(const char *path, int short_side, int quality,
                                    bool is_annotated, td_pack_writer **out);

/**
 * Begin a split; images added from now on belong to it.  Names are copied.
 * TD_EARG a name that exists already; fewer than two classes; classes not in byte order; a class
 * name that is empty, begins with a dot or holds a slash; no image in the last class of the
 * split before.  TD_ENOMEM.
 */
TD_CHECKED td_status td_pack_begin_split(td_pack_writer *w, const char *name, int n_classes,
                                         const char *const *classes);

/**
 * Append an image; its bytes are not checked.  Classes must come in order without a gap.
 * TD_EARG no split, no such class, a class out of order, an empty name; TD_ELIMIT larger than 256
 * MiB; TD_EIO; TD_ENOMEM.
 */
TD_CHECKED td_status td_pack_add(td_pack_writer *w, int label, const char *name, const void *bytes,
                                 size_t n_bytes);

/** Write the index and put the file in place.  TD_EARG no image; TD_EIO; TD_ENOMEM. */
TD_CHECKED td_status td_pack_finish(td_pack_writer *w, td_pack_metadata *out);

/** Free the writer; removes an unfinished file.  `w` may be NULL. */
void td_pack_writer_free(td_pack_writer *w);

#endif
