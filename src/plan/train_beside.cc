#include "plan/train_beside.h"

#include <algorithm>

namespace weft::plan {
namespace {

// Timeline with one lane for ops and one for transfers.
class TwoLines {
  public:
    // Starts a transfer as soon as the lane is free; returns its end.
    double Transfer(double seconds) {
        wire_ = std::max(wire_, now_) + seconds;
        moved_ += seconds;
        return wire_;
    }
    void WaitUntil(double time) { now_ = std::max(now_, time); }
    void Run(double seconds) {
        now_ += seconds;
        ran_ += seconds;
    }
    double Waits(double contention) const {
        const double end = std::max(now_, wire_), waits = end - ran_;
        return waits + contention * std::max(0.0, moved_ - waits);
    }

  private:
    double now_ = 0, wire_ = 0, ran_ = 0, moved_ = 0;
};

}  // namespace

double WaitsForward(std::span<const UnitSeconds> units, bool beside, double contention) {
    double all = 0;
    for (const UnitSeconds& unit : units) all += unit.gather;
    if (!beside || all == 0) return all;
    TwoLines lines;
    double there = lines.Transfer(units[0].gather);
    for (size_t i = 0; i < units.size(); ++i) {
        lines.WaitUntil(there);
        if (i + 1 < units.size()) there = lines.Transfer(units[i + 1].gather);
        lines.Run(units[i].forward);
    }
    return lines.Waits(contention);
}

double WaitsBackward(std::span<const UnitSeconds> units, bool beside, double contention) {
    double all = 0;
    for (const UnitSeconds& unit : units) all += unit.gather + unit.sum;
    if (!beside || all == 0) return all;
    TwoLines lines;
    double there = lines.Transfer(units.back().gather);
    for (size_t i = units.size(); i-- > 0;) {
        lines.WaitUntil(there);
        if (i > 0) there = lines.Transfer(units[i - 1].gather);
        lines.Run(units[i].backward);
        lines.Transfer(units[i].sum);
    }
    return lines.Waits(contention);
}

}  // namespace weft::plan
