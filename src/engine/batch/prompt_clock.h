// PromptClock: predicts the time of prompts that are not computed yet, from the steps that this
// engine has run.
//
// Model of a step with prompt rows: seconds = row_s * rows + pair_s * pairs. A pair is a row and a
// position that it attends to. Other work of a step (rows that decode, waits for ranks) counts as
// the prompts'. Least squares over the steps so far, the older ones with less weight. Prompts of
// one length do not show pair_s; it is then the share of FLOPs that the model's Program has.
// Thread: one caller.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "program/program.h"

namespace weft::engine {

// A part of a prompt.
struct PromptPart {
    int64_t begin = 0, end = 0;  // positions in the sequence
    int64_t rows() const { return end - begin; }
    double pairs() const {  // row i attends to i + 1 positions
        const double first = static_cast<double>(begin) + 1, last = static_cast<double>(end);
        return rows() <= 0 ? 0 : static_cast<double>(rows()) * (first + last) / 2;
    }
};

class PromptClock {
  public:
    // pair_share: FLOPs of a pair divided by FLOPs of a row without its pairs.
    explicit PromptClock(double pair_share = 0) : share_(pair_share) {}
    // A step of `seconds` had these parts of prompts. Ignores steps of fewer than kLeastRows rows:
    // rows that decode may be most of them.
    void Learn(std::span<const PromptPart> parts, double seconds);
    // Seconds that the part takes. nullopt: no step was learned yet.
    std::optional<double> Predict(const PromptPart& part) const;

    static constexpr int64_t kLeastRows = 16;

  private:
    double share_;
    double row_s_ = -1, pair_s_ = 0;
    // Weighted sums of products over the steps; r: rows, p: pairs, t: seconds.
    double rr_ = 0, rp_ = 0, pp_ = 0, rt_ = 0, pt_ = 0;
};

// pair_share of a PromptClock for a rank's program with at most `context` positions.
double PairShare(const program::Program& program, int64_t context);

// Seconds until parts[index] is computed, if all parts are computed side by side with equal shares
// of each step. nullopt: as Predict.
std::optional<double> SecondsBeside(const PromptClock& clock, std::span<const PromptPart> parts,
                                    size_t index);

}  // namespace weft::engine
