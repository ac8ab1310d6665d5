// Files that flags name as output, of all commands: a wrong one is an error before the work, and
// leaves all files as they are.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/file.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"

namespace weft::support {
namespace {

namespace fs = std::filesystem;

const std::string kNotes = "notes\n";

class Outputs : public testing::Test {
  protected:
    void SetUp() override {
        WriteTinyGguf(model_, {.hyper = OddHyper(), .dtype = DType::kF16});
        fs::create_hard_link(model_, dir_ / "linked.gguf");
        fs::create_symlink(model_, dir_ / "symbolic.gguf");
        EXPECT_TRUE(WriteFile(notes_, std::as_bytes(std::span(kNotes))).ok());
        model_bytes_ = Bytes(model_);
    }
    static std::string Bytes(const std::string& path) {
        const auto text = ReadTextFile(path, 1 << 24);
        return text.ok() ? *text : "(none)";
    }
    // The commands up to their output. (Run completes quantize.)
    std::vector<Words> Commands() const {
        return {
            {"logits", model_, "--tokens", "1", "-t", "1", "--npy"},
            {"logits", model_, "--tokens", "1", "-t", "1", "--trace"},
            {"run", model_, "-p", "a", "-t", "1", "--trace"},
            {"serve", model_, "-t", "1", "--port", "0", "--trace"},
            {"perplexity", model_, notes_, "-t", "1", "--trace"},
            {"plan", "--measure", "-t", "1", "-o"},
            {"doctor", "--no-measure", "--save"},
            {"quantize"},
            {"merge", model_, "--lora", dir_ / "none", "--force", "-o"},
        };
    }
    Ran Run(const Words& command, const std::string& out) {
        if (command[0] == "quantize") return RunWeft({"quantize", "--force", model_, out, "Q8_0"});
        return RunWeft(command + Words{out});
    }
    void ExpectRefused(const Words& command, const std::string& out, const std::string& said) {
        SCOPED_TRACE(testing::PrintToString(command) + " " + out);
        const Ran ran = Run(command, out);
        EXPECT_TRUE(ran.status == 1 || ran.status == 2) << ran.status << ran.err;
        EXPECT_NE(ran.err.find(said), std::string::npos) << ran.err;
        EXPECT_EQ(ran.out, "");
        EXPECT_EQ(Bytes(model_), model_bytes_);
        EXPECT_EQ(Bytes(notes_), kNotes);
    }

    test::TempDir dir_;
    const std::string model_ = dir_ / "model.gguf", notes_ = dir_ / "notes.txt";
    std::string model_bytes_;
};

TEST_F(Outputs, AreCheckedBeforeTheWork) {
    for (const Words& command : Commands()) {
        ExpectRefused(command, dir_ / "missing/file", "missing");
        ExpectRefused(command, dir_.path(), "folder");
        const bool forced = command[0] == "quantize" || command[0] == "merge";
        if (!forced) ExpectRefused(command, notes_, "the file exists");
        const bool reads = command[0] != "plan" && command[0] != "doctor";
        for (const char* other : {"model.gguf", "linked.gguf", "symbolic.gguf"}) {
            ExpectRefused(command, dir_ / other,
                          reads ? "would replace its input" : "the file exists");
        }
    }
}

// Files of other programs in the same format stay.
TEST_F(Outputs, OfOtherProgramsStay) {
    const std::string tar = "tar -C " + dir_.path() + " -cf " + dir_ / "other.tar" + " notes.txt";
    ASSERT_EQ(std::system(tar.c_str()), 0);
    const auto write = [&](const char* name, std::string_view text) {
        EXPECT_TRUE(WriteFile(dir_ / name, std::as_bytes(std::span(text))).ok());
    };
    write("package.json", "{\"name\": \"weft\"}\n");
    write("machine.json", "{\"memory_gb\": 64}\n");
    write("trace.json", "{\"traceEvents\":[]}\n");
    write("other.npy", std::string("\x93NUMPY\x01\x00\x76\x00{'descr': '<f8', ", 25));
    for (const Words& command : Commands()) {
        if (command[0] == "quantize" || command[0] == "merge") continue;
        for (const char* name :
             {"other.tar", "package.json", "machine.json", "trace.json", "other.npy"}) {
            const std::string before = Bytes(dir_ / name);
            ExpectRefused(command, dir_ / name, "the file exists");
            EXPECT_EQ(Bytes(dir_ / name), before);
        }
    }
}

// An output of the same kind is replaced.
TEST_F(Outputs, OfTheSameKindAreReplaced) {
    for (const Words& command : {Commands()[0], Commands()[1], Commands()[6], Commands()[7]}) {
        const std::string out = dir_ / "out";
        fs::remove(out);
        for (int time = 0; time < 2; ++time) {
            const Ran ran = Run(command, out);
            EXPECT_EQ(ran.status, 0) << testing::PrintToString(command) << ran.err;
        }
        EXPECT_GT(fs::file_size(out), 0u);
    }
}

}  // namespace
}  // namespace weft::support
