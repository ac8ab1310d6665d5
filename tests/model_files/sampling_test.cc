// Sampling hints in model files: GGUF's keys, generation_config.json, and one made from the other.
#include "model_files/sampling.h"

#include <gtest/gtest.h>

#include <limits>

#include "model_files/gguf.h"
#include "model_files/hf/export.h"
#include "support/hf_folder.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"

namespace weft::model_files {
namespace {

using nlohmann::json;

class Sampling : public testing::Test {
  protected:
    SamplingHints OfFolder(const std::string& text) {
        support::WriteText(dir_ / "generation_config.json", text);
        return ReadGenerationConfig(dir_.path());
    }
    // Hints of a GGUF file with the keys that `add` adds.
    template <typename Add>
    SamplingHints OfFile(const Add& add) {
        GgufWriter writer;
        writer.String("general.architecture", "llama");
        add(writer);
        writer.Tensor("t", DType::kF32, std::vector<int64_t>{1}, std::vector<std::byte>(4));
        path_ = dir_ / "m.gguf";
        EXPECT_TRUE(WriteFile(path_, writer.File()).ok());
        auto opened = Gguf::Open(path_);
        EXPECT_TRUE(opened.ok()) << opened.error().message;
        return ReadSamplingHints(*opened);
    }
    void ExpectWarning(const SamplingHints& hints, const std::string& file,
                       const std::string& key) {
        ASSERT_EQ(hints.warnings.size(), 1u) << key;
        EXPECT_NE(hints.warnings[0].find(file), std::string::npos) << hints.warnings[0];
        EXPECT_NE(hints.warnings[0].find("'" + key + "'"), std::string::npos) << hints.warnings[0];
        EXPECT_FALSE(hints.any()) << key;
    }

    test::TempDir dir_;
    std::string path_;
};

TEST_F(Sampling, ReadsAFolder) {
    const SamplingHints hints = OfFolder(
        R"({"do_sample": true, "temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.05,
            "repetition_penalty": 1.05, "eos_token_id": [1, 2]})");
    EXPECT_EQ(hints.temperature, 0.6);
    EXPECT_EQ(hints.top_p, 0.95);
    EXPECT_EQ(hints.top_k, 20);
    EXPECT_EQ(hints.min_p, 0.05);
    EXPECT_EQ(hints.repeat_penalty, 1.05);
    EXPECT_TRUE(hints.warnings.empty());
    EXPECT_EQ(hints.file, dir_ / "generation_config.json");
    EXPECT_TRUE(hints.any());
}

TEST_F(Sampling, RareRules) {
    const SamplingHints of_folder = OfFolder(R"({"typical_p": 0.9})");
    EXPECT_EQ(of_folder.typical_p, 0.9);
    EXPECT_TRUE(of_folder.any());
    EXPECT_EQ(GenerationConfigJson(of_folder), json({{"typical_p", 0.9}}));
    const SamplingHints of_file = OfFile([](GgufWriter& writer) {
        writer.F32("general.sampling.xtc_probability", 0.5f);
        writer.F32("general.sampling.xtc_threshold", 0.2f);
    });
    EXPECT_EQ(of_file.xtc_probability, 0.5);
    EXPECT_EQ(of_file.xtc_threshold, 0.2);
    const SamplingHints again = OfFile([&](auto& writer) { WriteSamplingKeys(of_file, writer); });
    EXPECT_EQ(again.xtc_threshold, 0.2);
    ExpectWarning(OfFolder(R"({"typical_p": 0})"), "generation_config.json", "typical_p");
}

TEST_F(Sampling, WithoutSamplingTheTemperatureIsZero) {
    EXPECT_EQ(OfFolder(R"({"do_sample": false, "temperature": 0.6})").temperature, 0);
    EXPECT_FALSE(OfFolder(R"({"do_sample": true})").any());
    EXPECT_FALSE(OfFolder(R"({"eos_token_id": 2, "temperature": null})").any());
    EXPECT_FALSE(ReadGenerationConfig(dir_ / "nowhere").any());
}

TEST_F(Sampling, HostileMembersAreIgnored) {
    const struct {
        const char *member, *value;
    } cases[] = {{"temperature", "-0.1"},
                 {"temperature", "\"hot\""},
                 {"temperature", "1e300"},
                 {"temperature", "[0.5]"},
                 {"temperature", "true"},
                 {"top_p", "0"},
                 {"top_p", "1.01"},
                 {"top_p", "{}"},
                 {"top_k", "-2"},
                 {"top_k", "1.5"},
                 {"top_k", "1e18"},
                 {"top_k", "99999999999"},
                 {"min_p", "1"},
                 {"min_p", "-1e-9"},
                 {"repetition_penalty", "0"},
                 {"repetition_penalty", "-1"},
                 {"do_sample", "0"},
                 {"do_sample", "\"no\""}};
    for (const auto& [member, value] : cases) {
        ExpectWarning(OfFolder(fmt::format(R"({{"{}": {}}})", member, value)),
                      "generation_config.json", member);
    }
    for (const char* text : {"", "[]", "nothing", "{\"temperature\": NaN}", "{\"top_p\": 1e999}"}) {
        const SamplingHints hints = OfFolder(text);
        EXPECT_EQ(hints.warnings.size(), 1u) << text;
        EXPECT_FALSE(hints.any());
    }
    // The others still count.
    const SamplingHints rest = OfFolder(R"({"temperature": -1, "top_k": 7})");
    EXPECT_EQ(rest.top_k, 7);
    EXPECT_EQ(rest.warnings.size(), 1u);
}

TEST_F(Sampling, ReadsAGgufFile) {
    const SamplingHints hints = OfFile([](GgufWriter& writer) {
        writer.F32("general.sampling.temp", 0.7f);
        writer.I32("general.sampling.top_k", -1);
        writer.F32("general.sampling.top_p", 0.8f);
        writer.F32("general.sampling.min_p", 0.01f);
        writer.F32("general.sampling.penalty_repeat", 1.1f);
        writer.I32("general.sampling.penalty_last_n", 256);
    });
    EXPECT_EQ(hints.temperature, 0.7) << "the decimal number, not the float32";
    EXPECT_EQ(hints.top_k, 0);
    EXPECT_EQ(hints.top_p, 0.8);
    EXPECT_EQ(hints.min_p, 0.01);
    EXPECT_EQ(hints.repeat_penalty, 1.1);
    EXPECT_EQ(hints.repeat_last, 256);
    EXPECT_EQ(hints.file, path_);
    EXPECT_TRUE(hints.warnings.empty());
}

TEST_F(Sampling, HostileKeysAreIgnored) {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    constexpr float kInf = std::numeric_limits<float>::infinity();
    for (const char* name : {"temp", "top_p", "min_p", "penalty_repeat", "top_k"}) {
        const std::string key = std::string("general.sampling.") + name;
        for (const float bad : {kNan, kInf, -kInf, -3.0f, 1e30f}) {
            ExpectWarning(OfFile([&](GgufWriter& w) { w.F32(key, bad); }), "m.gguf", key);
        }
        ExpectWarning(OfFile([&](GgufWriter& w) { w.String(key, "0.5"); }), "m.gguf", key);
        ExpectWarning(OfFile([&](GgufWriter& w) { w.Bool(key, true); }), "m.gguf", key);
        ExpectWarning(OfFile([&](GgufWriter& w) { w.I32s(key, std::vector<int32_t>{1}); }),
                      "m.gguf", key);
    }
}

TEST_F(Sampling, SurvivesConversionInBothDirections) {
    // A folder's metadata has the hints like a file's.
    support::HfGolden golden;
    const std::string folder = dir_ / "folder";
    std::filesystem::create_directory(folder);
    support::WriteText(folder + "/config.json", golden.Text("llama/config"));
    support::WriteTensors(folder, golden.Tensors("llama"));
    support::WriteText(folder + "/generation_config.json",
                       R"({"temperature": 0.6, "top_k": 20, "top_p": -4})");
    const auto opened = OpenModel(folder);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    EXPECT_EQ((*opened)->meta().F64("general.sampling.temp").value(), 0.6f);
    EXPECT_EQ((*opened)->meta().Int("general.sampling.top_k", 0, 100).value(), 20);
    EXPECT_FALSE((*opened)->meta().Has("general.sampling.top_p"));
    // A file made from it, and a folder made from that.
    const std::string file = dir_ / "m.gguf", again = dir_ / "again";
    ASSERT_TRUE(WriteGguf(**opened, file).ok());
    EXPECT_EQ(ReadSamplingHints(*OpenModel(file).value()).temperature, 0.6);
    const json made = GenerationConfigJson(ReadSamplingHints(*OpenModel(file).value()));
    EXPECT_EQ(made, json::parse(R"({"do_sample": true, "temperature": 0.6, "top_k": 20})"));
    EXPECT_EQ(GenerationConfigJson(SamplingHints{.temperature = 0}),
              json::parse(R"({"do_sample": false})"));
}

TEST_F(Sampling, ExportedFolderHasIt) {
    const std::string tiny = dir_ / "tiny.gguf", folder = dir_ / "out";
    support::WriteTinyGguf(tiny, {.hyper = support::OddHyper()});
    const auto source = OpenModel(tiny).value();
    GgufWriter writer;
    for (const MetaEntry& entry : source->meta().entries()) writer.Copy(entry);
    writer.F32("general.sampling.temp", 0.3f);
    for (const TensorInfo& tensor : source->tensors()) {
        std::vector<std::byte> data(tensor.bytes);
        ASSERT_TRUE(source->ReadRows(tensor, 0, tensor.rows, 0, tensor.cols, data, nullptr).ok());
        writer.Tensor(tensor.name, tensor.dtype,
                      std::span(tensor.dims).first(static_cast<size_t>(tensor.dim_count)),
                      std::move(data));
    }
    const std::string hinted = dir_ / "hinted.gguf";
    ASSERT_TRUE(WriteFile(hinted, writer.File()).ok());
    const Status made = hf::ExportFolder(*OpenModel(hinted).value(), folder, {});
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_EQ(ReadSamplingHints(*OpenModel(folder).value()).temperature, 0.3);
}

}  // namespace
}  // namespace weft::model_files
