// weft quantize as users run it: every type runs afterwards, and failures leave no file.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "base/utf8.h"
#include "model_files/gguf.h"
#include "model_files/gguf_writer.h"
#include "support/nightly.h"
#include "support/paths.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"
#include "support/wait.h"

namespace weft::support {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

class QuantizeCli : public testing::Test {
  protected:
    void SetUp() override {
        model_ = dir_ / "tiny.gguf";
        model::Hyper hyper = OddHyper();
        hyper.ffn = 512;
        WriteTinyGguf(model_, {.hyper = hyper, .dtype = DType::kF16});
    }
    Ran Quantize(const std::string& type, const Words& more = {}) {
        return RunWeft(Words{"quantize", model_, out_, type, "--json"} + more);
    }
    // Logits of the last token of a fixed prompt.
    Matrix Logits(const std::string& model) {
        const std::string npy = dir_ / "logits.npy";
        const Ran ran =
            RunWeft({"logits", model, "--tokens", "72,101,108,108,111", "--npy", npy, "-t", "1"});
        EXPECT_EQ(ran.status, 0) << ran.err;
        return ran.status == 0 ? ReadNpy(npy) : Matrix();
    }
    void ExpectRefused(const Words& arguments, int status, const Words& words) {
        SCOPED_TRACE(testing::PrintToString(arguments));
        const Ran ran = RunWeft(Words{"quantize"} + arguments);
        EXPECT_EQ(ran.status, status) << ran.err;
        EXPECT_EQ(ran.err.rfind("weft: error: ", 0), 0u) << ran.err;
        for (const std::string& word : words) {
            EXPECT_NE(ran.err.find(word), std::string::npos) << word << ": " << ran.err;
        }
        EXPECT_FALSE(fs::exists(out_));
        EXPECT_FALSE(fs::exists(out_ + ".part"));
    }

    test::TempDir dir_;
    std::string model_;
    std::string out_ = dir_ / "out.gguf";
};

// A file's names and texts are escaped for a terminal; JSON stays JSON.
TEST_F(QuantizeCli, NamesInAFileAreNothingForATerminalToObey) {
    const std::string evil = "x\x1b[31m\n\x7f\xff\xc2\x9b";
    const std::string shown = R"(x\x1b[31m\n\x7f\xff\xc2\x9b)";
    model::Hyper hyper = OddHyper();
    hyper.ffn = 512;
    WriteTinyGguf(model_, {.hyper = hyper,
                           .dtype = DType::kF16,
                           .vectors = {{evil, std::vector<float>(32, 1)}},
                           .strings = {{evil, evil}}});
    const auto is_plain = [](const std::string& text) {
        return IsUtf8(text) && std::ranges::all_of(text, [](char c) {
                   return c == '\n' || (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f);
               });
    };
    for (const Words& words :
         {Words{"inspect", model_}, Words{"quantize", model_, out_, "Q8_0", "--dry-run"},
          Words{"show", model_}}) {
        const Ran ran = RunWeft(words);
        ASSERT_EQ(ran.status, 0) << ran.err;
        EXPECT_TRUE(is_plain(ran.out + ran.err)) << words[0];
        if (words[0] != "show") {
            EXPECT_NE(ran.out.find(shown), std::string::npos) << ran.out;
        }
        const Ran as_json = RunWeft(words + Words{"--json"});
        EXPECT_TRUE(IsUtf8(as_json.out)) << words[0];
        EXPECT_TRUE(as_json.Json().is_object()) << words[0];
    }
    // Errors quote names, too.
    const Ran unsupported = RunWeft({"inspect", model_, "--program"});
    EXPECT_EQ(unsupported.status, 1);
    EXPECT_NE(unsupported.err.find(shown), std::string::npos) << unsupported.err;
    const Ran refused = RunWeft({"quantize", model_, out_, "Q8_0", "--tensor", evil + "=nose"});
    EXPECT_NE(refused.status, 0);
    EXPECT_TRUE(is_plain(refused.err)) << refused.err;
}

// An importance matrix with equal values for all columns of every tensor.
void WriteFlatImportance(const std::string& model, const std::string& path) {
    const model_files::Gguf file = model_files::Gguf::Open(model).value();
    model_files::GgufWriter writer;
    for (const model_files::TensorInfo& tensor : file.tensors()) {
        const std::vector<float> ones(static_cast<size_t>(tensor.cols), 1.0f);
        const auto bytes = std::as_bytes(std::span(ones));
        writer.Tensor(tensor.name + ".in_sum2", DType::kF32, std::vector<int64_t>{tensor.cols, 1},
                      {bytes.begin(), bytes.end()});
        writer.Tensor(tensor.name + ".counts", DType::kF32, std::vector<int64_t>{1, 1},
                      {bytes.begin(), bytes.begin() + 4});
    }
    ASSERT_TRUE(WriteFile(path, writer.File()).ok());
}

TEST_F(QuantizeCli, EveryTypeRunsAndIsAboutTheSameModel) {
    const Matrix exact = Logits(model_);
    // Limits on the change of logits: the types' own error, which doubles per bit removed; ternary
    // types can't represent such a model.
    const struct {
        const char* type;
        double most;
    } types[] = {{"F32", 1e-2},   {"BF16", 3e-2},  {"F16", 1e-2},   {"Q8_0", 5e-2},
                 {"Q6_K", 0.1},   {"Q5_K_M", 0.2}, {"Q5_1", 0.2},   {"Q5_0", 0.2},
                 {"Q4_K_M", 0.3}, {"Q4_K_S", 0.3}, {"IQ4_NL", 0.3}, {"IQ4_XS", 0.3},
                 {"Q4_1", 0.3},   {"Q4_0", 0.4},   {"MXFP4", 0.5},  {"Q3_K_L", 0.6},
                 {"Q3_K_M", 0.6}, {"Q3_K_S", 0.7}, {"Q2_K", 1.0},   {"Q2_K_S", 1.2},
                 {"IQ3_M", 0.6},  {"IQ3_S", 0.7},  {"IQ3_XS", 0.8}, {"IQ3_XXS", 0.9},
                 {"IQ2_M", 1.2},  {"IQ2_S", 1.2},  {"IQ2_XS", 1.4}, {"IQ2_XXS", 1.6},
                 {"IQ1_M", 2},    {"IQ1_S", 2},    {"TQ2_0", 20},   {"TQ1_0", 20}};
    const std::string importance = dir_ / "importance.gguf";
    WriteFlatImportance(model_, importance);
    // (quantize/ tests each type's numbers daily.)
    for (const auto& [type, most] : test::Some(types, 3)) {
        SCOPED_TRACE(type);
        const bool book = std::string_view(type).starts_with("IQ");
        const Words matrix = book ? Words{"--imatrix", importance} : Words{};
        const Ran ran = Quantize(type, Words{"--force", "-t", "2"} + matrix);
        ASSERT_EQ(ran.status, 0) << ran.err;
        const json j = ran.Json();
        EXPECT_EQ(j["type"], type);
        EXPECT_EQ(j["file_bytes"], fs::file_size(out_));
        EXPECT_GT(j["tensors"], 20);
        EXPECT_EQ(j["threads"], 2);
        const Matrix logits = Logits(out_);
        const double error = RelativeL2(logits.data, exact.data);
        EXPECT_LE(error, most);
    }
}

TEST_F(QuantizeCli, DryRunPrintsThePlanAndWritesNothing) {
    const Ran ran = Quantize("Q4_K_M", {"--dry-run"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    EXPECT_FALSE(fs::exists(out_));
    const json j = ran.Json();
    uint64_t bytes = 0;
    for (const json& tensor : j["plan"]) bytes += tensor["bytes"].get<uint64_t>();
    EXPECT_EQ(bytes, j["bytes_out"]);
    EXPECT_EQ(j["plan"].size(), j["tensors"]);
    const Ran text = RunWeft({"quantize", model_, out_, "Q4_K_M", "--dry-run"});
    EXPECT_NE(text.out.find("blk.0.attn_q.weight"), std::string::npos) << text.out;
    EXPECT_FALSE(fs::exists(out_));
}

TEST_F(QuantizeCli, RefusesByName) {
    ExpectRefused({model_, out_, "IQ2_XXS"}, 2, {"IQ2_XXS", "--imatrix", "Q2_K"});
    ExpectRefused({model_, out_, "Q7"}, 2, {"Q7", "Q4_K_M"});
    ExpectRefused({model_, out_, "Q4_0", "--tensor", "ffn_down"}, 2, {"REGEX=TYPE"});
    ExpectRefused({model_, out_, "Q4_0", "--tensor", "ffn_down=Q7"}, 2, {"Q7"});
    ExpectRefused({model_, out_, "Q4_0", "--tensor", "nothing=Q8_0"}, 2, {"nothing"});
    ExpectRefused({model_, model_, "Q4_0", "--force"}, 2, {"replace its input"});
    fs::create_hard_link(model_, dir_ / "same.gguf");
    ExpectRefused({model_, dir_ / "same.gguf", "Q4_0", "--force"}, 2, {"replace its input"});
    ExpectRefused({dir_ / "none.gguf", out_, "Q4_0"}, 1, {"none.gguf"});
    ExpectRefused({model_, dir_ / "no/folder.gguf", "Q4_0"}, 1, {"no/folder.gguf"});
    ExpectRefused({model_, out_, "Q4_0", "--imatrix", model_}, 1, {"importance"});
    ASSERT_EQ(Quantize("Q8_0").status, 0);
    const Ran there = Quantize("Q4_0");
    EXPECT_EQ(there.status, 1);
    EXPECT_NE(there.err.find("--force"), std::string::npos) << there.err;
    const Ran again = RunWeft({"quantize", out_, dir_ / "again.gguf", "Q4_0"});
    EXPECT_EQ(again.status, 1);
    EXPECT_NE(again.err.find("--allow-requantize"), std::string::npos) << again.err;
    EXPECT_EQ(RunWeft({"quantize", out_, dir_ / "again.gguf", "Q4_0", "--allow-requantize"}).status,
              0);
}

TEST_F(QuantizeCli, SyntheticModelsAndRules) {
    const Ran ran = RunWeft(
        {"quantize", "synthetic:llama-3.2-1b:f16", out_, "Q4_K_M", "--layers", "1", "--json"});
    EXPECT_EQ(ran.status, 2) << "no such flag here";
    const Ran ruled = Quantize("Q4_K_S", {"--tensor", "ffn_down=Q8_0", "--tensor", "attn_v=Q6_K",
                                          "--output-type", "Q5_K", "--dry-run"});
    ASSERT_EQ(ruled.status, 0) << ruled.err;
    const json plan = ruled.Json();
    for (const json& tensor : plan["plan"]) {
        const std::string name = tensor["name"];
        if (name == "output.weight") {
            EXPECT_EQ(tensor["to"], "Q5_K");
        }
        if (name.find("ffn_down") != name.npos) {
            EXPECT_EQ(tensor["to"], "Q8_0");
        }
        if (name.find("attn_v.w") != name.npos) {
            EXPECT_EQ(tensor["to"], "Q6_K");
        }
    }
}

// A file size limit simulates a full disk.
TEST_F(QuantizeCli, NothingIsLeftWhereTheDiskGivesOut) {
    const std::string command = "ulimit -f 300; exec " + support::WeftProgram() + " quantize " +
                                model_ + " " + out_ + " F32 2> " + (dir_ / "err");
    EXPECT_EQ(WEXITSTATUS(std::system(("bash -c \"" + command + "\"").c_str())), 1);
    std::ifstream file(dir_ / "err");
    const std::string err{std::istreambuf_iterator<char>(file), {}};
    EXPECT_NE(err.find("out.gguf.part"), std::string::npos) << err;
    EXPECT_NE(err.find("at most 300.0 KiB (ulimit -f)"), std::string::npos) << err;
    EXPECT_FALSE(fs::exists(out_));
    EXPECT_FALSE(fs::exists(out_ + ".part"));
}

// Stopped and killed in the middle, with a model of sufficient size and one thread.
TEST_F(QuantizeCli, StoppedOrKilledThereIsNoFile) {
    model::Hyper hyper = OddHyper();
    hyper.ffn = 16384;
    WriteTinyGguf(model_, {.hyper = hyper, .dtype = DType::kF16});
    for (const int signal : {SIGINT, SIGTERM, SIGKILL}) {
        Weft weft({"quantize", model_, out_, "IQ4_XS", "-t", "1"}, {"WEFT_CPU=reference"});
        test::Until([&] { return fs::exists(out_ + ".part"); });
        ::kill(weft.pid(), signal);
        const Ran ran = weft.Wait();
        EXPECT_EQ(ran.status, signal == SIGKILL ? 128 + SIGKILL : 130) << ran.err;
        EXPECT_FALSE(fs::exists(out_));
        EXPECT_EQ(fs::exists(out_ + ".part"), signal == SIGKILL);
    }
    EXPECT_EQ(Quantize("Q8_0").status, 0) << "what a kill left is replaced";
    EXPECT_TRUE(fs::exists(out_));
    EXPECT_FALSE(fs::exists(out_ + ".part"));
}

}  // namespace
}  // namespace weft::support
