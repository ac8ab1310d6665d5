// Models without weights: a shape made from config.json has the tensors of the folder, by name and
// size. Every family that a test has as a folder is compared.
#include "model/model_shape.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "model_files/hf/folder.h"
#include "support/hf_folder.h"
#include "support/temp_dir.h"

namespace weft::model {
namespace {

using support::HfGolden;

// Elements of each tensor.
std::map<std::string, int64_t> SizesOf(const model_files::ModelSource& source) {
    std::map<std::string, int64_t> sizes;
    for (const model_files::TensorInfo& tensor : source.tensors()) {
        sizes[tensor.name] = tensor.rows * tensor.cols;
    }
    return sizes;
}

// "NAME: 96, folder 0" for each tensor that differs.
std::vector<std::string> Differences(const model_files::ModelSource& shape,
                                     const model_files::ModelSource& folder) {
    const std::map<std::string, int64_t> of_folder = SizesOf(folder);
    std::map<std::string, int64_t> left = SizesOf(shape);
    std::vector<std::string> different;
    for (const auto& [name, size] : of_folder) {
        const auto found = left.find(name);
        const int64_t here = found == left.end() ? 0 : found->second;
        left.erase(name);
        // Only the folder's tensors tell whether a draft head has ends of its own, and only
        // transformers' code names the factors of Mistral Large 4.
        const bool own = name.find(".nextn.embed_tokens") != name.npos ||
                         name.find(".nextn.shared_head_head") != name.npos;
        if (here == 0 && (own || name == "rope_freqs.weight")) continue;
        if (here != size) different.push_back(fmt::format("{}: {}, folder {}", name, here, size));
    }
    for (const auto& [name, size] : left) {
        // Some files have keys and values of layers that read another layer's cache; newer ones of
        // transformers lack them.
        const bool unread = name.find(".attn_k") != name.npos || name.find(".attn_v") != name.npos;
        if (unread && shape.meta().Has("gemma4.attention.shared_kv_layers")) continue;
        different.push_back(fmt::format("{}: {}, folder 0", name, size));
    }
    return different;
}

void ExpectSame(const HfGolden& golden, const std::string& name, bool draft_head) {
    SCOPED_TRACE(name);
    const test::TempDir dir;
    golden.Write(name, dir / "model");
    const auto folder = model_files::hf::OpenFolder(dir / "model");
    ASSERT_TRUE(folder.ok()) << folder.error().message;
    const auto text = ReadTextFile(dir / "model/config.json", 1 << 20);
    ASSERT_TRUE(text.ok());
    const auto shape = ModelShape::Make(*text, "shape", draft_head);
    ASSERT_TRUE(shape.ok()) << shape.error().message;
    EXPECT_EQ(Differences(**shape, **folder), std::vector<std::string>());
}

TEST(ModelShape, HasTheTensorsOfTheFolder) {
    for (const char* folder : {"/families", "/draft_heads"}) {
        for (const std::string& name : support::CasesIn(folder)) {
            const HfGolden golden(
                support::TestData(fmt::format("{}/{}.safetensors", folder, name)));
            ExpectSame(golden, name, std::string_view(folder) == "/draft_heads");
        }
    }
    const HfGolden golden;
    for (const std::string& name : golden.Cases()) ExpectSame(golden, name, false);
}

}  // namespace
}  // namespace weft::model
