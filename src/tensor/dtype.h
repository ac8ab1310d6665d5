// Element types of tensors: the types of GGUF, and Weft's own block types for quantized weights of
// Hugging Face folders.
//
// One table (kDTypes) holds all facts about a type: its name, elements per block, bytes per block
// and its number in a GGUF file. To add a type, add a row here and a pair of functions in
// tensor/quant.cc.
//
// Source of the block layouts: the GGUF specification and the ggml block definitions.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/check.h"

namespace weft {

enum class DType : uint8_t {
    kF32,
    kF16,
    kBF16,
    kQ4_0,
    kQ4_1,
    kQ5_0,
    kQ5_1,
    kQ8_0,
    kQ2_K,
    kQ3_K,
    kQ4_K,
    kQ5_K,
    kQ6_K,
    kIQ1_S,
    kIQ1_M,
    kIQ2_XXS,
    kIQ2_XS,
    kIQ2_S,
    kIQ3_XXS,
    kIQ3_S,
    kIQ4_NL,
    kIQ4_XS,
    kTQ1_0,
    kTQ2_0,
    kMXFP4,
    kI32,
    kF64,
    kW4,
    kW8,
    kNVFP4,
    kFP8
};

struct DTypeInfo {
    DType dtype;
    std::string_view name;   // as llama.cpp and GGUF tools print it
    int64_t block_elements;  // a row's length must be a multiple of this
    int64_t block_bytes;
    int gguf_type;  // ggml_type in a GGUF tensor info; -1: not read from files
    bool quantized;
};

inline constexpr std::array<DTypeInfo, 31> kDTypes = {{
    {DType::kF32, "F32", 1, 4, 0, false},
    {DType::kF16, "F16", 1, 2, 1, false},
    {DType::kBF16, "BF16", 1, 2, 30, false},
    {DType::kQ4_0, "Q4_0", 32, 18, 2, true},
    {DType::kQ4_1, "Q4_1", 32, 20, 3, true},
    {DType::kQ5_0, "Q5_0", 32, 22, 6, true},
    {DType::kQ5_1, "Q5_1", 32, 24, 7, true},
    {DType::kQ8_0, "Q8_0", 32, 34, 8, true},
    {DType::kQ2_K, "Q2_K", 256, 84, 10, true},
    {DType::kQ3_K, "Q3_K", 256, 110, 11, true},
    {DType::kQ4_K, "Q4_K", 256, 144, 12, true},
    {DType::kQ5_K, "Q5_K", 256, 176, 13, true},
    {DType::kQ6_K, "Q6_K", 256, 210, 14, true},
    {DType::kIQ1_S, "IQ1_S", 256, 50, 19, true},
    {DType::kIQ1_M, "IQ1_M", 256, 56, 29, true},
    {DType::kIQ2_XXS, "IQ2_XXS", 256, 66, 16, true},
    {DType::kIQ2_XS, "IQ2_XS", 256, 74, 17, true},
    {DType::kIQ2_S, "IQ2_S", 256, 82, 22, true},
    {DType::kIQ3_XXS, "IQ3_XXS", 256, 98, 18, true},
    {DType::kIQ3_S, "IQ3_S", 256, 110, 21, true},
    {DType::kIQ4_NL, "IQ4_NL", 32, 18, 20, true},
    {DType::kIQ4_XS, "IQ4_XS", 256, 136, 23, true},
    {DType::kTQ1_0, "TQ1_0", 256, 54, 34, true},
    {DType::kTQ2_0, "TQ2_0", 256, 66, 35, true},
    {DType::kMXFP4, "MXFP4", 32, 17, 39, true},
    {DType::kI32, "I32", 1, 4, 26, false},
    {DType::kF64, "F64", 1, 8, -1, false},  // partial sums sent between ranks; never in a file
    // AWQ, GPTQ and pack-quantized weights, converted at load (model_files/hf/packed.h). A block is
    // a u32, then 32 codes. The u32 has the bits of an f32 scale, but with the zero point in the
    // low 8 bits. W4 codes are nibbles: byte i of 16 holds elements i and i + 16. W8 codes are
    // bytes. A weight is (code - zero) * scale.
    {DType::kW4, "W4", 32, 20, -1, true},
    {DType::kW8, "W8", 32, 36, -1, true},
    // NVFP4 from any source format, converted at load (model_files/nvfp4.h). A block is an f32
    // scale, four scale bytes for 16 elements each (NvScale below), and the E2M1 codes in two
    // sequences of 16 bytes, one for each 32 elements: byte i holds elements i and i + 16. A weight
    // is scale * NvScale(byte) * twice the value of the code.
    {DType::kNVFP4, "NVFP4", 64, 40, -1, true},
    // FP8 from any source format, converted at load (model_files/hf/scaled.cc). A block is an f32
    // scale and 64 E4M3 codes. A weight is scale * Fp8Value(code), in float32.
    {DType::kFP8, "FP8", 64, 68, -1, true},
}};

// The types that a GGUF file may hold.
inline constexpr std::span<const DTypeInfo> kFileDTypes = std::span(kDTypes).first(26);

constexpr const DTypeInfo& Info(DType dtype) {
    return kDTypes[static_cast<size_t>(dtype)];
}

// The value of an NVFP4 scale byte: 5 bits of exponent and 3 of mantissa, with no sign, no
// denormals and no zero. Represents every positive E4M3 value, 2^-9 to 448, exactly.
inline constexpr uint32_t kNvScaleBase = 117u << 23;
constexpr float NvScale(uint8_t byte) {
    return std::bit_cast<float>((static_cast<uint32_t>(byte) << 20) + kNvScaleBase);
}

// The value of an E4M3 code (OCP 8-bit Floating Point Specification) in an FP8 block. The codes
// 0x7f and 0xff, which mean NaN in files, never occur in a block; kernels would decode them as
// +-480.
constexpr float Fp8Value(uint8_t code) {
    const uint32_t exponent = code >> 3 & 15u, mantissa = code & 7u;
    const float unit = std::bit_cast<float>((exponent + (exponent == 0 ? 118u : 117u)) << 23);
    const float size = static_cast<float>(exponent == 0 ? mantissa : 8 + mantissa) * unit;
    return (code & 0x80) != 0 ? -size : size;
}

// Whether a block's codes are integers, which kernels multiply by 8-bit activations. FP8 codes are
// floats: kernels multiply them by activations in the format that they use for BF16 weights.
constexpr bool HasIntegerCodes(DType dtype) {
    return Info(dtype).quantized && dtype != DType::kFP8;
}

// Size in bytes of `elements` elements of a row; `elements` must be a multiple of block_elements.
constexpr int64_t RowBytes(DType dtype, int64_t elements) {
    return elements / Info(dtype).block_elements * Info(dtype).block_bytes;
}

// The type with this GGUF number, or nullopt.
std::optional<DType> DTypeOfGguf(uint32_t gguf_type);
// The type with this name, ignoring case ("q4_0"), or nullopt.
std::optional<DType> DTypeOfName(std::string_view name);

}  // namespace weft
