// Writes the trained model as DIR/model.gguf or as a Hugging Face folder DIR/model.
#pragma once

#include <atomic>
#include <string>

#include "base/result.h"
#include "model_files/model_file.h"

namespace weft::train {

struct TrainExportOptions {
    std::string folder;           // DIR; empty: nothing is written
    std::string format = "gguf";  // or "hf"
    // Type of the weights: as in `weft quantize`; for "hf" only F32, F16 or BF16. (DeepSpeed's
    // gather_16bit_weights_on_model_save sets BF16.)
    std::string type = "F32";
    int threads = 0;  // 0: all cores of this process
};

struct WriteModelOptions {
    std::string path;                         // the file, or the folder
    std::string format = "gguf";              // or "hf"
    std::string type = "F32";                 // as in TrainExportOptions
    int threads = 0;                          // 0: all cores of this process
    bool replace = false;                     // overwrite an existing file or model
    const std::atomic<bool>* stop = nullptr;  // when true, the export ends early; may be null
};
// Writes a model. Tensors with a block type are quantized again. Errors: CheckExport's, those of
// quantize::WriteQuantized and model_files::hf::ExportFolder.
Status WriteModel(const model_files::ModelSource& source, const WriteModelOptions& words);

// kUsage: unknown format or type.
Status CheckExport(const TrainExportOptions& words);

// Checks, before training, everything that ExportModel needs except disk space: that the format
// supports the model's architecture, tensors and tokenizer, with weights of the type. Reads no
// weights. Returns the number of bytes that ExportModel will write for a model like `source`. (An
// existing result stays until the new one is complete.) Errors: those of ExportModel.
Result<uint64_t> PlanResult(const model_files::ModelSource& source,
                            const TrainExportOptions& words);

// Writes the model and returns its path. Replaces an existing result when the new one is complete.
// stop: when true, the export ends early; may be null. Errors: those of quantize::WriteQuantized
// and model_files::hf::ExportFolder.
Result<std::string> ExportModel(const model_files::ModelSource& trained,
                                const TrainExportOptions& words,
                                const std::atomic<bool>* stop = nullptr);

}  // namespace weft::train
