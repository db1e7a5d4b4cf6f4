/*
 * runtime/kernel_choice.h -- the kernel that runs a node on a device
 */
#ifndef TD_RUNTIME_KERNEL_CHOICE_H
#define TD_RUNTIME_KERNEL_CHOICE_H

#include "runtime/device.h"

/**
 * The first kernel that accepts `n`: first those of the device's backends, then emulation by a
 * float32 kernel, then `ref`; NULL if none does.  `why`, unless NULL, gets the reasons of all
 * kernels that refused: "dnnl_conv: groups is 1; ...".
 */
const td_kernel *td_device_select(const td_device *dev, const td_node *n, td_text *why);

/**
 * The kernel that node `n` of a program gets: the one measured as fastest, if known, otherwise that
 * of td_device_select.  *out is NULL if there is none.
 */
td_status td_device_choose(const td_device *dev, const td_node *n, const td_kernel **out,
                           td_text *why) TD_CHECKED;

#endif
