// libFuzzer target: any bytes as a safetensors file, and as an index of shards. Every tensor of an
// accepted file must lie inside the file and have the size of its shape.
//     build-fuzz/fuzz/safetensors_fuzz -max_total_time=60 -malloc_limit_mb=64
//     fuzz/corpus/safetensors
#include <cstdlib>

#include "model_files/hf/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace weft::model_files::hf;
    const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
    const auto tensors = ParseSafetensors(bytes, size, "fuzz");
    if (tensors.ok()) {
        uint64_t total = 0;
        for (const SafeTensor& tensor : *tensors) {
            if (tensor.offset > size || tensor.bytes > size - tensor.offset) std::abort();
            uint64_t expected = SafeTypeBytes(tensor.type);
            for (const int64_t dim : tensor.shape) expected *= static_cast<uint64_t>(dim);
            if (expected != tensor.bytes || SafeTypeName(tensor.type).empty()) std::abort();
            total += tensor.bytes;
        }
        if (total > size) std::abort();
    }
    const auto index = ParseIndex({reinterpret_cast<const char*>(data), size}, "fuzz");
    if (!index.ok()) return 0;
    for (const std::string& file : index->files) {
        if (file.find('/') != file.npos) std::abort();
    }
    for (const auto& [tensor, file] : index->shard_of) {
        if (file < 0 || static_cast<size_t>(file) >= index->files.size()) std::abort();
    }
    return 0;
}
