#include "model/alt_up.h"

#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "model/architecture.h"
#include "program/streams.h"

namespace weft::model {

using program::Shape;
using program::ValueId;

Result<AltUp> ReadAltUp(const model_files::ModelSource& source, const std::string& architecture,
                        int64_t layers) {
    AltUp read;
    if (!TraitsOf(architecture).alt_up) return read;
    const model_files::Metadata& meta = source.meta();
    const std::string prefix = architecture + ".";
    WEFT_ASSIGN(read.streams, meta.Int(prefix + "altup.num_inputs", 2, program::kMostStreams));
    WEFT_ASSIGN(const int64_t active, meta.IntOr(prefix + "altup.active_idx", 0, 1 << 16, 0));
    if (active != 0) {
        return MakeError(ErrorCode::kUnsupported, "{}: {}altup.active_idx is {}; expected 0",
                         source.name(), prefix, active);
    }
    WEFT_ASSIGN(read.laurel_rank, meta.IntOr(prefix + "laurel_rank", 1, 1 << 16, 64));
    const std::string key = prefix + "activation_sparsity_scale";
    if (meta.Has(key)) {
        WEFT_ASSIGN(read.deviations, meta.Floats(key));
    } else {
        constexpr float kNone = -std::numeric_limits<float>::infinity();
        for (int64_t layer = 0; layer < layers; ++layer) {
            read.deviations.push_back(layer < 10 ? 1.6448534f : kNone);
        }
    }
    if (static_cast<int64_t>(read.deviations.size()) >= layers) return read;
    return MakeError(ErrorCode::kCorrupt, "{}: {} has {} numbers; the model has {} layers",
                     source.name(), key, read.deviations.size(), layers);
}

// ---- Layers -------------------------------------------------------------------------------------

// Weights of the streams, from the row `x`: tanh of the router's logits, times the matrix `coefs`.
ValueId Builder::AltUpWeights(ValueId x, const std::string& coefs, bool corrects) {
    const int64_t n = hyper_.alt_up.streams, columns = corrects ? n : n * n;
    const ValueId normed =
        NormBy(x, "altup_router_norm", "weight", hyper_.hidden, Local(coefs + "_normed"));
    const ValueId logits =
        MatMul(Scale(normed, 1.0f / static_cast<float>(hyper_.hidden)), Tensor("altup_router"),
               RowsOf({0, n}, n), {}, false, Local(coefs + "_logits"));
    const Shape shape = program_.value(logits).shape;
    const ValueId routed =  // tanh
        program_.Emit(program::SoftCap{1}, {logits}, Local(coefs + "_routed"), shape);
    return program_.Emit(program::AltUpWeights{n, corrects}, {ToAll(routed, coefs, columns, n)},
                         Local(coefs + "_weights"), {shape[0], n * (2 + n)});
}

ValueId Builder::Predicted(ValueId streams) {
    const ValueId first = Pick(streams, 1, 0, hyper_.hidden, "altup_first");
    const ValueId weights = AltUpWeights(first, "altup_predict_coef", false);
    return program_.Emit(program::MixStreams{hyper_.alt_up.streams}, {streams, weights, first},
                         Local("altup_predicted"), program_.value(streams).shape);
}

ValueId Builder::Corrected(ValueId predicted, ValueId first) {
    const ValueId weights = AltUpWeights(first, "altup_correct_coef", true);
    return program_.Emit(program::MixStreams{hyper_.alt_up.streams}, {predicted, weights, first},
                         Local("altup_corrected"), program_.value(predicted).shape);
}

ValueId Builder::FirstStream(ValueId streams, const std::string& scale) {
    if (scale.empty() || !Has(scale + ".weight")) {
        return Pick(streams, 1, 0, hyper_.hidden, "altup_active");
    }
    const int64_t hidden = hyper_.hidden;
    const ValueId weight = Weight(Tensor(scale) + ".weight", {{0, hidden}, {}, hidden, 0});
    return program_.Emit(program::ScaleColumns{}, {streams, weight}, Local(scale),
                         {program_.value(streams).shape[0], hidden});
}

ValueId Builder::AddToOthers(ValueId streams, ValueId x) {
    const Shape shape = program_.value(streams).shape;
    const int64_t others = hyper_.alt_up.streams - 1;
    const ValueId copies = program_.Emit(program::MixStreams{others}, {x}, Local("altup_others"),
                                         {shape[0], others * hyper_.hidden});
    return Add(streams, program_.Emit(program::PadColumns{hyper_.hidden}, {copies},
                                      Local("altup_padded"), shape));
}

ValueId Builder::Laurel(ValueId x) {
    const int64_t rank = hyper_.alt_up.laurel_rank, hidden = hyper_.hidden;
    const ValueId low = ToAll(x, "laurel_l", rank, hidden);
    return Add(x, Norm(ToAll(low, "laurel_r", hidden, rank), "laurel_post_norm", hidden));
}

// The sums of a row go over the columns of all tensor ranks.
ValueId Builder::Sparse(ValueId gate) {
    if (hyper_.alt_up.streams == 0) return gate;
    const float deviations = hyper_.alt_up.deviations[static_cast<size_t>(layer_)];
    if (!std::isfinite(deviations)) return gate;
    const Shape shape = program_.value(gate).shape;
    ValueId moments =
        program_.Emit(program::RowMoments{}, {gate}, Local("ffn_gate_moments"), {shape[0], 2});
    if (shard_.layout.tp > 1) {
        if (HidesCuts()) SetWide(moments);
        moments = AllReduce(moments);
    }
    return program_.Emit(program::Sparsify{AllFfn(), deviations}, {gate, moments},
                         Local("ffn_gate_sparse"), shape);
}

// ---- Ends ---------------------------------------------------------------------------------------

// The streams but the first, each times its own matrix, with the magnitude of the first.
ValueId Builder::OtherStreams(ValueId others, ValueId first, const std::string& tensor) {
    const int64_t n = hyper_.alt_up.streams - 1, hidden = hyper_.hidden;
    const Slice slice{{0, hidden}, {0, hidden}, hidden, hidden};
    const ValueId matrices = Stack(tensor + ".weight", slice, {0, n}, n);
    const Shape shape = program_.value(others).shape;
    // (A step may output both logits and hidden states.)
    const std::string name = program_.value(first).name + "." + tensor;
    const ValueId y = program_.Emit(program::HeadMatMul{}, {others, matrices}, name, shape);
    return program_.Emit(program::MatchStreams{}, {y, first}, name + ".matched", shape);
}

ValueId Builder::SpreadAltUp(ValueId x) {
    if (!options_.cache) {
        Fail(MakeError(ErrorCode::kUnsupported,
                       "{}: AltUp of Gemma 3n has no gradient yet: this model can be run, but not "
                       "trained",
                       source_.name()));
    }
    const int64_t n = hyper_.alt_up.streams, hidden = hyper_.hidden;
    const int64_t rows = program_.value(x).shape[0];
    const ValueId copies =
        program_.Emit(program::MixStreams{n - 1}, {x}, "altup_copies", {rows, (n - 1) * hidden});
    const ValueId others = OtherStreams(copies, x, "altup_proj");
    const Shape shape{rows, n * hidden};
    const ValueId before = program_.Emit(program::PadColumns{0}, {x}, "altup_first", shape);
    return Add(before, program_.Emit(program::PadColumns{hidden}, {others}, "altup_rest", shape));
}

ValueId Builder::MergeAltUp(ValueId x) {
    const int64_t n = hyper_.alt_up.streams, hidden = hyper_.hidden;
    const std::string name = program_.value(x).name;
    ValueId sum = Pick(x, 1, 0, hidden, name + ".altup_first");
    const ValueId rest = Pick(x, 1, hidden, (n - 1) * hidden, name + ".altup_rest");
    const ValueId others = OtherStreams(rest, sum, "altup_unembd_proj");
    for (int64_t i = 0; i + 1 < n; ++i) {
        const ValueId other =
            Pick(others, 1, i * hidden, hidden, fmt::format("{}.altup_{}", name, i));
        sum = Add(sum, other);
    }
    return Scale(sum, 1.0f / static_cast<float>(n));
}

}  // namespace weft::model
