// Writes the trained model: DIR/model.gguf, or DIR/model, a Hugging Face folder.
#pragma once

#include <atomic>
#include <string>

#include "base/result.h"
#include "model_files/model_file.h"

namespace weft::train {

struct TrainExportOptions {
    std::string folder;           // DIR; empty: nothing is written
    std::string format = "gguf";  // or "hf"
    // Type of the weights, as in `weft quantize`; for "hf" F32, F16 or BF16. (DeepSpeed's
    // gather_16bit_weights_on_model_save means BF16.)
    std::string type = "F32";
    int threads = 0;  // 0: all cores of this process
};

struct WriteModelOptions {
    std::string path;                         // the file, or the folder
    std::string format = "gguf";              // or "hf"
    std::string type = "F32";                 // as in TrainExportOptions
    int threads = 0;                          // 0: all cores of this process
    bool replace = false;                     // overwrite a file ("hf" always overwrites)
    const std::atomic<bool>* stop = nullptr;  // ends the export early; may be null
};
// Quantizes tensors of block types again. Errors: CheckExport's, those of quantize::WriteQuantized
// and model_files::hf::ExportFolder.
Status WriteModel(const model_files::ModelSource& source, const WriteModelOptions& words);

// kUsage: unknown format or type.
Status CheckExport(const TrainExportOptions& words);

// Checks before training everything that ExportModel needs, except disk space: that the format
// supports the model's architecture, tensors and tokenizer in this type. Reads no weights. Returns
// the bytes that ExportModel will write for a model like `source`; an existing result stays until
// the new one is complete. Errors: ExportModel's.
Result<uint64_t> PlanResult(const model_files::ModelSource& source,
                            const TrainExportOptions& words);

// Returns the path of the written model. Replaces an existing result once the new one is complete.
// stop (may be null) ends the export early. Errors: those of quantize::WriteQuantized and
// model_files::hf::ExportFolder.
Result<std::string> ExportModel(const model_files::ModelSource& trained,
                                const TrainExportOptions& words,
                                const std::atomic<bool>* stop = nullptr);

}  // namespace weft::train
