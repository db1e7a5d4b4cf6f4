/*
 * inspect/inspect_memory.h -- draws the memory plan of a program
 */
#ifndef TD_INSPECT_INSPECT_MEMORY_H
#define TD_INSPECT_INSPECT_MEMORY_H

#include "base/text.h"
#include "tandem/program.h"

/**
 * Append an SVG: a rectangle a buffer, time (kernels, in order) to the right, addresses upwards,
 * with the bytes alive at each moment and their peak.  `what` names the program.  Of thousands of
 * buffers the largest by bytes and time are drawn; the drawing gives the number of the others.
 * TD_ENOMEM.
 */
td_status td_memory_draw(const td_program *p, const char *what, td_text *svg) TD_CHECKED;

#endif
