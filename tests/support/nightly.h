// Selects nightly tests: ./test --nightly sets WEFT_TEST_NIGHTLY=1. A test over many layouts, kinds
// or sizes runs some of them daily and all nightly.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <ranges>
#include <vector>

namespace weft::test {

// A test that judges speed needs an idle machine: the daily suite skips it.
#define SKIP_UNLESS_NIGHTLY()                                       \
    if (!::weft::test::Nightly())                                   \
    GTEST_SKIP() << "Needs an idle machine: ./test --nightly runs " \
                    "it"

// Skips a case of the nightly suite. runs_daily: the daily suite runs it, too.
#define SKIP_TO_NIGHT_UNLESS(runs_daily)                                                         \
    if (!::weft::test::Nightly() && !(runs_daily))                                               \
    GTEST_SKIP() << "The daily suite runs other cases of this test: ./test --nightly runs this " \
                    "one"

inline bool Nightly() {
    const char* given = std::getenv("WEFT_TEST_NIGHTLY");
    return given != nullptr && *given == '1';
}

// Selects one of `of` cases daily, all nightly. If `index` is the sum of two indices, every value
// of both indices occurs daily, each with some values of the other.
inline bool InTurn(size_t index, size_t of) {
    return Nightly() || index % of == 0;
}

// Returns one of `of` cases daily, beginning with the case `first`, all nightly.
template <std::ranges::range Cases>
auto Some(const Cases& cases, size_t of, size_t first = 0) {
    std::vector<std::ranges::range_value_t<const Cases&>> some;
    size_t index = of - first % of;
    for (const auto& each : cases) {
        if (InTurn(index++, of)) some.push_back(each);
    }
    return some;
}

}  // namespace weft::test
