#include "grammar/json_multiple.h"

#include <cmath>

namespace weft::grammar {
namespace {

constexpr uint32_t kMostStepFraction = 6, kMostStepSize = 2000;

// Invariant: step = size / 10^fraction.
struct Step {
    uint32_t size;
    uint32_t fraction;
};

Result<Step> StepOf(double step) {
    if (!(step > 0)) return MakeError(ErrorCode::kUsage, "expected a number above 0");
    double scale = 1;
    for (uint32_t fraction = 0; fraction <= kMostStepFraction; ++fraction, scale *= 10) {
        const double size = std::round(step * scale);
        if (size > kMostStepSize) break;
        if (size >= 1 && size / scale == step) return Step{static_cast<uint32_t>(size), fraction};
    }
    return MakeError(ErrorCode::kUnsupported,
                     "{} has more than {} decimals, or is above {} without its decimal point", step,
                     kMostStepFraction, kMostStepSize);
}

}  // namespace

// States: the start; the remainder before the decimal point; then one row of remainders for each
// number of decimals.
Result<TextAutomaton> MultiplesOf(double step, TextBudget& budget) {
    constexpr uint64_t kMostEdges = 11;  // of a state
    WEFT_ASSIGN(const Step of, StepOf(step));
    const auto state = [&](uint32_t row, uint32_t rest) { return 1 + row * of.size + rest; };
    const size_t count = 1 + size_t{of.size} * (of.fraction + 2);
    if (!budget.Spend(kMostEdges * count)) {
        return MakeError(ErrorCode::kUnsupported, "the grammar's automata exceed the work limit");
    }
    std::vector<TextAutomaton::State> states(count);
    const auto add = [&](uint32_t from, char byte, uint32_t to) {
        const auto value = static_cast<uint8_t>(byte);
        states[from].edges.push_back({{value, value}, to});
    };
    add(0, '-', 0);
    for (uint32_t digit = 0; digit < 10; ++digit) {
        add(0, static_cast<char>('0' + digit), state(0, digit % of.size));
    }
    for (uint32_t row = 0; row < of.fraction + 2; ++row) {
        const uint32_t digits = row == 0 ? 0 : row - 1;  // decimals
        uint32_t scale = 1;
        for (uint32_t i = digits; i < of.fraction; ++i) scale *= 10;
        for (uint32_t rest = 0; rest < of.size; ++rest) {
            const uint32_t from = state(row, rest);
            states[from].final = uint64_t{rest} * scale % of.size == 0;
            if (row == 0) add(from, '.', state(1, rest));
            const bool full = row > 0 && digits == of.fraction;  // further digits must be zeros
            for (uint32_t digit = 0; digit < (full ? 1 : 10); ++digit) {
                const uint32_t next = full ? rest : (rest * 10 + digit) % of.size;
                add(from, static_cast<char>('0' + digit),
                    state(full || row == 0 ? row : row + 1, next));
            }
        }
    }
    return TextAutomaton(std::move(states));
}

}  // namespace weft::grammar
