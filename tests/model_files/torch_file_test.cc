// Files of torch.save (tests/data/lora_golden.bin, made by tools/make_lora_golden.py): the tensors
// are those of the safetensors file; code is refused by name, and broken files never crash.
#include "model_files/hf/torch_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "support/hf_folder.h"
#include "support/read_bytes.h"
#include "support/temp_dir.h"

namespace weft::model_files::hf {
namespace {

class TorchFile : public testing::Test {
  protected:
    void SetUp() override {
        bytes_ = support::ReadBytes(support::TestData("/lora_golden.bin"));
        ASSERT_GT(bytes_.size(), 1000u);
    }
    Result<std::vector<SafeTensor>> Read(const std::string& bytes) {
        support::WriteText(dir_ / "adapter_model.bin", bytes);
        WEFT_ASSIGN(const WeightFile file, WeightFile::Open(dir_ / "adapter_model.bin"));
        return ReadTorchFile(file);
    }
    std::string With(const std::string& from, const std::string& to) const {
        std::string changed = bytes_;
        const size_t at = changed.find(from);
        EXPECT_NE(at, std::string::npos) << from;
        return changed.replace(at, from.size(), to);
    }
    void ExpectRefused(const std::string& bytes, const std::string& word) {
        const auto read = Read(bytes);
        ASSERT_FALSE(read.ok()) << word;
        EXPECT_EQ(read.error().code, ErrorCode::kUnsupported);
        EXPECT_NE(read.error().message.find(word), std::string::npos) << read.error().message;
    }

    test::TempDir dir_;
    std::string bytes_;
};

// A folder without safetensors: one file, or the shards of an index.
TEST_F(TorchFile, IsReadAsAFoldersWeights) {
    const auto read = Read(bytes_);
    ASSERT_TRUE(read.ok()) << read.error().message;
    const auto open = [&](size_t expected) {
        const auto files = TensorFiles::Open(dir_.path());
        if (!files.ok()) ADD_FAILURE() << files.error().message;
        if (!files.ok()) return 0;
        EXPECT_EQ(files->tensors().size(), expected);
        int second = 0;
        for (const SafeTensor& tensor : *read) {
            const SafeTensor* found = files->Find(tensor.name);
            if (found == nullptr) continue;
            EXPECT_EQ(found->offset, tensor.offset);
            EXPECT_EQ(found->shape, tensor.shape);
            second += found->shard;
        }
        return second;
    };
    support::WriteText(dir_ / "pytorch_model.bin", bytes_);
    EXPECT_EQ(open(read->size()), 0);
    std::filesystem::rename(dir_ / "pytorch_model.bin", dir_ / "pytorch_model-1.bin");
    std::filesystem::copy_file(dir_ / "pytorch_model-1.bin", dir_ / "pytorch_model-2.bin");
    nlohmann::json map;
    for (size_t i = 0; i < read->size(); ++i) {
        map[(*read)[i].name] = fmt::format("pytorch_model-{}.bin", i % 2 + 1);
    }
    support::WriteText(dir_ / "pytorch_model.bin.index.json",
                       nlohmann::json{{"weight_map", map}}.dump());
    EXPECT_EQ(open(read->size()), static_cast<int>(read->size() / 2));
    support::WriteTensors(dir_.path(), {{"safe", {"U8", {1}, {std::byte{1}}}}});
    EXPECT_EQ(open(1), 0);  // safetensors come first
}

TEST_F(TorchFile, HasTheTensorsOfTheSafetensorsFile) {
    const support::HfGolden golden(support::TestData("/lora_golden.safetensors"));
    const auto expected = golden.Tensors("layers.adapter");
    const auto read = Read(bytes_);
    ASSERT_TRUE(read.ok()) << read.error().message;
    ASSERT_EQ(read->size(), expected.size());
    for (const SafeTensor& tensor : *read) {
        const support::SafeBytes& other = expected.at(tensor.name);
        EXPECT_EQ(SafeTypeName(tensor.type), other.dtype);
        EXPECT_EQ(tensor.shape, other.shape);
        ASSERT_EQ(tensor.bytes, other.data.size());
        EXPECT_EQ(std::memcmp(bytes_.data() + tensor.offset, other.data.data(), tensor.bytes), 0)
            << tensor.name;
    }
}

TEST_F(TorchFile, NothingIsCalled) {
    // (Names of the same length keep the zip's offsets.)
    ExpectRefused(With("torch._utils\n_rebuild_tensor_v2", "builtins.int\n_rebuild_tensor_v2"),
                  "'builtins.int._rebuild_tensor_v2'");
    ExpectRefused(With("_rebuild_tensor_v2", "_rebuild_tensor_v9"), "_rebuild_tensor_v9");
    ExpectRefused(With("torch\nFloatStorage", "torch\nFloatStoragf"), "FloatStoragf");
    ExpectRefused("not a zip", "PyTorch 1.6");
    std::string big = bytes_;
    big.replace(big.find("little"), 6, "biggie");
    ExpectRefused(big, "big-endian");
}

TEST_F(TorchFile, BrokenFilesAreRefused) {
    for (size_t size = 0; size < bytes_.size(); size += 1 + size / 9) {
        EXPECT_FALSE(Read(bytes_.substr(0, size)).ok()) << size;
    }
    // Any other byte: tensors inside the file, or an error.
    std::mt19937 random(11);
    for (int repeat = 0; repeat < 400; ++repeat) {
        std::string changed = bytes_;
        for (int i = 0; i < 3; ++i) {
            changed[random() % changed.size()] = static_cast<char>(random());
        }
        const auto read = Read(changed);
        if (!read.ok()) {
            EXPECT_FALSE(read.error().message.empty());
            continue;
        }
        for (const SafeTensor& tensor : *read) {
            ASSERT_LE(tensor.offset, changed.size());
            ASSERT_LE(tensor.bytes, changed.size() - tensor.offset);
        }
    }
}

}  // namespace
}  // namespace weft::model_files::hf
