/*
 * io/prototext.h -- protocol buffers' text form, as a flat list of fields with paths and lines
 *
 *     model { ssd { num_classes: 90  anchor_generator { aspect_ratios: [1.0, 2.0] } } }
 *
 *     path                                         value   line
 *     model                                        NULL    1
 *     model.ssd                                    NULL    1
 *     model.ssd.num_classes                        "90"    1
 *     model.ssd.anchor_generator                   NULL    1
 *     model.ssd.anchor_generator.aspect_ratios     "1.0"   1
 *     model.ssd.anchor_generator.aspect_ratios     "2.0"   1
 *
 * The caller interprets the fields and checks their names.  Limits: 1 MiB of text, 4096 fields,
 * 32 levels, 255 bytes per path, 4095 per value.
 * Source: protobuf.dev, "Text Format Language Specification"; not supported: extensions and Any
 * ("[name]"), and fields by number.
 */
#ifndef TD_IO_PROTOTEXT_H
#define TD_IO_PROTOTEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/status.h"

enum { TD_PROTOTEXT_BYTES_MAX = 1 << 20 };

typedef struct {
    const char *path;  /* names joined by dots */
    const char *value; /* a scalar as written, texts without quotes; NULL: a message begins */
    int line;          /* from 1 */
    bool is_text;      /* it was in quotes */
} td_proto_field;

typedef struct {
    td_proto_field *fields; /* [n], in the order of the text */
    size_t n;
    td_arena arena; /* owns the texts */
} td_prototext;

/**
 * Read a whole text; `what` names it in messages.  On failure *out is empty.
 *
 *   TD_EFORMAT  malformed, with the line; a NUL byte
 *   TD_ELIMIT   one of the limits above is exceeded; TD_ENOMEM
 */
TD_CHECKED td_status td_prototext_parse(const char *text, size_t n, const char *what,
                                        td_prototext *out);
void td_prototext_release(td_prototext *p);

#endif
