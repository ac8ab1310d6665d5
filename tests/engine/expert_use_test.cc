// Counts of experts' uses survive a job, and a damaged file means no counts.
#include "engine/rank/expert_use.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/output_file.h"
#include "support/temp_dir.h"

namespace weft::engine {
namespace {

TEST(ExpertUse, IsKept) {
    const test::TempDir dir;
    const std::string path = dir / "folder/model.json";
    EXPECT_TRUE(LoadExpertUse(path).empty());
    const ExpertCounts counts = {{0, {1, 0, 2.5f}}, {17, {0, 3e6f, 4}}};
    ASSERT_TRUE(SaveExpertUse(path, counts).ok());
    EXPECT_EQ(LoadExpertUse(path), counts);
}

TEST(ExpertUse, OfOtherRanksStays) {
    const test::TempDir dir;
    const std::string path = dir / "model.json";
    ASSERT_TRUE(SaveExpertUse(path, {{0, {1, 2}}, {1, {3, 4}}}).ok());
    ASSERT_TRUE(SaveExpertUse(path, {{1, {5, 6}}, {2, {7, 8}}}, 2).ok());
    const ExpertCounts all = {{0, {1, 2}}, {1, {3, 4, 5, 6}}, {2, {0, 0, 7, 8}}};
    EXPECT_EQ(LoadExpertUse(path), all);
}

TEST(ExpertUse, DamagedMeansNone) {
    const test::TempDir dir;
    const std::string path = dir / "model.json";
    for (const char* const text :
         {"", "{", "[]", R"({"version": 2, "layers": {"0": [1]}})", R"({"version": 1})",
          R"({"version": 1, "layers": [[1]]})", R"({"version": 1, "layers": {"-1": [1]}})",
          R"({"version": 1, "layers": {"9999": [1]}})", R"({"version": 1, "layers": {"0": [-1]}})",
          R"({"version": 1, "layers": {"0": ["1"]}})", R"({"version": 1, "layers": {"0": 1}})",
          R"({"version": 1, "layers": {"0": [1e30]}})",
          R"({"version": 1, "layers": {"0x": [1]}})"}) {
        ASSERT_TRUE(ReplaceFile(path, text).ok());
        EXPECT_TRUE(LoadExpertUse(path).empty()) << text;
    }
    ASSERT_TRUE(SaveExpertUse(path, {{0, {1}}}).ok());  // and the next job replaces it
    EXPECT_EQ(LoadExpertUse(path).size(), 1u);
}

}  // namespace
}  // namespace weft::engine
