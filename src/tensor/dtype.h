// Element types of tensors, the quantized block types of GGUF included.
//
// Every fact about a type stands in one table (kDTypes): its name, how many elements share a
// block, how many bytes a block takes, and its number in a GGUF file. A new type is a new row
// here and a pair of functions in tensor/quant.cc.
//
// Source of the block layouts: the GGUF specification and the ggml block definitions.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/check.h"

namespace weft {

enum class DType : uint8_t { kF32, kF16, kBF16, kQ4_0, kQ4_1, kQ8_0, kQ4_K, kQ6_K, kI32, kF64 };

struct DTypeInfo {
    DType dtype;
    std::string_view name;   // as llama.cpp and GGUF tools print it
    int64_t block_elements;  // a row's length must be a multiple of this
    int64_t block_bytes;
    int gguf_type;           // ggml_type in a GGUF tensor info; -1: not read from files
    bool quantized;
};

inline constexpr std::array<DTypeInfo, 10> kDTypes = {{
    {DType::kF32, "F32", 1, 4, 0, false},
    {DType::kF16, "F16", 1, 2, 1, false},
    {DType::kBF16, "BF16", 1, 2, 30, false},
    {DType::kQ4_0, "Q4_0", 32, 18, 2, true},
    {DType::kQ4_1, "Q4_1", 32, 20, 3, true},
    {DType::kQ8_0, "Q8_0", 32, 34, 8, true},
    {DType::kQ4_K, "Q4_K", 256, 144, 12, true},
    {DType::kQ6_K, "Q6_K", 256, 210, 14, true},
    {DType::kI32, "I32", 1, 4, 26, false},
    {DType::kF64, "F64", 1, 8, -1, false},  // partial sums on their way; never in a file
}};

// Those that a model file may hold: all but F64, the last.
inline constexpr std::span<const DTypeInfo> kFileDTypes = std::span(kDTypes).first(9);

constexpr const DTypeInfo& Info(DType dtype) { return kDTypes[static_cast<size_t>(dtype)]; }

// Bytes of `elements` in a row; `elements` must be a multiple of the block.
constexpr int64_t RowBytes(DType dtype, int64_t elements) {
    return elements / Info(dtype).block_elements * Info(dtype).block_bytes;
}

// The type with this GGUF number, or nothing.
std::optional<DType> DTypeOfGguf(uint32_t gguf_type);
// The type with this name in either case ("q4_0"), or nothing.
std::optional<DType> DTypeOfName(std::string_view name);

}  // namespace weft
