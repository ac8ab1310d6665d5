#include "kernels/recurrent.h"

#include <cmath>

namespace weft::kernels {

// Space for a block of the state, and for a row's query, key, faded key and fades.
int64_t DeltaScratch(int64_t key_dim) {
    const int64_t padded = (key_dim + 15) / 16 * 16;
    return padded * kStateColumns + 4 * padded;
}

void DeltaGates(const DeltaGatesArgs& args, int part, int parts) {
    const Range share = Share(args.rows * args.heads, 1, part, parts);
    for (int64_t unit = share.begin; unit < share.end; ++unit) {
        const int64_t head = unit % args.heads;
        if (args.beta != nullptr) args.strength[unit] = 1.0f / (1.0f + std::exp(-args.beta[unit]));
        for (int64_t i = 0; i < args.each; ++i) {
            const int64_t step = args.rates ? unit : unit * args.each + i;
            const float x = args.decay[step] + args.dt[args.rates ? head : head * args.each + i];
            const float rate = args.a[args.rates ? head * args.each + i : head];
            float& fade = args.fade[unit * args.each + i];
            if (args.floor != 0) {
                fade = std::exp(args.floor / (1.0f + std::exp(-std::abs(rate) * x)));
                continue;
            }
            // Above 20, softplus(x) rounds to x.
            const float softplus = x > 20.0f ? x : std::log1p(std::exp(x));
            fade = std::exp(rate * softplus);
            if (args.beta == nullptr) args.strength[unit] = softplus;
        }
    }
}

}  // namespace weft::kernels
