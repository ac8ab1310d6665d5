// Writes what was trained: DIR/model.gguf, or DIR/model, a Hugging Face folder.
#pragma once

#include <atomic>
#include <string>

#include "base/result.h"
#include "model_files/model_file.h"

namespace weft::train {

struct TrainExportOptions {
    std::string folder;           // DIR; empty: nothing is written
    std::string format = "gguf";  // or "hf"
    // Of the weights, as `weft quantize` has it; of "hf" F32, F16 or BF16. (DeepSpeed's
    // gather_16bit_weights_on_model_save is BF16.)
    std::string type = "F32";
    int threads = 0;  // 0: all cores of this process
};

struct WriteModelOptions {
    std::string path;                         // the file, or the folder
    std::string format = "gguf";              // or "hf"
    std::string type = "F32";                 // as TrainExportOptions has it
    int threads = 0;                          // 0: all cores of this process
    bool replace = false;                     // (of "hf" files are replaced anyway)
    const std::atomic<bool>* stop = nullptr;  // ends it early; may be null
};
// Tensors of block types are rounded again. Errors: CheckExport's, those of
// quantize::WriteQuantized and model_files::hf::ExportFolder.
Status WriteModel(const model_files::ModelSource& source, const WriteModelOptions& words);

// kUsage: a format or a type that there is none of.
Status CheckExport(const TrainExportOptions& words);

// Everything that ExportModel can know before training, but for the room: that the format has a
// place for the model's architecture, tensors and tokenizer in this type. Reads no weight. Returns
// the bytes that ExportModel will write of a model like `source`; what is there stays until the new
// one is complete. Errors: ExportModel's.
Result<uint64_t> PlanResult(const model_files::ModelSource& source,
                            const TrainExportOptions& words);

// Where it was written. What was there is replaced, once the new one is complete. stop (may be
// null) ends it early. Errors: those of quantize::WriteQuantized and model_files::hf::ExportFolder.
Result<std::string> ExportModel(const model_files::ModelSource& trained,
                                const TrainExportOptions& words,
                                const std::atomic<bool>* stop = nullptr);

}  // namespace weft::train
