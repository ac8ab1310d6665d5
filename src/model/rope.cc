#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace weft::model {
namespace {

class Reader {
  public:
    Reader(const model_files::ModelSource& source, const std::string& architecture,
           int64_t rotary_dim, int64_t windowed_dim, int64_t context)
        : source_(source),
          architecture_(architecture),
          prefix_(architecture + ".rope."),
          dim_(rotary_dim),
          windowed_dim_(windowed_dim == 0 ? rotary_dim : windowed_dim),
          context_(context) {}

    Result<Ropes> Run() {
        WEFT_ASSIGN(const double base, Base("freq_base", 10000.0));
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
        WEFT_ASSIGN(ropes_.all, Make(dim_, base, near.empty() ? factors : near, true));
        WEFT_ASSIGN(ropes_.far, Make(dim_, base, far.empty() ? factors : far, true));
        // Gemma 3's and 4's windows turn faster than the rest, and without its scaling; so do, at
        // the same base, OLMo 3's.
        const bool gemma = architecture_ == "gemma3" || architecture_ == "gemma4";
        const bool plain = gemma || architecture_ == "olmo2";
        WEFT_ASSIGN(const double windowed, Base("freq_base_swa", gemma ? 10000.0 : base));
        WEFT_ASSIGN(ropes_.windowed,
                    Make(windowed_dim_, windowed, plain ? std::vector<float>{} : factors, !plain));
        if (!near.empty()) ropes_.windowed = ropes_.all;
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

    Status ReadScaling() {
        const std::string factor_key = "scaling.factor";
        const bool has_factor = source_.meta().Has(prefix_ + factor_key);
        WEFT_ASSIGN(type_, source_.meta().StringOr(prefix_ + "scaling.type",
                                                   has_factor ? "linear" : "none"));
        if (type_ != "none" && type_ != "linear" && type_ != "yarn" && type_ != "longrope") {
            return MakeError(ErrorCode::kUnsupported,
                             "{}: RoPE scaling '{}' is not supported. Supported: none, linear, "
                             "yarn, longrope, and Llama 3's factors (tensor rope_freqs.weight).",
                             source_.name(), type_);
        }
        WEFT_ASSIGN(factor_, Number(factor_key, 1e-3, 1e6, 1.0));
        WEFT_ASSIGN(ropes_.original_context,
                    source_.meta().IntOr(prefix_ + "scaling.original_context_length", 1, 1ll << 31,
                                         context_));
        WEFT_ASSIGN(magnitude_, Number("scaling.attn_factor", 1e-3, 1e3, 1.0));
        if (type_ != "yarn") return {};
        WEFT_ASSIGN(beta_fast_, Number("scaling.yarn_beta_fast", 1e-3, 1e6, 32.0));
        WEFT_ASSIGN(beta_slow_, Number("scaling.yarn_beta_slow", 1e-3, 1e6, 1.0));
        WEFT_ASSIGN(ropes_.yarn_log_multiplier,
                    Number("scaling.yarn_log_multiplier", -1e3, 1e3, 0.0));
        ropes_.yarn_factor = factor_;
        // gpt-oss leaves the ends of the ramp as they are, and its GGUF files don't say so.
        WEFT_ASSIGN(truncate_, source_.meta().BoolOr(prefix_ + "scaling.yarn_truncate",
                                                     architecture_ != "gpt-oss"));
        // m(1); or m(mscale) / m(mscale_all_dim) where a file names the latter, and that is 1,
        // since no model has two that differ.
        const double usual =
            ropes_.yarn_log_multiplier != 0 || factor_ <= 1 ? 1.0 : 0.1 * std::log(factor_) + 1.0;
        WEFT_ASSIGN(const double given, Number("scaling.yarn_attn_factor", 1e-3, 1e3, usual));
        magnitude_ *= given;
        return {};
    }
    // A tensor of rotary_dim / 2 divisors; empty where the file has none of that name.
    Result<std::vector<float>> Factors(const std::string& name) {
        const model_files::TensorInfo* tensor = source_.FindTensor(name);
        if (tensor == nullptr) return std::vector<float>{};
        if (tensor->cols * tensor->rows != dim_ / 2) {
            return MakeError(ErrorCode::kCorrupt,
                             "{}: {} has {} factors; expected {} (half of the {} rotated dims)",
                             source_.name(), name, tensor->cols * tensor->rows, dim_ / 2, dim_);
        }
        return source_.ReadFloats(*tensor);
    }

    Result<Rope> Make(int64_t dim, double base, const std::vector<float>& divisors,
                      bool scaled) const {
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

    // YaRN: the share of pair i that is not interpolated, 1 for fast pairs down to 0 for slow ones.
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
        const double ramp = (static_cast<double>(i) - low) / std::max(0.001, high - low);
        return 1 - std::clamp(ramp, 0.0, 1.0);
    }

    const model_files::ModelSource& source_;
    const std::string& architecture_;
    const std::string prefix_;
    const int64_t dim_, windowed_dim_, context_;
    std::string type_;
    bool truncate_ = true;  // the ends of YaRN's ramp are whole pairs
    double factor_ = 1, magnitude_ = 1, beta_fast_ = 32, beta_slow_ = 1;
    Ropes ropes_;
};

}  // namespace

Result<Ropes> ReadRopes(const model_files::ModelSource& source, const std::string& architecture,
                        int64_t rotary_dim, int64_t windowed_dim, int64_t context) {
    return Reader(source, architecture, rotary_dim, windowed_dim, context).Run();
}

}  // namespace weft::model
