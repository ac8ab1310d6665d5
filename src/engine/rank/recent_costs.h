// RecentCosts: the last costs of an operation that a rank repeats. A server reports the present,
// and a report, which delays the next step, sorts few numbers. Thread: one caller.
#pragma once

#include <cstddef>
#include <vector>

namespace weft::engine {

class RecentCosts {
  public:
    static constexpr size_t kMost = size_t{1} << 14;  // sorted in a millisecond

    void Add(float cost);
    // The last costs, at most kMost, in any order.
    const std::vector<float>& all() const { return costs_; }
    // Evenly spaced quantiles, ascending, rounded to 0.1: as many as there are costs, at most
    // `most`.
    std::vector<double> Quantiles(size_t most) const;

  private:
    std::vector<float> costs_;
    size_t next_ = 0;  // place of the next cost, once costs_ is full
};

}  // namespace weft::engine
