#include <cmath>

#include "kernels/dense/rows.h"

namespace weft::kernels::dense {

// (With one rank these are its stats.)
SoftmaxTotal TotalOf(const float* stats, int64_t ranks, const LossTerms& terms) {
    const int64_t each = terms.stats();
    SoftmaxTotal total{stats[0], stats[1], stats[2], each > 3 ? stats[3] : 0.0f};
    if (ranks == 1) return total;
    for (int64_t r = 1; r < ranks; ++r) {
        total.largest = std::max(total.largest, stats[r * each]);
    }
    double sum = 0, chosen = 0, logits = 0;
    for (int64_t r = 0; r < ranks; ++r) {
        const float* own = stats + r * each;
        sum += double{own[1]} * std::exp(double{own[0]} - double{total.largest});
        chosen += double{own[2]};
        if (each > 3) logits += double{own[3]};
    }
    total.sum = static_cast<float>(sum);
    total.chosen = static_cast<float>(chosen);
    total.logits = static_cast<float>(logits);
    return total;
}

SoftmaxSlope SlopeOf(const SoftmaxTotal& total, float dloss, const LossTerms& terms) {
    SoftmaxSlope slope{dloss / total.sum, dloss * terms.share(), dloss * (1 - terms.smoothing)};
    if (terms.z_loss != 0) {
        slope.factor *= 1 + 2 * terms.z_loss * (std::log(total.sum) + total.largest);
    }
    return slope;
}

void CrossEntropy(const CrossEntropyArgs& args, int part, int parts) {
    const LossTerms& terms = args.terms;
    const Range rows = Share(args.rows, 1, part, parts);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
        args.losses[row] = args.hits[row] = 0;
        if (args.targets[row] < 0) continue;
        const SoftmaxTotal total =
            TotalOf(args.stats + row * args.ranks * terms.stats(), args.ranks, terms);
        float loss = std::log(total.sum) + (total.largest - total.chosen);
        if (terms.smoothing != 0) {
            loss += terms.smoothing * total.chosen - terms.share() * total.logits;
        }
        if (terms.z_loss != 0) {
            const float lse = std::log(total.sum) + total.largest;
            loss += terms.z_loss * lse * lse;
        }
        args.losses[row] = loss;
        args.hits[row] = total.chosen >= total.largest ? 1.0f : 0.0f;
    }
}

}  // namespace weft::kernels::dense
