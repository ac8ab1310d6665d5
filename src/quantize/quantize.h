// Writes a model as one GGUF file (v3) with the types of a plan: `weft quantize`.
//
// Threads take strips of rows, read and quantize them, and write them to their place in the file.
// Each thread holds one strip, so memory does not depend on the model. The file appears whole or
// not at all (output_file.h). Its metadata is the source's, with new general.file_type and
// general.quantization_version, and without the keys of split files.
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
    // Bytes of the source that are done, and in total; called by the calling thread.
    std::function<void(uint64_t done, uint64_t all)> progress;
    std::string importance_name;  // written to the metadata, unless empty
};

// Whether the metadata, including a folder's tokenizer, can be written. Reads no weights. Errors:
// those of WriteQuantized.
Status CheckMetadata(const model_files::ModelSource& source);

// Returns the bytes written. Errors: those of the source and of OutputFile; kCancelled (`stop`);
// kCorrupt (a weight is not finite or too large for its new type); kUnsupported (a folder's
// tokenizer can't be written as metadata).
Result<uint64_t> WriteQuantized(const model_files::ModelSource& source, const QuantizePlan& plan,
                                const std::string& path, const QuantizeRun& run);

}  // namespace weft::quantize
