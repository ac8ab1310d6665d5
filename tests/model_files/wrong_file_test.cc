// Files and folders that are not a model for Weft: the error names their kind and the next step.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "base/file_kind.h"
#include "model/hyper.h"
#include "model_files/folder_kind.h"
#include "model_files/gguf_folder.h"
#include "model_files/gguf_writer.h"
#include "model_files/model_file.h"
#include "model_files/read_tokenizer.h"
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
                 {"gz.gguf", "\x1f\x8b\x08 zipped", "compressed"},
                 {"m.llamafile", "MZqFpD='\n", "llamafile"},
                 {"Modelfile", "# mine\nFROM x", ""},
                 {"Modelfile2", "FROM ./x.gguf", "Modelfile"},
                 {"keras.gguf", "\x89HDF\r\n", "Keras"},
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

TEST_F(WrongFile, CompanionFilesAreNamed) {
    WriteGgufFile("mmproj-model-f16.gguf", "clip", 0, "mmproj");
    Expect("mmproj-model-f16.gguf", {"image projector", "language model"});
    WriteGgufFile("old-mmproj.gguf", "clip");
    Expect("old-mmproj.gguf", {"image projector"});
    WriteGgufFile("matrix.gguf", "llama", 0, "imatrix");
    Expect("matrix.gguf", {"importance matrix", "weft quantize --imatrix"});
}

TEST_F(WrongFile, UnsupportedTensorTypesAreNamed) {
    const struct {
        uint32_t type;
        const char* word;
    } types[] = {{4, "Q4_2"},        {9, "Q8_1"},     {28, "F64"},          {31, "Q4_0_4_4"},
                 {36, "IQ4_NL_4_4"}, {41, "Q1_0"},    {133, "Q6_0"},        {139, "IQ4_K"},
                 {144, "IQ4_KS"},    {155, "IQ4_KT"}, {202, "interleaved"}, {339, "interleaved"}};
    for (const auto& [type, word] : types) {
        WriteGgufFile("model.gguf", "llama", type);
        Expect("model.gguf", {word, "not supported", "Q4_K_M"});
    }
    WriteGgufFile("model.gguf", "llama", 77777);
    Expect("model.gguf", {"77777 does not exist"});
}

TEST_F(WrongFile, UnsupportedQuantizationsAreNamed) {
    json config = json::parse(support::HfGolden().Text("llama/config"));
    const char* missing = "neither model.safetensors";  // the quantization is accepted
    config["quantization"] = {{"group_size", 64}, {"bits", 4}};
    WriteFolder("mlx", config);
    Expect("mlx", {missing});
    config["quantization_config"] = config["quantization"];
    WriteFolder("mlx", config);
    Expect("mlx", {missing});
    config.erase("quantization");
    WriteFolder("mlx", config);
    Expect("mlx", {missing});
    config.erase("quantization_config");
    const std::pair<json, const char*> of_mlx[] = {
        {{{"mode", "mxfp4"}}, missing},
        {{{"mode", "mxfp4"}, {"bits", 4}}, missing},
        {{{"quant_method", "mlx"}, {"bits", 8}}, missing},
        {{{"bits", 4}, {"model.layers.0.mlp.up_proj", {{"bits", 7}}}}, "MLX with 7 bits"},
        {{{"mode", "mxfp6"}}, "MLX's mode 'mxfp6'"},
        {{{"mode", "nvfp4"}, {"group_size", 32}}, "MLX with 4 bits in groups of 32"}};
    for (const auto& [by, word] : of_mlx) {
        config["quantization"] = by;
        WriteFolder("mlx", config);
        Expect("mlx", {word});
    }
    config.erase("quantization");
    const struct {
        json config;
        const char* word;
    } nameless[] = {
        {{{"load_in_4bit", true}, {"bnb_4bit_quant_type", "nf4"}}, missing},
        {{{"load_in_4bit", true}, {"bnb_4bit_quant_type", "af4"}}, "bitsandbytes' 'af4'"},
        {{{"_load_in_8bit", true}}, missing},
        {{{"quant_algo", "FP8"}}, missing},
        {{{"quant_algo", "W4A8_AWQ"}}, "ModelOpt's 'W4A8_AWQ'"},
        {{{"w_bit", 8}, {"zero_point", true}}, "AWQ of 8 bits"},
        {{{"bits", 5}, {"group_size", 128}, {"desc_act", false}}, "GPTQ of 5 bits"},
        {{{"x", 1}}, "quant_method"}};
    for (const auto& [inside, word] : nameless) {
        config["quantization_config"] = inside;
        WriteFolder("nameless", config);
        Expect("nameless", {word});
    }
    config.erase("quantization_config");
    WriteFolder("gptq", config);
    WriteText(dir_ / "gptq/quantize_config.json", R"({"bits": 5, "group_size": 128})");
    Expect("gptq", {"GPTQ of 5 bits", "quantize_config.json"});
    WriteFolder("awq", config);
    WriteText(dir_ / "awq/quant_config.json", R"({"w_bit": 4, "version": "GEMV"})");
    Expect("awq", {"AWQ's layout 'GEMV'", "quant_config.json"});
    WriteFolder("modelopt", config);
    const json beside = {{"producer", {{"name", "modelopt"}}},
                         {"quantization", {{"quant_algo", "NVFP4_SVD"}}}};
    WriteText(dir_ / "modelopt/hf_quant_config.json", beside.dump());
    Expect("modelopt", {"ModelOpt", "NVFP4_SVD", "hf_quant_config.json", "GGUF"});
    config["quantization_config"] = {
        {"quant_method", "modelopt"},
        {"quant_algo", "MIXED_PRECISION"},
        {"quantized_layers", {{"model.layers.0.mlp.up_proj", {{"quant_algo", "INT4_AWQ"}}}}}};
    WriteFolder("modelopt", config);
    Expect("modelopt", {"ModelOpt", "INT4_AWQ", "config.json"});
}

TEST_F(WrongFile, VisionModelsAreNamed) {
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
        tensors[inner ? "model.reader." + name.substr(6) : name] = tensor;
    }
    support::WriteTensors(dir_ / "idefics3", tensors);
    Expect("idefics3", {"'idefics3'", "vision-language", "GGUF"});
}

// Vision models have tensors outside the text part, under any names.
TEST_F(WrongFile, VisionTensorsAreIgnored) {
    const json text = json::parse(support::HfGolden().Text("llama/config"));
    const json whole = {{"model_type", "llava_next"},
                        {"text_config", text},
                        {"vision_config", {{"model_type", "clip_vision_model"}}}};
    for (const std::string prefix : {"model.language_model.", "language_model.model."}) {
        std::map<std::string, support::SafeBytes> tensors;
        for (auto& [name, tensor] : support::HfGolden().Tensors("llama")) {
            const bool inner = name.starts_with("model.");
            tensors[inner ? prefix + name.substr(6) : name] = tensor;
        }
        const auto any = tensors.begin()->second;
        for (const char* name : {"image_newline", "model.image_newline", "model.connector.weight",
                                 "img_projector.0.weight"}) {
            tensors[name] = any;
        }
        WriteFolder("llava", whole);
        support::WriteTensors(dir_ / "llava", tensors);
        EXPECT_EQ(ErrorOf("llava"), "");
        tensors["lm_head.bias"] = any;
        tensors[prefix + "layers.0.unknown"] = any;
        support::WriteTensors(dir_ / "llava", tensors);
        Expect("llava", {"is not supported in a"});
        WriteFolder("llava", text);  // without vision, nothing may be skipped
        tensors.erase("lm_head.bias");
        tensors.erase(prefix + "layers.0.unknown");
        support::WriteTensors(dir_ / "llava", tensors);
        Expect("llava", {"is not supported in a"});
    }
}

TEST_F(WrongFile, QuantizedTensorsAreNamed) {
    const json text = json::parse(support::HfGolden().Text("llama/config"));
    const struct {
        const char *beside, *word;
        std::string dtype;
    } kinds[] = {{"model.embed_tokens.scales", "MLX", "U32"},
                 {"model.embed_tokens.weight.absmax", "bitsandbytes", "U8"},
                 {"model.embed_tokens.SCB", "bitsandbytes", "I8"},
                 {"other", "has dtype U8", "U8"}};
    for (const auto& [beside, word, dtype] : kinds) {
        std::map<std::string, support::SafeBytes> tensors = support::HfGolden().Tensors("llama");
        support::SafeBytes& table = tensors.at("model.embed_tokens.weight");
        const size_t bytes = dtype == "U32" ? 4 : 1;
        table.dtype = dtype;
        table.shape = {4, 8};
        table.data.assign(32 * bytes, std::byte{0});
        tensors[beside] = table;
        WriteFolder("quantized", text);
        support::WriteTensors(dir_ / "quantized", tensors);
        Expect("quantized", {word, "model.embed_tokens.weight"});
    }
}

TEST_F(WrongFile, PlaceholdersOfAnyFileAreNamed) {
    const json llama = json::parse(support::HfGolden().Text("llama/config"));
    const struct {
        std::string text;
        const char* word;
    } texts[] = {{kPointer, "git lfs pull"},
                 {"\xef\xbb\xbf" + kPointer, "git lfs pull"},
                 {"\r\n  <!doctype HTML><html>", "web page"},
                 {"<?xml version=\"1.0\"?><Error>", "error"},
                 {"Entry not found", "error"},
                 {"Invalid username or password.", "error"},
                 {"# xet version 0\n", "Xet"},
                 {std::string(64, '\0'), "zeros"}};
    for (const auto& [text, word] : texts) {
        for (const char* name : {"tokenizer.json", "tokenizer.model", "tokenizer_config.json",
                                 "generation_config.json", "chat_template.jinja",
                                 "special_tokens_map.json", "chat_template.json"}) {
            const std::string folder = std::string("m/") + name;
            WriteFolder(folder, llama);
            support::WriteTensors(dir_ / folder, support::HfGolden().Tensors("llama"));
            WriteText(dir_ / (folder + "/" + name), text);
            if (std::string_view(name) != "tokenizer.model") {
                std::ofstream(dir_ / (folder + "/tokenizer.json"), std::ios::app) << "{}";
            }
            std::string error;
            const auto source = OpenModel(dir_ / folder);
            if (!source.ok()) {
                error = source.error().message;
            } else {
                const auto tokenizer = LoadTokenizer(**source);
                error = tokenizer.ok() ? "" : tokenizer.error().message;
            }
            EXPECT_NE(error.find(word), std::string::npos) << name << ": " << error;
            EXPECT_NE(error.find(name), std::string::npos) << error;
        }
        WriteText(dir_ / "m.gguf", text);
        Expect("m.gguf", {word, "not a GGUF file"});
    }
}

// ---- Folders without a model --------------------------------------------------------------------

TEST_F(WrongFile, FoldersAreNamed) {
    const struct {
        std::vector<const char*> files;
        std::initializer_list<const char*> words;
    } folders[] = {
        {{}, {"empty folder", "weft pull"}},
        {{"adapter_config.json", "adapter.safetensors"}, {"LoRA adapter", "--lora", "o/base"}},
        {{"adapter_config.json", "config.json"}, {"LoRA adapter", "weft merge"}},
        {{"adapter_config.json", "checkpoint-5/config.json"}, {"LoRA adapter"}},
        {{"model_index.json", "unet/config.json"}, {"diffusers", "language models"}},
        {{"params.json", "consolidated.00.pth", "tokenizer.model"},
         {"Meta", "Hugging Face format"}},
        {{"consolidated.safetensors", "config.json"}, {"Mistral", "GGUF"}},
        {{"Q4_K_M/m.gguf", "Q8_0/m-00001-of-00002.gguf", "README.md"}, {"/Q4_K_M, ", "/Q8_0"}},
        {{"snapshots/abc/config.json", "refs/main"}, {"subfolders", "snapshots/abc"}},
        {{"checkpoint-500/config.json", "trainer_state.json"}, {"checkpoint-500"}},
        {{"sha256-aa", "sha256-bb"}, {"Ollama", "ollama show"}},
        {{"blobs/sha256-aa", "manifests/x"}, {"Ollama", "blobs/sha256-aa"}},
        {{"config.json", "pytorch_model.bin"}, {"pytorch_model.bin", "PyTorch 1.6", "safetensors"}},
        {{"config.json", "model.pth"}, {"PyTorch", "model.pth", "save_pretrained"}},
        {{"model.pt"}, {"PyTorch", "model.pt"}},
        {{"config.json", "x.onnx"}, {"ONNX", "GGUF"}},
        {{"config.json", "m-00001-of-00002.safetensors"},
         {"without model.safetensors.index.json", "m-00001"}},
        {{"config.json", "gptq_model-4bit.safetensors"}, {"Rename", "gptq_model-4bit"}},
        {{"model.safetensors"}, {"without a config.json"}},
        {{"config.json", "model.safetensors.incomplete"}, {"incomplete download"}},
        {{"config.json", "tokenizer.json"}, {"without its weights"}},
        {{"tokenizer.json", "README.md"}, {"tokenizer without a model"}},
        {{"README.md"}, {"no config.json and no GGUF file"}}};
    const std::string llama = support::HfGolden().Text("llama/config");
    size_t number = 0;
    for (const auto& [files, words] : folders) {
        const std::string folder = "folder" + std::to_string(number++);
        std::filesystem::create_directories(dir_ / folder);
        for (const std::string name : files) {
            const std::filesystem::path path = dir_ / (folder + "/" + name);
            std::filesystem::create_directories(path.parent_path());
            const bool config = name.ends_with("config.json") && !name.starts_with("adapter");
            const bool adapter = name == "adapter_config.json";
            WriteText(path, config    ? llama
                            : adapter ? R"({"base_model_name_or_path": "o/base"})"
                                      : "GGUF or another text");
        }
        Expect(folder, words);
    }
    EXPECT_EQ(FolderKind(dir_ / "nosuch").find("LoRA"), std::string::npos);
    WriteText(dir_ / "folder1/adapter_config.json", "[");  // broken, but still recognized
    Expect("folder1", {"LoRA adapter", "its base model"});
}

// Files that opening a model reads are named; others are not missed.
TEST_F(WrongFile, LinksToMissingFilesAreNamed) {
    const support::HfGolden golden;
    const std::pair<const char*, bool> files[] = {{"config.json", true},
                                                  {"chat_template.jinja", true},
                                                  {"chat_template.json", true},
                                                  {"tokenizer_config.json", true},
                                                  {"hf_quant_config.json", true},
                                                  {"model.safetensors", true},
                                                  {"model.safetensors.index.json", false},
                                                  {"pytorch_model.bin", false},
                                                  {"tokenizer.model", false},
                                                  {"vocab.json", false},
                                                  {"notes.json", false}};
    for (const auto& [name, read] : files) {
        const std::string folder = std::string("links-") + name;
        WriteFolder(folder, json::parse(golden.Text("llama/config")));
        support::WriteTensors(dir_ / folder, golden.Tensors("llama"));
        std::filesystem::remove(dir_ / (folder + "/" + name));
        std::filesystem::create_symlink("../blobs/gone", dir_ / (folder + "/" + name));
        if (read) {
            Expect(folder, {name, "../blobs/gone, which does not exist", "cp -L"});
        } else {
            EXPECT_EQ(ErrorOf(folder), "") << name;
        }
    }
    std::filesystem::create_symlink("gone.gguf", dir_ / "link.gguf");
    Expect("link.gguf", {"is a link to gone.gguf, which does not exist"});
}

// ---- Folders of GGUF files ----------------------------------------------------------------------

TEST_F(WrongFile, TheOnlyModelOfAFolderIsUsed) {
    std::filesystem::create_directories(dir_ / "one");
    WriteGgufFile("one/model-Q4.gguf", "llama");
    WriteGgufFile("one/mmproj-F16.gguf", "clip");
    WriteGgufFile("one/model.imatrix.gguf", "llama");
    WriteText(dir_ / "one/config.json", "{}");  // as in repositories of such files
    const auto one = OpenModel(dir_ / "one");
    ASSERT_TRUE(one.ok()) << one.error().message;
    EXPECT_EQ((*one)->name(), dir_ / "one/model-Q4.gguf");
    std::filesystem::rename(dir_ / "one/model-Q4.gguf", dir_ / "one/Model-Q4.GGUF");
    const auto upper = OpenModel(dir_ / "one");
    ASSERT_TRUE(upper.ok()) << upper.error().message;
    EXPECT_EQ((*upper)->name(), dir_ / "one/Model-Q4.GGUF");

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
