// Writes the result of a training: the model as DIR/model.gguf or as a Hugging Face folder
// DIR/model, or an adapter.
#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "base/result.h"
#include "model_files/hf/export.h"
#include "model_files/lora/adapter.h"
#include "model_files/lora/merged_source.h"
#include "model_files/model_file.h"
#include "quantize/quantize.h"

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
// Writes a model. Tensors with a block type are quantized again. A folder that only MergeInFolder
// can write has all parts of the model's folder. Errors: CheckExport's, those of
// quantize::WriteQuantized and model_files::hf::ExportFolder.
Status WriteMerged(const model_files::MergedSource& merged, const WriteModelOptions& words);

// kUsage: unknown format or type.
Status CheckExport(const TrainExportOptions& words);

// A result without its weights. All parts of a result that come from the files of the job's inputs
// (config.json, tokenizer, adapter) are read for this plan, at the start, so later changes of these
// files do not affect the result.
struct ResultPlan {
    uint64_t bytes = 0;                               // of the result, approximately
    model_files::hf::FolderPlan folder;               // of format "hf"
    quantize::FolderTokenizer tokenizer;              // of format "gguf"
    std::optional<model_files::AdapterPlan> adapter;  // the result is an adapter
};

// Checks, before training, everything that ExportModel needs except disk space: that the format
// supports the model's architecture, tensors and tokenizer, with weights of the type. Reads no
// weights. The plan is for models with the tensors of `source`, which must outlive it. (An existing
// result stays until the new one is complete.) Errors: those of ExportModel.
Result<ResultPlan> PlanResult(const model_files::ModelSource& source,
                              const TrainExportOptions& words);

// Writes the model, or the adapter, and returns its path. Replaces an existing result when the new
// one is complete. Errors: those of quantize::WriteQuantized, model_files::hf::ExportFolder and
// model_files::WriteAdapter.
Result<std::string> ExportModel(const model_files::ModelSource& trained, const ResultPlan& plan,
                                const TrainExportOptions& words);

}  // namespace weft::train
