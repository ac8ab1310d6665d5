// Models written as Hugging Face folders and read back: the same tensors, metadata and token ids.
// (hf_export_test.py checks that transformers computes the same with them.)
#include "model_files/hf/export.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>

#include "base/output_file.h"
#include "model_files/gguf.h"
#include "model_files/hf/folder.h"
#include "model_files/read_tokenizer.h"
#include "support/golden_models.h"
#include "support/hf_folder.h"
#include "support/hf_quantize.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "tokenizer/families.h"
#include "tokenizer/open.h"
#include "tokenizer/write_json.h"

namespace weft::support {
namespace {

using Json = nlohmann::json;
using model_files::ModelSource;
using model_files::TensorInfo;
using model_files::hf::ExportOptions;
using model_files::hf::SafeType;

std::unique_ptr<ModelSource> Open(const std::string& path) {
    auto opened = model_files::OpenModel(path);
    EXPECT_TRUE(opened.ok()) << opened.error().message;
    WEFT_CHECK(opened.ok());
    return std::move(*opened);
}

GoldenCase CaseOf(const std::string& name) {
    for (const GoldenCase& each : GoldenCases()) {
        if (each.name == name) return each;
    }
    WEFT_CHECK(false);
    return {};
}

const std::string kTokenizers = support::TestData("/tokenizer/");

nlohmann::json ReadJson(const std::string& path) {
    const auto text = ReadTextFile(path);
    EXPECT_TRUE(text.ok()) << path;
    return text.ok() ? nlohmann::json::parse(*text) : nlohmann::json();
}

tokenizer::TokenizerData DataOf(const std::string& name) {
    const auto vocabulary = ReadJson(kTokenizers + name + ".json").at("vocabulary");
    tokenizer::TokenizerData data;
    data.model = vocabulary.at("model");
    data.pre = vocabulary.value("pre", "");
    data.tokens = vocabulary.at("tokens").get<std::vector<std::string>>();
    data.types = vocabulary.at("types").get<std::vector<int32_t>>();
    data.merges = vocabulary.value("merges", std::vector<std::string>());
    data.scores = vocabulary.value("scores", std::vector<float>());
    data.bos = vocabulary.value("bos", -1);
    data.eos = vocabulary.value("eos", -1);
    return data;
}

// Llama with a bias on each matrix of the MLP, or with a SentencePiece vocabulary.
void WriteLlama(const std::string& name, const std::string& path) {
    TinyFile file{.hyper = OddHyper()};
    file.hyper.hidden = 144;
    file.hyper.ffn = 96;
    file.hyper.head_dim = file.hyper.rotary_dim = 16;
    if (name == "llamaSpm") {
        file.tokenizer = DataOf("spm");
        file.tokenizer->add_bos = true;
        file.hyper.vocab = std::ssize(file.tokenizer->tokens);
    }
    for (int layer = 0; name == "llamaMlpBias" && layer < file.hyper.layers; ++layer) {
        for (const auto& [module, size] : {std::pair{"gate", 96}, {"up", 96}, {"down", 144}}) {
            std::vector<float> bias;
            for (int i = 0; i < size; ++i) bias.push_back(0.1f * std::sin(1.0f + i + layer));
            file.vectors[fmt::format("blk.{}.ffn_{}.bias", layer, module)] = bias;
        }
    }
    WriteTinyGguf(path, file);
}

// A golden model, or a small one with experts, biases or another vocabulary.
void WriteModel(const std::string& name, const std::string& path) {
    if (name == "llamaMlpBias" || name == "llamaSpm") return WriteLlama(name, path);
    const bool experts = name == "mixtral" || name.ends_with("moe");
    if (!experts) return WriteGolden(CaseOf(name), path);
    TinyFile file{.hyper = OddHyper(name == "mixtral" ? "llama" : name)};
    model::Hyper& h = file.hyper;
    h.hidden = 144;
    h.ffn = 96;
    h.head_dim = h.rotary_dim = 16;
    h.moe.experts = 5;
    h.moe.used = 2;
    h.moe.ffn = 96;
    h.moe.shared_ffn = name == "qwen2moe" ? 64 : 0;
    WriteTinyGguf(path, file);
}

// tolerance: the relative rounding error of a number.
void ExpectSame(const ModelSource& a, const ModelSource& b, double tolerance) {
    EXPECT_EQ(a.tensors().size(), b.tensors().size());
    for (const TensorInfo& tensor : a.tensors()) {
        SCOPED_TRACE(tensor.name);
        const TensorInfo* other = b.FindTensor(tensor.name);
        ASSERT_NE(other, nullptr);
        ASSERT_EQ(tensor.rows, other->rows);
        ASSERT_EQ(tensor.cols, other->cols);
        const auto left = a.ReadFloats(tensor), right = b.ReadFloats(*other);
        ASSERT_TRUE(left.ok() && right.ok());
        for (size_t i = 0; i < left->size(); ++i) {
            const double x = (*left)[i], y = (*right)[i];
            ASSERT_TRUE(std::abs(x - y) <= tolerance * std::abs(x)) << i << ": " << x << ", " << y;
        }
    }
    for (const model_files::MetaEntry& entry : a.meta().entries()) {
        const std::string key(entry.key);
        const bool of_tokenizer = key.starts_with("tokenizer.") || key.starts_with("general.");
        if (of_tokenizer || key.ends_with("scaling.type")) continue;
        if (key.ends_with("yarn_truncate") || key.ends_with("weights_norm")) {
            EXPECT_EQ(a.meta().Bool(key).value(), b.meta().Bool(key).value());
            continue;
        }
        SCOPED_TRACE(key);
        if (entry.type == model_files::MetaType::kString) {
            EXPECT_EQ(a.meta().String(key).value(), b.meta().String(key).value());
            continue;
        }
        if (entry.type == model_files::MetaType::kArray) {
            EXPECT_EQ(a.meta().Ints(key).value(), b.meta().Ints(key).value());
            continue;
        }
        const auto left = a.meta().F64(key), right = b.meta().F64(key);
        ASSERT_TRUE(left.ok() && right.ok()) << (left.ok() ? right : left).error().message;
        EXPECT_EQ(static_cast<float>(*left), static_cast<float>(*right));
    }
}

class HfExport : public testing::TestWithParam<const char*> {};

TEST_P(HfExport, AGgufFileBecomesTheSameModel) {
    const test::TempDir dir;
    const std::string gguf = dir / "model.gguf";
    WriteModel(GetParam(), gguf);
    const auto source = Open(gguf);
    const struct {
        SafeType type;
        double tolerance;
        uint64_t shard_bytes;
        int threads;
    } ways[] = {{SafeType::kF32, 0, 1'000'000'000, 1},
                {SafeType::kF32, 0, 100'000, 3},
                {SafeType::kBF16, 0x1p-8, 1'000'000'000, 2}};  // half a unit of 8 bits
    const std::string folder = dir / "hf";  // the same folder: existing files are replaced
    for (const auto& [type, tolerance, shard_bytes, threads] : ways) {
        ExportOptions options{
            .type = type, .shard_bytes = shard_bytes, .replace = true, .threads = threads};
        const Status done = model_files::hf::ExportFolder(*source, folder, options);
        ASSERT_TRUE(done.ok()) << done.error().message;
        const bool sharded = std::filesystem::exists(folder + "/model.safetensors.index.json");
        EXPECT_EQ(sharded, shard_bytes < 1'000'000);
        const auto written = Open(folder);
        ExpectSame(*source, *written, tolerance);
        // Export again from the folder, with its config.json and tokenizer.
        ASSERT_TRUE(model_files::hf::ExportFolder(*written, dir / "again", options).ok());
        const auto again = Open(dir / "again");
        ExpectSame(*written, *again, 0);
        const auto ours = model_files::LoadTokenizer(*source);
        const auto theirs = model_files::LoadTokenizer(*again);
        ASSERT_TRUE(ours.ok() && theirs.ok()) << theirs.error().message;
        const std::string text = "It's 12345 words,\n\n and <|im_end|> more";
        for (const bool special : {false, true}) {
            EXPECT_EQ((*ours)->Encode(text, {.parse_special = special}),
                      (*theirs)->Encode(text, {.parse_special = special}));
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Families, HfExport,
                         testing::Values("llama", "llamaTied", "llamaLinear", "llamaMlpBias",
                                         "llamaSpm", "mistral", "qwen2", "qwen2Yarn", "qwen3Tied",
                                         "mixtral", "qwen2moe", "qwen3moe", "granite", "olmo2",
                                         "olmo3", "smollm3", "phi3Short", "phi3Long", "gemma2",
                                         "gemma3"),
                         [](const auto& each) { return each.param; });

// Become GGUF files only: layers that are converted in ways that no rule describes, and texts of
// multimodal models that have no class of their own.
const std::set<std::string> kNoFolder = {"apertus",
                                         "axk1",
                                         "bamba",
                                         "biogpt",
                                         "bloom",
                                         "codegen",
                                         "commandR",
                                         "commandRPlus",
                                         "dbrx",
                                         "deci",
                                         "deepseekV32",
                                         "deepseekV32Top",
                                         "deepseekV3Halves",
                                         "deepseekV4",
                                         "exaone",
                                         "falcon",
                                         "falconAlibi",
                                         "falconH1",
                                         "falconH1Biases",
                                         "falconH1Normed",
                                         "falconMamba",
                                         "falconWide",
                                         "gemma3n",
                                         "gemma4Small",
                                         "gemma4Unified",
                                         "gemma4Wide",
                                         "glm47flash",
                                         "glm4v",
                                         "glm4vMoe",
                                         "glmDsa",
                                         "glmDsaTop",
                                         "gpt2",
                                         "gptBigcode",
                                         "gptNeo",
                                         "gptNeox",
                                         "gptNeoxJapanese",
                                         "gptNeoxSerial",
                                         "gptj",
                                         "graniteHybrid",
                                         "graniteHybridMoe",
                                         "graniteMicro",
                                         "graniteMoe",
                                         "graniteMoeShared",
                                         "graniteMoeWindows",
                                         "glm5Next",
                                         "glm5NextTop",
                                         "hyV4",
                                         "hyV4Top",
                                         "internlm2",
                                         "jamba",
                                         "jambaDense",
                                         "kimiK25",
                                         "kimiLinear",
                                         "lfm2",
                                         "lfm2moe",
                                         "ling2",
                                         "ling3",
                                         "llama4",
                                         "llama4Dense",
                                         "longcatFlash",
                                         "mamba",
                                         "mamba2",
                                         "mimo2",
                                         "minicpm3",
                                         "minimaxM3",
                                         "minimaxM3Top",
                                         "ministral3",
                                         "mistral4",
                                         "mistralLarge4",
                                         "modernBertDecoder",
                                         "mpt",
                                         "museGlimmer",
                                         "nemotronH",
                                         "nemotronHLatent",
                                         "nemotronHMoe",
                                         "olmoHybrid",
                                         "olmoHybridRope",
                                         "openaiGpt",
                                         "opt",
                                         "optBehind",
                                         "persimmon",
                                         "phi",
                                         "phiNormed",
                                         "qwen25vl",
                                         "qwen2vl",
                                         "qwen35",
                                         "qwen35moe",
                                         "qwen3next",
                                         "qwen3vl",
                                         "qwen3vlmoe",
                                         "stablelm",
                                         "stablelmWide",
                                         "step35",
                                         "xglm",
                                         "youtu"};

// The header of the file of a folder with one file.
Json HeaderOf(const std::string& folder) {
    const std::string text = ReadTextFile(folder + "/model.safetensors").value();
    uint64_t length = 0;
    std::memcpy(&length, text.data(), sizeof length);
    return Json::parse(text.substr(sizeof length, length));
}

// The names of its tensors.
std::set<std::string> NamesIn(const std::string& folder) {
    std::set<std::string> names;
    const Json header = HeaderOf(folder);
    for (const auto& [name, tensor] : header.items()) {
        if (name != "__metadata__") names.insert(name);
    }
    return names;
}

class HfExportFolder : public testing::TestWithParam<std::string> {};

TEST_P(HfExportFolder, AFolderOfAnyFamilyBecomesTheSameModel) {
    const test::TempDir dir;
    const std::string folder = dir / "model",
                      name = std::filesystem::path(GetParam()).filename().string();
    const HfGolden golden(TestData(GetParam() + ".safetensors"));
    golden.Write(name, folder);
    WriteText(folder + "/tokenizer.json", SmallTokenizer());
    const auto source = Open(folder);
    const ExportOptions options{.type = SafeType::kF32, .threads = 1};
    const Status done = model_files::hf::ExportFolder(*source, dir / "again", options);
    EXPECT_EQ(done.ok(), !kNoFolder.contains(name)) << (done.ok() ? "" : done.error().message);
    if (!done.ok()) return;
    ExpectSame(*source, *Open(dir / "again"), 0);
    const Json own = HeaderOf(folder), again = HeaderOf(dir / "again");
    for (const std::string& tensor : NamesIn(dir / "again")) {
        ASSERT_TRUE(own.contains(tensor)) << tensor;
        EXPECT_EQ(again[tensor]["shape"], own[tensor]["shape"]) << tensor;
    }
}

std::vector<std::string> AllFolders() {
    std::vector<std::string> all;
    for (const std::string& name : CasesIn("/families")) all.push_back("/families/" + name);
    for (const std::string& name : CasesIn("/hf")) all.push_back("/hf/" + name);
    return all;
}

INSTANTIATE_TEST_SUITE_P(All, HfExportFolder, testing::ValuesIn(AllFolders()),
                         [](const auto& each) {
                             return std::filesystem::path(each.param).filename().string();
                         });

// PlanFolder and ExportFolder refuse the same models, before anything is written.
void ExpectRefused(const std::string& path, const std::string& expected) {
    SCOPED_TRACE(path);
    const test::TempDir dir;
    const auto source = Open(path);
    const auto checked = model_files::hf::PlanFolder(*source, dir / "hf", SafeType::kF32);
    ASSERT_FALSE(checked.ok());
    EXPECT_EQ(checked.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(checked.error().message.find(expected), std::string::npos) << checked.error().message;
    EXPECT_NE(checked.error().message.find(path), std::string::npos) << checked.error().message;
    EXPECT_NE(checked.error().message.find("gguf"), std::string::npos) << checked.error().message;
    const Status done = model_files::hf::ExportFolder(*source, dir / "hf", {});
    ASSERT_FALSE(done.ok());
    EXPECT_EQ(done.error().message, checked.error().message);
    EXPECT_FALSE(std::filesystem::exists(dir / "hf"));
}

TEST(HfExportErrors, TensorsWithoutAnEquivalentAreNamed) {
    const test::TempDir dir;
    const std::string path = dir / "model.gguf";
    WriteGolden(CaseOf("gemma4"), path);
    ExpectRefused(path, "architecture 'gemma4'");
    GoldenCase scaled = CaseOf("llama");
    scaled.numbers = {{"attention.scale", 0.5}};
    WriteGolden(scaled, path);
    ExpectRefused(path, "attention.scale");
    GoldenCase yarn = CaseOf("qwen2Yarn");
    yarn.numbers["rope.scaling.attn_factor"] = 1.5;
    WriteGolden(yarn, path);
    ExpectRefused(path, "yarn");
    GoldenCase windowed = CaseOf("mistral");
    windowed.windowed = {true, false, true};
    WriteGolden(windowed, path);
    ExpectRefused(path, "windows in only some layers");
    TinyFile file{.hyper = OddHyper()};
    file.vectors["blk.1.ffn_up.bias"] = std::vector<float>(1024, 0.5f);
    WriteTinyGguf(path, file);
    ExpectRefused(path, "a bias of ffn_up in 1 of 3 layers");
    file.vectors.clear();
    for (const char* architecture : {"qwen2", "olmo2"}) {
        file.hyper = OddHyper(architecture);
        for (int layer = 0; layer < 3; ++layer) {
            for (const char* module : {"gate", "up", "down"}) {
                const size_t size = module == std::string("down") ? 256 : 1024;
                file.vectors[fmt::format("blk.{}.ffn_{}.bias", layer, module)] =
                    std::vector<float>(size, 0.5f);
            }
        }
        WriteTinyGguf(path, file);
        ExpectRefused(path, "biases in the MLP");
    }
    file = {.hyper = OddHyper()};
    file.tokenizer = tokenizer::TinyBytePair({"h e"});
    file.tokenizer->pre = "deepseek-v3";
    WriteTinyGguf(path, file);
    ExpectRefused(path, "deepseek-v3");
}

TEST(HfExportErrors, StopsAndTheModelsOwnFolder) {
    const test::TempDir dir;
    WriteGolden(CaseOf("llama"), dir / "llama.gguf");
    const auto source = Open(dir / "llama.gguf");
    const std::atomic<bool> stop = true;
    ExportOptions options;
    options.stop = &stop;
    EXPECT_EQ(model_files::hf::ExportFolder(*source, dir / "stopped", options).error().code,
              ErrorCode::kCancelled);
    EXPECT_FALSE(std::filesystem::exists(dir / "stopped/model.safetensors"));
    ASSERT_TRUE(model_files::hf::ExportFolder(*source, dir / "hf", {}).ok());
    EXPECT_EQ(model_files::hf::ExportFolder(*Open(dir / "hf"), dir / "hf/../hf", {}).error().code,
              ErrorCode::kDenied);
}

// More heads than columns; more layers than any model has.
TEST(HfExportErrors, ImpossibleSizesAreRefused) {
    const test::TempDir dir;
    for (const auto& [layers, heads] : {std::pair{1u, 4u}, std::pair{2147483647u, 1u}}) {
        model_files::GgufWriter writer;
        writer.String("general.architecture", "qwen3moe");
        writer.U32("qwen3moe.block_count", layers);
        writer.U32("qwen3moe.feed_forward_length", 4);
        writer.U32("qwen3moe.attention.head_count", heads);
        writer.U32("qwen3moe.expert_count", 2);
        writer.U32("qwen3moe.expert_used_count", 1);
        const int64_t cols = heads == 4 ? 1 : 4;
        const auto add = [&](const char* name, const std::vector<int64_t>& dims) {
            writer.Tensor(name, DType::kF32, dims, std::vector<std::byte>(16 * sizeof(float)));
        };
        add("token_embd.weight", {cols, 16 / cols});
        add("output_norm.weight", {16});
        add("blk.0.attn_q.weight", {cols, 16 / cols});
        ASSERT_TRUE(WriteFile(dir / "odd.gguf", writer.File()).ok());
        const Status done = model_files::hf::ExportFolder(*Open(dir / "odd.gguf"), dir / "hf", {});
        ASSERT_FALSE(done.ok());
        EXPECT_EQ(done.error().message.find("bug"), std::string::npos) << done.error().message;
    }
}

// A case's folder whose config.json has other keys, and more files.
struct OwnFolder {
    OwnFolder(const std::string& name, const Json& keys,
              std::map<std::string, SafeBytes> more = {}) {
        const std::string file = TestData("/families/" + name + ".safetensors");
        const HfGolden golden = std::filesystem::exists(file) ? HfGolden(file) : HfGolden();
        std::map<std::string, SafeBytes> tensors = golden.Tensors(name);
        tensors.merge(more);
        Json config = Json::parse(golden.Text(name + "/config"));
        config.update(keys);
        std::filesystem::create_directory(dir / "model");
        WriteTensors(dir / "model", tensors);
        WriteText(dir / "model/config.json", config.dump());
        WriteText(dir / "model/tokenizer.json", SmallTokenizer());
    }
    Status Export(SafeType type) {
        return model_files::hf::ExportFolder(*Open(dir / "model"), dir / "hf", {.type = type});
    }
    test::TempDir dir;
};

// Folders whose export would lack a part of the model, or differ from it.
TEST(HfExportFolders, PartsThatAreNotWrittenAreNamed) {
    Json text = Json::parse(HfGolden().Text("qwen2vl/config"));
    const Json keys = text.at("text_config");
    text.update(keys);
    text["model_type"] = "qwen2_vl";  // as in published folders
    text["text_config"] = nullptr;
    OwnFolder seeing("qwen2vl", text);
    EXPECT_NE(seeing.Export(SafeType::kF32).error().message.find("vision_config"),
              std::string::npos);
    OwnFolder scaled("trinity", {{"mup_enabled", false}});
    EXPECT_NE(scaled.Export(SafeType::kF32).error().message.find("afmoe"), std::string::npos);
}

TEST(HfExportFolders, ConfigsAreThoseOfPlainWeights) {
    const HfGolden golden;
    const auto head = golden.Tensors("llama").at("lm_head.weight");
    OwnFolder folder("llama",
                     {{"compression_config", {{"quant_method", "bitsandbytes"}}},
                      {"architectures", nullptr},
                      {"tie_word_embeddings", true}},
                     {{"lm_head.weight", head}});
    WriteText(folder.dir / "model/modeling_own.py", "# code");
    ASSERT_TRUE(folder.Export(SafeType::kF32).ok());
    const Json config = ReadJson(folder.dir / "hf/config.json");
    EXPECT_FALSE(config.contains("compression_config"));
    EXPECT_EQ(config.at("tie_word_embeddings"), false);
    EXPECT_EQ(config.at("architectures"), Json::array({"LlamaForCausalLM"}));
    EXPECT_EQ(ReadTextFile(folder.dir / "hf/modeling_own.py").value(), "# code");
    for (const auto& [name, expected] :
         {std::pair{"llama", "LlamaForSequenceClassification"}, std::pair{"arcee", ""}}) {
        const int64_t columns = Open(OwnFolder(name, Json::object()).dir / "model")
                                    ->FindTensor("token_embd.weight")
                                    ->cols;
        const SafeBytes one = {"F32", {1, columns}, std::vector<std::byte>(4 * size_t(columns))};
        OwnFolder scores(name, {{"architectures", Json::array()}}, {{"score.weight", one}});
        const Status done = scores.Export(SafeType::kF32);
        ASSERT_EQ(done.ok(), *expected != 0);
        if (done.ok()) {
            EXPECT_EQ(ReadJson(scores.dir / "hf/config.json")["architectures"][0], expected);
        } else {
            EXPECT_NE(done.error().message.find("architectures"), std::string::npos);
        }
    }
}

// Their bytes count as used space.
TEST(HfExportFolders, PartsOfKilledExportsAreRemoved) {
    OwnFolder folder("glm4moe", Json::object());
    const std::string out = folder.dir / "hf";
    std::filesystem::create_directory(out);
    for (const char* name : {"model-00002-of-00003.safetensors", "model.safetensors", "own"}) {
        WriteText(fmt::format("{}/{}.part", out, name), "some bytes");
    }
    const auto other = OutputFile::Create(out + "/config.json", 4, true);  // is being written
    EXPECT_EQ(folder.Export(SafeType::kF32).error().code, ErrorCode::kDenied);
    EXPECT_FALSE(std::filesystem::exists(out + "/model-00002-of-00003.safetensors.part"));
    EXPECT_TRUE(std::filesystem::exists(out + "/own.part"));
    EXPECT_TRUE(std::filesystem::exists(out + "/config.json.part"));
}

// The result has the file that FindTokenizerFile finds, whatever its name.
TEST(HfExportFolders, EachTokenizerFileIsCopied) {
    for (const std::string name :
         {"tokenizer.json", "tiktoken.model", "tokenizer.model", "spiece.model",
          "sentencepiece.bpe.model", "qwen.tiktoken", "tekken.json"}) {
        OwnFolder folder("glm4moe", Json::object());
        std::filesystem::remove(folder.dir / "model/tokenizer.json");
        WriteText(folder.dir / "model/" + name, "a tokenizer");
        const Status done = folder.Export(SafeType::kF32);
        ASSERT_TRUE(done.ok()) << done.error().message;
        EXPECT_TRUE(std::filesystem::exists(folder.dir / "hf/" + name)) << name;
    }
}

// The tokenizer of another model would be read beside the new files.
TEST(HfExportFolders, AnotherModelsTokenizerIsRemoved) {
    for (const std::string name :
         {"tokenizer.json", "tiktoken.model", "tokenizer.model", "spiece.model",
          "sentencepiece.bpe.model", "qwen.tiktoken", "tekken.json"}) {
        OwnFolder folder("glm4moe", Json::object());
        std::filesystem::remove(folder.dir / "model/tokenizer.json");
        const std::string out = folder.dir / "hf";
        std::filesystem::create_directory(out);
        for (const std::string& old : {name, name + ".part", std::string("own.txt")}) {
            WriteText(out + "/" + old, "of another model");
        }
        const Status done = model_files::hf::ExportFolder(
            *Open(folder.dir / "model"), out, {.type = SafeType::kF32, .replace = true});
        ASSERT_TRUE(done.ok()) << done.error().message;
        std::set<std::string> files;
        for (const auto& entry : std::filesystem::directory_iterator(out)) {
            files.insert(entry.path().filename());
        }
        EXPECT_EQ(files, (std::set<std::string>{"config.json", "model.safetensors", "own.txt"}))
            << name;
    }
}

// All chat templates of a folder, and of a GGUF file made from one, reach the new folder.
TEST(HfExportFolders, EachChatTemplateIsCopied) {
    OwnFolder folder("llama", Json::object());
    WriteText(folder.dir / "model/chat_template.jinja", "D");
    std::filesystem::create_directories(folder.dir / "model/additional_chat_templates");
    WriteText(folder.dir / "model/additional_chat_templates/tool_use.jinja", "T");
    WriteText(folder.dir / "model/additional_chat_templates/a-b.jinja", "AB");
    const auto source = Open(folder.dir / "model");
    const model_files::Metadata& meta = source->meta();
    EXPECT_EQ(meta.String("tokenizer.chat_template").value(), "D");
    EXPECT_EQ(meta.String("tokenizer.chat_template.tool_use").value(), "T");
    EXPECT_EQ(meta.String("tokenizer.chat_template.a_b").value(), "AB");
    EXPECT_EQ(meta.Strings("tokenizer.chat_templates").value(),
              (std::vector<std::string_view>{"a_b", "tool_use"}));
    std::filesystem::create_directories(folder.dir / "hf/additional_chat_templates");
    WriteText(folder.dir / "hf/additional_chat_templates/old.jinja", "of another model");
    const Status done = model_files::hf::ExportFolder(*source, folder.dir / "hf",
                                                      {.type = SafeType::kF32, .replace = true});
    ASSERT_TRUE(done.ok()) << done.error().message;
    EXPECT_EQ(tokenizer::ReadChatTemplates(folder.dir / "hf").value(),
              (tokenizer::ChatTemplates{{"a-b", "AB"}, {"default", "D"}, {"tool_use", "T"}}));
    support::TinyFile file{.hyper = support::TrainHyper()};
    file.chat_template = "D";
    file.tool_template = "T";
    WriteTinyGguf(folder.dir / "m.gguf", file);
    ASSERT_TRUE(model_files::hf::ExportFolder(*Open(folder.dir / "m.gguf"), folder.dir / "of_gguf",
                                              {.type = SafeType::kF32})
                    .ok());
    EXPECT_EQ(tokenizer::ReadChatTemplates(folder.dir / "of_gguf").value(),
              (tokenizer::ChatTemplates{{"default", "D"}, {"tool_use", "T"}}));
}

// As in transformers: rounding would change the choice of experts.
TEST(HfExportFolders, RoutersStayF32) {
    OwnFolder folder("glm4moe", Json::object());
    for (const SafeType type : {SafeType::kBF16, SafeType::kF16}) {
        std::filesystem::remove_all(std::string(folder.dir / "hf"));
        const Status done = folder.Export(type);
        ASSERT_TRUE(done.ok()) << done.error().message;
        const auto source = Open(folder.dir / "model"), again = Open(folder.dir / "hf");
        for (const char* name : {"blk.1.ffn_gate_inp.weight", "blk.1.exp_probs_b.bias"}) {
            const TensorInfo* tensor = source->FindTensor(name);
            ASSERT_NE(tensor, nullptr);
            EXPECT_EQ(again->ReadFloats(*again->FindTensor(name)).value(),
                      source->ReadFloats(*tensor).value());
        }
        const Json header = HeaderOf(folder.dir / "hf");
        EXPECT_EQ(header["model.layers.1.mlp.gate.weight"]["dtype"], "F32");
        EXPECT_EQ(header["model.layers.1.self_attn.q_proj.weight"]["dtype"],
                  std::string(SafeTypeName(type)));
    }
}

// Llama 3's RoPE scaling, of which a GGUF file has only the divisors.
TEST(HfExportConfig, Llama3ScalingRoundTrips) {
    const test::TempDir dir;
    const std::string folder = dir / "hf", gguf = dir / "model.gguf";
    GoldenCase plain = CaseOf("llama");
    plain.rope_base = 500000;
    WriteGolden(plain, gguf);
    ASSERT_TRUE(model_files::hf::ExportFolder(*Open(gguf), folder, {.type = SafeType::kF32}).ok());
    for (const double factor : {8.0, 32.0}) {
        auto config = nlohmann::json::parse(ReadTextFile(folder + "/config.json").value());
        config["rope_scaling"] = {{"rope_type", "llama3"},
                                  {"factor", factor},
                                  {"low_freq_factor", 1.0},
                                  {"high_freq_factor", 4.0},
                                  {"original_max_position_embeddings", 8192}};
        WriteText(folder + "/config.json", config.dump());
        ASSERT_TRUE(model_files::WriteGguf(*Open(folder), gguf).ok());
        const auto source = Open(gguf);
        ASSERT_NE(source->FindTensor("rope_freqs.weight"), nullptr);
        const auto made = model_files::hf::ExportConfig(*source, SafeType::kF32);
        ASSERT_TRUE(made.ok()) << made.error().message;
        EXPECT_EQ(made->at("rope_scaling"), config["rope_scaling"]);
    }
    GoldenCase other = CaseOf("llama3Rope");  // factors of another scaling
    WriteGolden(other, gguf);
    const auto made = model_files::hf::ExportConfig(*Open(gguf), SafeType::kF32);
    ASSERT_FALSE(made.ok());
    EXPECT_NE(made.error().message.find("rope_freqs.weight"), std::string::npos);
}

// Adapters have the rows of these matrices in another order than the model.
TEST(HfExportNames, LeaveOutMatricesWithReorderedRows) {
    const test::TempDir dir;
    const std::string name = "deepseekV3Halves";
    HfGolden(TestData("/families/" + name + ".safetensors")).Write(name, dir.path());
    WriteText(dir / "tokenizer.json", SmallTokenizer());
    const auto source = Open(dir.path());
    const auto names = model_files::hf::FolderNames(*source, "none.");
    ASSERT_TRUE(names.ok()) << names.error().message;
    std::set<std::string> found;
    for (const auto& tensor : *names) found.insert(tensor.from->name);
    for (const char* kept : {"attn_q_a", "attn_output"}) {
        EXPECT_TRUE(found.contains(fmt::format("blk.1.{}.weight", kept))) << kept;
    }
    for (const char* left : {"attn_q_b", "attn_kv_a_mqa"}) {
        EXPECT_FALSE(found.contains(fmt::format("blk.1.{}.weight", left))) << left;
    }
}

// transformers' name for an activation other than silu.
TEST(HfExportConfig, ActivationsRoundTrip) {
    const test::TempDir dir;
    const std::string folder = dir / "hf", gguf = dir / "model.gguf";
    HfGolden(TestData("/families/llamaGelu.safetensors")).Write("llamaGelu", folder);
    WriteText(folder + "/tokenizer.json", SmallTokenizer());
    ASSERT_TRUE(model_files::WriteGguf(*Open(folder), gguf).ok());
    const auto made = model_files::hf::ExportConfig(*Open(gguf), SafeType::kF32);
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_EQ(made->at("hidden_act"), "gelu");
}

// transformers 5.24 checks types: this key is an integer, and others are floats.
TEST(HfExportConfig, NumbersHaveTheTypesOfTransformers) {
    const test::TempDir dir;
    for (const char* name : {"gemma2", "gemma3"}) {
        for (const auto& [scale, expected] :
             {std::pair{1 / 16.0f, 256}, std::pair{1 / std::sqrt(168.0f), 168}}) {
            GoldenCase scaled = CaseOf(name);
            scaled.numbers["attention.scale"] = scale;
            WriteGolden(scaled, dir / "model.gguf");
            const auto made =
                model_files::hf::ExportConfig(*Open(dir / "model.gguf"), SafeType::kF32);
            ASSERT_TRUE(made.ok()) << made.error().message;
            EXPECT_EQ(made->at("query_pre_attn_scalar").dump(), std::to_string(expected));
            EXPECT_TRUE(made->at("rms_norm_eps").is_number_float());
            EXPECT_FALSE(made->at("final_logit_softcapping").is_number_integer());
        }
    }
    // The same from a folder with the older spelling.
    ASSERT_TRUE(model_files::hf::ExportFolder(*Open(dir / "model.gguf"), dir / "hf", {}).ok());
    auto config = ReadJson(dir / "hf/config.json");
    config["query_pre_attn_scalar"] = 168.0;
    WriteText(dir / "hf/config.json", config.dump());
    const auto again = model_files::hf::ExportConfig(*Open(dir / "hf"), SafeType::kF32);
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(again->at("query_pre_attn_scalar").dump(), "168");
    GoldenCase odd = CaseOf("gemma3");
    odd.numbers["attention.scale"] = 0.3;
    WriteGolden(odd, dir / "odd.gguf");
    ExpectRefused(dir / "odd.gguf", "query_pre_attn_scalar");
}

// ---- Tokenizers ---------------------------------------------------------------------------------

// Every tokenizer family on every vocabulary: ids equal those of the GGUF file's tokenizer, except
// where NFC changes the text.
TEST(HfExportTokenizer, IdsAreTheSame) {
    const auto texts = ReadJson(kTokenizers + "texts.json").get<std::vector<std::string>>();
    for (const char* vocabulary : {"gpt-2", "smollm", "llama-bpe", "qwen2"}) {
        for (const char* pre :
             {"gpt-2", "smollm", "llama-bpe", "qwen2", "gpt-4o", "tekken", "glm4", "dbrx"}) {
            SCOPED_TRACE(std::string(vocabulary) + " as " + pre);
            tokenizer::TokenizerData data = DataOf(vocabulary);
            data.pre = pre;
            data.add_bos = data.bos >= 0;
            const auto text = tokenizer::TokenizerJson(data);
            ASSERT_TRUE(text.ok()) << text.error().message;
            const test::TempDir dir;
            WriteText(dir / "tokenizer.json", *text);
            WriteText(dir / "tokenizer_config.json",
                      tokenizer::TokenizerConfigJson(data, "{{ x }}"));
            const auto theirs = tokenizer::OpenTokenizerFolder(dir.path());
            ASSERT_TRUE(theirs.ok()) << theirs.error().message;
            EXPECT_EQ(tokenizer::ReadChatTemplates(dir.path()).value().at("default"), "{{ x }}");
            const auto ours = tokenizer::Tokenizer::Make(data);
            ASSERT_TRUE(ours.ok());
            EXPECT_EQ((*theirs)->data().bos, data.bos);
            EXPECT_EQ((*theirs)->data().eos, data.eos);
            int compared = 0;
            for (const std::string& probe : texts) {
                const bool ascii = std::ranges::all_of(probe, [](char c) { return c >= 0; });
                if (pre == std::string("qwen2") && !ascii) continue;
                ++compared;
                for (const bool special : {false, true}) {
                    const tokenizer::EncodeOptions options{.parse_special = special};
                    EXPECT_EQ((*theirs)->Encode(probe, options), (*ours)->Encode(probe, options))
                        << nlohmann::json(probe);
                }
            }
            EXPECT_GT(compared, 100);
        }
    }
}

// SentencePiece's scores converted to merges.
TEST(HfExportTokenizer, SentencePieceIdsAreTheSame) {
    auto texts = ReadJson(kTokenizers + "texts.json").get<std::vector<std::string>>();
    texts.insert(texts.end(), {"", " ", "  a", "<s>hello</s> world", "a\n b\t", "\xE2\x96\x81x"});
    for (const bool space : {true, false}) {
        for (const bool bos : {true, false}) {
            tokenizer::TokenizerData data = DataOf("spm");
            data.add_space_prefix = space;
            data.add_bos = bos;
            const auto text = tokenizer::TokenizerJson(data);
            ASSERT_TRUE(text.ok()) << text.error().message;
            const test::TempDir dir;
            WriteText(dir / "tokenizer.json", *text);
            WriteText(dir / "tokenizer_config.json", tokenizer::TokenizerConfigJson(data, ""));
            const auto theirs = tokenizer::OpenTokenizerFolder(dir.path());
            ASSERT_TRUE(theirs.ok()) << theirs.error().message;
            const auto ours = tokenizer::Tokenizer::Make(data);
            ASSERT_TRUE(ours.ok());
            for (const std::string& probe : texts) {
                for (const bool special : {false, true}) {
                    const tokenizer::EncodeOptions options{.parse_special = special};
                    const auto ids = (*ours)->Encode(probe, options);
                    EXPECT_EQ((*theirs)->Encode(probe, options), ids) << nlohmann::json(probe);
                    EXPECT_EQ((*theirs)->Decode(ids), (*ours)->Decode(ids));
                }
            }
        }
    }
}

// A file may name a token that is not text: unused tokens may have any bytes.
TEST(HfExportTokenizer, NamedTokensAreTexts) {
    tokenizer::TokenizerData data = DataOf("gpt-2");
    data.tokens.push_back("\xFF");
    data.types.push_back(5);
    EXPECT_TRUE(tokenizer::TokenizerJson(data).ok());
    data.pad = static_cast<int32_t>(data.tokens.size()) - 1;
    const auto text = tokenizer::TokenizerJson(data);
    ASSERT_FALSE(text.ok());
    EXPECT_NE(text.error().message.find("not UTF-8"), std::string::npos) << text.error().message;
}

TEST(HfExportTokenizer, OtherKindsAreRefusedByName) {
    tokenizer::TokenizerData data = tokenizer::TinySpm();
    data.model = "t5";
    EXPECT_NE(tokenizer::TokenizerJson(data).error().message.find("'t5'"), std::string::npos);
    data = tokenizer::TinySpm({"a", "b", "ab", "abc", "c"});
    EXPECT_TRUE(tokenizer::TokenizerJson(data).ok());
    data.types[data.types.size() - 3] = 5;  // "ab" is needed for "abc", but unused
    EXPECT_NE(tokenizer::TokenizerJson(data).error().message.find("unused token"),
              std::string::npos);
    data = tokenizer::TinyBytePair();
    data.pre = "deepseek-v3";
    const auto refused = tokenizer::TokenizerJson(data);
    EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(refused.error().message.find("deepseek-v3"), std::string::npos);
    data = tokenizer::TinyBytePair();
    data.eos = 100'000;
    EXPECT_EQ(tokenizer::TokenizerJson(data).error().code, ErrorCode::kCorrupt);
    data = tokenizer::TinyBytePair();
    data.tokens[3] = data.tokens[4];
    EXPECT_EQ(tokenizer::TokenizerJson(data).error().code, ErrorCode::kCorrupt);
}

// Each family as a GGUF file and as a folder; hf_export_test.py opens the folders in
// WEFT_EXPORT_FOLDER.
TEST(HfExportTokenizer, ForTransformers) {
    const test::TempDir own;
    const char* const wish = std::getenv("WEFT_EXPORT_FOLDER");
    const std::string to = wish == nullptr ? own.path() : wish;
    for (const char* name : {"llama", "llamaTied", "llamaMlpBias", "llamaSpm", "mistral", "qwen2",
                             "qwen2Yarn", "qwen3Tied", "mixtral", "qwen2moe", "qwen3moe", "granite",
                             "olmo2", "olmo3", "smollm3", "phi3Short", "gemma2", "gemma3"}) {
        const std::string path = to + "/" + name;
        WriteModel(name, path + ".gguf");
        const Status done =
            model_files::hf::ExportFolder(*Open(path + ".gguf"), path, {.type = SafeType::kF32});
        ASSERT_TRUE(done.ok()) << done.error().message;
    }
}

}  // namespace
}  // namespace weft::support
