#include "engine/batch/prompt_clock.h"

#include <algorithm>

#include "program/cost.h"

namespace weft::engine {
namespace {

// Weight of a step relative to the next one: the last 50 steps count most.
constexpr double kKeep = 0.98;
// Spread of positions, as a part of 1 / pair_share, from which on the steps determine pair_s more
// than pair_share does. (There, attention is 4 % of a step.)
constexpr double kSpread = 0.04;

}  // namespace

void PromptClock::Learn(std::span<const PromptPart> parts, double seconds) {
    double rows = 0, pairs = 0;
    for (const PromptPart& part : parts) {
        rows += static_cast<double>(part.rows());
        pairs += part.pairs();
    }
    if (rows < static_cast<double>(kLeastRows) || seconds <= 0) return;
    // A step counts by its rows, not by their square: errors grow with the step.
    const auto add = [rows](double& sum, double product) { sum = kKeep * sum + product / rows; };
    add(rr_, rows * rows);
    add(rp_, rows * pairs);
    add(pp_, pairs * pairs);
    add(rt_, rows * seconds);
    add(pt_, pairs * seconds);
    // Minimizes the sum of squares + prior * (pair_s - share * row_s)^2.
    const double spread = share_ > 0 ? kSpread / share_ : 0;
    const double prior = rr_ * std::max(spread * spread, 1.0);
    const double a = rr_ + prior * share_ * share_, b = rp_ - prior * share_, c = pp_ + prior;
    const double whole = a * c - b * b;
    row_s_ = (rt_ * c - pt_ * b) / whole;
    pair_s_ = (pt_ * a - rt_ * b) / whole;
    if (row_s_ < 0) row_s_ = 0, pair_s_ = pt_ / pp_;
    if (pair_s_ < 0) pair_s_ = 0, row_s_ = rt_ / rr_;
}

std::optional<double> PromptClock::Predict(const PromptPart& part) const {
    if (row_s_ < 0) return {};
    return row_s_ * static_cast<double>(std::max<int64_t>(part.rows(), 0)) + pair_s_ * part.pairs();
}

double PairShare(const program::Program& program, int64_t context) {
    constexpr int64_t kRows = 256;
    const int64_t deep = context - kRows;
    if (deep < kRows) return 0;
    const auto flops = [&program](int64_t before) {
        double sum = 0;
        for (const program::OpCost& op : program::Cost(program, kRows, 1, before)) sum += op.flops;
        return sum;
    };
    const double first = flops(0);
    const double pair = (flops(deep) - first) / static_cast<double>(kRows * deep);
    const double row = first / kRows - pair * (kRows + 1) / 2;
    return row > 0 ? pair / row : 0;
}

std::optional<double> SecondsBeside(const PromptClock& clock, std::span<const PromptPart> parts,
                                    size_t index) {
    double seconds = 0;
    if (parts[index].rows() <= 0) return clock.Predict({});  // as most prompts of a step
    for (const PromptPart& part : parts) {
        const int64_t rows = std::min(part.rows(), parts[index].rows());
        const auto share = clock.Predict({part.begin, part.begin + rows});
        if (!share) return {};
        seconds += *share;
    }
    return seconds;
}

}  // namespace weft::engine
