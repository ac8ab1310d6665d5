// Seconds of a step or an update, divided by their causes.
#pragma once

#include <algorithm>
#include <utility>

namespace weft::plan {

template <typename Parts>
struct CauseRow {
    const char* name;
    double Parts::*seconds;
};

// The base of a struct `Parts` that has a member for each cause, and a function Rows() that lists
// them in order.
template <typename Parts>
struct SecondsByCause {
    double total() const {
        double total = 0;
        for (const CauseRow<Parts>& row : Parts::Rows()) total += parts().*row.seconds;
        return total;
    }
    // The cause with the most seconds, and its share of the total.
    std::pair<const char*, double> limit() const {
        const auto seconds = [&](const CauseRow<Parts>& row) { return parts().*row.seconds; };
        const CauseRow<Parts>& most = *std::ranges::max_element(Parts::Rows(), {}, seconds);
        return {most.name, seconds(most) / total()};
    }
    Parts& operator+=(const Parts& other) {
        for (const CauseRow<Parts>& row : Parts::Rows()) parts().*row.seconds += other.*row.seconds;
        return parts();
    }
    Parts operator*(double factor) const {
        Parts scaled = parts();
        for (const CauseRow<Parts>& row : Parts::Rows()) scaled.*row.seconds *= factor;
        return scaled;
    }

  private:
    Parts& parts() { return static_cast<Parts&>(*this); }
    const Parts& parts() const { return static_cast<const Parts&>(*this); }
};

}  // namespace weft::plan
