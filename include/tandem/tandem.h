/*
 * tandem/tandem.h -- the whole public API
 */
#ifndef TD_TANDEM_H
#define TD_TANDEM_H

#include "tandem/amp.h"
#include "tandem/benchmark.h"
#include "tandem/compat.h"
#include "tandem/convert.h"
#include "tandem/dataset.h"
#include "tandem/dataset_tools.h"
#include "tandem/detection.h"
#include "tandem/device.h"
#include "tandem/evaluate.h"
#include "tandem/graph.h"
#include "tandem/inference.h"
#include "tandem/input.h"
#include "tandem/inspect.h"
#include "tandem/launch.h"
#include "tandem/loader.h"
#include "tandem/log.h"
#include "tandem/model.h"
#include "tandem/onnx.h"
#include "tandem/options.h"
#include "tandem/program.h"
#include "tandem/recipes.h"
#include "tandem/report.h"
#include "tandem/report_opts.h"
#include "tandem/serve.h"
#include "tandem/status.h"
#include "tandem/train.h"
#include "tandem/train_opts.h"
#include "tandem/types.h"

#endif
