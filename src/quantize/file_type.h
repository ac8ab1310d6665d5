// What users ask for ("Q4_K_M"): a file type, which is a base type and a way to give some tensors
// more bits. Names, numbers (general.file_type) and mixes are those that users of GGUF files know
// from llama.cpp, so that a file of the same name holds the same types.
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

// "Q4_K_M, Q4_0, ...".
std::string FileTypeNames();
// In either case; "Q4_K" is Q4_K_M and so on. kUsage: names the types that there are.
Result<FileType> FindFileType(std::string_view name);
// A tensor's type by name, of those that Weft can round to.
Result<DType> FindTensorType(std::string_view name);

// What a tensor is to its model, by its name.
enum class Role : uint8_t {
    kEmbedding,
    kOutput,
    kValue,  // attn_v, attn_qkv, attn_kv_b: what errs there, errs everywhere
    kKey,
    kQuery,
    kAttentionOutput,
    kUp,
    kGate,
    kDown,
    kOther
};
Role RoleOf(std::string_view name);

// Tensors that are never rounded: vectors, norms, routers and others that are small and touchy.
bool IsKept(std::string_view name, int dims);

// What a mix depends on.
struct MixFacts {
    int64_t layers = 0;
    int64_t heads_per_kv = 1;
    int64_t experts = 0;
    bool tied = false;        // no output.weight: the embedding is the output
    bool importance = false;  // an importance matrix is given
    bool large = false;       // the shape of the 70B models: 80 layers, grouped heads
};

// Where a tensor stands: its layer, and which of the model's kValue tensors it is.
struct MixPlace {
    Role role;
    int64_t layer = 0;
    int64_t value = 0, values = 0;
    int64_t cols = 0;
    bool experts = false;  // [experts, rows, cols]
};

// Before what doesn't fit its columns falls back (Fallback).
DType MixedType(const FileType& type, const MixFacts& facts, const MixPlace& place);

// Whether a tensor of this role turns out useless in that type where nothing is known of what its
// columns are worth: most code books of three bits and less.
bool NeedsImportance(Role role, DType dtype);

// `wanted`, or for rows that are no whole blocks of it a type of about the same size with blocks of
// 32: Q2_K, Q3_K, TQ1_0, TQ2_0: Q4_0; Q4_K: Q5_0; Q5_K: Q5_1; Q6_K: Q8_0; IQ: IQ4_NL; and F16 where
// those don't fit either.
DType Fallback(DType wanted, int64_t cols);

}  // namespace weft::quantize
