#include "model/hyper.h"

#include <cmath>

#include "model/model.h"

namespace weft::model {
namespace {

constexpr int64_t kMostLayers = 4096, kMostColumns = 1 << 20, kMostHeads = 4096;

// llama.cpp scales RoPE linearly by positions / factor; "none" and an absent key change nothing.
// Llama 3's scaling comes as a tensor of factors instead (rope_freqs.weight).
Result<double> RopeFactor(const formats::ModelSource& source, const std::string& prefix) {
    WEFT_ASSIGN(const std::string type,
                source.meta().StringOr(prefix + "rope.scaling.type", "none"));
    if (type == "none") return 1.0;
    if (type != "linear") {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: RoPE scaling '{}' is not supported. Supported: none, linear, and "
                         "Llama 3's factors (tensor rope_freqs.weight).",
                         source.name(), type);
    }
    WEFT_ASSIGN(const double factor, source.meta().F64Or(prefix + "rope.scaling.factor", 1.0));
    if (!(factor >= 1e-3 && factor <= 1e6)) {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: {}rope.scaling.factor is {}; expected 0.001 to 1e6", source.name(),
                         prefix, factor);
    }
    return factor;
}

Status ReadRope(const formats::ModelSource& source, const std::string& prefix, Hyper& hyper) {
    WEFT_ASSIGN(const double base, source.meta().F64Or(prefix + "rope.freq_base", 10000.0));
    if (!(base > 1.0 && base < 1e12)) {
        return MakeError(ErrorCode::kCorrupt, "{}: {}rope.freq_base is {}; expected 1 to 1e12",
                         source.name(), prefix, base);
    }
    WEFT_ASSIGN(const double factor, RopeFactor(source, prefix));
    const int64_t pairs = hyper.rotary_dim / 2;
    std::vector<float> divisors(static_cast<size_t>(pairs), 1.0f);
    if (const auto* tensor = source.FindTensor("rope_freqs.weight"); tensor != nullptr) {
        if (tensor->cols * tensor->rows != pairs) {
            return MakeError(ErrorCode::kCorrupt,
                             "{}: rope_freqs.weight has {} factors; expected {} (half of the {} "
                             "rotated dims)",
                             source.name(), tensor->cols * tensor->rows, pairs, hyper.rotary_dim);
        }
        WEFT_ASSIGN(divisors, source.ReadFloats(*tensor));
    }
    for (int64_t i = 0; i < pairs; ++i) {
        const double exponent =
            -2.0 * static_cast<double>(i) / static_cast<double>(hyper.rotary_dim);
        const double divisor = static_cast<double>(divisors[static_cast<size_t>(i)]) * factor;
        hyper.inverse_frequency.push_back(static_cast<float>(std::pow(base, exponent) / divisor));
        if (!std::isfinite(hyper.inverse_frequency.back())) {
            return MakeError(ErrorCode::kCorrupt, "{}: RoPE frequency {} is not a finite number",
                             source.name(), i);
        }
    }
    return {};
}

Status ReadHeads(const formats::ModelSource& source, const std::string& prefix, Hyper& hyper) {
    const formats::Metadata& meta = source.meta();
    WEFT_ASSIGN(hyper.heads, meta.Int(prefix + "attention.head_count", 1, kMostHeads));
    WEFT_ASSIGN(hyper.kv_heads,
                meta.IntOr(prefix + "attention.head_count_kv", 1, kMostHeads, hyper.heads));
    if (hyper.heads % hyper.kv_heads != 0) {
        return MakeError(ErrorCode::kCorrupt, "{}: {} query heads over {} KV heads is uneven",
                         source.name(), hyper.heads, hyper.kv_heads);
    }
    WEFT_ASSIGN(hyper.head_dim,
                meta.IntOr(prefix + "attention.key_length", 1, 1024, hyper.hidden / hyper.heads));
    WEFT_ASSIGN(const int64_t value_dim,
                meta.IntOr(prefix + "attention.value_length", 1, 1024, hyper.head_dim));
    WEFT_ASSIGN(hyper.rotary_dim,
                meta.IntOr(prefix + "rope.dimension_count", 2, 1024, hyper.head_dim));
    if (value_dim != hyper.head_dim || hyper.head_dim > 256 || hyper.head_dim % 2 != 0 ||
        hyper.rotary_dim > hyper.head_dim || hyper.rotary_dim % 2 != 0) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: head dims (key {}, value {}, rotary {}) are not supported: key and "
                         "value must be equal, even and at most 256",
                         source.name(), hyper.head_dim, value_dim, hyper.rotary_dim);
    }
    return {};
}

Status RefuseExperts(const formats::ModelSource& source, const std::string& prefix) {
    WEFT_ASSIGN(const int64_t experts, source.meta().IntOr(prefix + "expert_count", 0, 1 << 20, 0));
    if (experts == 0) return {};
    return MakeError(ErrorCode::kUnsupported,
                     "{}: a mixture of {} experts is not supported; dense models are",
                     source.name(), experts);
}

}  // namespace

Result<Hyper> ReadHyper(const formats::ModelSource& source) {
    Hyper hyper;
    const formats::Metadata& meta = source.meta();
    WEFT_ASSIGN(hyper.architecture, meta.String("general.architecture"));
    if (!IsSupported(hyper.architecture)) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: architecture '{}' is not supported. Supported: {}.", source.name(),
                         hyper.architecture, SupportedArchitectures());
    }
    const std::string prefix = hyper.architecture + ".";
    WEFT_TRY(RefuseExperts(source, prefix));
    WEFT_ASSIGN(hyper.layers, meta.Int(prefix + "block_count", 1, kMostLayers));
    WEFT_ASSIGN(hyper.hidden, meta.Int(prefix + "embedding_length", 1, kMostColumns));
    WEFT_ASSIGN(hyper.ffn, meta.Int(prefix + "feed_forward_length", 1, kMostColumns));
    WEFT_ASSIGN(hyper.context, meta.IntOr(prefix + "context_length", 1, 1ll << 31, 4096));
    WEFT_ASSIGN(const double eps, meta.F64Or(prefix + "attention.layer_norm_rms_epsilon", 1e-5));
    if (!(eps >= 0 && eps < 1)) {
        return MakeError(ErrorCode::kCorrupt, "{}: RMS-norm epsilon is {}; expected 0 to 1",
                         source.name(), eps);
    }
    hyper.rms_eps = static_cast<float>(eps);
    WEFT_TRY(ReadHeads(source, prefix, hyper));
    WEFT_TRY(ReadRope(source, prefix, hyper));
    WEFT_ASSIGN(const formats::TensorInfo* table, source.NeedTensor("token_embd.weight"));
    hyper.vocab = table->rows;
    hyper.tied = source.FindTensor("output.weight") == nullptr;
    return hyper;
}

}  // namespace weft::model
