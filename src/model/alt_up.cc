// Gemma 3n (Google 2025): AltUp (Baykal et al. 2023), a residual stream of several copies of which
// a layer computes the first, LAuReL (Menghani et al. 2024), and MLPs with few active columns.
//
// Tensors: altup_proj, altup_unembd_proj (a matrix for each copy but the first);
// blk.N.altup_{router, router_norm, predict_coef, correct_coef, correct_scale}, laurel_l, laurel_r,
// laurel_post_norm.
#include <cmath>

#include "model/builder.h"
#include "program/streams.h"

namespace weft::model {

using program::Shape;
using program::ValueId;

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
    return program_.EmitLike(program::MixStreams{hyper_.alt_up.streams}, {streams, weights, first},
                             Local("altup_predicted"), streams);
}

ValueId Builder::Corrected(ValueId predicted, ValueId first) {
    const ValueId weights = AltUpWeights(first, "altup_correct_coef", true);
    return program_.EmitLike(program::MixStreams{hyper_.alt_up.streams},
                             {predicted, weights, first}, Local("altup_corrected"), predicted);
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
