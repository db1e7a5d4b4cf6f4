/*
 * report/thumbnail.h -- embeds a thumbnail of an image file in a page
 */
#ifndef TD_REPORT_THUMBNAIL_H
#define TD_REPORT_THUMBNAIL_H

#include "base/text.h"

enum { TD_THUMBNAIL_SIDE = 96 }; /* largest length of the longer side, pixels */

/** Does `path` name a file below the folder it is joined to: not absolute, and without ".."? */
bool td_thumbnail_is_below(const char *path);

/**
 * Append the image `path` of `folder` as "data:image/jpeg;base64,...".  `path` may come from
 * anybody: nothing is appended unless td_thumbnail_is_below holds and a regular file of that name
 * is an image within the limits of td_image_decode.  A symbolic link below `folder` is
 * followed, as for a data set.  TD_ENOMEM.
 */
TD_CHECKED td_status td_thumbnail_add(const char *folder, const char *path, td_text *out);

#endif
