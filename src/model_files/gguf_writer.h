// Writes GGUF files: for tests, for synthetic models, and for export to other programs.
//
// Metadata and tensors are written in the order in which they were added, each tensor at the next
// aligned offset. Keys and names are not checked against the format, so that tests can write
// invalid files.
// Thread: one at a time.
// Source: the GGUF specification (ggml/docs/gguf.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model_files/metadata.h"
#include "model_files/model_file.h"
#include "tensor/dtype.h"

namespace weft::model_files {

class GgufWriter {
  public:
    // An alignment other than 32 is also written as `general.alignment`.
    explicit GgufWriter(uint32_t version = 3, uint32_t alignment = 32);

    void U16(std::string_view key, uint16_t value) { Number(key, MetaType::kU16, value); }
    void U32(std::string_view key, uint32_t value) { Number(key, MetaType::kU32, value); }
    void U64(std::string_view key, uint64_t value) { Number(key, MetaType::kU64, value); }
    void I32(std::string_view key, int32_t value) { Number(key, MetaType::kI32, value); }
    void F32(std::string_view key, float value) { Number(key, MetaType::kF32, value); }
    void Bool(std::string_view key, bool value) { Number(key, MetaType::kBool, value); }
    void String(std::string_view key, std::string_view value);
    void Strings(std::string_view key, std::span<const std::string> values);
    void I32s(std::string_view key, std::span<const int32_t> values) {
        Array(key, MetaType::kI32, values.size(), std::as_bytes(values));
    }
    void F32s(std::string_view key, std::span<const float> values) {
        Array(key, MetaType::kF32, values.size(), std::as_bytes(values));
    }
    // values: 0 or 1.
    void Bools(std::string_view key, std::span<const uint8_t> values) {
        Array(key, MetaType::kBool, values.size(), std::as_bytes(values));
    }
    // A value of any type, as its bytes in the file (including an array's header).
    void Raw(std::string_view key, MetaType type, std::span<const std::byte> value);
    void Copy(const MetaEntry& entry);

    // dims in file order, dims[0] = columns. Without `data`, adds only the header entry, and the
    // caller must append the data to the file (see TensorOffset).
    void Tensor(std::string_view name, DType dtype, std::span<const int64_t> dims,
                std::vector<std::byte> data = {});

    // The header, padded to the beginning of the tensor data.
    std::vector<std::byte> Header() const;
    // Offset of tensor `index` from the start of the data.
    uint64_t TensorOffset(size_t index) const { return tensors_[index].offset; }
    // Bytes of the data part, including the last tensor's padding.
    uint64_t DataBytes() const { return data_bytes_; }
    // Header and data; every tensor must have been added with its data.
    std::vector<std::byte> File() const;

  private:
    struct TensorEntry {
        std::string name;
        uint32_t type;
        std::vector<int64_t> dims;
        uint64_t offset;
        std::vector<std::byte> data;
    };
    void Key(std::string_view key, MetaType type);
    template <typename T>
    void Number(std::string_view key, MetaType type, const T& value) {
        Raw(key, type, std::as_bytes(std::span(&value, 1)));
    }
    void Array(std::string_view key, MetaType element, uint64_t count,
               std::span<const std::byte> values);

    uint32_t version_;
    uint64_t alignment_;
    uint64_t entry_count_ = 0;
    std::vector<std::byte> entries_;
    std::vector<TensorEntry> tensors_;
    uint64_t data_bytes_ = 0;
};

// Writes `source` as one GGUF file (v3), tensor by tensor, with little memory, so that other
// programs can run the same synthetic model. Omits the keys of split files (`split.*`).
Status WriteGguf(const ModelSource& source, const std::string& path);

}  // namespace weft::model_files
