// Mamba layers (Gu and Dao 2023): a convolution, from which steps, B and C are projected, the
// recurrence of each channel, and a gate. Mamba-2 layers (Dao and Gu 2024): a convolution of x, B
// and C, the state-space recurrence, a gate and, if the file has one, a norm over the columns of
// each group.
#include <iterator>

#include "model/builder.h"

namespace weft::model {

using program::Cut;
using program::kTokens;
using program::Shape;
using program::ValueId;

// Norm with the weight ssm_norm. If there is one group, its columns are spread over all ranks, and
// an all-reduce adds up their sums of squares. If there are several groups, each rank has whole
// groups.
ValueId Builder::NormGroups(ValueId x) {
    const Recurrent& r = hyper_.recurrent;
    const int64_t all = r.heads * r.value_dim;
    const Span& heads = shard_.recurrent_heads;
    const Span columns{heads.begin * r.value_dim, heads.end * r.value_dim};
    const ValueId weight = Weight(Tensor("ssm_norm.weight"), {columns, {}, all, 0});
    const Shape shape = program_.value(x).shape;
    if (r.key_heads > 1) {
        program::RmsNorm norm{hyper_.rms_eps, all / r.key_heads};
        norm.apart = true;
        return program_.Emit(norm, {x, weight}, Local("ssm_norm"), shape);
    }
    if (!options_.cache && shard_.layout.tp == 1) return Norm(x, "ssm_norm", all);
    program::SumSquares sum;
    sum.columns = {{0, columns.size()}};
    ValueId squares = program_.Emit(std::move(sum), {x}, Local("ssm_squares"), {kTokens, 1});
    if (shard_.layout.tp > 1) {
        if (HidesCuts()) SetWide(squares);
        squares = AllReduce(squares);
    }
    return program_.Emit(program::RmsNorm{hyper_.rms_eps, columns.size(), all, 0},
                         {x, weight, squares}, Local("ssm_norm"), shape);
}

ValueId Builder::Mamba(ValueId x) {
    const Recurrent& r = hyper_.recurrent;
    const Span& own = shard_.recurrent_heads;
    const int64_t latent = r.step_rank + 2 * r.key_dim;
    const auto part = [&](const char* name, int64_t begin) {
        return FromHome(x, name, {Tensor("ssm_in"), begin, 2 * r.heads}, own, {Cut::kRows}, false);
    };
    const ValueId v = Convolved(part("ssm_in_x", 0), "ssm_in_x", {Tensor("ssm_conv1d"), 0, r.heads},
                                own, true, {});
    const ValueId all = FromColumns(v, "ssm_x", {{0, latent}, own, latent, r.heads}, 1);
    const auto of_latent = [&](const char* name, const std::string& norm, int64_t begin,
                               int64_t columns) {
        const ValueId some = Pick(all, 1, begin, columns, name);
        if (Has(norm + ".weight")) return Norm(some, norm, columns);
        if (!r.norms_steps) return some;
        const float eps = r.norm_eps != 0 ? r.norm_eps : hyper_.rms_eps;
        return program_.EmitLike(program::RmsNorm{eps, columns, 0, 0, true}, {some},
                                 Local(name) + ".norm", some);
    };
    const ValueId steps = of_latent("ssm_steps", "ssm_dt_norm", 0, r.step_rank);
    const ValueId b = of_latent("ssm_b", "ssm_b_norm", r.step_rank, r.key_dim);
    const ValueId c = of_latent("ssm_c", "ssm_c_norm", r.step_rank + r.key_dim, r.key_dim);
    const ValueId step =
        MatMul(steps, Tensor("ssm_dt"), {own, {0, r.step_rank}, r.heads, r.step_rank}, {Cut::kRows},
               false, Local("ssm_step"));
    program::DeltaRule rule;
    rule.ssd = rule.by_channel = true;
    rule.group = r.heads;
    const auto of_channels = [&](const char* name) {
        return Weight(Tensor(name), {own, {}, r.heads, 0});
    };
    // (A stack of vectors, because devices pack a matrix for products.)
    const ValueId rates =
        Stack(Tensor("ssm_a"), {{0, 1}, {0, r.key_dim}, 1, r.key_dim}, own, r.heads);
    const ValueId y = Recur(
        rule, {c, b, v, step, rates, of_channels("ssm_dt.bias"), of_channels("ssm_d")}, "ssd");
    const ValueId gated = program_.EmitLike(program::Glu{Activation::kSilu},
                                            {part("ssm_z", r.heads), y}, Local("ssm_gated"), y);
    return FromColumns(gated, "ssm_out", ColumnsOf(own, r.heads), 1);
}

ValueId Builder::Mamba2(ValueId x) {
    const Recurrent& r = hyper_.recurrent;
    const Span &heads = shard_.recurrent_heads, groups = RecurrentKeys();
    const Span columns{heads.begin * r.value_dim, heads.end * r.value_dim};
    const Span shared{groups.begin * r.key_dim, groups.end * r.key_dim};
    const int64_t inner = r.heads * r.value_dim, state = r.key_heads * r.key_dim;
    // ssm_in: z, x, B, C, steps. Falcon-H1 may have a factor for each.
    const int64_t begins[] = {0, inner, 2 * inner, 2 * inner + state, 2 * (inner + state)};
    const auto part = [&](const char* name, size_t which, const Span& rows, Cut cut = Cut::kRows) {
        const Home home{Tensor("ssm_in"), begins[which], 2 * inner + 2 * state + r.heads};
        const ValueId y = FromHome(x, name, home, rows, {cut}, false);
        return ScaleBy(y, "ssm_in.scale", which, std::size(begins));
    };
    const auto convolved = [&](const char* name, size_t which, const Span& rows,
                               Cut cut = Cut::kRows) {
        const Home taps{Tensor("ssm_conv1d"), begins[which] - inner, inner + 2 * state};
        return Convolved(part(name, which, rows, cut), name, taps, rows, true, {});
    };
    const ValueId v = convolved("ssm_x", 1, columns);
    const ValueId b = convolved("ssm_b", 2, shared, KeyCut());
    const ValueId c = convolved("ssm_c", 3, shared, KeyCut());
    const ValueId step = part("ssm_step", 4, heads);
    program::DeltaRule rule;
    rule.ssd = true;
    rule.key_heads = groups.size();
    rule.first_key_head = groups.begin;
    rule.group = r.group();
    const auto of_heads = [&](const char* name) {
        return Weight(Tensor(name), {heads, {}, r.heads, 0});
    };
    const ValueId y =
        Recur(rule, {c, b, v, step, of_heads("ssm_a"), of_heads("ssm_dt.bias"), of_heads("ssm_d")},
              "ssd");
    const ValueId z = part("ssm_z", 0, columns);
    ValueId gated =
        program_.EmitLike(program::Glu{Activation::kSilu}, {z, y}, Local("ssm_gated"), y);
    if (Has("ssm_norm.weight")) gated = NormGroups(gated);
    return ScaleBy(FromColumns(gated, "ssm_out", ColumnsOf(columns, inner), r.value_dim),
                   "ssm_out.scale");
}

}  // namespace weft::model
