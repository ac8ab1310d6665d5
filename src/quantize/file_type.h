// File types ("Q4_K_M"): a base type and a rule that gives some tensors more bits. Names, numbers
// (general.file_type) and mixes equal llama.cpp's, so that a file of the same name holds the same
// tensor types.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "tensor/dtype.h"

namespace weft::quantize {

enum class Mix : uint8_t { kPlain, kSmall, kMedium, kLarge };

struct FileType {
    std::string_view name;
    uint32_t number;  // general.file_type
    DType base;
    Mix mix;
};

// The supported names: "Q4_K_M, Q4_0, ...".
std::string FileTypeNames();
// Finds the file type with this name, ignoring case. "Q4_K" means Q4_K_M, and so on. Errors:
// kUsage, with the supported names.
Result<FileType> FindFileType(std::string_view name);
// The tensor type with this name, if Weft can quantize to it.
Result<DType> FindTensorType(std::string_view name);

// A tensor's role in the model, by its name.
enum class Role : uint8_t {
    kEmbedding,
    kOutput,
    kValue,  // attn_v, attn_qkv, attn_kv_b: errors in these tensors affect the model's results most
    kKey,
    kQuery,
    kAttentionOutput,
    kUp,
    kGate,
    kDown,
    kOther
};
Role RoleOf(std::string_view name);

// Whether a tensor is never quantized: vectors, norms, routers and other small, sensitive tensors.
bool IsKept(std::string_view name, int dims);

// Facts about the model that a mix depends on.
struct MixFacts {
    int64_t layers = 0;
    int64_t heads_per_kv = 1;
    int64_t experts = 0;
    bool tied = false;        // no output.weight: the embedding serves as the output matrix
    bool importance = false;  // an importance matrix is given
    bool large = false;       // the shape of the 70B models: 80 layers, grouped heads
};

// A tensor's role, layer, and index among the model's kValue or kDown tensors.
struct MixPlace {
    Role role;
    int64_t layer = 0;
    int64_t value = 0, values = 0;
    int64_t down = 0;
    int64_t cols = 0;
    bool experts = false;  // one tensor for all experts
};

// The type that the file type's rule gives to a tensor. Fallback() must then replace it if it does
// not fit the tensor's columns.
DType MixedType(const FileType& type, const MixFacts& facts, const MixPlace& place);

// Whether a tensor of this role must have an importance matrix to be usable in this type. True for
// most codebook types of at most three bits.
bool NeedsImportance(Role role, DType dtype);

// Returns `wanted` if a row of `cols` elements is a whole number of blocks of this type. If not,
// returns a type of similar size with blocks of 32: Q4_0 in place of Q2_K, Q3_K, TQ1_0 and TQ2_0;
// Q5_0 in place of Q4_K; Q5_1 in place of Q5_K; Q8_0 in place of Q6_K; IQ4_NL in place of IQ types.
// If rows are not whole blocks of 32 either, returns F16.
DType Fallback(DType wanted, int64_t cols);

}  // namespace weft::quantize
