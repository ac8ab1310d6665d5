// Tensors in a model's own file with the names of adapter tensors.
#include "model_files/lora/adapted_source.h"

#include <gtest/gtest.h>

#include "model_files/gguf_writer.h"
#include "support/hf_folder.h"
#include "support/temp_dir.h"

namespace weft::model_files {
namespace {

// A model with an F32 matrix ("w", 4 rows of 6), and further matrices: name, rows, columns.
struct Named {
    std::string name;
    int64_t rows, cols;
};

std::unique_ptr<ModelSource> OpenWith(const std::string& path, const std::vector<Named>& more) {
    GgufWriter writer;
    writer.String("general.architecture", "llama");
    std::vector<Named> all = {{"w", 4, 6}};
    all.insert(all.end(), more.begin(), more.end());
    for (const Named& one : all) {
        writer.Tensor(one.name, DType::kF32, std::vector<int64_t>{one.cols, one.rows},
                      std::vector<std::byte>(static_cast<size_t>(one.rows * one.cols) * 4));
    }
    EXPECT_TRUE(WriteFile(path, writer.File()).ok());
    auto opened = OpenModel(path);
    EXPECT_TRUE(opened.ok()) << (opened.ok() ? "" : opened.error().message);
    return std::move(opened).value();
}

TEST(AdaptedSource, TensorNamesOfAFileAreNotAdapters) {
    const test::TempDir dir;
    const std::vector<std::vector<Named>> none = {
        {{"lora.", 1, 1}},
        {{"lora.x", 1, 1}},
        {{"lora.1", 1, 1}},
        {{"lora.1.a", 1, 1}},
        {{"lora.1.a.w", 2, 6}},                        // no B
        {{"lora.1.b.w", 4, 2}},                        // no A
        {{"lora.1.a.v", 2, 6}, {"lora.1.b.v", 4, 2}},  // for no tensor
        {{"lora.1.a.w", 2, 5}, {"lora.1.b.w", 4, 2}},  // other shapes
        {{"lora.1.a.w", 2, 6}, {"lora.1.b.w", 3, 2}},
        {{"lora.1.a.w", 2, 6}, {"lora.1.b.w", 4, 3}},
        {{"lora.0.a.w", 2, 6}, {"lora.0.b.w", 4, 2}},
        {{"lora.01.a.w", 2, 6}, {"lora.01.b.w", 4, 2}},
        {{"lora.257.a.w", 2, 6}, {"lora.257.b.w", 4, 2}},
        {{"lora.1.g.w", 5, 1}},
        {{"lora.1.w.w", 4, 5}},
        {{"lora.1.t.w", 4, 2}},
        {{"lora.1.x.w", 4, 6}},
        {{"lora.99999999999999999999.a.w", 2, 6}}};
    for (const std::vector<Named>& named : none) {
        const auto source = OpenWith(dir / "m.gguf", named);
        EXPECT_TRUE(AdaptedPartsOf(*source).empty()) << named[0].name;
    }
    const auto pair = OpenWith(dir / "m.gguf", {{"lora.3.a.w", 2, 6}, {"lora.3.b.w", 4, 2}});
    const AdaptedParts expected = {{"w", {{3, "ab"}}}};
    EXPECT_EQ(AdaptedPartsOf(*pair), expected);
}

TEST(AdaptedSource, ModelsWithSuchNamesRefuseAdapters) {
    const test::TempDir dir;
    const auto made = AdaptedSource::Make(OpenWith(dir / "m.gguf", {{"lora.1.a.w\n", 2, 6}}), {});
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(made.error().message.find("'lora.1.a.w"), std::string::npos) << made.error().message;
    EXPECT_EQ(made.error().message.find('\n'), std::string::npos);
}

// A zero row of W + s B A has no direction that a length could scale.
TEST(AdaptedSource, DoraOfAZeroRowIsRefused) {
    const test::TempDir dir;
    GgufWriter writer;
    writer.String("general.architecture", "qwen2");
    const std::string matrix = "blk.0.attn_output.weight";
    writer.Tensor(matrix, DType::kF32, std::vector<int64_t>{6, 4}, std::vector<std::byte>(96));
    ASSERT_TRUE(WriteFile(dir / "m.gguf", writer.File()).ok());
    auto model = OpenModel(dir / "m.gguf");
    ASSERT_TRUE(model.ok()) << model.error().message;
    const std::string module = "base_model.model.model.layers.0.self_attn.o_proj";
    const std::map<std::string, support::SafeBytes> tensors = {
        {module + ".lora_A.weight", {"F32", {2, 6}, std::vector<std::byte>(48)}},
        {module + ".lora_B.weight", {"F32", {4, 2}, std::vector<std::byte>(32)}},
        {module + ".lora_magnitude_vector", {"F32", {4}, std::vector<std::byte>(16)}}};
    const std::string folder = dir / "adapter";
    std::filesystem::create_directories(folder);
    ASSERT_TRUE(
        WriteFile(folder + "/adapter_model.safetensors", support::SafetensorsFile(tensors)).ok());
    support::WriteText(folder + "/adapter_config.json",
                       R"({"r": 2, "target_modules": ["o_proj"], "use_dora": true})");
    const NamedAdapter adapter{"zero", folder};
    const auto made = AdaptedSource::Make(std::move(*model), {&adapter, 1});
    ASSERT_TRUE(made.ok()) << made.error().message;
    for (const char part : {'b', 'g'}) {
        const auto values =
            (*made)->ReadFloats(*(*made)->FindTensor(AdaptedTensor(1, part, matrix)));
        ASSERT_FALSE(values.ok());
        EXPECT_EQ(values.error().code, ErrorCode::kCorrupt);
        EXPECT_NE(values.error().message.find("DoRA scales row 0 of " + matrix), std::string::npos)
            << values.error().message;
    }
}

// PEFT puts the module before the end of a name.
TEST(AdaptedSource, TensorsWithoutAModuleAreRefused) {
    for (const std::string start : {"base_model.model.", "", "x.lora__orig_mod.A."}) {
        const test::TempDir dir;
        const std::map<std::string, support::SafeBytes> tensors = {
            {start + "lora_A.weight", {"F32", {2, 6}, std::vector<std::byte>(48)}},
            {start + "lora_B.weight", {"F32", {4, 2}, std::vector<std::byte>(32)}}};
        ASSERT_TRUE(
            WriteFile(dir / "adapter_model.safetensors", support::SafetensorsFile(tensors)).ok());
        support::WriteText(dir / "adapter_config.json", R"({"r": 2, "target_modules": ["w"]})");
        const NamedAdapter adapter{"a", dir.path()};
        const auto made = AdaptedSource::Make(OpenWith(dir / "m.gguf", {}), {&adapter, 1});
        ASSERT_FALSE(made.ok()) << start;
        EXPECT_EQ(made.error().code, ErrorCode::kCorrupt) << made.error().message;
    }
}

// With "bias": "all", PEFT saves the bias of a module of modules_to_save three times.
TEST(AdaptedSource, ABiasOfAWholeModuleIsReadOnce) {
    const test::TempDir dir;
    const std::string layer = "base_model.model.model.layers.0.";
    const support::SafeBytes bias{"F32", {4}, std::vector<std::byte>(16)};
    const std::map<std::string, support::SafeBytes> tensors = {
        {layer + "self_attn.q_proj.lora_A.weight", {"F32", {2, 6}, std::vector<std::byte>(48)}},
        {layer + "self_attn.q_proj.lora_B.weight", {"F32", {4, 2}, std::vector<std::byte>(32)}},
        {layer + "self_attn.k_proj.bias", bias},
        {layer + "self_attn.k_proj.modules_to_save.bias", bias},
        {layer + "self_attn.k_proj.original_module.bias", bias},
        {layer + "block_sparse_moe.gate.weight", {"F32", {2, 2}, std::vector<std::byte>(16)}}};
    ASSERT_TRUE(
        WriteFile(dir / "adapter_model.safetensors", support::SafetensorsFile(tensors)).ok());
    const auto names = ReadAdapterNames(dir.path());
    ASSERT_TRUE(names.ok()) << names.error().message;
    std::vector<std::string> wholes;
    for (const AdapterModule& whole : names->wholes) wholes.push_back(whole.module);
    // (The router has the name that it has in transformers 5.)
    EXPECT_EQ(wholes, (std::vector<std::string>{"model.layers.0.mlp.gate.weight",
                                                "model.layers.0.self_attn.k_proj.bias"}));
}

// If two tensors have the same meaning, it is unknown which one is valid.
TEST(AdaptedSource, TwoTensorsOfOnePlaceAreRefused) {
    const support::SafeBytes matrix{"F32", {2, 6}, std::vector<std::byte>(48)};
    const support::SafeBytes bias{"F32", {4}, std::vector<std::byte>(16)},
        other{"F32", {4}, std::vector<std::byte>(16, std::byte{1})};
    const std::string layer = "base_model.model.model.layers.0.self_attn.";
    const std::map<std::string, support::SafeBytes> pairs[] = {
        {{layer + "q_proj.lora_A.weight", matrix},
         {"model.layers.0.self_attn.q_proj.lora_A.weight", matrix}},
        {{layer + "k_proj.bias", bias}, {layer + "k_proj.modules_to_save.bias", other}}};
    for (const auto& tensors : pairs) {
        const test::TempDir dir;
        ASSERT_TRUE(
            WriteFile(dir / "adapter_model.safetensors", support::SafetensorsFile(tensors)).ok());
        const auto names = ReadAdapterNames(dir.path());
        ASSERT_FALSE(names.ok()) << tensors.begin()->first;
        EXPECT_NE(names.error().message.find("have the same place"), std::string::npos)
            << names.error().message;
    }
}

// A bias of a module that nothing replaces is not dropped.
TEST(AdaptedSource, AReplacedModuleNeedsAReplacement) {
    const test::TempDir dir;
    const std::string layer = "base_model.model.model.layers.0.self_attn.";
    const std::map<std::string, support::SafeBytes> tensors = {
        {layer + "q_proj.lora_A.weight", {"F32", {2, 6}, std::vector<std::byte>(48)}},
        {layer + "q_proj.lora_B.weight", {"F32", {4, 2}, std::vector<std::byte>(32)}},
        {layer + "k_proj.original_module.bias", {"F32", {4}, std::vector<std::byte>(16)}}};
    ASSERT_TRUE(
        WriteFile(dir / "adapter_model.safetensors", support::SafetensorsFile(tensors)).ok());
    const auto names = ReadAdapterNames(dir.path());
    ASSERT_TRUE(names.ok()) << names.error().message;
    EXPECT_EQ(names->wholes.size(), 1u);
}

}  // namespace
}  // namespace weft::model_files
