// Writes a model as one GGUF file (v3) with the types of a plan: `weft quantize`.
//
// Each thread reads and quantizes one strip of rows after another, and writes it to its position in
// the file. A thread holds only one strip, so the memory needed does not depend on the model's
// size. The file appears whole or not at all (base/output_file.h). The file has the metadata of the
// source, with new general.file_type and general.quantization_version, and without the keys of
// split files.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>

#include "base/result.h"
#include "hw/cpu.h"
#include "model_files/model_file.h"
#include "quantize/plan.h"
#include "tokenizer/kept_json.h"

namespace weft::quantize {

// The tokenizer of a model's folder, which the model's metadata lacks. All empty: the metadata has
// the tokenizer.
struct FolderTokenizer {
    bool none = false;  // the folder has no tokenizer
    std::optional<tokenizer::TokenizerData> data;
    std::optional<tokenizer::KeptJson> kept;  // GGUF has no name for this kind of tokenizer
};
// Reads no weights. Errors: kUnsupported (the tokenizer can't be written as metadata); those of the
// tokenizer's files.
Result<FolderTokenizer> ReadFolderTokenizer(const model_files::ModelSource& source);

struct QuantizeRun {
    int threads = 1;
    CpuLevel level = CpuLevel::kReference;
    bool replace = false;
    const std::atomic<bool>* stop = nullptr;  // may be null
    // done: bytes of the source that are done; all: bytes in total. Called on any thread, by one
    // at a time.
    std::function<void(uint64_t done, uint64_t all)> progress;
    std::string importance_name;  // written to the metadata, unless empty
    // If ReadFolderTokenizer has run; null: WriteQuantized reads the folder.
    const FolderTokenizer* tokenizer = nullptr;
};

// Writes the file and returns its size in bytes. Errors: those of the source and of OutputFile;
// kCancelled (`stop`); kCorrupt (a weight is not finite or too large for its new type); those of
// ReadFolderTokenizer.
Result<uint64_t> WriteQuantized(const model_files::ModelSource& source, const QuantizePlan& plan,
                                const std::string& path, const QuantizeRun& run);

}  // namespace weft::quantize
