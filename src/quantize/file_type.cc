#include "quantize/file_type.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "tensor/encode.h"

namespace weft::quantize {
namespace {

constexpr std::array kFileTypes = {
    FileType{"F32", 0, DType::kF32, Mix::kPlain},
    FileType{"F16", 1, DType::kF16, Mix::kPlain},
    FileType{"BF16", 32, DType::kBF16, Mix::kPlain},
    FileType{"Q8_0", 7, DType::kQ8_0, Mix::kPlain},
    FileType{"Q6_K", 18, DType::kQ6_K, Mix::kPlain},
    FileType{"Q5_K_M", 17, DType::kQ5_K, Mix::kMedium},
    FileType{"Q5_K_S", 16, DType::kQ5_K, Mix::kSmall},
    FileType{"Q5_1", 9, DType::kQ5_1, Mix::kPlain},
    FileType{"Q5_0", 8, DType::kQ5_0, Mix::kPlain},
    FileType{"Q4_K_M", 15, DType::kQ4_K, Mix::kMedium},
    FileType{"Q4_K_S", 14, DType::kQ4_K, Mix::kSmall},
    FileType{"IQ4_NL", 25, DType::kIQ4_NL, Mix::kPlain},
    FileType{"IQ4_XS", 30, DType::kIQ4_XS, Mix::kPlain},
    FileType{"Q4_1", 3, DType::kQ4_1, Mix::kPlain},
    FileType{"Q4_0", 2, DType::kQ4_0, Mix::kPlain},
    FileType{"MXFP4", 38, DType::kMXFP4, Mix::kPlain},
    FileType{"Q3_K_L", 13, DType::kQ3_K, Mix::kLarge},
    FileType{"Q3_K_M", 12, DType::kQ3_K, Mix::kMedium},
    FileType{"Q3_K_S", 11, DType::kQ3_K, Mix::kSmall},
    FileType{"IQ3_M", 27, DType::kIQ3_S, Mix::kMedium},
    FileType{"IQ3_S", 26, DType::kIQ3_S, Mix::kPlain},
    FileType{"IQ3_XS", 22, DType::kIQ3_S, Mix::kSmall},
    FileType{"IQ3_XXS", 23, DType::kIQ3_XXS, Mix::kPlain},
    FileType{"Q2_K", 10, DType::kQ2_K, Mix::kMedium},
    FileType{"Q2_K_S", 21, DType::kQ2_K, Mix::kSmall},
    FileType{"IQ2_M", 29, DType::kIQ2_S, Mix::kMedium},
    FileType{"IQ2_S", 28, DType::kIQ2_XS, Mix::kMedium},
    FileType{"IQ2_XS", 20, DType::kIQ2_XS, Mix::kPlain},
    FileType{"IQ2_XXS", 19, DType::kIQ2_XXS, Mix::kPlain},
    FileType{"IQ1_M", 31, DType::kIQ1_M, Mix::kPlain},
    FileType{"IQ1_S", 24, DType::kIQ1_S, Mix::kPlain},
    FileType{"TQ2_0", 37, DType::kTQ2_0, Mix::kPlain},
    FileType{"TQ1_0", 36, DType::kTQ1_0, Mix::kPlain},
};

struct Alias {
    std::string_view name, stands_for;
};
constexpr Alias kAliases[] = {
    {"Q3_K", "Q3_K_M"}, {"Q4_K", "Q4_K_M"}, {"Q5_K", "Q5_K_M"}, {"MXFP4_MOE", "MXFP4"}};

bool Contains(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

// The first and last eighth of the layers, and every third layer between.
bool MoreBits(int64_t layer, int64_t layers) {
    return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

bool IsIq4(DType dtype) {
    return dtype == DType::kIQ4_NL || dtype == DType::kIQ4_XS;
}

bool IsIq3(DType dtype) {
    return dtype == DType::kIQ3_XXS || dtype == DType::kIQ3_S;
}

// The types of at most two bits.
bool IsTiny(DType dtype) {
    return dtype >= DType::kIQ1_S && dtype <= DType::kIQ2_S;
}

// File types of at most two bits give more bits to small and important tensors.
DType TinyMixType(const FileType& type, const MixFacts& facts, const MixPlace& place) {
    const bool medium = type.mix == Mix::kMedium;
    const DType more = medium ? DType::kIQ3_S : DType::kQ2_K;
    switch (place.role) {
        case Role::kEmbedding: return more;
        case Role::kValue: {
            const bool little = facts.heads_per_kv >= 4 || facts.experts >= 4;
            return little ? DType::kQ4_K : more;
        }
        case Role::kKey: return facts.experts == 8 ? DType::kQ4_K : type.base;
        // (llama.cpp counts tensors here, of which layers with shared experts have two.)
        case Role::kDown: return place.down < facts.layers / 8 ? more : type.base;
        case Role::kAttentionOutput: {
            if (facts.experts == 8) return DType::kQ5_K;
            if (medium) return DType::kIQ3_S;
            const bool one = type.base == DType::kIQ1_S || type.base == DType::kIQ1_M;
            return one ? DType::kIQ2_XXS : type.base;
        }
        case Role::kOutput:
        case Role::kQuery:
        case Role::kUp:
        case Role::kGate:
        case Role::kOther: break;
    }
    return type.base;
}

DType ValueTypeOfIq3(const FileType& type, const MixFacts& facts) {
    if (type.mix == Mix::kMedium || facts.heads_per_kv >= 4) return DType::kQ4_K;
    return facts.importance ? type.base : DType::kIQ3_S;
}

// Queries and keys; up and gate of layers outside the first and the last eighth.
DType FewerBitsOfIq3(const FileType& type, const MixFacts& facts, const MixPlace& place) {
    const bool attention = place.role == Role::kKey || place.role == Role::kQuery;
    if (type.base == DType::kIQ3_XXS) return attention ? DType::kIQ2_S : type.base;
    if (type.base != DType::kIQ3_S || type.mix != Mix::kSmall) return type.base;
    const bool inner = place.layer >= facts.layers / 8 && place.layer < 7 * facts.layers / 8;
    return attention || inner ? DType::kIQ3_XXS : type.base;
}

DType ValueType(const FileType& type, const MixFacts& facts, const MixPlace& place) {
    if (facts.experts == 8) return DType::kQ8_0;  // these tensors are a small part of the model
    const bool shared = facts.heads_per_kv >= 4;
    DType chosen = type.base;
    if (type.base == DType::kQ2_K) {
        if (shared) chosen = DType::kQ4_K;
        if (!shared && type.mix == Mix::kMedium) chosen = DType::kQ3_K;
    } else if (type.base == DType::kQ3_K) {
        const bool first = place.value < 2;
        if (type.mix == Mix::kLarge) chosen = DType::kQ5_K;
        if (type.mix == Mix::kMedium) chosen = first ? DType::kQ5_K : DType::kQ4_K;
    } else if (IsIq3(type.base)) {
        chosen = ValueTypeOfIq3(type, facts);
    } else if (IsIq4(type.base)) {
        if (shared) chosen = DType::kQ5_K;
    } else if (type.mix == Mix::kMedium) {  // Q4_K, Q5_K
        if (MoreBits(place.value, place.values)) chosen = DType::kQ6_K;
    } else if (type.base == DType::kQ4_K && place.value < 4) {
        chosen = DType::kQ5_K;
    }
    const bool few = chosen == DType::kQ3_K || chosen == DType::kQ4_K;
    return facts.large && few ? DType::kQ5_K : chosen;
}

DType DownType(const FileType& type, const MixFacts& facts, const MixPlace& place) {
    const int64_t layer = place.layer, layers = facts.layers;
    const bool early = layer < layers / 8;
    if (type.base == DType::kQ2_K) {
        if (type.mix == Mix::kMedium) return DType::kQ3_K;
        return early ? DType::kQ4_K : type.base;
    }
    if (type.base == DType::kQ3_K) {
        if (type.mix == Mix::kLarge) return DType::kQ5_K;
        if (type.mix == Mix::kMedium) return layer < layers / 16 ? DType::kQ5_K : DType::kQ4_K;
        return type.base;
    }
    if (type.base == DType::kIQ3_XXS && !facts.importance) {
        return early ? DType::kQ4_K : DType::kQ3_K;
    }
    if (IsIq3(type.base)) {
        const bool more = early || (facts.experts == 8 && MoreBits(layer, layers));
        return type.mix == Mix::kMedium && more ? DType::kQ4_K : type.base;
    }
    if (type.mix == Mix::kMedium) return MoreBits(layer, layers) ? DType::kQ6_K : type.base;
    if (!early) return type.base;
    if (type.base == DType::kQ4_K) return DType::kQ5_K;
    if (IsIq4(type.base) && !facts.importance) return DType::kQ5_K;
    if (type.base == DType::kQ4_0 && facts.importance) return DType::kQ4_1;
    if (type.base == DType::kQ5_0 && facts.importance) return DType::kQ5_1;
    return type.base;
}

DType AttentionOutputType(const FileType& type, const MixFacts& facts) {
    if (facts.experts == 8) {
        const bool few = type.base == DType::kQ4_K || IsIq4(type.base) || IsIq3(type.base) ||
                         (type.base == DType::kQ3_K && type.mix != Mix::kLarge) ||
                         (type.base == DType::kQ2_K && type.mix == Mix::kMedium);
        return few ? DType::kQ5_K : type.base;
    }
    if (type.base == DType::kQ2_K && type.mix == Mix::kMedium) return DType::kQ3_K;
    if (type.base == DType::kQ3_K && type.mix == Mix::kMedium) return DType::kQ4_K;
    if (type.base == DType::kIQ3_S && type.mix == Mix::kMedium) return DType::kQ4_K;
    if (type.base == DType::kIQ3_XXS) return DType::kIQ3_S;
    if (type.base == DType::kQ3_K && type.mix == Mix::kLarge) return DType::kQ5_K;
    return type.base;
}

DType OutputType(const FileType& type, int64_t cols) {
    if (type.base == DType::kMXFP4 || type.base == DType::kQ8_0) return DType::kQ8_0;
    if (cols % Info(type.base).block_elements != 0) return DType::kQ8_0;
    return IsTiny(type.base) || type.base == DType::kIQ3_XXS ? DType::kQ5_K : DType::kQ6_K;
}

}  // namespace

std::string FileTypeNames() {
    std::string names;
    for (const FileType& type : kFileTypes) {
        if (!names.empty()) names += ", ";
        names += type.name;
    }
    return names;
}

Result<FileType> FindFileType(std::string_view name) {
    std::string wanted = UpperCase(name);
    for (const Alias& alias : kAliases) {
        if (wanted == alias.name) wanted = alias.stands_for;
    }
    for (const FileType& type : kFileTypes) {
        if (wanted == type.name) return type;
    }
    return MakeError(ErrorCode::kUsage, "TYPE '{}' is unknown; expected one of {}", name,
                     FileTypeNames());
}

Result<DType> FindTensorType(std::string_view name) {
    const std::optional<DType> dtype = DTypeOfName(name);
    if (dtype && CanEncode(*dtype)) return *dtype;
    std::string names;
    for (const DTypeInfo& info : kFileDTypes) {
        if (!CanEncode(info.dtype)) continue;
        if (!names.empty()) names += ", ";
        names += info.name;
    }
    return MakeError(ErrorCode::kUsage, "a tensor's type can't be '{}'; expected one of {}", name,
                     names);
}

Role RoleOf(std::string_view name) {
    if (name == "output.weight") return Role::kOutput;
    if (name == "token_embd.weight" || name == "per_layer_token_embd.weight") {
        return Role::kEmbedding;
    }
    for (const char* value : {"attn_v.weight", "attn_qkv.weight", "attn_kv_b.weight"}) {
        if (Contains(name, value)) return Role::kValue;
    }
    if (Contains(name, "attn_k.weight")) return Role::kKey;
    if (Contains(name, "attn_q.weight")) return Role::kQuery;
    if (Contains(name, "attn_output.weight")) return Role::kAttentionOutput;
    if (Contains(name, "ffn_up")) return Role::kUp;
    if (Contains(name, "ffn_gate")) return Role::kGate;
    if (Contains(name, "ffn_down")) return Role::kDown;
    return Role::kOther;
}

bool IsKept(std::string_view name, int dims) {
    if (dims < 2 || !name.ends_with("weight")) return true;
    constexpr std::string_view kTouchy[] = {
        "_norm.weight",         "ffn_gate_inp",   "altup",        "laurel",         "ssm_conv1d",
        "per_layer_model_proj", "shortconv.conv", "attn_rel_b",   "position_embd",  "token_types",
        "indexer.k_proj",       "indexer.q_proj",
        "indexer.proj",  // the weights of an indexer's heads
        "hc_attn_fn",           "hc_ffn_fn",      "output_hc_fn", "compressor_ape",
    };
    return std::ranges::any_of(kTouchy,
                               [&](std::string_view part) { return Contains(name, part); });
}

DType MixedType(const FileType& type, const MixFacts& facts, const MixPlace& place) {
    if (!Info(type.base).quantized) return type.base;
    const bool output =
        place.role == Role::kOutput || (facts.tied && place.role == Role::kEmbedding);
    if (output) return OutputType(type, place.cols);
    if (type.base == DType::kMXFP4 && facts.experts > 0) {  // the type is meant for experts
        return place.experts ? DType::kMXFP4 : DType::kQ8_0;
    }
    if (IsTiny(type.base)) return TinyMixType(type, facts, place);
    switch (place.role) {
        case Role::kEmbedding: {
            const bool ternary = type.base == DType::kTQ1_0 || type.base == DType::kTQ2_0;
            if (type.base == DType::kIQ3_XXS) return DType::kIQ3_S;
            return ternary ? DType::kQ4_K : type.base;
        }
        case Role::kValue: return ValueType(type, facts, place);
        case Role::kKey:
            if (facts.experts == 8) return DType::kQ8_0;
            return FewerBitsOfIq3(type, facts, place);
        case Role::kQuery:
        case Role::kUp:
        case Role::kGate: return FewerBitsOfIq3(type, facts, place);
        case Role::kAttentionOutput: return AttentionOutputType(type, facts);
        case Role::kDown: return DownType(type, facts, place);
        case Role::kOutput:
        case Role::kOther: break;
    }
    return type.base;
}

bool NeedsImportance(Role role, DType dtype) {
    if (role == Role::kEmbedding || role == Role::kOutput) return false;
    return IsTiny(dtype) || dtype == DType::kIQ3_XXS;
}

DType Fallback(DType wanted, int64_t cols) {
    if (cols % Info(wanted).block_elements == 0) return wanted;
    DType smaller = DType::kIQ4_NL;
    if (wanted == DType::kQ4_K) smaller = DType::kQ5_0;
    if (wanted == DType::kQ5_K) smaller = DType::kQ5_1;
    if (wanted == DType::kQ6_K) smaller = DType::kQ8_0;
    const bool few = wanted == DType::kQ2_K || wanted == DType::kQ3_K || wanted == DType::kTQ1_0 ||
                     wanted == DType::kTQ2_0;
    if (few) smaller = DType::kQ4_0;
    return cols % Info(smaller).block_elements == 0 ? smaller : DType::kF16;
}

}  // namespace weft::quantize
