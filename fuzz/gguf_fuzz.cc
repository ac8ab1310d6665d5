// libFuzzer target: any bytes as a GGUF file. If the file is accepted, the target calls every
// getter on every entry, and every tensor must lie inside the file.
//     build-fuzz/fuzz/gguf_fuzz -max_total_time=60 -malloc_limit_mb=64 fuzz/corpus/gguf
#include <cstdlib>

#include "model_files/gguf.h"

namespace {

void UseEntry(const weft::model_files::Metadata& meta, std::string_view key) {
    (void)meta.U64(key);
    (void)meta.Int(key, -5, 5);
    (void)meta.F64(key);
    (void)meta.Bool(key);
    (void)meta.String(key);
    (void)meta.Strings(key);
    (void)meta.Ints(key);
    (void)meta.Floats(key);
    (void)weft::model_files::Metadata::Text(*meta.Find(key));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
    const auto header = weft::model_files::ParseGguf(bytes, size, "fuzz");
    if (!header.ok()) return 0;
    const weft::model_files::Metadata meta("fuzz", header->entries);
    for (const weft::model_files::MetaEntry& entry : meta.entries()) UseEntry(meta, entry.key);
    for (const weft::model_files::TensorInfo& tensor : header->tensors) {
        if (tensor.offset > size || tensor.bytes > size - tensor.offset) std::abort();
    }
    return 0;
}
