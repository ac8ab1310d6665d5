// Names of an adapter's tensors: those of the model's class in transformers, also of a multimodal
// one.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "model_files/lora/adapter.h"
#include "support/hf_folder.h"
#include "support/hf_quantize.h"
#include "support/read_bytes.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"
#include "train/lora/lora_source.h"
#include "train/pieces.h"

namespace weft::train {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

// A folder of Gemma 3's text model, alone or within the multimodal class.
void WriteGemma(const std::string& folder, bool multimodal) {
    const support::HfGolden golden;
    golden.Write("gemma3", folder);
    support::WriteText(folder + "/tokenizer.json", support::SmallTokenizer());
    if (!multimodal) return;
    Json text = Json::parse(golden.Text("gemma3/config"));
    const Json whole = {{"architectures", {"Gemma3ForConditionalGeneration"}},
                        {"model_type", "gemma3"},
                        {"tie_word_embeddings", text.value("tie_word_embeddings", true)},
                        {"text_config", text}};
    support::WriteText(folder + "/config.json", whole.dump());
}

Status WriteFiles(const model_files::ModelSource& trained, const model_files::LoraPlan& plan,
                  const std::string& folder,
                  model_files::AdapterTask task = model_files::AdapterTask::kText) {
    WEFT_ASSIGN(const auto files, model_files::PlanAdapter(trained, plan, "base", task));
    return model_files::WriteAdapter(trained, files, folder);
}

class AdapterNames : public testing::TestWithParam<bool> {};

TEST_P(AdapterNames, AreThoseOfTheModelsClass) {
    const bool multimodal = GetParam();
    const test::TempDir dir;
    WriteGemma(dir / "base", multimodal);
    model_files::LoraOptions words;
    words.rank = 2;
    words.targets = "q_proj,down_proj";
    auto base = model_files::OpenModel(dir / "base");
    ASSERT_TRUE(base.ok()) << base.error().message;
    auto trained = WithAdapters(*std::move(base), words);
    ASSERT_TRUE(trained.ok()) << trained.error().message;
    const auto plan = model_files::PlanLora(**trained, words);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    const Status written = WriteFiles(**trained, *plan, dir / "adapter");
    ASSERT_TRUE(written.ok()) << written.error().message;

    const std::string tensors = dir / "adapter/adapter_model.safetensors";
    const std::string path = multimodal ? "model.language_model.layers.0." : "model.layers.0.";
    const std::string name = "base_model.model." + path + "self_attn.q_proj.lora_A.weight";
    EXPECT_NE(support::ReadBytes(tensors).find('"' + name + '"'), std::string::npos) << name;
    const Json config = Json::parse(support::ReadBytes(dir / "adapter/adapter_config.json"));
    if (multimodal) {
        EXPECT_EQ(config["target_modules"], R"(model\.language_model\..*\.(down_proj|q_proj))");
    } else {
        EXPECT_EQ(config["target_modules"], (Json{"down_proj", "q_proj"}));
    }

    // transformers loads an adapter of vectors into the model without its head.
    ASSERT_TRUE(
        WriteFiles(**trained, *plan, dir / "vectors", model_files::AdapterTask::kFeatures).ok());
    const std::string inner = "base_model.model." + path.substr(6) + "self_attn.q_proj.lora_A";
    EXPECT_NE(support::ReadBytes(dir / "vectors/adapter_model.safetensors").find('"' + inner),
              inner.npos);
    const Json vectors = Json::parse(support::ReadBytes(dir / "vectors/adapter_config.json"));
    EXPECT_EQ(vectors["task_type"], "FEATURE_EXTRACTION");
    if (multimodal) {
        EXPECT_EQ(vectors["target_modules"], R"(language_model\..*\.(down_proj|q_proj))");
    }
    model_files::LoraOptions of_vectors;
    of_vectors.from = dir / "vectors";
    const auto read = model_files::PlanLora(**trained, of_vectors);
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_TRUE(model_files::AdapterFile::Open(*read).ok());

    // It fits the model with the names of any version of transformers.
    for (const std::string& other :
         {path, std::string("language_model.model.layers.0."), std::string("model.layers.0.")}) {
        // (Blanks keep the length of the header.)
        std::string text = support::ReadBytes(tensors);
        const std::string from = path.substr(0, path.size() - 2),
                          to = other.substr(0, other.size() - 2);
        for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + 1)) {
            if (to.size() > from.size()) break;  // (the header has no space)
            text.replace(at, from.size(), to);
            const size_t end = text.find("\":", at) + 2;
            text.insert(end, from.size() - to.size(), ' ');
        }
        fs::create_directories(std::string(dir / "again"));
        support::WriteText(dir / "again/adapter_model.safetensors", text);
        support::WriteText(dir / "again/adapter_config.json", config.dump());
        model_files::LoraOptions from_file;
        from_file.from = dir / "again";
        const auto again = model_files::PlanLora(**trained, from_file);
        ASSERT_TRUE(again.ok()) << other << again.error().message;
        const auto opened = model_files::AdapterFile::Open(*again);
        EXPECT_TRUE(opened.ok()) << other << opened.error().message;
    }
}

INSTANTIATE_TEST_SUITE_P(Classes, AdapterNames, testing::Bool());

// A checkpoint has B of rank 1 as a matrix, and a vector that a file has as a column as a row.
TEST(AdapterArrays, BOfRankOneIsAMatrix) {
    model_files::TensorInfo tensor;
    tensor.rows = 8;
    tensor.cols = 1;
    tensor.dim_count = 2;
    tensor.name = "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight";
    EXPECT_FALSE(IsVector(tensor));
    EXPECT_EQ(ArrayOf(tensor, "weight").rows, 8);
    tensor.name = "blk.0.ssm_a";
    EXPECT_TRUE(IsVector(tensor));
    EXPECT_EQ(ArrayOf(tensor, "weight").rows, 1);
}

TEST(AdapterFiles, ATensorThatTheModelLacksIsAnError) {
    const test::TempDir dir;
    support::WriteTinyGguf(dir / "tiny.gguf", {.hyper = support::OddHyper()});
    const auto bare = model_files::OpenModel(dir / "tiny.gguf");
    ASSERT_TRUE(bare.ok()) << bare.error().message;
    const model_files::AdapterPlan files = {{{"base_model.of_another.lora_A", "a"}}, "{}"};
    const Status written = model_files::WriteAdapter(**bare, files, dir / "adapter");
    ASSERT_FALSE(written.ok());
    EXPECT_NE(written.error().message.find("of_another"), std::string::npos);
    EXPECT_FALSE(std::filesystem::exists(dir / "adapter/adapter_config.json"));
}

class FamilyAdapterNames : public testing::TestWithParam<std::string> {};

TEST_P(FamilyAdapterNames, AreThoseOfTheFolder) {
    const support::HfGolden golden(support::TestData("/families/" + GetParam() + ".safetensors"));
    const test::TempDir dir;
    golden.Write(GetParam(), dir / "base");
    support::WriteText(dir / "base/tokenizer.json", support::SmallTokenizer());
    model_files::LoraOptions words;
    words.rank = 2;
    // (GPT-2 has a c_proj in attention and one in the MLP.)
    if (GetParam() == "gpt2") words.targets = "attn";
    auto base = model_files::OpenModel(dir / "base");
    ASSERT_TRUE(base.ok()) << base.error().message;
    auto trained = WithAdapters(*std::move(base), words);
    ASSERT_TRUE(trained.ok()) << trained.error().message;
    const auto plan = model_files::PlanLora(**trained, words);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    const Status written = WriteFiles(**trained, *plan, dir / "adapter");
    ASSERT_TRUE(written.ok()) << written.error().message;
    const std::string file = support::ReadBytes(dir / "adapter/adapter_model.safetensors");
    uint64_t length = 0;
    std::memcpy(&length, file.data(), sizeof length);
    const auto tensors = golden.Tensors(GetParam());
    const Json header = Json::parse(file.substr(8, length));
    for (const auto& [name, entry] : header.items()) {
        if (name == "__metadata__") continue;
        const std::string whole = name.substr(17, name.find(".lora_") - 17) + ".weight";
        EXPECT_TRUE(tensors.contains(whole)) << name;
    }
    // Weft reads them again, also modules that the config names whole.
    words.from = dir / "adapter";
    const auto again = model_files::PlanLora(**trained, words);
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(again->targets.size(), plan->targets.size());
    const auto opened = model_files::AdapterFile::Open(*again);
    EXPECT_TRUE(opened.ok()) << opened.error().message;
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyAdapterNames,
                         testing::Values("biogpt", "bloom", "codegen", "dbrx", "exaone", "falcon",
                                         "gpt2", "gptNeo", "gptNeox", "gptj", "mamba2", "mpt",
                                         "opt"));

}  // namespace
}  // namespace weft::train
