// Whether the long proofs run as well: ./test --nightly says so with WEFT_TEST_NIGHTLY=1. Where a
// test goes over many layouts, kinds or sizes, every day has some of them, and the night has all.
#pragma once

#include <cstddef>
#include <cstdlib>

namespace weft::test {

// A test that judges speed needs an idle machine: the daily suite skips it.
#define SKIP_UNLESS_NIGHTLY()                                                                     \
    if (!::weft::test::Nightly()) GTEST_SKIP() << "Needs an idle machine: ./test --nightly runs " \
                                                  "it"

// Skips a case that only the nightly suite runs. runs_daily: the daily suite runs it, too.
#define SKIP_TO_NIGHT_UNLESS(runs_daily)               \
    if (!::weft::test::Nightly() && !(runs_daily))     \
    GTEST_SKIP() << "The daily suite runs other cases of this test: ./test --nightly runs this one"

inline bool Nightly() {
    const char* given = std::getenv("WEFT_TEST_NIGHTLY");
    return given != nullptr && *given == '1';
}

// Every day one case of `of`, in the night all. With the sum of two indices, each value of one
// meets some of the other's, and all of them have their turn.
inline bool InTurn(size_t index, size_t of) {
    return Nightly() || index % of == 0;
}

}  // namespace weft::test
