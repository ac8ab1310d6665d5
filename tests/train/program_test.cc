// weft train data inspect and weft train plot, as command lines.
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

TEST(Program, InspectShowsWhatIsLearnt) {
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
    for (const char* command : {"plot", "data"}) {
        const bool is_data = std::string_view(command) == "data";
        const Ran help = is_data ? RunWeft({"train", "data", "inspect", "--help"})
                                 : RunWeft({"train", command, "--help"});
        EXPECT_NE(help.out.find("Examples:"), std::string::npos) << command;
    }
}

TEST(Program, PlotsLogs) {
    const TempDir folder;
    const std::string log = WriteText(folder, "t.csv", "step,loss,lr\n0,3,1e-3\n1,2,1e-3\n");
    const Ran ran = RunWeft({"train", "plot", log, log, "-o", folder / "o.svg", "--json"});
    EXPECT_EQ(ran.Json().at("rows"), 4) << ran.err;
    EXPECT_TRUE(Must(ReadTextFile(folder / "o.svg")).starts_with("<svg"));
    const Ran wrong =
        RunWeft({"train", "plot", log, "-o", folder / "p.svg", "--columns", "accuracy"});
    EXPECT_EQ(wrong.status, 2);
    EXPECT_NE(wrong.err.find("'loss' 'lr'"), std::string::npos) << wrong.err;
}

// A PNG, or an error that names the drawing program and the alternative.
TEST(Program, PlotsToPng) {
    const TempDir folder;
    const std::string log = WriteText(folder, "t.csv", "step,loss,lr\n0,3,1e-3\n1,2,1e-3\n");
    const bool can = std::system("rsvg-convert --version > /dev/null 2>&1") == 0;
    const Ran ran = RunWeft({"train", "plot", log, "-o", folder / "o.png"});
    if (can) {
        EXPECT_EQ(ran.status, 0) << ran.err;
        EXPECT_TRUE(Must(ReadTextFile(folder / "o.png")).starts_with("\x89PNG\r\n"));
    } else {
        EXPECT_NE(ran.status, 0);
        EXPECT_NE(ran.err.find("librsvg2-bin"), std::string::npos) << ran.err;
        EXPECT_NE(ran.err.find(".svg"), std::string::npos) << ran.err;
    }
    EXPECT_FALSE(std::filesystem::exists(folder / "o.png.svg.tmp"));
}

}  // namespace
}  // namespace weft::train
