// weft train data inspect, as a command line.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "support/run_weft.h"
#include "train/data_case.h"

namespace weft::train {
namespace {

using support::Ran;
using support::RunWeft;
using test::TempDir;

const char* const kModel = "synthetic:smollm2-135m";

TEST(Program, InspectShowsTrainedWeights) {
    const TempDir folder;
    const std::string data = WriteText(
        folder, "d.jsonl", "{\"prompt\": \"ab\", \"completion\": \"cd\"}\n{\"text\": \"e\"}\n");
    const Ran text = RunWeft({"train", "data", "inspect", kModel, "--data", data});
    ASSERT_EQ(text.status, 0) << text.err;
    EXPECT_NE(text.out.find("train: 2 samples"), std::string::npos) << text.out;
    EXPECT_NE(text.out.find("\n  -      2  ab\n  +      3  cd"), std::string::npos) << text.out;
    const nlohmann::json value =
        RunWeft({"train", "data", "inspect", kModel, "--data", data, "--json"}).Json();
    EXPECT_EQ(value.at("train").at("usable"), 2);
    EXPECT_EQ(value.at("samples").at(0).at("runs").at(0).at("text"), "ab");
}

TEST(Program, InspectNamesTheBadLineUnlessItIsSkipped) {
    const TempDir folder;
    const std::string data = WriteText(folder, "d.jsonl", "{\"text\": \"abc\"}\n{\"txt\": 1}\n");
    const Ran strict = RunWeft({"train", "data", "inspect", kModel, "--data", data});
    EXPECT_EQ(strict.status, 1);
    EXPECT_NE(strict.err.find("d.jsonl: line 2: a record with 'txt'"), std::string::npos)
        << strict.err;
    const Ran lax = RunWeft({"train", "data", "inspect", kModel, "--data", data, "--skip-bad"});
    EXPECT_EQ(lax.status, 0) << lax.err;
    EXPECT_NE(lax.out.find("bad      1 records"), std::string::npos) << lax.out;
}

TEST(Program, RefusesBadUsage) {
    const TempDir folder;
    const std::string data = WriteText(folder, "d.jsonl", "{\"text\": \"abc\"}\n");
    for (const auto& words : std::initializer_list<support::Words>{
             {"train"},
             {"train", "data"},
             {"train", "data", "inspect", kModel},
             {"train", "data", "inspect", kModel, "--data", data, "--prompt-type", "6"},
             {"train", "data", "inspect", kModel, "--data", data, "--long", "fold"},
             {"train", "data", "inspect", kModel, "--data", data, "--test-split", "1"},
             {"train", "data", "inspect", kModel, "--data", data, "--seq", "0"},
             {"train", "plot", data}}) {
        EXPECT_EQ(RunWeft(words).status, 2) << words.back();
    }
    const Ran missing = RunWeft({"train", "data", "inspect", kModel, "--data", folder / "none"});
    EXPECT_EQ(missing.status, 1);
    const Ran help = RunWeft({"train", "data", "inspect", "--help"});
    EXPECT_NE(help.out.find("Examples:"), std::string::npos);
    EXPECT_NE(RunWeft({"train", "plot", data}).err.find("gnuplot"), std::string::npos);
}

}  // namespace
}  // namespace weft::train
