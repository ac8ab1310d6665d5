#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "model/architecture.h"
#include "model/rope_notes.h"

namespace weft::model {
namespace {

constexpr int64_t kMostContext = 1ll << 31;

class Reader {
  public:
    Reader(const model_files::ModelSource& source, const std::string& architecture,
           int64_t rotary_dim, int64_t windowed_dim, int64_t context)
        : source_(source),
          architecture_(architecture),
          traits_(TraitsOf(architecture)),
          prefix_(architecture + ".rope."),
          dim_(rotary_dim),
          windowed_dim_(windowed_dim == 0 ? rotary_dim : windowed_dim),
          context_(context) {}

    const std::vector<std::string>& notes() const { return notes_; }

    Result<Ropes> Run() {
        WEFT_ASSIGN(const double given, Base("freq_base", 10000.0));
        if (!Has("freq_base")) {
            notes_.push_back(
                fmt::format("{}: has no {}freq_base; Weft takes {}, as llama.cpp "
                            "does",
                            source_.name(), prefix_, given));
        }
        WEFT_ASSIGN(const std::string unread,
                    source_.meta().StringOr(prefix_ + "scaling.unread", ""));
        if (!unread.empty()) {
            notes_.push_back(
                fmt::format("{}: the RoPE parameters of config.json have {}, "
                            "which Weft ignores, as transformers does",
                            source_.name(), unread));
        }
        WEFT_ASSIGN(const double base, Raised(given));
        WEFT_TRY(ReadScaling());
        WEFT_ASSIGN(const std::vector<float> factors, Factors("rope_freqs.weight"));
        WEFT_ASSIGN(const std::vector<float> near, Factors("rope_factors_short.weight"));
        WEFT_ASSIGN(const std::vector<float> far, Factors("rope_factors_long.weight"));
        if (near.empty() != far.empty() || (type_ == "longrope" && near.empty())) {
            return MakeError(ErrorCode::kCorrupt,
                             "{}: LongRoPE needs the tensors rope_factors_short.weight and "
                             "rope_factors_long.weight; one is missing",
                             source_.name());
        }
        WEFT_ASSIGN(const double whole, WholeBase(base));
        WEFT_ASSIGN(ropes_.all, Make(dim_, whole, near.empty() ? factors : near, true));
        WEFT_ASSIGN(ropes_.far, Make(dim_, whole, far.empty() ? factors : far, true));
        const bool plain = traits_.plain_windows;
        const double usual = traits_.windowed_base > 0 ? traits_.windowed_base : base;
        WEFT_ASSIGN(const double windowed, Base("freq_base_swa", usual));
        const auto of_windows = [&](const std::vector<float>& scaled) {
            return Make(windowed_dim_, windowed, plain ? std::vector<float>{} : scaled, !plain);
        };
        WEFT_ASSIGN(ropes_.windowed, of_windows(near.empty() ? factors : near));
        WEFT_ASSIGN(ropes_.windowed_far, of_windows(far.empty() ? factors : far));
        return std::move(ropes_);
    }

  private:
    Result<double> Number(const std::string& key, double least, double most, double fallback) {
        WEFT_ASSIGN(const double value, source_.meta().F64Or(prefix_ + key, fallback));
        if (value >= least && value <= most) return value;
        return MakeError(ErrorCode::kCorrupt, "{}: {}{} is {}; expected {} to {}", source_.name(),
                         prefix_, key, value, least, most);
    }
    Result<double> Base(const std::string& key, double fallback) {
        return Number(key, 1.0000001, 1e12, fallback);
    }

    // NTK scaling by the key that Hunyuan's files may have; most have a base that is raised
    // already.
    Result<double> Raised(double base) {
        WEFT_ASSIGN(const double alpha, Number("scaling.alpha", 0, 1e6, 0.0));
        if (alpha == 0) return base;
        if (traits_.alpha && dim_ > 2) {
            const auto dim = static_cast<double>(dim_);
            return base * std::pow(alpha, dim / (dim - 2));
        }
        return MakeError(ErrorCode::kUnsupported,
                         "{}: {}scaling.alpha is {}, which is not supported for architecture '{}'",
                         source_.name(), prefix_, alpha, architecture_);
    }

    // The base of layers without a window; DeepSeek-V4 has a separate key for it.
    Result<double> WholeBase(double base) {
        if (!traits_.pools_windows) return base;
        const std::string key = architecture_ + ".attention.compress_rope_freq_base";
        WEFT_ASSIGN(const double own, source_.meta().F64Or(key, 160000.0));
        if (own > 1 && own <= 1e12) return own;
        return MakeError(ErrorCode::kCorrupt, "{}: {} is {}; expected 1 to 1e12", source_.name(),
                         key, own);
    }

    bool Has(const std::string& key) const { return source_.meta().Has(prefix_ + key); }

    Status ReadScaling() {
        // Older files use the second name.
        const std::string key = Has("scaling.factor") ? "scaling.factor" : "scale_linear";
        WEFT_ASSIGN(
            type_, source_.meta().StringOr(prefix_ + "scaling.type", Has(key) ? "linear" : "none"));
        if (type_ != "none" && type_ != "linear" && type_ != "dynamic" && type_ != "yarn" &&
            type_ != "longrope") {
            return MakeError(ErrorCode::kUnsupported,
                             "{}: RoPE scaling '{}' is not supported. Supported: none, linear, "
                             "dynamic, yarn, longrope, and Llama 3's factors (tensor "
                             "rope_freqs.weight).",
                             source_.name(), type_);
        }
        WEFT_ASSIGN(factor_, Number(key, 0, 1e6, 1.0));
        if (factor_ == 0) factor_ = 1;  // as llama.cpp does
        WEFT_ASSIGN(ropes_.dynamic_factor,
                    Number("scaling.dynamic_factor", 0, 1e6, type_ == "dynamic" ? factor_ : 0.0));
        WEFT_ASSIGN(ropes_.original_context,
                    source_.meta().IntOr(prefix_ + "scaling.original_context_length", 1,
                                         kMostContext, context_));
        WEFT_TRY(CheckExtension());
        return ReadMagnitude();
    }
    // YaRN must be applied fully or not at all.
    Status CheckExtension() {
        const double usual = type_ == "yarn" ? 1 : 0;
        WEFT_ASSIGN(const double given, Number("scaling.yarn_ext_factor", -1e3, 1e3, usual));
        if (given < 0 || given == usual) return {};  // negative: not set
        return MakeError(ErrorCode::kUnsupported,
                         "{}: {}scaling.yarn_ext_factor is {}; expected {} with RoPE scaling '{}'",
                         source_.name(), prefix_, given, usual, type_);
    }

    Status ReadMagnitude() {
        WEFT_ASSIGN(const double factor, Number("scaling.attn_factor", 1e-3, 1e3, 1.0));
        double usual = 1;
        if (type_ == "yarn") {
            WEFT_ASSIGN(beta_fast_, Number("scaling.yarn_beta_fast", 1e-3, 1e6, 32.0));
            WEFT_ASSIGN(beta_slow_, Number("scaling.yarn_beta_slow", 1e-3, 1e6, 1.0));
            WEFT_ASSIGN(ropes_.yarn_log_multiplier,
                        Number("scaling.yarn_log_multiplier", -1e3, 1e3, 0.0));
            ropes_.yarn_factor = factor_;
            if (traits_.pools_windows) return {};  // no magnitude, even if the file has one
            // gpt-oss does not truncate the ends of the ramp, and its GGUF files don't say so.
            WEFT_ASSIGN(truncate_, source_.meta().BoolOr(prefix_ + "scaling.yarn_truncate",
                                                         traits_.truncates_yarn));
            // The magnitude m(1). With mscale_all_dim (yarn_log_multiplier), it is
            // m(mscale) / m(mscale_all_dim), which is 1 for equal values.
            if (ropes_.yarn_log_multiplier == 0 && factor_ > 1) usual = 0.1 * std::log(factor_) + 1;
        }
        constexpr const char* kOther = "scaling.yarn_attn_factor";
        const double least = traits_.whole_magnitude ? 1e-3 : -1e3;
        WEFT_ASSIGN(const double other, Number(kOther, least, 1e3, usual));
        if (traits_.whole_magnitude) {  // under either key, as OLMo 3's converters write it
            magnitude_ = Has("scaling.attn_factor") ? factor : other;
            return {};
        }
        magnitude_ = factor * usual;
        if (other < 0 || std::abs(other / usual - 1) <= 1e-6) return {};
        notes_.push_back(
            fmt::format("{}: {}{} is {}, which Weft ignores, as llama.cpp does: RoPE's magnitude "
                        "is {:.6g}",
                        source_.name(), prefix_, kOther, other, magnitude_));
        return {};
    }
    // A tensor of rotary_dim / 2 divisors; empty if the file has none of that name. In Step 3.5 it
    // is sized for the windowed layers, which do not use it.
    Result<std::vector<float>> Factors(const std::string& name) {
        const model_files::TensorInfo* tensor = source_.FindTensor(name);
        if (tensor == nullptr) return std::vector<float>{};
        const int64_t count = tensor->cols * tensor->rows;
        if (traits_.halves_rotary && count > dim_ / 2 && count <= windowed_dim_ / 2) {
            WEFT_ASSIGN(std::vector<float> all, source_.ReadFloats(*tensor));
            all.resize(static_cast<size_t>(dim_ / 2));
            return all;
        }
        if (count != dim_ / 2) {
            return MakeError(ErrorCode::kCorrupt,
                             "{}: {} has {} factors; expected {} (half of the {} rotated dims)",
                             source_.name(), name, count, dim_ / 2, dim_);
        }
        return source_.ReadFloats(*tensor);
    }

    Result<Rope> Make(int64_t dim, double base, const std::vector<float>& divisors,
                      bool scaled) const {
        if (!divisors.empty() && divisors.size() != static_cast<size_t>(dim / 2)) {
            return MakeError(ErrorCode::kCorrupt,
                             "{}: {} RoPE factors for layers that rotate {} dims; expected {}",
                             source_.name(), divisors.size(), dim, dim / 2);
        }
        Rope rope;
        const bool yarn = scaled && type_ == "yarn";
        rope.magnitude = scaled ? static_cast<float>(magnitude_) : 1.0f;
        for (int64_t i = 0; i < dim / 2; ++i) {
            double frequency =
                std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
            if (yarn) {
                const double kept = Kept(dim, base, i);
                frequency *= kept + (1 - kept) / factor_;
            } else if (scaled && type_ == "linear") {
                frequency /= factor_;
            }
            if (!divisors.empty()) {
                frequency /= static_cast<double>(divisors[static_cast<size_t>(i)]);
            }
            rope.inverse_frequency.push_back(static_cast<float>(frequency));
            if (!std::isfinite(rope.inverse_frequency.back())) {
                return MakeError(ErrorCode::kCorrupt,
                                 "{}: RoPE frequency {} is not a finite number", source_.name(), i);
            }
        }
        return rope;
    }

    // YaRN: the part of pair i that is not interpolated, from 1 for fast pairs to 0 for slow ones.
    double Kept(int64_t dim, double base, int64_t i) const {
        const auto pair = [&](double turns) {
            const double length = static_cast<double>(ropes_.original_context);
            return static_cast<double>(dim) * std::log(length / (turns * 2 * std::numbers::pi)) /
                   (2 * std::log(base));
        };
        double low = pair(beta_fast_), high = pair(beta_slow_);
        if (truncate_) {
            low = std::floor(low);
            high = std::ceil(high);
        }
        low = std::max(low, 0.0);
        high = std::min(high, static_cast<double>(dim - 1));
        const double width = high == low ? 0.001 : high - low;
        const double ramp = (static_cast<double>(i) - low) / width;
        return 1 - std::clamp(ramp, 0.0, 1.0);
    }

    const model_files::ModelSource& source_;
    const std::string& architecture_;
    const Traits& traits_;
    const std::string prefix_;
    const int64_t dim_, windowed_dim_, context_;
    std::string type_;
    bool truncate_ = true;  // round the ends of YaRN's ramp to whole pairs
    double factor_ = 1, magnitude_ = 1, beta_fast_ = 32, beta_slow_ = 1;
    Ropes ropes_;
    std::vector<std::string> notes_;
};

}  // namespace

int64_t Ropes::ExtendedContext() const {
    const double tokens = static_cast<double>(original_context) * yarn_factor;
    return static_cast<int64_t>(std::min(tokens, static_cast<double>(kMostContext)));
}

void Ropes::TurnBack() {
    for (Rope* rope : {&all, &far, &windowed, &windowed_far}) {
        for (float& frequency : rope->inverse_frequency) frequency = -frequency;
    }
}

Result<Ropes> ReadRopes(const model_files::ModelSource& source, const std::string& architecture,
                        int64_t rotary_dim, int64_t windowed_dim, int64_t context) {
    return Reader(source, architecture, rotary_dim, windowed_dim, context).Run();
}

std::vector<std::string> RopeNotes(const model_files::ModelSource& source, const Hyper& hyper) {
    if (!hyper.rotates) return {};
    Reader reader(source, hyper.architecture, hyper.rotary_dim, hyper.windowed_heads.rotary_dim,
                  hyper.context);
    (void)reader.Run();
    return reader.notes();
}

}  // namespace weft::model
