// Writes a model as one GGUF file (v3) with the types of a plan: `weft quantize`.
//
// Several threads take strips of rows, read them, round them and write them to their place in the
// file; each holds one strip, so memory does not depend on the model. The file is there whole or
// not at all (output_file.h). Its metadata are those of the source, with general.file_type and
// general.quantization_version of their own and without the keys of a split.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "base/result.h"
#include "hw/cpu.h"
#include "model_files/model_file.h"
#include "quantize/plan.h"

namespace weft::quantize {

struct QuantizeRun {
    int threads = 1;
    CpuLevel level = CpuLevel::kReference;
    bool replace = false;
    const std::atomic<bool>* stop = nullptr;  // may be null
    // Bytes of the source that are done, of all; from the calling thread.
    std::function<void(uint64_t done, uint64_t all)> progress;
    std::string importance_name;  // noted in the metadata, if not empty
};

// Whether the metadata, with the tokenizer of a folder, can be written. Reads no weight. Errors:
// those of WriteQuantized.
Status CheckMetadata(const model_files::ModelSource& source);

// Bytes of the file that was written. Errors: of the source and of OutputFile; kCancelled by
// `stop`; kCorrupt where a weight is not finite or too large for its new type; kUnsupported where
// the tokenizer of a folder can't be written as metadata.
Result<uint64_t> WriteQuantized(const model_files::ModelSource& source, const QuantizePlan& plan,
                                const std::string& path, const QuantizeRun& run);

}  // namespace weft::quantize
