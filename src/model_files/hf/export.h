// Writes a model as a Hugging Face folder that transformers loads: config.json, model.safetensors
// (or shards and their index), and the tokenizer's files.
//
// The way back of folder.h, by the same tables (family.h): names, and the rows of Q and K from
// pairs to halves. A model that came from a folder keeps its config.json and its tokenizer's files;
// of one from a GGUF file, both are made from the metadata. Experts, which are one tensor of each
// kind a layer in the source, are apart.
// Errors: kUnsupported, where transformers would not compute the same: the tensor, key or kind of
// tokenizer is named; those of OutputFile; kCancelled.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "hw/cpu.h"
#include "model_files/hf/json.h"
#include "model_files/hf/safetensors.h"
#include "model_files/model_file.h"

namespace weft::model_files::hf {

struct ExportOptions {
    SafeType type = SafeType::kBF16;       // kF32, kF16 or kBF16
    uint64_t shard_bytes = 5'000'000'000;  // of data; more are put into several files
    int threads = 1;
    CpuLevel level = CpuLevel::kReference;
    const std::atomic<bool>* stop = nullptr;  // ends it early; may be null
};

// Writes the model into `folder`, which is made; files of these names in it are replaced. Each file
// is there whole or not at all, config.json comes last. What CheckExport refuses is refused before
// anything is written.
Status ExportFolder(const ModelSource& source, const std::string& folder,
                    const ExportOptions& options);

// Everything that ExportFolder can know without reading weights: architecture, config.json, names
// of tensors, tokenizer, and that `folder` is not the model's own. Returns the bytes of the
// weights. Errors: those of ExportFolder.
Result<uint64_t> CheckExport(const ModelSource& source, const std::string& folder, SafeType type);

// A tensor of the folder, and where it comes from.
struct ExportTensor {
    std::string name;  // "model.layers.0.self_attn.q_proj.weight"
    const TensorInfo* from;
    int64_t pairs_of = 0;  // dims of a head whose neighbouring pairs become halves; 0: none
    int64_t row_begin = 0;  // where its rows begin among `from`'s: experts are apart
    int64_t rows = 0;
    bool matrix = false;  // also of one row, which is no vector then
    float add = 0;        // to each value: GGUF has the 1 of Gemma's norms in the weights
};

// What there is to write, in the source's order, but for tensors whose names begin with `skip`.
Result<std::vector<ExportTensor>> PlanExport(const ModelSource& source, std::string_view skip = {});

// model_type of the config.json that ExportConfig makes. Reads less of the model.
Result<std::string> ExportType(const ModelSource& source);

// config.json of a model, in the type that its weights will have.
Result<Json> ExportConfig(const ModelSource& source, SafeType type);

}  // namespace weft::model_files::hf
