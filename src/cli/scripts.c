/*
 * scripts.c -- maps scripts of the reference programs, and verbs of other programs, to verbs
 *
 * Source of the names: the folders PyTorch/Classification/ConvNets, TensorFlow/Classification/
 * ConvNets, TensorFlow/Detection/SSD and PyTorch/Detection/SSD of NVIDIA's DeepLearningExamples,
 * 2019 to 2024.
 */
#include "cli/scripts.h"

#include <fnmatch.h>
#include <stddef.h>
#include <string.h>

#define TRAIN    "'tandem train' takes its options"
#define RANKS    "'tandem launch --nproc N train ...' starts ranks"
#define NO_QAT   "quantization is not supported"
#define EVALUATE "'tandem evaluate' computes the accuracy"
#define PREDICT  "'tandem classify' names the classes of images, 'tandem detect' finds boxes"
#define EXPORT   "'tandem convert WEIGHTS OUT.onnx' exports a network"

/* clang-format off */
static const struct {
    const char *pattern, *replacement;
} scripts[] = {
    { "main.py",
      TRAIN ", also --evaluate and every --mode; 'tandem evaluate' and 'tandem benchmark' have "
      "options of their own" },
    { "launch.py", "'tandem train' takes --model, --precision, --mode and --platform" },
    { "multiproc.py", RANKS },
    { "torchrun", RANKS },
    { "mpiexec", RANKS "; 'mpiexec -np N tandem train ...' works, too" },
    { "classify.py", "'tandem classify' names the classes of images" },
    { "checkpoint2model.py", "'tandem convert' takes --checkpoint-path and --weight-path" },
    { "model2onnx.py", EXPORT },
    { "quant_main.py", NO_QAT "; 'tandem train' trains in float32, bf16 and fp16" },
    { "model_main.py", TRAIN "; with --checkpoint_dir or --run_once 'tandem evaluate' does" },
    { "SSD320_inference.*", "'tandem benchmark --mode inference --arch ssd320' has its options" },
    { "SSD320_evaluate.*", "'tandem evaluate --checkpoint_dir FOLDER --run_once' judges" },
    { "SSD*_BENCHMARK.sh", "'tandem benchmark --arch ssd320 --nproc 1,4,8' measures training" },
    { "SSD320_*.sh", "'tandem train --preset ssd320/8gpus' trains; 'tandem launch' starts ranks" },
    { "SSD300_*.sh", "'tandem train --arch ssd300' trains; 'tandem launch' starts ranks" },
    { "export_frozen_graph.py", EXPORT },
    { "export_inference_graph.py", EXPORT },
    { "postprocess_ckpt.py", EXPORT },
    { "inference.py",
      "'tandem benchmark --mode inference' measures, 'tandem evaluate' counts" },
    { "infer_detections.py",
      "'tandem detect' finds boxes, 'tandem evaluate --detections FILE' those of a data set" },
    { "detection_inference.py", "'tandem detect' finds boxes" },
    { "dali_index.sh", "images are read from folders, which need no index" },
    { "training_perf.sh", "'tandem benchmark --mode training' measures" },
    { "inference_benchmark.sh",
      "'tandem benchmark --mode inference --batch-sizes 1,2,4' measures" },
    { "*_partial.sh", "'tandem train --run-epochs N', then with --resume, trains in stages" },
    { "*_benchmark.*", "'tandem benchmark' measures" },
    { "*[0-9]E.sh",
      "'tandem train --preset resnet50/DGXA100/AMP/90' has the recipe; 'tandem train --preset "
      "list' shows all" },
    { "train.py", TRAIN },
    { "evaluate.py", "'tandem evaluate' does the same" },
    { "tandem", "it is the name of the program, which comes once" },
    { "export", EXPORT },
    { "predict", PREDICT },
    { "infer", PREDICT },
    { "inference", PREDICT },
    { "test", EVALUATE },
    { "val", EVALUATE },
    { "validate", EVALUATE },
    { "preset*", "'tandem help presets' lists them" },
    { "draw", "'tandem dataset draw FOLDER' draws a data set" },
    { "check", "'tandem dataset check FOLDER' checks a data set" },
    { "pack", "'tandem dataset pack FOLDER OUT.pack' packs a data set" },
    { "python", "the command is 'tandem VERB', without Python" },
    { "python3", "the command is 'tandem VERB', without Python" },
    { "*.py",
      "'tandem train', 'evaluate', 'classify', 'detect', 'convert' and 'benchmark' do what the "
      "reference's scripts do" },
    { "*.sh",
      "'tandem train --preset list' shows the recipes, 'tandem benchmark' measures" },
};
/* clang-format on */

const char *td_script_replacement(const char *name)
{
    const char *slash = strrchr(name, '/');
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++)
        if (fnmatch(scripts[i].pattern, slash ? slash + 1 : name, 0) == 0)
            return scripts[i].replacement;
    return NULL;
}
