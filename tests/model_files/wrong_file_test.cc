// Files and folders that are no model as Weft reads it: the error names what they are, and the next
// step.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "base/file_kind.h"
#include "model/hyper.h"
#include "model_files/gguf_folder.h"
#include "model_files/gguf_writer.h"
#include "model_files/model_file.h"
#include "support/hf_folder.h"
#include "support/temp_dir.h"

namespace weft::model_files {
namespace {

using nlohmann::json;
using support::WriteText;

const std::string kPointer =
    "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 4920734272\n";

class WrongFile : public testing::Test {
  protected:
    // The error of opening `name` and of reading its hyper-parameters.
    std::string ErrorOf(const std::string& name) {
        const auto source = OpenModel(dir_ / name);
        if (!source.ok()) return source.error().message;
        const auto hyper = model::ReadHyper(**source);
        return hyper.ok() ? "" : hyper.error().message;
    }
    void Expect(const std::string& name, std::initializer_list<const char*> words) {
        const std::string error = ErrorOf(name);
        for (const char* word : words) {
            EXPECT_NE(error.find(word), std::string::npos) << word << " in: " << error;
        }
        EXPECT_NE(error.find(dir_ / name), std::string::npos) << error;
    }
    // A GGUF file with one tensor of a type.
    void WriteGgufFile(const std::string& name, const std::string& architecture, uint32_t type = 0,
                       const std::string& kind = "model", uint32_t part = 0, uint32_t parts = 1) {
        GgufWriter writer;
        writer.String("general.architecture", architecture);
        writer.String("general.type", kind);
        if (parts > 1) {
            writer.U16("split.no", static_cast<uint16_t>(part));
            writer.U16("split.count", static_cast<uint16_t>(parts));
        }
        const std::string tensor = "tensor" + std::to_string(part);
        writer.Tensor(tensor, DType::kF32, std::vector<int64_t>{32, 1},
                      std::vector<std::byte>(128));
        std::vector<std::byte> file = writer.File();
        const std::string text(reinterpret_cast<const char*>(file.data()), file.size());
        const size_t at = text.find(tensor) + tensor.size() + 4 + 2 * 8;  // n_dims and dims
        std::memcpy(file.data() + at, &type, sizeof type);
        ASSERT_TRUE(WriteFile(dir_ / name, file).ok());
    }
    void WriteFolder(const std::string& name, const json& config) {
        std::filesystem::create_directories(dir_ / name);
        WriteText(dir_ / (name + "/config.json"), config.dump());
    }

    test::TempDir dir_;
};

TEST_F(WrongFile, APointerOfGitLfsIsNamed) {
    WriteText(dir_ / "model.gguf", kPointer);
    Expect("model.gguf", {"Git LFS", "git lfs pull"});
    const json llama = json::parse(support::HfGolden().Text("llama/config"));
    WriteFolder("weights", llama);
    WriteText(dir_ / "weights/model.safetensors", kPointer);
    Expect("weights", {"Git LFS", "git lfs pull", "model.safetensors"});
    std::filesystem::create_directories(dir_ / "config");
    WriteText(dir_ / "config/config.json", kPointer);
    WriteText(dir_ / "config/model.safetensors", kPointer);
    Expect("config", {"Git LFS", "git lfs pull", "config.json"});
    WriteFolder("index", llama);
    WriteText(dir_ / "index/model.safetensors.index.json", kPointer);
    Expect("index", {"Git LFS", "index.json"});
}

TEST_F(WrongFile, OtherFilesAreNamed) {
    const struct {
        const char *name, *begin, *word;
    } files[] = {{"page.gguf", "<!DOCTYPE html><html>", "web page"},
                 {"page2.gguf", "<HTML><body>", "web page"},
                 {"torch.gguf", "PK\x03\x04 pytorch_model", "PyTorch"},
                 {"old.gguf", "tjgg 123456789", "before GGUF"},
                 {"config.gguf", "{\"model_type\": 1}", "JSON"}};
    for (const auto& [name, begin, word] : files) {
        WriteText(dir_ / name, begin);
        Expect(name, {word, "not a GGUF file"});
    }
    ASSERT_TRUE(WriteFile(dir_ / "x.safetensors", support::SafetensorsFile({})).ok());
    Expect("x.safetensors", {"a safetensors file", "folder"});
    WriteText(dir_ / "noise.gguf", "noise, nothing but noise");
    Expect("noise.gguf", {"not a GGUF file"});
    WriteText(dir_ / "empty.gguf", "");
    EXPECT_NE(ErrorOf("empty.gguf"), "");
    for (size_t size = 0; size < kPointer.size(); ++size) {  // any first bytes
        (void)WrongKind(kPointer.substr(0, size));
    }
}

TEST_F(WrongFile, WhatStandsBesideAModelIsNamed) {
    WriteGgufFile("mmproj-model-f16.gguf", "clip", 0, "mmproj");
    Expect("mmproj-model-f16.gguf", {"image projector", "language model"});
    WriteGgufFile("old-mmproj.gguf", "clip");
    Expect("old-mmproj.gguf", {"image projector"});
    WriteGgufFile("matrix.gguf", "llama", 0, "imatrix");
    Expect("matrix.gguf", {"importance matrix", "weft quantize --imatrix"});
}

TEST_F(WrongFile, TypesThatOthersWriteAreNamed) {
    const struct {
        uint32_t type;
        const char* word;
    } types[] = {{4, "Q4_2"},        {9, "Q8_1"},      {28, "F64"},    {31, "Q4_0_4_4"},
                 {36, "IQ4_NL_4_4"}, {40, "NVFP4"},    {41, "Q1_0"},   {133, "Q6_0"},
                 {139, "IQ4_K"},     {144, "IQ4_KS"},  {155, "IQ4_KT"}, {202, "interleaved"},
                 {339, "interleaved"}};
    for (const auto& [type, word] : types) {
        WriteGgufFile("model.gguf", "llama", type);
        Expect("model.gguf", {word, "not supported", "Q4_K_M"});
    }
    WriteGgufFile("model.gguf", "llama", 77777);
    Expect("model.gguf", {"77777 does not exist"});
}

TEST_F(WrongFile, QuantizationsOfOthersAreNamed) {
    json config = json::parse(support::HfGolden().Text("llama/config"));
    config["quantization"] = {{"group_size", 64}, {"bits", 4}};
    WriteFolder("mlx", config);
    Expect("mlx", {"MLX", "4 bits", "GGUF"});
    config["quantization_config"] = config["quantization"];
    WriteFolder("mlx", config);
    Expect("mlx", {"MLX", "4 bits"});
    config.erase("quantization");
    WriteFolder("none", config);
    Expect("none", {"quant_method"});
    config.erase("quantization_config");
    WriteFolder("modelopt", config);
    const json beside = {{"producer", {{"name", "modelopt"}}},
                         {"quantization", {{"quant_algo", "NVFP4"}}}};
    WriteText(dir_ / "modelopt/hf_quant_config.json", beside.dump());
    Expect("modelopt", {"ModelOpt", "NVFP4", "hf_quant_config.json", "GGUF"});
    config["quantization_config"] = {{"quant_method", "modelopt"}, {"quant_algo", "FP8"}};
    WriteFolder("modelopt", config);
    Expect("modelopt", {"ModelOpt", "FP8", "config.json"});
}

TEST_F(WrongFile, ModelsThatSeeAreNamed) {
    const json vision = {{"model_type", "siglip"}};
    WriteFolder("unknown", {{"model_type", "qwen9_vl"}, {"vision_config", vision}});
    Expect("unknown", {"qwen9_vl", "vision-language"});
    WriteFolder("nameless", {{"hidden_size", 8}});
    Expect("nameless", {"model_type"});
    json text = json::parse(support::HfGolden().Text("llama/config"));
    WriteFolder("idefics3", {{"model_type", "idefics3"},
                             {"architectures", {"Idefics3ForConditionalGeneration"}},
                             {"text_config", text},
                             {"vision_config", vision}});
    std::map<std::string, support::SafeBytes> tensors;
    for (auto& [name, tensor] : support::HfGolden().Tensors("llama")) {
        const bool inner = name.starts_with("model.");
        tensors[inner ? "model.text_model." + name.substr(6) : name] = tensor;
    }
    support::WriteTensors(dir_ / "idefics3", tensors);
    Expect("idefics3", {"'idefics3'", "vision-language", "GGUF"});
}

// ---- Folders of GGUF files ----------------------------------------------------------------------

TEST_F(WrongFile, TheOneModelOfAFolderIsTaken) {
    std::filesystem::create_directories(dir_ / "one");
    WriteGgufFile("one/model-Q4.gguf", "llama");
    WriteGgufFile("one/mmproj-F16.gguf", "clip");
    WriteGgufFile("one/model.imatrix.gguf", "llama");
    WriteText(dir_ / "one/config.json", "{}");  // as repositories of such files have it
    const auto one = OpenModel(dir_ / "one");
    ASSERT_TRUE(one.ok()) << one.error().message;
    EXPECT_EQ((*one)->name(), dir_ / "one/model-Q4.gguf");

    std::filesystem::create_directories(dir_ / "split");
    for (const uint32_t part : {0u, 1u}) {
        const std::string name = fmt::format("split/m-{:05}-of-00002.gguf", part + 1);
        WriteGgufFile(name, "llama", 0, "model", part, 2);
    }
    const auto split = OpenModel(dir_ / "split");
    ASSERT_TRUE(split.ok()) << split.error().message;
    EXPECT_EQ((*split)->tensors().size(), 2u);
    std::filesystem::remove(dir_ / "split/m-00001-of-00002.gguf");
    EXPECT_NE(ErrorOf("split").find("m-00001-of-00002.gguf"), std::string::npos);
}

TEST_F(WrongFile, SeveralModelsOfAFolderAreListed) {
    std::filesystem::create_directories(dir_ / "many");
    for (const char* type : {"Q4_K_M", "Q8_0"}) {
        WriteGgufFile(fmt::format("many/m-{}.gguf", type), "llama");
    }
    Expect("many", {"2 GGUF models", "m-Q4_K_M.gguf", "m-Q8_0.gguf"});
    for (int i = 0; i < 20; ++i) WriteGgufFile(fmt::format("many/n{:02}.gguf", i), "llama");
    Expect("many", {"22 GGUF models", "and 10 more"});
    std::filesystem::create_directories(dir_ / "eyes");
    WriteGgufFile("eyes/mmproj.gguf", "clip");
    EXPECT_NE(ErrorOf("eyes").find("image projector"), std::string::npos);
    std::filesystem::create_directories(dir_ / "empty");
    EXPECT_FALSE(IsGgufFolder(dir_ / "empty"));
    EXPECT_NE(ErrorOf("empty"), "");
}

}  // namespace
}  // namespace weft::model_files
