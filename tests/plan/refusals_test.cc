// What `weft plan` refuses: figures and flags of which no prediction would mean anything.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <fstream>

#include "support/run_weft.h"
#include "support/temp_dir.h"

namespace weft::support {
namespace {

struct Refusal {
    Words arguments;
    const char* said;
};

void ExpectRefused(const Words& command, const std::vector<Refusal>& cases) {
    for (const auto& [arguments, said] : cases) {
        SCOPED_TRACE(testing::PrintToString(command + arguments));
        const Ran ran = RunWeft(command + arguments);
        EXPECT_EQ(ran.status, 2) << ran.err;
        EXPECT_EQ(ran.out, "");
        EXPECT_NE(ran.err.find(said), std::string::npos) << ran.err;
    }
}

TEST(PlanRefuses, NumbersThatAreNotFinite) {
    ExpectRefused({"plan", "gpt-oss-20b", "--machines", "2xstrix-halo,roce"},
                  {{{"--draft", "gpt-oss-20b", "--draft-accepted", "nan"},
                    "--draft-accepted: 'nan': expected a finite number"},
                   {{"--draft-accepted", "inf"}, "--draft-accepted"},
                   {{"--train", "--jitter", "nan"}, "--jitter: 'nan': expected a finite number"},
                   {{"--train", "--hours-between-losses", "-NaN"}, "expected a finite number"},
                   {{"--train", "--restart-s", "nan"}, "expected a finite number"}});
    ExpectRefused({"run", "synthetic:smollm2-135m", "-p", "x"},
                  {{{"--temp", "nan"}, "--temp"}, {{"--top-p", "nan"}, "--top-p"}});
}

}  // namespace
}  // namespace weft::support
