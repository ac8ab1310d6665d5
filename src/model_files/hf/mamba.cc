#include "model_files/hf/mamba.h"

#include <cmath>

namespace weft::model_files::hf {
namespace {

constexpr int64_t kMostOutRows = 1 << 20;

class MambaLayer {
  public:
    MambaLayer(Assembly& assembly, int64_t layer, std::string prefix)
        : assembly_(assembly), layer_(layer), prefix_(std::move(prefix)) {}

    Status Add(const MambaShape& s, const MambaScales& factors) {
        if (s.heads % s.groups != 0) {
            return MakeError(ErrorCode::kCorrupt,
                             "{}: config.json: 'n_groups' (mamba_n_groups) is {}; expected a "
                             "divisor of {} heads",
                             assembly_.folder(), s.groups, s.heads);
        }
        const int64_t inner = s.inner(), shared = s.shared();
        const int64_t parts[] = {inner, inner, shared, shared, s.heads};
        std::vector<RowScale> scales, of_bias;
        for (size_t i = 0; i < factors.in.size(); ++i) {
            of_bias.push_back({parts[i], factors.in[i]});
            scales.push_back({parts[i], factors.in[i] * factors.input});
        }
        WEFT_TRY(assembly_.AddScaledLinear(Assembly::Block(layer_, "ssm_in"), prefix_ + "in_proj",
                                           2 * inner + 2 * shared + s.heads, scales,
                                           std::move(of_bias)));
        const std::vector<RowScale> out = {{kMostOutRows, factors.out}};
        WEFT_TRY(assembly_.AddScaledLinear(Assembly::Block(layer_, "ssm_out"), prefix_ + "out_proj",
                                           0, out, out));
        WEFT_TRY(AddState({s.heads, 1, inner + 2 * shared, s.taps}));
        WEFT_ASSIGN(MatrixPtr steps, Column("dt_bias", s.heads));
        assembly_.AddVector(Assembly::Block(layer_, "ssm_dt.bias"), std::move(steps));
        if (!assembly_.Has(prefix_ + "norm.weight")) return {};
        WEFT_ASSIGN(MatrixPtr norm, Column("norm.weight", inner));
        Put("ssm_norm.weight", Reshaped(std::move(norm), inner / s.groups));
        return {};
    }

    Status AddState(const StateShape& s) {
        const int64_t count = s.heads * s.each;
        WEFT_ASSIGN(MatrixPtr logs, Column("A_log", count));
        logs = Changed(std::move(logs), [](float log) { return -std::exp(log); });
        Put("ssm_a", Reshaped(std::move(logs), s.each));
        WEFT_ASSIGN(MatrixPtr skip, Column("D", s.heads));
        Put("ssm_d", std::move(skip));
        return AddTaps(s.channels, s.taps);
    }

  private:
    void Put(std::string_view name, MatrixPtr matrix) {
        assembly_.Add(Assembly::Block(layer_, name), std::move(matrix));
    }
    Result<MatrixPtr> Checked(Result<MatrixPtr> matrix, const std::string& name,
                              int64_t rows) const {
        return assembly_.Checked(std::move(matrix), prefix_ + name, rows);
    }
    Result<MatrixPtr> Column(const std::string& name, int64_t rows) {
        return Checked(assembly_.Column(prefix_ + name), name, rows);
    }
    Status AddTaps(int64_t channels, int64_t count) {
        WEFT_ASSIGN(MatrixPtr taps, Checked(assembly_.Tensor(prefix_ + "conv1d.weight"),
                                            "conv1d.weight", channels));
        if (taps->cols() != count) {
            return MakeError(ErrorCode::kCorrupt,
                             "{}: '{}conv1d.weight' has {} taps; expected {} from config.json",
                             assembly_.folder(), prefix_, taps->cols(), count);
        }
        Put("ssm_conv1d.weight", Converted(std::move(taps), DType::kF32));
        if (!assembly_.Has(prefix_ + "conv1d.bias")) return {};
        for (const std::string_view key : {"mamba_conv_bias", "use_conv_bias"}) {
            const Json& json = assembly_.config().json();
            if (!json.contains(key) || json[key] == true) continue;
            return assembly_.config().Corrupt(key, "true, since there is a conv1d.bias");
        }
        WEFT_ASSIGN(MatrixPtr bias, Column("conv1d.bias", channels));
        assembly_.AddVector(Assembly::Block(layer_, "ssm_conv1d.bias"), std::move(bias));
        return {};
    }

    Assembly& assembly_;
    const int64_t layer_;
    const std::string prefix_;
};

}  // namespace

void WriteMamba(const MambaShape& s, MetaWriter& meta) {
    meta.Int("ssm.conv_kernel", s.taps);
    meta.Int("ssm.state_size", s.state);
    meta.Int("ssm.group_count", s.groups);
    meta.Int("ssm.time_step_rank", s.heads);
    meta.Int("ssm.inner_size", s.inner());
}

Status WriteMambaSizes(const Config& config, MetaWriter& meta) {
    return WriteNumbers(config, meta,
                        {{"ssm.conv_kernel", "conv_kernel"},
                         {"ssm.state_size", "state_size"},
                         {"ssm.time_step_rank", "time_step_rank"},
                         {"ssm.inner_size", "inner_size"}});
}

Status AddMamba(Assembly& assembly, int64_t layer, const std::string& prefix, const MambaShape& s,
                const MambaScales& scales) {
    return MambaLayer(assembly, layer, prefix).Add(s, scales);
}

Status AddState(Assembly& assembly, int64_t layer, const std::string& prefix, const StateShape& s) {
    return MambaLayer(assembly, layer, prefix).AddState(s);
}

Status AddChannels(Assembly& assembly, int64_t layer, const std::string& module) {
    const Config& config = assembly.config();
    WEFT_ASSIGN(const int64_t inner, config.NeedInt({"inner_size"}, 1, kMostColumns));
    WEFT_ASSIGN(const int64_t state, config.NeedInt({"state_size"}, 1, 1024));
    WEFT_ASSIGN(const int64_t taps, config.NeedInt({"conv_kernel"}, 2, 64));
    return AddState(assembly, layer, module, {inner, state, inner, taps});
}

Status CheckSteps(const Config& config) {
    constexpr std::string_view kKey = "time_step_limit";
    if (!config.Has(kKey)) return {};
    const Json& limit = config.json()[kKey];
    const Json infinite = {{"__float__", "Infinity"}};
    const bool open = limit.is_array() && limit.size() == 2 && limit[0].is_number() &&
                      limit[0].get<double>() == 0 && limit[1] == infinite;
    if (open) return {};
    return config.Corrupt(kKey, "0 to infinity: limits on steps are not supported");
}

}  // namespace weft::model_files::hf
