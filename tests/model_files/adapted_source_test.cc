// Tensors in a model's own file with the names of adapter tensors.
#include "model_files/lora/adapted_source.h"

#include <gtest/gtest.h>

#include "model_files/gguf_writer.h"
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
        {{"lora.99999999999999999999.a.w", 2, 6}}};
    for (const std::vector<Named>& named : none) {
        const auto source = OpenWith(dir / "m.gguf", named);
        EXPECT_TRUE(AdaptersByTensor(*source).empty()) << named[0].name;
    }
    const auto pair = OpenWith(dir / "m.gguf", {{"lora.3.a.w", 2, 6}, {"lora.3.b.w", 4, 2}});
    const std::map<std::string, std::vector<int32_t>> expected = {{"w", {3}}};
    EXPECT_EQ(AdaptersByTensor(*pair), expected);
}

TEST(AdaptedSource, ModelsWithSuchNamesRefuseAdapters) {
    const test::TempDir dir;
    const auto made = AdaptedSource::Make(OpenWith(dir / "m.gguf", {{"lora.1.a.w\n", 2, 6}}), {});
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(made.error().message.find("'lora.1.a.w"), std::string::npos) << made.error().message;
    EXPECT_EQ(made.error().message.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace weft::model_files
